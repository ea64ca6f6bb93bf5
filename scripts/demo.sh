#!/usr/bin/env bash
# The main job, end to end, on this machine: profile three real models, solve for an SLO,
# simulate, serve, drive the server at the stated rate, and print what was promised against
# what was measured on the same arrivals. `make demo` calls it.
# DEMO_BATCHES, DEMO_SLO, DEMO_LOAD, DEMO_DURATION, DEMO_MODELS, DEMO_PORT and DEMO_DIR
# change what is done. DEMO_BUSY=1 keeps one other process busy from the profile to the end.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
. "$root/scripts/ready.sh"
dir=${DEMO_DIR:-$root/demo}
slo=${DEMO_SLO:-1s}
load=${DEMO_LOAD:-1}
duration=${DEMO_DURATION:-60s}
batches=${DEMO_BATCHES:-1,2,4}
models=${DEMO_MODELS:-squeezenet shufflenet resnet50}
port=${DEMO_PORT:-18080}
server='' busy=''
end() { for pid in $server $busy; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done; }
trap end EXIT

step() { printf '\n== %s\n$ %s\n' "$1" "$2"; }

mkdir -p "$dir"
cd "$dir"
rm -f plan.json promised.json measured.json service.json replayed.json

read -r average _ < /proc/loadavg || average=unknown
echo "load average before the start: $average"
if [ -n "${DEMO_BUSY:-}" ]; then
  (while :; do :; done) & busy=$!
  echo "beside one process that is always busy"
fi

step "The models: published architectures with seeded weights" "plan models write $models"
# shellcheck disable=SC2086  # a list of names
"$plan" models write $models --dir models

step "What every block costs here" "plan profile --batches $batches --blocks 10 --budget 90s"
"$plan" profile --batches "$batches" --blocks 10 --budget 90s

step "The best deployment for this machine" "plan solve --slo $slo"
"$plan" solve --slo "$slo" -o plan.json

arrivals=(--load "$load" --duration "$duration" --warmup 2s)
step "What the simulator promises at $load times the stated rate" "plan simulate plan.json ${arrivals[*]} -o promised.json"
"$plan" simulate plan.json "${arrivals[@]}" -o promised.json

step "The deployment, running" "plan serve plan.json --http 127.0.0.1:$port &"
"$plan" serve plan.json --http "127.0.0.1:$port" --grpc "127.0.0.1:$((port + 1))" --metrics "127.0.0.1:$((port + 2))" --record service.json & server=$!
wait_ready 127.0.0.1 "$port" "$server"

step "Driven with the same arrivals" "plan load http://127.0.0.1:$port --plan plan.json ${arrivals[*]} -o measured.json"
"$plan" load "http://127.0.0.1:$port" --plan plan.json "${arrivals[@]}" -o measured.json

kill -TERM "$server"
wait "$server" || true
server=''

step "The same arrivals in virtual time, with the service times just recorded" "plan simulate plan.json ${arrivals[*]} --service service.json -o replayed.json"
"$plan" simulate plan.json "${arrivals[@]}" --service service.json -o replayed.json -q >/dev/null

step "Promised (the profile's times), replayed (recorded times), measured: the same arrivals" "plan report promised.json replayed.json measured.json"
"$plan" report promised.json replayed.json measured.json
