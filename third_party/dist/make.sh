#!/usr/bin/env bash
# Makes dist/inferplan-linux-amd64: plan with HiGHS and libstdc++ linked in (glibc stays dynamic, as ONNX Runtime is
# opened at run time), libonnxruntime.so.1 beside it, man pages, licences, a README and a Containerfile, and an archive of it.
# Called by `make dist`.
#   CUDA=1   adds the CUDA provider, the check of a GPU (gpu-check.sh) with the models it runs; its archive is packed by xz
#   SM=90    keeps the provider's kernels for that architecture only, and not those of language models
#   FULL=1   with SM: keeps the kernels of language models, too, and leaves the OCR models out, to stay below 64 MiB
set -euo pipefail
cd "$(dirname "$0")/../.."
. third_party/lib.sh
. third_party/versions.sh
ORT_LIB=${INFERPLAN_ORT_LIB:-$PWD/third_party/ort/lib/libonnxruntime.so.1}

name=inferplan-linux-amd64
[ "$(uname -sm)" = "Linux x86_64" ] || fail "make dist makes $name and runs on Linux x86_64"
[ "${CUDA:-0}" != 1 ] || name=$name-cuda${SM:+-sm$SM}
out=dist/$name.part
rm -rf "$out" && mkdir -p "$out/licenses"

say "building plan"
go build -trimpath -tags minimal -ldflags '-s -w -linkmode external -extldflags "-static-libstdc++ -static-libgcc"' -o "$out/plan" ./cmd/plan
if ldd "$out/plan" | grep -E 'libstdc\+\+|libgcc_s|libhighs'; then
  fail "plan still needs the libraries above at run time"
fi

mkdir "$out/man"
go test -vet=off -count=1 ./cmd/plan -run '^TestManPages$' -man-dir "$PWD/$out/man" >/dev/null || fail "the man pages were not written"

install -m 644 "$ORT_LIB" "$out/libonnxruntime.so.1"
if [ "${CUDA:-0}" = 1 ]; then
  for so in shared cuda; do install -m 644 "third_party/ort/lib/libonnxruntime_providers_$so.so" "$out/"; done
  if [ -n "${SM:-}" ]; then
    say "keeping the kernels for sm_$SM"
    # Attention, mixtures of experts, quantised products: no CNN calls them. A model that does says so.
    drop=(-drop 'onnxruntime5flash|onnxruntime3llm|cutlass|multihead_attention|attention_kernel_batched')
    [ "${FULL:-0}" != 1 ] || drop=()
    go run ./third_party/trimfatbin -keep "$SM" ${drop[@]+"${drop[@]}"} "$out/libonnxruntime_providers_cuda.so"
  else
    install -m 644 third_party/ort/lib/libonnxruntime_providers_tensorrt.so "$out/"
  fi
  # What gpu-check.sh runs: graphs whose weights it makes on the spot, models with weights of their own, and the
  # digits family as it is trained here, with its labelled samples.
  say "building the check of a GPU"
  go build -trimpath -ldflags '-s -w' -o "$out/gpu-check" ./bench/gpu
  install -m 755 scripts/gpu-check.sh "$out/"
  mkdir -p "$out/model-files" "$out/digits"
  install -m 644 third_party/models/files/*.onnx "$out/model-files/"
  if [ "${FULL:-0}" = 1 ]; then rm -f "$out"/model-files/*OCR*; fi
  say "training the digits family"
  INFERPLAN_ORT_LIB=$ORT_LIB "$out/plan" models write digits-4 digits-16 digits-64 digits-256 digits-conv --dir "$out/digits" >/dev/null
  INFERPLAN_ORT_LIB=$ORT_LIB "$out/plan" models samples "$out/digits/samples.csv.gz" >/dev/null
fi

cp third_party/dist/README.md third_party/dist/Containerfile "$out/"
mkdir "$out/examples" && cp -r examples/ci "$out/examples/"
# Ours, and that of every part by others.
scripts/notices.sh check
install -m 644 LICENSE NOTICE "$out/"
install -m 644 third_party/licenses/NOTICES.txt "$out/licenses/"

"$out/plan" version >/dev/null || fail "the built plan does not run"
rm -rf "dist/$name" && mv "$out" "dist/$name"
(cd "dist/$name" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum > SHA256SUMS)
say "dist/$name: $(du -sh "dist/$name" | cut -f1)"
if [ "${CUDA:-0}" != 1 ]; then
  tar -C dist --sort=name --owner=0 --group=0 --mtime=2026-01-01 -cf - "$name" | gzip -n > "dist/$name.tar.gz.part"
  mv "dist/$name.tar.gz.part" "dist/$name.tar.gz"
  say "dist/$name.tar.gz: $(du -h "dist/$name.tar.gz" | cut -f1), what the workflows in examples/ci unpack"
fi
if [ "${CUDA:-0}" = 1 ]; then
  command -v xz >/dev/null || third_party/tools.sh xz=xz-utils
  use_local_tools
  tar -C dist --sort=name --owner=0 --group=0 --mtime=2026-01-01 -cf - "$name" | xz -6 -T0 > "dist/$name.tar.xz.part"
  mv "dist/$name.tar.xz.part" "dist/$name.tar.xz"
  bytes=$(stat -c %s "dist/$name.tar.xz")
  say "dist/$name.tar.xz: $((bytes >> 20)) MiB; copy it, unpack it (tar -xJf, or python3 -m tarfile -e), run ./gpu-check.sh"
  if [ -n "${SM:-}" ] && [ "$bytes" -gt $((64 << 20)) ]; then fail "the archive for one architecture is larger than 64 MiB"; fi
fi
