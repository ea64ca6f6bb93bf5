#!/usr/bin/env bash
# Two hosts: a plan over two network namespaces, each with a worker on a CPU of
# this machine, real models, open-loop load. The wire between them is cut and
# mended, then the other host's process is killed and started again. Checks that
# every request has exactly one answer, and tells how long service was degraded.
# Writes hosts.json beside the table. `make bench NAME=hosts` calls it. Needs root for the
# namespaces; without, it says so and plays the second part over loopback.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=${PLAN:-$root/bin/plan}
. "$root/scripts/ready.sh"
dir=${HOSTS_DIR:-$root/hosts}
models=${HOSTS_MODELS:-squeezenet shufflenet}
slo=${HOSTS_SLO:-1s}
load=${HOSTS_LOAD:-0.4}
silence=${HOSTS_SILENCE:-500ms}
phase=${HOSTS_PHASE:-8} # seconds between what happens
port=${HOSTS_PORT:-18380}

mkdir -p "$dir"
cd "$dir"
rm -f plan.json events.csv outcomes.csv load.json served.json serve.log host.log load.log hosts.json

# shellcheck disable=SC2086  # a list of names
"$plan" models write $models --dir models -q
[ -f profile.json ] || "$plan" profile --batches 1,2,4 --blocks 4 --budget 40s -q >/dev/null
printf 'format: inferplan.cluster/v1\npools:\n- {device: cpu-1, count: 2, per_node: 1}\n' >cluster.yaml
"$plan" solve --slo "$slo" --cluster cluster.yaml --force

near=ip$$n far=ip$$f
server='' host='' spaces=''
cleanup() {
  [ -z "$host" ] || kill "$host" 2>/dev/null || true
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  wait 2>/dev/null || true
  for ns in $spaces; do ip netns del "$ns" 2>/dev/null || true; done
}
trap cleanup EXIT

separate() {
  command -v ip >/dev/null || { echo "the command ip is not here (package iproute2)"; return 1; }
  ip netns add "$near" && ip netns add "$far" && spaces="$near $far" || return 1
  ip link add "$near" type veth peer name "$far" && ip link set "$near" netns "$near" && ip link set "$far" netns "$far" || return 1
  ip -n "$near" addr add 198.18.88.1/30 dev "$near" && ip -n "$far" addr add 198.18.88.2/30 dev "$far" || return 1
  for ns in "$near" "$far"; do ip -n "$ns" link set "$ns" up && ip -n "$ns" link set lo up || return 1; done
}
if why=$(separate 2>&1); then
  spaces="$near $far"
  here="ip netns exec $near" there="ip netns exec $far" address=198.18.88.1
else
  spaces=$(ip netns list 2>/dev/null | awk -v a="$near" -v b="$far" '$1 == a || $1 == b {print $1}' || true)
  echo "network namespaces are not permitted here (${why##*$'\n'}): both hosts are on loopback, and no wire is cut" >&2
  here='' there='' address=127.0.0.1
fi

# shellcheck disable=SC2086  # words of a command, or none
$here "$plan" serve plan.json --http "127.0.0.1:$port" --grpc off --metrics off -o served.json \
  --join-listen "$address:$((port + 3))" --join-token-file token.txt --join-cert join.pem --join-silence "$silence" --remote cpu-1=1 >/dev/null 2>serve.log &
server=$!
for _ in $(seq 100); do
  pin=$(grep -o -- '--tls-pin sha256:[0-9a-f]*' serve.log || true)
  [ -z "$pin" ] || break
  kill -0 "$server" 2>/dev/null || { cat serve.log >&2; exit 5; }
  sleep 0.1
done
start_host() {
  # shellcheck disable=SC2086
  $there "$plan" worker --join "$address:$((port + 3))" --token-file token.txt $pin --silence "$silence" --device cpu-1 --cpus 0 --host far --models-dir models >>host.log 2>&1 &
  host=$!
}
start_host
if [ -n "$here" ]; then
  # Ready is asked for where the server listens.
  export -f wait_ready
  $here bash -c "wait_ready 127.0.0.1 $port $server"
else
  wait_ready 127.0.0.1 "$port" "$server"
fi

event() { printf '%s,%s\n' "$(date +%s.%N)" "$1" | tee -a events.csv >/dev/null; }
phases=6
[ -n "$here" ] || phases=4
# shellcheck disable=SC2086
$here "$plan" load "http://127.0.0.1:$port" --load "$load" --duration "$((phases * phase))s" --outcomes outcomes.csv --json -q >load.json 2>load.log &
client=$!
event start
sleep "$phase"
if [ -n "$here" ]; then
  event 'wire cut'; ip -n "$near" link set "$near" down; sleep "$phase" # it may take a while
  event 'wire mended'; ip -n "$near" link set "$near" up; sleep "$phase"
fi
disown "$host"; event 'host killed'; kill -9 "$host"; sleep "$phase"
event 'host started'; start_host
wait "$client"
for _ in $(seq 300); do # on a busy machine it may take longer than the load
  [ "$(grep -c 'msg="worker back"' serve.log)" -lt $((phases / 2 - 1)) ] || break
  sleep 0.2
done
event end
kill -TERM "$server"; wait "$server"; server=''

node "$root/scripts/hosts.js" "$load" "$silence" "${here:+namespaces}"
