#!/usr/bin/env bash
# Promise against reality: serves a plan (default: the demo's), drives it at
# several loads, and simulates the same arrivals with the service times recorded
# in the same run. Prints, per load, the median over the runs of the relative
# differences of p50 and p99 and of the attainment: measured against simulated,
# the drift of the profile apart from it (simulated against promised), and both
# together (measured against what the profile alone promises).
# SERVE holds further flags of plan serve, such as --place cpu-1=0,1.
# Use: scripts/promise.sh [FOLDER with plan.json and models]   (make demo first)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
. "$root/scripts/ready.sh"
dir=${1:-$root/demo}
loads=${LOADS:-0.5 0.8}
runs=${RUNS:-5}
duration=${DURATION:-30s}
port=${PORT:-18280}
cd "$dir"
out=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$out"' EXIT
for load in $loads; do
  for run in $(seq "$runs"); do
    # shellcheck disable=SC2086  # a list of flags
    "$plan" serve plan.json -q ${SERVE:-} --http "127.0.0.1:$port" --grpc off --metrics off --record "$out/service.json" -o "$out/served.json" >/dev/null 2>"$out/serve.err" & server=$!
    wait_ready 127.0.0.1 "$port" "$server"
    "$plan" load "http://127.0.0.1:$port" --load "$load" --duration "$duration" --warmup 2s --seed "$run" -o "$out/measured.json" -q >/dev/null
    kill -TERM "$server"; wait "$server"; server=
    "$plan" simulate plan.json --load "$load" --duration "$duration" --warmup 2s --seed "$run" --service "$out/service.json" -o "$out/simulated.json" -q >/dev/null
    "$plan" simulate plan.json --load "$load" --duration "$duration" --warmup 2s --seed "$run" -o "$out/promised.json" -q >/dev/null
    node -e '
      const fs = require("fs"), [dir, load] = process.argv.slice(1)
      const read = n => JSON.parse(fs.readFileSync(`${dir}/${n}.json`))
      const m = read("measured"), s = read("simulated"), p = read("promised")
      const row = (a, b) => [a.latency.p50_us / b.latency.p50_us - 1, a.latency.p99_us / b.latency.p99_us - 1, a.attainment - b.attainment]
      console.log([load, m.requests, ...row(m, s), ...row(s, p), ...row(m, p)].join(" "))
    ' "$out" "$load" | tee -a "$out/rows"
  done
done
node -e '
  const rows = require("fs").readFileSync(process.argv[1], "utf8").trim().split("\n").map(l => l.split(" ").map(Number))
  const median = v => v.sort((a, b) => a - b)[Math.floor(v.length / 2)]
  console.log("load  runs  measured/simulated: p50 %  p99 %  attainment pt   simulated/promised (drift): p50 %  p99 %  attainment pt   measured/promised: p50 %  p99 %  attainment pt")
  for (const load of new Set(rows.map(r => r[0]))) {
    const of = rows.filter(r => r[0] === load)
    const v = [2, 3, 4, 5, 6, 7, 8, 9, 10].map(i => (100 * median(of.map(r => r[i]))).toFixed(2))
    console.log(`${load}  ${of.length}  ${v.slice(0, 3).join("  ")}   ${v.slice(3, 6).join("  ")}   ${v.slice(6).join("  ")}`)
  }
' "$out/rows"
