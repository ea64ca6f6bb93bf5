#!/usr/bin/env bash
# Makes dist/inferplan-linux-amd64: plan with HiGHS and libstdc++ linked in (glibc stays dynamic, as ONNX Runtime is
# opened at run time), libonnxruntime.so.1 beside it, licences, a README and a Containerfile. Called by `make dist`.
set -euo pipefail
cd "$(dirname "$0")/../.."
. third_party/lib.sh
. third_party/versions.sh

name=inferplan-linux-amd64
[ "$(uname -sm)" = "Linux x86_64" ] || fail "make dist makes $name and runs on Linux x86_64"
out=dist/$name.part
rm -rf "$out" && mkdir -p "$out/licenses"

say "building plan"
"${GO:-go}" build -trimpath -ldflags '-s -w -linkmode external -extldflags "-static-libstdc++ -static-libgcc"' -o "$out/plan" ./cmd/plan
if ldd "$out/plan" | grep -E 'libstdc\+\+|libgcc_s|libhighs'; then
  fail "plan still needs the libraries above at run time"
fi

install -m 644 "$ORT_LIB" "$out/libonnxruntime.so.1"
if [ "${CUDA:-0}" = 1 ]; then
  for so in third_party/ort/lib/libonnxruntime_providers_*.so; do install -m 644 "$so" "$out/"; done
  if [ -n "${SM:-}" ]; then
    say "keeping the kernels for sm_$SM"
    "${GO:-go}" run ./third_party/trimfatbin -keep "$SM" "$out/libonnxruntime_providers_cuda.so"
  fi
fi

cp third_party/dist/README.md third_party/dist/Containerfile "$out/"
cp third_party/licenses/* "$out/licenses/"
if [ -f third_party/highs/prefix/LICENSE.txt ]; then cp third_party/highs/prefix/LICENSE.txt "$out/licenses/HiGHS.txt"; fi
# The licences of what is linked in: Go's own library and the modules.
install -m 644 "$("${GO:-go}" env GOROOT)/LICENSE" "$out/licenses/Go.txt"
"${GO:-go}" list -deps -f '{{with .Module}}{{if .Dir}}{{.Path}}|{{.Dir}}{{end}}{{end}}' ./cmd/plan | sort -u |
  while IFS='|' read -r path dir; do
    for f in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING* "$dir"/NOTICE*; do
      if [ -f "$f" ] && [ "$dir" != "$PWD" ]; then install -m 644 "$f" "$out/licenses/${path//\//_}.$(basename "$f")"; fi
    done
  done
for f in LICENSE LICENSE.txt LICENSE.md; do if [ -f "$f" ]; then cp "$f" "$out/"; fi; done

"$out/plan" version >/dev/null || fail "the built plan does not run"
rm -rf "dist/$name" && mv "$out" "dist/$name"
(cd "dist/$name" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum > SHA256SUMS)
say "dist/$name: $(du -sh "dist/$name" | cut -f1)"
