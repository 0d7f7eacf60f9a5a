#!/bin/sh
# The main job, end to end. First on this computer, with real training: what a model costs, a plan, training by the plan
# and in one process, predicted against measured. Then a plan for machines that are not here.
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
run penstock profile examples/gpt.py:make_model --micro-batch-size 2,4 --threads 1 --beside 1 --seconds 20 -o "$out/gpt.json"
run penstock cluster probe --local 2 -o "$out/this-machine.toml"
# A model this small fits on every device, and two copies of it are about as fast as a pipeline: what is shown is the latter.
run penstock plan --no-replication --profile "$out/gpt.json" --cluster "$out/this-machine.toml" -m 8 -o "$out/plan.json"
run penstock train examples/gpt.py --plan "$out/plan.json" --steps 30 --threads 1 --also-single-process \
  -o "$out/measured.json" --trace "$out/measured-trace.json"
run penstock report -q "$out/measured.json" -o "$out/measured.html"

printf '\n%sPart 2: a plan for GPT-2 XL on two hosts of four A100s, computed without them%s\n' "$bold" "$plain"
run penstock plan --profile gpt2-xl --micro-batch-size 4 --cluster examples/clusters/two-hosts.toml -m 16 -o "$out/gpt2-xl-plan.json"
run penstock simulate "$out/gpt2-xl-plan.json" --schedule 1f1b --trace "$out/gpt2-xl-trace.json"
run penstock report -q "$out/gpt2-xl-plan.json" -o "$out/gpt2-xl.html"
printf '\nOpen %s and %s in a browser: they show both.\n' "$out/measured.html" "$out/gpt2-xl.html"
printf 'To go on with commands like these: . .venv/bin/activate\n'
