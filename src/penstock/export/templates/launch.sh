#!/bin/sh
# Starts the ranks of one host, as ranks.csv lists them, and ends all when one fails.
# Usage: MASTER_ADDR=host0 MASTER_PORT=29500 sh launch.sh HOST PROGRAM [ARGUMENT ...]
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 2 ] || [ -z "${MASTER_ADDR:-}" ] || [ -z "${MASTER_PORT:-}" ]; then
  echo "usage: MASTER_ADDR=host0 MASTER_PORT=29500 sh launch.sh HOST PROGRAM [ARGUMENT ...]" >&2
  exit 2
fi
host=$1
shift
ranks=$(awk -F, -v host="$host" 'NR > 1 && $2 == host { print $1 ":" $3 }' "$folder/ranks.csv")
if [ -z "$ranks" ]; then
  echo "error: ranks.csv has no rank on host '$host'" >&2
  exit 2
fi
WORLD_SIZE=$(awk 'NR > 1' "$folder/ranks.csv" | wc -l | tr -d ' ')
LOCAL_WORLD_SIZE=$(echo "$ranks" | wc -l | tr -d ' ')
export WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

pids=
trap 'kill $pids 2>/dev/null || true' EXIT
trap 'exit 1' TERM
trap 'exit 130' INT
for entry in $ranks; do
  (
    RANK=${entry%%:*} LOCAL_RANK=${entry##*:} "$@" &
    child=$!
    trap 'kill "$child" 2>/dev/null || true' TERM
    wait "$child" || {
      echo "rank ${entry%%:*} failed with exit code $?" >&2
      kill -TERM $$ 2>/dev/null || true # the other ranks would wait for this one
      exit 1
    }
  ) &
  pids="$pids $!"
done
wait
