#!/bin/sh
# Redraws the pictures of the README and docs/report.md with the report's drawing code: picture.sh FOLDER-WITH-PROGRAMS
# Four ways to train gpt2-xl on two hosts of four, one above the other on one axis.
set -eu
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
set --
for way in uniform+1f1b balanced+zb_h1 balanced+zb_v auto+auto; do
  "$bin/penstock" plan -q --profile gpt2-xl --micro-batch-size 4 --cluster examples/clusters/two-hosts.toml -m 16 \
    --planner "${way%+*}" --schedule "${way#*+}" -o "$folder/${way%+*} + ${way#*+}.json"
  set -- "$@" "$folder/${way%+*} + ${way#*+}.json"
done
"$bin/penstock" report -q "$@" -o "$folder/report.html"
node scripts/picture.mjs "$folder/report.html" > docs/images/timelines.svg
echo "wrote docs/images/timelines.svg"
"$bin/python" scripts/screenshots.py "$folder/report.html"
