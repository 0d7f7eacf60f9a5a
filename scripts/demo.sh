#!/bin/sh
# The main job, end to end: what a model costs, what a cluster is, a plan, its proof, its timeline, the comparison.
set -eu
out=demo-output
mkdir -p "$out"

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi
say() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }
run() { say "$@"; "$@"; }

run penstock profile gpt2-xl --kind A100-40 --rows 4 -o "$out/gpt2-xl.json"
run penstock cluster examples/clusters/two-hosts.toml
run penstock plan --profile "$out/gpt2-xl.json" --cluster examples/clusters/two-hosts.toml -m 16 -o "$out/plan.json"
run penstock check "$out/plan.json"
run penstock simulate "$out/plan.json" --schedule 1f1b -o "$out/timeline.json" --trace "$out/trace.json"
run penstock compare --profile "$out/gpt2-xl.json" --cluster examples/clusters/two-hosts.toml -m 16
