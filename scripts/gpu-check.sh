#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in steps that are kept: results as JSON and as a table. Runs in the folder that
# `make dist CUDA=1` makes, copied to a machine without compilers, and in the source tree (`make bench NAME=gpu`).
#
#   ./gpu-check.sh [--out FOLDER] [--limit 9m] [--steps doctor,outputs,…] [--device cuda:0|cpu] [--again] [--quick]
#
# A call that ends (by its --limit, or killed) is followed by another with the same --out, which goes on; results that were
# carried to another machine go on there. --device cpu rehearses every step at small sizes on a machine without a GPU.
# Where the variable OUT names a folder, a copy of the results is put there, too.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
args=("$@")
has() { local a; for a in ${args[@]+"${args[@]}"}; do case $a in "$1" | "$1"=*) return 0 ;; esac; done; return 1; }

if [ -x "$here/plan" ]; then # a copied folder
  plan=$here/plan
  if [ -f "$here/SHA256SUMS" ] && [ ! -f "$here/.checked" ]; then
    (cd "$here" && sha256sum -c --quiet SHA256SUMS) || { echo "gpu-check: the folder is not what was copied (SHA256SUMS)" >&2; exit 5; }
    touch "$here/.checked" 2>/dev/null || true
  fi
  export INFERPLAN_MODEL_FILES=$here/model-files
  has --digits || args+=(--digits "$here/digits")
  work=$here/work
else # the source tree
  root=$(cd "$here/.." && pwd)
  plan=$root/bin/plan
  work=$root/gpu-check-work
fi
has --work || args+=(--work "$work")
out=gpu-check
for ((i = 0; i < ${#args[@]}; i++)); do
  case ${args[i]} in --out) out=${args[i + 1]:-} ;; --out=*) out=${args[i]#--out=} ;; esac
done
has --out || args+=(--out "$out")
# Kernels are read when they are called: those of other architectures are not in the folder.
export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-LAZY}
[ -z "${OUT:-}" ] || has --mirror || args+=(--mirror "$OUT") # while it runs: a call may be killed
rc=0
"$plan" gpu-check ${args[@]+"${args[@]}"} || rc=$?
if [ -n "${OUT:-}" ] && [ -d "$out" ]; then
  mkdir -p "$OUT"
  for f in "$out"/*; do [ "$f" -ef "$OUT/${f##*/}" ] || cp "$f" "$OUT/"; done
fi
exit "$rc"
