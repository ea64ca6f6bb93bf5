#!/usr/bin/env bash
# Takes the pictures of pages that documents show, into docs/pictures: the page of a server while it serves a small plan under load
# (live.png), and the page of a report of the same run against its simulation (report.png). The plan is of pools, from testdata, and
# runs last as its profile says, so that no model is needed. `make bench NAME=screenshots` calls it, with the program
# bench/fewcolours.
# SHOTS_DURATION, SHOTS_LOAD and SHOTS_PORT change what is done.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
fewcolours=$(realpath "$1")
. "$root/scripts/ready.sh"
duration=${SHOTS_DURATION:-150s}
load=${SHOTS_LOAD:-0.3}
port=${SHOTS_PORT:-18280}
pictures=$root/docs/pictures
work=$(mktemp -d)
server='' driver=''
end() {
  for pid in $driver $server; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap end EXIT

cd "$work"
kind=$root/testdata/kinds/pool
cp "$kind"/*.json .
sed -i 's/"\([0-9]*\)ms"/"\10ms"/' workload.json # SLOs that a busy machine keeps, too: a picture is no measurement
"$plan" solve --profile profile.json --cluster cluster.json --workload workload.json -o plan.json
arrivals=(--load "$load" --duration "$duration" --warmup 2s)
"$plan" simulate plan.json "${arrivals[@]}" -o promised.json

# Look at the server just before the end of the load.
"$plan" serve plan.json --engine replay --share-cpus --http "127.0.0.1:$port" --grpc off --metrics "127.0.0.1:$((port + 2))" & server=$!
wait_ready 127.0.0.1 "$port" "$server"
"$plan" load "http://127.0.0.1:$port" --plan plan.json "${arrivals[@]}" --noise -o measured.json & driver=$!
seconds=${duration%s}
sleep $((seconds - 3))
node "$root/third_party/chromium/picture.mjs" "http://127.0.0.1:$((port + 2))/" "$pictures/live.png" 897
wait "$driver"
driver=''

"$plan" report promised.json measured.json --plan plan.json --html report.html
node "$root/third_party/chromium/picture.mjs" "file://$work/report.html" "$pictures/report.png" 925
"$fewcolours" "$pictures/live.png" "$pictures/report.png"
ls -l "$pictures"
