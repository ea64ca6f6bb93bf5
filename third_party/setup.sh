#!/usr/bin/env bash
# Set-up of everything that is not Go: called by `make setup`. Project-local, idempotent, resumable; the
# downloads run beside the HiGHS build. Arguments choose parts: highs ort models digits (default: these), exported.
# CUDA=1 adds the CUDA provider of ONNX Runtime.
set -euo pipefail
cd "$(dirname "$0")"
. ./lib.sh

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(highs ort models digits)

# Build tools, only if HiGHS still has to be built.
case " ${parts[*]} " in *" highs "*)
  if [ -z "${INFERPLAN_HIGHS_PREFIX:-}" ] && [ ! -e highs/prefix/lib/libhighs.a ] && [ ! -e highs/prefix/lib/libhighs.so ]; then
    ./tools.sh
  fi ;;
esac

pids=() names=()
for p in "${parts[@]}"; do
  [ -x "./$p/setup.sh" ] || fail "no such part: $p (there are highs, ort, models, digits, exported)"
  "./$p/setup.sh" & pids+=($!) names+=("$p")
done
bad=()
for i in "${!pids[@]}"; do
  wait "${pids[$i]}" || bad+=("${names[$i]}")
done
[ ${#bad[@]} -eq 0 ] || fail "not set up: ${bad[*]} (the reason stands above; what was done is kept, run make setup again)"
