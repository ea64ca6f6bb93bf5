#!/usr/bin/env bash
# Fetches a headless Chromium and its driver for make bench NAME=page, from npm. Lock pins them. The browser is unpacked into unpacked/
# when it is started first, with the libraries that a bare machine lacks. No root.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
locked 7 chromium
command -v npm >/dev/null || fail "npm is missing (apt-get install npm)"
if [ ! -d node_modules/puppeteer-core ] || ! cmp -s package-lock.json node_modules/.of-lock; then
  say "downloading headless Chromium (npm, 70 MB)"
  retry 3 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || fail "npm ci in third_party/chromium did not succeed"
  rm -rf unpacked
  cp package-lock.json node_modules/.of-lock
fi
mkdir -p unpacked
