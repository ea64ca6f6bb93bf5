#!/usr/bin/env bash
# The main job, end to end, on this machine: profile three real models, solve
# for an SLO, simulate, serve, drive the server at the planned rate,
# and print what was promised against what was measured. `make demo` calls it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
. "$root/scripts/ready.sh"
dir=${DEMO_DIR:-$root/demo}
slo=${DEMO_SLO:-1s}
load=${DEMO_LOAD:-1}
duration=${DEMO_DURATION:-20s}
models=${DEMO_MODELS:-squeezenet shufflenet resnet50}
port=${DEMO_PORT:-18080}

step() { printf '\n== %s\n$ %s\n' "$1" "$2"; }

mkdir -p "$dir"
cd "$dir"
rm -f plan.json promised.json measured.json service.json simulated.json

step "The models: published architectures with seeded weights" "plan models write $models"
# shellcheck disable=SC2086  # a list of names
"$plan" models write $models --dir models

step "What every block costs here" "plan profile --batches 1,2,4 --blocks 10 --budget 90s"
"$plan" profile --batches 1,2,4 --blocks 10 --budget 90s

step "The best deployment for this machine" "plan solve --slo $slo"
"$plan" solve --slo "$slo" -o plan.json

step "What the simulator promises at $load times the planned rate" "plan simulate plan.json --load $load --duration $duration --runs 5 -o promised.json"
"$plan" simulate plan.json --load "$load" --duration "$duration" --runs 5 -o promised.json

step "The deployment, running" "plan serve plan.json --http 127.0.0.1:$port &"
"$plan" serve plan.json --http "127.0.0.1:$port" --grpc "127.0.0.1:$((port + 1))" --metrics "127.0.0.1:$((port + 2))" --record service.json &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
wait_ready 127.0.0.1 "$port" "$server"

step "Driven at $load times the planned rate" "plan load http://127.0.0.1:$port --plan plan.json --load $load --duration $duration -o measured.json"
"$plan" load "http://127.0.0.1:$port" --plan plan.json --load "$load" --duration "$duration" --warmup 2s -o measured.json

kill -TERM "$server"
wait "$server" || true
trap - EXIT

step "The same arrivals in virtual time, with the service times just recorded" "plan simulate plan.json --load $load --service service.json -o simulated.json"
"$plan" simulate plan.json --load "$load" --duration "$duration" --warmup 2s --service service.json -o simulated.json -q >/dev/null

step "Promised against measured" "plan report promised.json simulated.json measured.json"
"$plan" report promised.json simulated.json measured.json
