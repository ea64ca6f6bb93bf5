#!/usr/bin/env bash
# Retrieval-augmented generation, end to end, on this machine: an embedder by ONNX Runtime, the
# nearest passages of a file, and a generator on a running llama-server. Both are measured and
# planned, and the application is simulated, served and driven with the same requests; what was
# promised is printed against what was measured. `make bench NAME=rag` calls it.
# RAG_LOAD, RAG_DURATION, RAG_BUDGET, RAG_PORT and RAG_DIR change what is done.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
. "$root/scripts/ready.sh"
example=$root/examples/rag
llama=$root/third_party/llama
dir=${RAG_DIR:-$root/demo/rag}
load=${RAG_LOAD:-0.8}
duration=${RAG_DURATION:-60s}
budget=${RAG_BUDGET:-45s}
port=${RAG_PORT:-18110}
model=tiny-a
language='' server=''
# The language model's server runs each model in a process of its own, so its whole group ends.
end() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }
  [ -z "$language" ] || kill -- -"$language" 2>/dev/null || true
}
trap end EXIT

step() { printf '\n== %s\n$ %s\n' "$1" "$2"; }

[ -x "$llama/llama-server" ] || { echo "third_party/llama has no llama-server: run make llama" >&2; exit 5; }
mkdir -p "$dir/models" "$dir/llama"
cd "$dir"
rm -f profile.json profile.points.jsonl plan.json promised.json measured.json service.json replayed.json
ln -sf "$llama/models/$model.gguf" llama/

read -r average _ < /proc/loadavg || average=unknown
echo "load average before the start: $average"

step "An embedder, and the passages with their vectors" "plan models write embedder; plan models vectors passages.txt"
"$plan" models write embedder --dir models
"$plan" models vectors "$example/passages.txt"

step "A server of a small language model, with four slots on one core and no cache of prompts" "llama-server --models-dir llama -np 4 -t 1 --no-cache-prompt"
set -m
"$llama/llama-server" --host 127.0.0.1 --port $((port + 3)) --models-dir llama --models-max 1 -t 1 -np 4 -fa off --no-cache-prompt --metrics >llama.log 2>&1 & language=$!
set +m
url=http://127.0.0.1:$((port + 3))
wait_ready 127.0.0.1 $((port + 3)) "$language" /health || { tail -n 5 llama.log >&2; exit 5; }

step "What a vector costs here" "plan profile models/embedder.onnx --budget 20s"
"$plan" profile models/embedder.onnx --budget 20s

step "What prompts and tokens cost there" "plan profile --llm $url --model $model --device llama --budget $budget"
"$plan" profile --llm "$url" --model "$model" --device llama --budget "$budget"

step "The highest rate that keeps the SLO" "plan solve --cluster cluster.yaml --workload workload.yaml"
"$plan" solve --cluster "$example/cluster.yaml" --workload "$example/workload.yaml" -o plan.json

arrivals=(--load "$load" --duration "$duration" --warmup 5s)
step "What the simulator promises at $load times this rate" "plan simulate plan.json ${arrivals[*]} -o promised.json"
"$plan" simulate plan.json "${arrivals[@]}" -o promised.json

step "The application, running" "plan serve plan.json --server $url &"
"$plan" serve plan.json --server "$url" --http "127.0.0.1:$port" --grpc "127.0.0.1:$((port + 1))" --metrics "127.0.0.1:$((port + 2))" --record service.json & server=$!
wait_ready 127.0.0.1 "$port" "$server"

question=$(head -n 1 "$example/questions.txt")
step "A question, whose answer comes in pieces" "curl -N http://127.0.0.1:$port/v2/models/ask/generate_stream -d '{\"text_input\": \"$question\"}'"
curl -sSN "http://127.0.0.1:$port/v2/models/ask/generate_stream" -H 'Content-Type: application/json' -d "{\"text_input\": \"$question\"}" | tail -n 4

step "Driven with the same arrivals" "plan load http://127.0.0.1:$port --plan plan.json --inputs questions.txt ${arrivals[*]} -o measured.json"
"$plan" load "http://127.0.0.1:$port" --plan plan.json --inputs "$example/questions.txt" "${arrivals[@]}" -o measured.json

kill -TERM "$server"
wait "$server" || true
server=''

step "Promised and measured" "plan report promised.json measured.json"
"$plan" report promised.json measured.json
