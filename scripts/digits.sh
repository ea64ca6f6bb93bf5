#!/usr/bin/env bash
# The digits family, trained, measured and planned on this machine, then served
# on recorded traces against its plans and the simulator. What is made stays in
# bench/digits/results, and is made again where it is missing. `make bench NAME=digits`
# calls it with the program of bench/digits, which gets the flags behind it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
dir=${DIGITS_DIR:-$root/bench/digits/results}
data=${INFERPLAN_DATA:-$root/../shared/data}
members=(digits-4 digits-16 digits-64 digits-256 digits-conv)

program=$root/$1
shift
"$program" -check "$@" # before anything is trained or measured

mkdir -p "$dir"
cd "$dir"
[ -f models/digits-conv.onnx ] || "$plan" models write "${members[@]}" --dir models
[ -f digits.csv.gz ] || "$plan" models samples digits.csv.gz
[ -f profile.json ] || "$plan" profile models/digits-{4,16,64,256,conv}.onnx --device cpu --blocks 1 --batches 1,2,4,8,16 --budget 30s --records digits.csv.gz -o profile.json
exec "$program" -family "$dir" -data "$data" -json "$dir/figures.json" -figures "$root/bench/digits/figures.json" "$@"
