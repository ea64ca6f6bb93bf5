#!/usr/bin/env bash
# Queues of language models in front of a real llama-server (swaps, evictions, kills), then 150 requests beside two kills of each of
# what serves them. `make bench NAME=e2e-llm` calls it with the program that kills.
set -euo pipefail
cd "$(dirname "$0")/.."
INFERPLAN_LLM=1 go test -count=1 -timeout 6m -v -run TestLlama ./executor | grep -v '^=== '
exec "$1" -requests 150 -kills 2
