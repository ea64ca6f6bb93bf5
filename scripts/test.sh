#!/usr/bin/env bash
# Tests and Go benchmarks: scripts/test.sh [all | race | pure | explore | fuzz | micro] [FLAGS of go test].
#   all      vet and every test, with the race detector where goroutines meet (default); always on all packages
#   race     every test under the race detector; an hour for all packages
#   pure     the packages that need neither HiGHS nor ONNX Runtime, without cgo and without set-up
#   explore  property tests with a new seed each, 1,000 draws (-rapid.checks=N)
#   fuzz     every fuzz target for a minute (-fuzztime)
#   micro    Go benchmarks with allocations, chosen by the variable BENCH
# race, explore, fuzz and micro take their packages from the variable PKGS (default: all).
set -uo pipefail
cd "$(dirname "$0")/.."
export INFERPLAN_ORT_LIB=${INFERPLAN_ORT_LIB:-$PWD/third_party/ort/lib/libonnxruntime.so.1}
read -ra packages <<<"${PKGS:-./...}"

# Packages whose tests run under the race detector instead of plainly; of these packages, tests that run plainly instead
# (real models: what computes shows nothing more under it); and tests of other packages that run under it, too, as PACKAGE=PATTERN.
race='executor|engine$|engine/llm|engine/ort|engine/replay|engine/worker|solver/highs|testkit/llm'
computing='^(TestChainEqualsWhole|TestChainOfCNNs|TestHalf|TestOCRReads|TestOCRReadsPages|TestPipelineAnswersAsTheWholeModel|TestServeQueuesKilled|TestSwitchOfARealModelUnderLoad|TestWork)$'
race_named=('cmd/plan=^TestImportsAtOnce$|^TestScripts$/^(output|replay)$' 'engine/models/digits=^TestLanesAtOnce$'
  'sim=^(TestReportBytesDependOnTheSeedOnly|TestInterruptedRuns|TestCancelledRun|TestFindMaxLoad)$') # of no two packages the same names
pure='formats|policy|sim|solver/knapsack|solver/milp|solver/pareto|solver/queueing|solver/refine|solver/stoch|solver/tolerance|engine/graph|executor/oip|testkit/balance|third_party'

# Property tests (rapid) draw from a fixed seed, so that a verdict depends on the commit only; explore draws new ones.
# A failure names its seed, so no fail file is kept (one lying in testdata/rapid would be run, too).
export RAPID_NOFAILFILE=${RAPID_NOFAILFILE:-1}
fixed_seed() { export RAPID_SEED=${RAPID_SEED:-1}; }

# below LIST: a regular expression for the packages below these folders.
below() { printf '^inferplan/(%s)(/|$)' "$1"; }

what=all
case ${1:-} in '' | -*) ;; *) what=$1 && shift ;; esac
flags=("$@")
run() { go test -vet=off -timeout 20m ${flags[@]+"${flags[@]}"} "$@" || bad=1; } # go vet has read all before

bad=0
[ "$what" = pure ] || go tool -n nats-server >/dev/null || exit 1 # else several tests build it at once
case $what in
all)
  fixed_seed
  go vet ./... || exit 1
  all=$(go list ./...) || exit 1
  mapfile -t raced < <(grep -E "$(below "$race")" <<<"$all")
  mapfile -t plain < <(grep -vE "$(below "$race")" <<<"$all")
  run "${plain[@]}"
  run -run "$computing" ./executor ./engine/ort
  run -race -skip "$computing" "${raced[@]}"
  # One run of all, so that they are compiled side by side.
  patterns=$(printf '|%s' "${race_named[@]#*=}")
  mapfile -t named < <(printf './%s\n' "${race_named[@]%%=*}")
  run -race -run "${patterns#|}" "${named[@]}"
  # The plan kind that exists behind the build tag testkind, and a fault that exists behind another.
  run -tags minimal,testkind -run '^TestEcho|^TestSchemas' ./formats ./cmd/plan
  run -tags minimal,testfault -run Exception ./solver/highs ;;
race)
  fixed_seed
  run -race -timeout 2h "${packages[@]}" ;;
pure)
  fixed_seed
  export CGO_ENABLED=0
  all=$(go list ./...) || exit 1
  mapfile -t chosen < <(grep -E "$(below "$pure")" <<<"$all")
  go vet "${chosen[@]}" || exit 1
  run "${chosen[@]}" ;;
explore)
  drawing=$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' "${packages[@]}") || exit 1
  for package in $(awk '/ pgregory\.net\/rapid( |$)/{print $1}' <<<"$drawing"); do
    nice -n 19 go test -count=1 -timeout 12h "$package" -rapid.checks=1000 ${flags[@]+"${flags[@]}"} || bad=1 # flags of rapid come last
  done ;;
fuzz)
  for package in $(go list "${packages[@]}"); do
    for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz'); do
      echo "== $package $target"
      go test -run '^$' -fuzz "^$target\$" -fuzzminimizetime 10x -fuzztime 60s ${flags[@]+"${flags[@]}"} "$package" || bad=1
    done
  done ;;
micro)
  go test -run '^$' -tags rivals -bench "${BENCH:-.}" -benchmem -timeout 60m ${flags[@]+"${flags[@]}"} "${packages[@]}" || bad=1 ;;
*)
  echo "test.sh: found $what, expected all, race, pure, explore, fuzz or micro" >&2
  exit 2 ;;
esac
exit $bad
