#!/usr/bin/env bash
# Puts ONNX Runtime at third_party/ort/lib/libonnxruntime.so.1 and its C headers at third_party/ort/include.
#   library   INFERPLAN_ORT_LIB=FILE, else the npm package onnxruntime-node (its core can load the CUDA provider)
#   headers   from a Go module that carries them
#   CUDA=1    adds the provider libraries for CUDA and TensorRT beside the library (179 MB)
set -euo pipefail
cd "$(dirname "$0")"
. ../lib.sh
. ../versions.sh
locked 8 ort
mkdir -p lib include

# The library. A path to our own copy is no choice of the user's.
lib=lib/libonnxruntime.so.1
if [ -n "${INFERPLAN_ORT_LIB:-}" ] && [ "$(realpath -ms "$INFERPLAN_ORT_LIB")" != "$PWD/$lib" ]; then
  [ -f "$INFERPLAN_ORT_LIB" ] || fail "INFERPLAN_ORT_LIB=$INFERPLAN_ORT_LIB: no such file"
  rm -f "$lib" && ln -s "$(readlink -f "$INFERPLAN_ORT_LIB")" "$lib"
  say "ONNX Runtime from INFERPLAN_ORT_LIB"
elif [ -L "$lib" ] || ! has_sha256 "$lib" "$ORT_LIB_SHA256"; then
  [ "$(uname -sm)" = "Linux x86_64" ] || fail "the npm library of ONNX Runtime is for Linux x86_64; set INFERPLAN_ORT_LIB on this machine"
  command -v npm >/dev/null || fail "npm is missing (apt-get install npm), or set INFERPLAN_ORT_LIB to a libonnxruntime.so of version $ORT_VERSION"
  say "downloading ONNX Runtime $ORT_VERSION (npm, about 110 MB)"
  # Install scripts stay off: the package's own would fetch CUDA files from elsewhere.
  retry 3 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2 ||
    fail "npm ci in third_party/ort did not succeed; run make setup again, or set INFERPLAN_ORT_LIB"
  so=node_modules/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1
  has_sha256 "$so" "$ORT_LIB_SHA256" || fail "third_party/ort/$so is missing or its sha256 is not $ORT_LIB_SHA256"
  rm -f "$lib"
  cp "$so" "$lib.part" && mv "$lib.part" "$lib"
  rm -rf node_modules
  say "ONNX Runtime $ORT_VERSION in place"
fi

# The headers.
if ! has_sha256 include/onnxruntime_c_api.h "$ORT_C_API_SHA256" || ! has_sha256 include/onnxruntime_ep_c_api.h "$ORT_EP_C_API_SHA256"; then
  command -v go >/dev/null || fail "go is missing"
  scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
  dir=$(cd "$scratch" && retry 3 env GOFLAGS= GOWORK=off go mod download -json "$ORT_HEADERS_MODULE" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
  [ -n "$dir" ] || fail "go mod download $ORT_HEADERS_MODULE (the C headers of ONNX Runtime) did not succeed; run make setup again"
  for h in onnxruntime_c_api.h onnxruntime_ep_c_api.h; do
    install -m 644 "$dir/$h" "include/$h.part" && mv "include/$h.part" "include/$h"
  done
  has_sha256 include/onnxruntime_c_api.h "$ORT_C_API_SHA256" || fail "onnxruntime_c_api.h: its sha256 is not $ORT_C_API_SHA256"
  has_sha256 include/onnxruntime_ep_c_api.h "$ORT_EP_C_API_SHA256" || fail "onnxruntime_ep_c_api.h: its sha256 is not $ORT_EP_C_API_SHA256"
fi

# The CUDA and TensorRT providers, on request. They must lie beside the library.
if [ "${CUDA:-0}" = 1 ] && [ ! -f lib/.cuda-"${CUDA_PACKAGE##*@}" ]; then
  [ -L "$lib" ] && fail "CUDA=1 needs the npm library: unset INFERPLAN_ORT_LIB, or lay the provider libraries beside your own"
  tgz=$CACHE/ort-cuda-${CUDA_PACKAGE##*@}.tgz
  if ! has_sha512 "$tgz" "$CUDA_SHA512"; then
    say "downloading the CUDA provider (npm, 179 MB)"
    rm -rf "$CACHE/pack" && mkdir -p "$CACHE/pack"
    retry 3 npm pack "$CUDA_PACKAGE" --ignore-scripts --loglevel=error --pack-destination "$CACHE/pack" >&2 ||
      fail "npm pack $CUDA_PACKAGE did not succeed; run make setup CUDA=1 again"
    mv "$CACHE"/pack/*.tgz "$tgz" && rmdir "$CACHE/pack"
    has_sha512 "$tgz" "$CUDA_SHA512" || fail "$tgz: its sha512 is not the one pinned in third_party/versions.sh"
  fi
  scratch=$(mktemp -d "$CACHE/cuda.XXXXXX")
  tar --no-same-owner -C "$scratch" -xzf "$tgz" --wildcards '*/libonnxruntime_providers_*.so'
  find "$scratch" -name 'libonnxruntime_providers_*.so' -exec mv {} lib/ \;
  rm -rf "$scratch"
  [ -f lib/libonnxruntime_providers_cuda.so ] || fail "the package $CUDA_PACKAGE holds no libonnxruntime_providers_cuda.so"
  touch lib/.cuda-"${CUDA_PACKAGE##*@}"
  say "CUDA provider in place"
fi
