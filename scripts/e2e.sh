#!/usr/bin/env bash
# Independent clients against a running server: curl (REST, JSON and binary),
# grpcurl (health, reflection, ModelInfer), hey (load). Every answer is
# asserted. `make bench NAME=e2e` calls it after the build; curl comes from the distribution
# where it is missing, the Go clients from the module proxy.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
plan=$root/bin/plan
. "$root/scripts/ready.sh"
tools=$root/third_party/tools
"$root/third_party/tools.sh" curl=curl
. "$root/third_party/lib.sh"
use_local_tools
mkdir -p "$tools"
[ -x "$tools/grpcurl" ] || GOBIN=$tools go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4
[ -x "$tools/hey" ] || GOBIN=$tools go install github.com/rakyll/hey@v0.1.5

dir=$(mktemp -d)
port=${E2E_PORT:-18180}
http=127.0.0.1:$port grpc=127.0.0.1:$((port + 1)) metrics=127.0.0.1:$((port + 2))
server=
cleanup() { [ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }; rm -rf "$dir"; }
trap cleanup EXIT
cd "$dir"

expect() { # NAME PATTERN: stdin must match the extended regular expression
  local got
  got=$(cat)
  if grep -qE -- "$2" <<<"$got"; then
    echo ok >> "$dir/passed" # a file: pipelines run this in a subshell
    printf 'ok    %s\n' "$1"
  else
    printf 'FAIL  %s\n      expected %s\n      got      %s\n' "$1" "$2" "${got:0:400}" >&2
    exit 1
  fi
}

"$plan" models write mlp-64 squeezenet --dir models
"$plan" profile --batches 1,2 --budget 20s -q
"$plan" solve --slo 400ms -o plan.json -q >/dev/null
"$plan" serve plan.json --http "$http" --grpc "$grpc" --metrics "$metrics" & server=$!
wait_ready 127.0.0.1 "$port" "$server"

curl -s -o /dev/null -w '%{http_code}' "http://$http/v2/health/live" | expect "REST live" '^200$'
curl -s -o /dev/null -w '%{http_code}' "http://$http/v2/health/ready" | expect "REST ready" '^200$'
curl -s "http://$http/v2" | expect "REST server metadata" '"name"'
curl -s "http://$http/v2/models/mlp-64" | expect "REST model metadata" '"inputs"'
input=$(curl -s "http://$http/v2/models/mlp-64" | node -e 'console.log(JSON.parse(require("fs").readFileSync(0)).inputs[0].name)')
zeros=$(printf '0.5,%.0s' $(seq 1 783))0.5
body=$(printf '{"id":"e2e-1","inputs":[{"name":"%s","shape":[1,784],"datatype":"FP32","data":[%s]}]}' "$input" "$zeros")
curl -s --json "$body" "http://$http/v2/models/mlp-64/infer" | expect "REST infer echoes the id" '"id": ?"e2e-1"'
curl -s --json "$body" "http://$http/v2/models/mlp-64/infer" | expect "REST infer answers ten numbers" '"shape": ?\[1, ?10\]'
printf '{"id":"b","inputs":[{"name":"%s","shape":[1,784],"datatype":"FP32","parameters":{"binary_data_size":3136}}]}' "$input" > head.json
{ cat head.json; head -c 3136 /dev/zero; } > binary.bin
curl -s -D headers.txt -o answer.bin -H "Inference-Header-Content-Length: $(stat -c %s head.json)" -H 'Content-Type: application/octet-stream' \
  --data-binary @binary.bin "http://$http/v2/models/mlp-64/infer"
expect "REST binary infer" '200' < headers.txt
curl -s -o /dev/null -w '%{http_code}' --json "${body/784/783}" "http://$http/v2/models/mlp-64/infer" | expect "REST wrong shape is 400" '^400$'
curl -s --json "${body/784/783}" "http://$http/v2/models/mlp-64/infer" | expect "REST wrong shape names the field" "inputs\\[0\\]"
curl -s -o /dev/null -w '%{http_code}' --json "$body" "http://$http/v2/models/nope/infer" | expect "REST unknown model is 404" '^404$'
curl -s "http://$http/v2/models/stats" | expect "REST statistics" 'inference_count'
curl -s "http://$metrics/metrics" | expect "metrics" 'inferplan_'

"$tools/grpcurl" -plaintext "$grpc" list | expect "gRPC reflection lists the service" 'inference.GRPCInferenceService'
"$tools/grpcurl" -plaintext "$grpc" grpc.health.v1.Health/Check | expect "gRPC health" 'SERVING'
"$tools/grpcurl" -plaintext "$grpc" inference.GRPCInferenceService/ServerReady | expect "gRPC ready" '"ready": true'
printf '{"model_name":"mlp-64","id":"g1","inputs":[{"name":"%s","datatype":"FP32","shape":[1,784],"contents":{"fp32_contents":[%s]}}]}' "$input" "$zeros" |
  "$tools/grpcurl" -plaintext -d @ "$grpc" inference.GRPCInferenceService/ModelInfer | expect "gRPC ModelInfer" '"id": "g1"'

"$tools/hey" -z 5s -c 4 -m POST -T application/json -d "$body" "http://$http/v2/models/mlp-64/infer" | tee hey.txt | expect "hey: only 200s" '\[200\]'
grep -E 'Requests/sec|99% in|\[[0-9]+\]' hey.txt | sed 's/^/      /'

kill -TERM "$server"
code=0; wait "$server" || code=$?
server=
expect "SIGTERM drains and exits 0" "^0$" <<<"$code"
echo "$(wc -l < "$dir/passed") passed, 0 failed"
