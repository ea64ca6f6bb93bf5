#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in steps that are kept: results as lines of JSON and as text. Runs in the folder that
# `make dist CUDA=1` makes, copied to a machine without compilers, and in the source tree (`make bench NAME=gpu`).
#
#   ./gpu-check.sh [--out FOLDER] [--limit 9m] [--steps doctor,outputs,…] [--device cuda:0|cpu] [--again] [--quick] [--work FOLDER] [--digits FOLDER]
#
# A call that ends (by its --limit, or killed) is followed by another with the same --out, which goes on; results that were carried
# to another machine go on there. --device cpu rehearses every step at small sizes on a machine without a GPU. Where the variable OUT
# names a folder, a copy of the results is put there after every part. Exit code 1: not everything was done, or a figure is not what was promised.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
flags=() steps='' again='' limit=0 out=gpu-check digits=
if [ -x "$here/plan" ]; then # a copied folder
  plan=$here/plan program=$here/gpu-check work=$here/work digits=$here/digits
  if [ -f "$here/SHA256SUMS" ] && [ ! -f "$here/.checked" ]; then
    (cd "$here" && sha256sum -c --quiet SHA256SUMS) || { echo "gpu-check: the folder is not what was copied (SHA256SUMS)" >&2; exit 5; }
    touch "$here/.checked" 2>/dev/null || true
  fi
  export INFERPLAN_MODEL_FILES=$here/model-files
else # the source tree: scripts/bench.sh has built the first argument
  root=$(cd "$here/.." && pwd)
  plan=$root/bin/plan program=$root/${1:-bin/bench-gpu} work=$root/gpu-check-work
  [ $# = 0 ] || shift
fi
while [ $# -gt 0 ]; do
  case $1 in --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;; esac
  case $1 in
  --out) out=$2 && shift ;;
  --work) work=$2 && shift ;;
  --digits) digits=$2 && shift ;;
  --steps) steps=,$2, && shift ;;
  --limit) limit=${2//h/*3600+} && limit=${limit//m/*60+} && limit=$((${limit//s/+}0)) && shift ;;
  --device) flags+=(-device "$2") && shift ;;
  --again) again=1 ;;
  --quick) flags+=(-quick) ;;
  *) echo "gpu-check: found $1, expected --out, --limit, --steps, --device, --again, --quick, --work or --digits" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$out" "$work"
out=$(realpath "$out")
flags+=(-plan "$plan" -out "$out" -work "$(realpath "$work")")
[ -z "$digits" ] || flags+=(-digits "$(realpath "$digits")")
export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-LAZY} # kernels of other architectures are not in the folder

# run PART SECONDS runs a part in a group of processes of its own, which ends with it. Libraries read the variables once.
group=
trap '[ -z "$group" ] || kill -- -"$group" 2>/dev/null; exit 4' INT TERM
run() {
  local environment=()
  # The provider falls back to TF32 where it finds no other kernel; CUDA's libraries themselves do not.
  case $1 in outputs/*) environment=(NVIDIA_TF32_OVERRIDE=0) ;; esac
  setsid env ${environment[@]+"${environment[@]}"} timeout --foreground -k 15 "$2" "$program" "${flags[@]}" "$1" 2>> "$out/gpu-check.log" & group=$!
  wait "$group" || true
  kill -- -"$group" 2>/dev/null || true
  group=
}

# with_mps PART SECONDS runs a part under CUDA's Multi-Process Service, and again by time slicing where it fails so.
with_mps() {
  local pipes
  if ! command -v nvidia-cuda-mps-control >/dev/null; then run "$@"; return; fi
  pipes=$(mktemp -d /tmp/ip-mps-XXXX) # a short name: those of sockets are bounded
  export CUDA_MPS_PIPE_DIRECTORY=$pipes CUDA_MPS_LOG_DIRECTORY=$pipes
  nvidia-cuda-mps-control -d >> "$out/gpu-check.log" 2>&1 || true
  run "$@"
  echo quit | timeout 20 nvidia-cuda-mps-control >> "$out/gpu-check.log" 2>&1 || true
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  rm -rf "$pipes"
  [ "$(status "$1")" != failed ] || { echo "$1: again by time slicing" && run "$@"; }
}

status() { "$program" "${flags[@]}" list | awk -v part="$1" '$1 == part { print $4 }'; }

list=$("$program" "${flags[@]}" list)
complete=1 found=
while read -r part needs most state <&3; do
  case $steps in '' | *",${part%%/*},"*) found=1 ;; *) continue ;; esac
  if [ -z "$again" ] && { [ "$state" = passed ] || [ "$state" = missed ]; }; then
    echo "$part $state already"
  else
    [[ " ${flags[*]} " != *" -device cpu"* ]] || most=$((4 * most)) # a CPU, which others share
    if [ "$limit" -gt 0 ]; then
      left=$((limit - SECONDS))
      if [ "$left" -lt 30 ] || [ "$left" -lt "$needs" ]; then echo "$part is left for the next call"; complete=; continue; fi
      [ "$most" -le "$left" ] || most=$left
    fi
    case $part in shares | pooled) with_mps "$part" "$most" ;; *) run "$part" "$most" ;; esac
    state=$(status "$part")
    [ -z "${OUT:-}" ] || { mkdir -p "$OUT" && cp "$out"/*.* "$OUT/"; } || echo "gpu-check: no copy in $OUT" >&2
  fi
  [ "$state" = passed ] || complete=
done 3<<< "$list"
[ -n "$found" ] || { echo "gpu-check: --steps names none of these parts: $(awk '{ print $1 }' <<< "$list" | tr '\n' ' ')" >&2; exit 2; }
echo "results in $out/gpu-check.jsonl and gpu-check.txt"
[ -n "$complete" ] || { echo "gpu-check: not everything was done, or a figure is not what was promised" >&2; exit 1; }
