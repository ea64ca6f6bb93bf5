#!/usr/bin/env bash
# A chat, end to end, on this machine: measure a running llama-server, solve for the rates that
# keep the SLOs on first tokens and on the time per token, simulate, serve, drive the server with
# the same requests, and print what was promised against what was measured. `make bench NAME=chat` calls it.
# CHAT_LOAD, CHAT_DURATION, CHAT_BUDGET, CHAT_PORT and CHAT_DIR change what is done.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
. "$root/scripts/ready.sh"
example=$root/examples/chat
llama=$root/third_party/llama
dir=${CHAT_DIR:-$root/demo/chat}
load=${CHAT_LOAD:-0.8}
duration=${CHAT_DURATION:-60s}
budget=${CHAT_BUDGET:-45s}
port=${CHAT_PORT:-18090}
model=small
language='' server=''
# The language model's server runs each model in a process of its own, so its whole group ends.
end() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  [ -z "$language" ] || kill -- -"$language" 2>/dev/null || true
}
trap end EXIT

step() { printf '\n== %s\n$ %s\n' "$1" "$2"; }

[ -x "$llama/llama-server" ] || { echo "third_party/llama has no llama-server: run make llama" >&2; exit 5; }
mkdir -p "$dir/models"
cd "$dir"
rm -f profile.json profile.points.jsonl plan.json promised.json measured.json
ln -sf "$llama/models/$model.gguf" models/

read -r average _ < /proc/loadavg || average=unknown
echo "load average before the start: $average"

step "A server of a small language model, with four slots on one core" "llama-server --models-dir models -np 4 -t 1"
set -m
"$llama/llama-server" --host 127.0.0.1 --port $((port + 3)) --models-dir models --models-max 1 -t 1 -np 4 -fa off --metrics >llama.log 2>&1 & language=$!
set +m
url=http://127.0.0.1:$((port + 3))
wait_ready 127.0.0.1 $((port + 3)) "$language" /health || { tail -n 5 llama.log >&2; exit 5; }

step "What prompts and tokens cost there" "plan profile --llm $url --model $model --device cpu-1 --budget $budget"
"$plan" profile --llm "$url" --model "$model" --device cpu-1 --budget "$budget"

step "The highest rates that keep the SLOs" "plan solve --cluster cluster.yaml --workload workload.yaml --objective throughput"
"$plan" solve --cluster "$example/cluster.yaml" --workload "$example/workload.yaml" --objective throughput -o plan.json

arrivals=(--load "$load" --duration "$duration" --warmup 5s)
step "What the simulator promises at $load times these rates" "plan simulate plan.json ${arrivals[*]} -o promised.json"
"$plan" simulate plan.json "${arrivals[@]}" -o promised.json

step "One queue in front of the server" "plan serve plan.json --server $url &"
"$plan" serve plan.json --server "$url" --http "127.0.0.1:$port" --metrics "127.0.0.1:$((port + 2))" & server=$!
wait_ready 127.0.0.1 "$port" "$server" /health

step "Driven with the same requests" "plan load http://127.0.0.1:$port --plan plan.json ${arrivals[*]} -o measured.json"
"$plan" load "http://127.0.0.1:$port" --plan plan.json "${arrivals[@]}" -o measured.json

step "Promised and measured" "plan report promised.json measured.json"
"$plan" report promised.json measured.json
