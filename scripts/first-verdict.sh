#!/usr/bin/env bash
# Measures what a CI job takes from nothing to its first verdict, with only what `make dist` made: no compiler and no
# checkout of this project. A change that does no harm must pass and one that makes the plan worse must fail, by the
# steps of examples/ci/github.yaml as they are written.
#
#   scripts/first-verdict.sh [ARCHIVE]     default dist/inferplan-linux-amd64.tar.gz
set -euo pipefail
cd "$(dirname "$0")/.."
archive=$(realpath "${1:-dist/inferplan-linux-amd64.tar.gz}")
workflow=$(realpath examples/ci/github.yaml)
limit=60

fail() { echo "first-verdict: $*" >&2; exit 1; }
[ -f "$archive" ] || fail "no $archive: make dist makes it"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
# Nothing of this machine but what any runner has.
export HOME=$dir PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin GIT_CONFIG_NOSYSTEM=1
unset "${!INFERPLAN_@}" "${!GITHUB_@}" "${!CI@}" || true
command -v go >/dev/null && fail "go is in /usr/bin: this measures a machine without a compiler"
git config --global user.email a@b.c
git config --global user.name a
git config --global init.defaultBranch main

# runs prints what a workflow runs, step by step.
runs() {
  awk '
    /^ *(- )?run: \|$/ { in_block = 1; indent = match($0, /[^ -]/); next }
    in_block && match($0, /[^ ]/) > indent { print substr($0, indent + 2); next }
    { in_block = 0 }
    /^ *(- )?run: [^|]/ { sub(/^ *(- )?run: /, ""); print }' "$1"
}

# documents writes a profile of three models of ten blocks on three kinds of GPUs, a cluster and a workload.
documents() {
  awk 'BEGIN {
    print "model,gpu,vgpu_denominator,block,batch,latency_us" > "latency.csv"
    print "model,after_block,bytes_fp16_batch1" > "cuts.csv"
    n = split("resnet50 L4 .9 .62,resnet50 A10G .95 .48,resnet50 T4 1.4 1.25,bert L4 1.6 1.1,bert A10G 1.5 .8,bert T4 2.9 2.4,yolo L4 2.1 1.7,yolo A10G 1.9 1.3,yolo T4 4.2 3.6", rows, ",")
    for (i = 1; i <= n; i++) {
      split(rows[i], r, " ")
      for (batch = 1; batch <= 16; batch *= 2) for (k = 0; k < 10; k++)
        printf "%s,%s,1,%d,%d,%.3f\n", r[1], r[2], k, batch, (r[3] + r[4] * batch) * 100 * (1 + k % 3 / 10) > "latency.csv"
      if (r[2] == "L4") for (k = 0; k < 9; k++) print r[1] "," k ",100000" > "cuts.csv"
    }
  }'
  plan import blocks --latency latency.csv --cuts cuts.csv -o profile.json
  printf '%s\n' 'format: inferplan.cluster/v1' 'pools:' '- {device: L4, count: 2, nic_gbps: 10, usd_per_hour: 0.8}' \
    '- {device: A10G, count: 1, nic_gbps: 10, usd_per_hour: 1.0}' '- {device: T4, count: 4, nic_gbps: 10, usd_per_hour: 0.53}' > cluster.yaml
  printf '%s\n' 'format: inferplan.workload/v1' 'models:' '- {model: resnet50, slo: 50ms, weight: 3}' \
    '- {model: bert, slo: 100ms, weight: 2}' '- {model: yolo, slo: 100ms}' > workload.yaml
}

# job runs the workflow on a branch, as a runner does, and prints its exit status and seconds.
job() {
  local begun=$EPOCHREALTIME rc=0
  git clone -q --branch "$1" origin.git "job-$1"
  cp "$archive" "job-$1/"
  (
    cd "job-$1"
    export GITHUB_BASE_REF=main GITHUB_PATH=$dir/path-$1
    : > "$GITHUB_PATH"
    runs "$workflow" > steps
    [ "$(grep -c . steps)" -ge 3 ] || fail "the steps of $workflow are not understood"
    # A folder named in GITHUB_PATH is there from the next step on.
    sed '/GITHUB_PATH/a export PATH="$(cat "$GITHUB_PATH"):$PATH"' steps > steps.sh
    bash -e steps.sh > out 2> err
  ) || rc=$?
  echo "$rc $(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')"
}

# The project that is gated. Making it is not measured.
mkdir project made
tar -xzf "$archive" -C made
PATH=$dir/made/inferplan-linux-amd64:$PATH
cd project
git init -q
{ documents && plan solve -o plan.json; } > ../made.log 2>&1 || { cat ../made.log >&2; fail "no plan"; }
git add profile.json cluster.yaml workload.yaml plan.json && git commit -qm one
git checkout -qb same && git commit -q --allow-empty -m same
git checkout -qb worse && plan solve --margin 0.7 --force -o plan.json >> ../made.log 2>&1 && git commit -qam worse
cd .. && git clone -q --bare project origin.git
PATH=${PATH#*:}
command -v plan >/dev/null && fail "plan is installed here: that is not what is measured"

for c in same:0 worse:1; do
  read -r rc took <<< "$(job "${c%:*}")"
  echo "${c%:*}: exit $rc after $took s; $(grep -m1 -h 'verdict' "job-${c%:*}"/out "job-${c%:*}"/err || true)"
  [ "$rc" = "${c#*:}" ] || { cat "job-${c%:*}/out" "job-${c%:*}/err" >&2; fail "the branch ${c%:*} ended with $rc"; }
  awk -v t="$took" -v l=$limit 'BEGIN { exit !(t > l) }' && fail "more than $limit s"
done
exit 0
