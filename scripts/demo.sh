#!/bin/sh
# The main job, end to end. Part 1 trains on this computer: profile, plan, training by the plan and in a single process,
# predicted against measured. Part 2 plans for a cluster without having it.
set -eu
out=demo-output
mkdir -p "$out"

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi
say() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }
run() { say "$@"; "$@"; }

printf '%sPart 1: a small GPT on two processes of this computer%s\n' "$bold" "$plain"
run penstock profile examples/gpt.py:make_model -b 2,4 --threads 1 --busy-processes 1 --seconds 20 \
  -o "$out/gpt.json"
run penstock cluster probe --local 2 -o "$out/this-machine.toml"
# A model this small fits on every device, and two replicas are about as fast as a pipeline. The demo shows a pipeline.
run penstock plan --no-replication --profile "$out/gpt.json" --cluster "$out/this-machine.toml" \
  -m 8 -o "$out/plan.json"
run penstock train examples/gpt.py --plan "$out/plan.json" --steps 30 --threads 1 --also-single-process \
  -o "$out/measured.json" --trace "$out/measured-trace.json"
run penstock report -q "$out/measured.json" -o "$out/measured.html"

printf '\n%sPart 2: a plan for GPT-2 XL on two hosts with four A100s each, computed from data sheets%s\n' "$bold" "$plain"
run penstock plan --profile gpt2-xl -b 4 --cluster examples/clusters/two-hosts.toml -m 16 \
  -o "$out/gpt2-xl-plan.json"
run penstock simulate "$out/gpt2-xl-plan.json" --schedule 1f1b --trace "$out/gpt2-xl-trace.json"
run penstock report -q "$out/gpt2-xl-plan.json" -o "$out/gpt2-xl.html"
printf '\nOpen %s and %s in a browser.\n' "$out/measured.html" "$out/gpt2-xl.html"
printf 'To run such commands yourself: . .venv/bin/activate\n'
