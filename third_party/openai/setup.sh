#!/usr/bin/env bash
# Fetches the OpenAI clients for make bench NAME=openai: npm openai here, Go openai-go into the module cache. Lock and go.sum pin them.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
locked 7 openai
command -v npm >/dev/null || fail "npm is missing (apt-get install npm)"
if [ ! -d node_modules/openai ] || ! cmp -s package-lock.json node_modules/.of-lock; then
  say "downloading OpenAI's client (npm, 8 MB)"
  retry 3 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || fail "npm ci in third_party/openai did not succeed"
  cp package-lock.json node_modules/.of-lock
fi
(cd go && retry 3 go mod download) || fail "go mod download in third_party/openai/go did not succeed"
