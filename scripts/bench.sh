#!/usr/bin/env bash
# Runs an instrument or a check: scripts/bench.sh NAME [FLAGS]. Without a name it lists all. `make bench NAME=… ARGS=…` calls it.
# Most instruments go on where an earlier start was stopped, and -h says which flags they have. Recordings of others are read from the
# folder that INFERPLAN_DATA names.
set -euo pipefail
cd "$(dirname "$0")/.."

# A row has five columns: NAME, what is set up before (targets of make, parts of third_party/setup.sh), the file of figures (- where
# there is none), the command, and help. A program of bench/ in a command is built from this commit. A command
# with `nice` before it measures CPU time or simulates; the others measure this machine and want it quiet. $DATA is the
# folder of recordings, $FIGURES the file of figures.
rows() { cat <<'END'
attack      | build           | bench/attack/figures.json      | nice bench/attack -figures $FIGURES | hostile requests, files, clients and faults from outside
soak        | build           | bench/attack/figures.json      | bench/attack -parts soak -figures $FIGURES -picture docs/soak.svg | an hour (-soak) at 70 % of the planned rate under watch
promise     | build llama     | bench/promise/figures.json     | bench/promise -figures $FIGURES | a plan of each kind, promised and served, at loads .1 to 2
digits      | build           | bench/digits/figures.json      | bench/digits -data $DATA -figures $FIGURES | gear plans of a real cascade, served against plan and simulator
workflows   | build           | bench/workflows/figures.json   | bench/workflows -figures $FIGURES | a workflow of real models, served and simulated
exported    | build exported  | bench/exported/figures.json    | nice bench/exported -figures $FIGURES | models as people exported them, held against ONNX Runtime
llm-promise | build llama     | bench/llm/promise/figures.json | bench/llm/promise -figures $FIGURES | queues simulated and served by a real llama-server
llm-kills   | build           | bench/llm/kills/figures.json   | nice bench/llm/kills -figures $FIGURES | kill what serves language models: none lost, none answered twice
gpu         | build           | -                              | scripts/gpu-check.sh bench/gpu | everything that needs an NVIDIA GPU, in steps, into gpu-check/
ppipe       | setup           | bench/ppipe/figures.json       | nice bench/ppipe -figures $FIGURES | pooled pipelines against PPipe, from its reference data
gear        | setup           | bench/gear/figures.json        | nice bench/gear -figures $FIGURES | cascades against their baselines
pard        | setup           | bench/pard/figures.json        | nice bench/pard -data $DATA -figures $FIGURES | pipelines under one deadline: policies against each other and a bound
dyorc       | setup           | bench/dyorc/figures.json       | nice bench/dyorc -data $DATA -figures $FIGURES | dynamic workflows against DyOrc's baselines
qlm         | setup           | bench/qlm/figures.json         | nice bench/qlm -data $DATA -figures $FIGURES | queues of language models against QLM and what is proven
rag-splits  | setup           | bench/rag/figures.json         | nice bench/rag -figures $FIGURES | applications with language models against the best split by hand
ranges      | setup           | bench/ranges/results/figures.json | nice bench/ranges -figures $FIGURES | times of stages, estimated against measured: an hour of one core
rates       | setup           | bench/rates/figures.json       | nice bench/rates -figures $FIGURES | what default plans state against what they hold
plans       | setup           | -                              | nice bench/plans | what the planner states on 150 problems, held against another commit
scale       | setup           | bench/scale/figures.json       | nice bench/scale -figures $FIGURES | how the planner of pools scales: gap over CPU time, re-plans
infeasible  | setup           | bench/infeasible/figures.json  | nice bench/infeasible -figures $FIGURES | 1,000 problems without a plan: the cause and what is nearest
odd         | build           | bench/odd/figures.json         | nice bench/odd -jobs 1 -figures $FIGURES | 300 problems that are tiny, huge, equal or one too many
gate        | setup           | bench/gate/figures.json        | nice bench/gate -figures $FIGURES | false alarms and misses of plan check
chat        | build llama     | -                              | scripts/chat.sh | profile, solve, simulate and serve a chat on a real llama-server
rag         | build llama     | -                              | scripts/rag.sh | the same for an embedder, passages and a generator
hosts       | build           | -                              | scripts/hosts.sh | a plan over two hosts that loses one and takes it back (root)
pods        | build           | bench/pods/figures.json        | bench/pods -figures $FIGURES | exported manifests, played: a pod lost, another plan, servers replaced (root)
e2e         | build           | -                              | scripts/e2e.sh | independent clients against a served plan
e2e-llm     | llama build     | -                              | scripts/e2e-llm.sh bench/llm/kills | queues in front of a real llama-server: swaps, evictions, kills
openai      | openai          | -                              | env INFERPLAN_OPENAI=$PWD/third_party/openai go test -count=1 -v -run TestOpenAIClients ./executor/completions | the front end for text under OpenAI's own clients
page        | chromium        | -                              | env INFERPLAN_CHROMIUM=$PWD/third_party/chromium go test -count=1 -v -run InBrowser ./executor ./pages | the page of a server, and those of reports, in a headless Chromium
shots       | chromium        | -                              | node third_party/chromium/shots.mjs | screenshots of pages at two widths, bright and dark: ARGS='FOLDER PAGE.html...'
screenshots | build chromium  | -                              | scripts/screenshots.sh bench/fewcolours | the pictures of pages that documents show, into docs/pictures
alerts      | -               | -                              | scripts/alerts.sh | the alert rules of examples/grafana by the packages behind promtool check rules
race        | setup           | -                              | scripts/test.sh race | every test under the race detector, an hour for all (PKGS)
pure        | -               | -                              | scripts/test.sh pure | tests that need neither native libraries nor set-up
explore     | setup           | -                              | scripts/test.sh explore | property tests with new seeds, 1,000 draws (-rapid.checks=N, PKGS)
fuzz        | setup           | -                              | scripts/test.sh fuzz | every fuzz target for a minute (-fuzztime, PKGS)
first-verdict | dist          | -                              | scripts/first-verdict.sh | seconds from the archive of dist to a verdict, without a compiler
notices     | -               | -                              | scripts/notices.sh | licences of what is linked and shipped, in third_party/licenses
lines       | -               | -                              | scripts/lines.sh | lines of Go and of comment by folder
END
}

name=${1:-}
if [ -z "$name" ]; then
  echo "make bench NAME=… ARGS='…':"
  rows | awk -F' *[|] *' '{ printf "  %-14s %s\n", $1, $5 }'
  exit 0
fi
shift
row=$(rows | awk -F' *[|] *' -v name="$name" '$1 == name { print $2 "|" $3 "|" $4 }')
[ -n "$row" ] || { echo "bench.sh: there is no $name; make bench lists what there is" >&2; exit 2; }
IFS='|' read -r parts figures line <<<"$row"

for part in $parts; do
  case $part in
  -) ;;
  setup | build | llama | dist) make -s "$part" ;;
  *) third_party/setup.sh "$part" ;;
  esac
done
export INFERPLAN_ORT_LIB=${INFERPLAN_ORT_LIB:-$PWD/third_party/ort/lib/libonnxruntime.so.1}

DATA=${INFERPLAN_DATA:-../shared/data}
line=${line//'$DATA'/$DATA} line=${line//'$FIGURES'/$figures} line=${line//'$PWD'/$PWD}
read -ra command <<<"$line"
slow=()
[ "${command[0]}" != nice ] || { slow=(nice -n 10) && command=("${command[@]:1}"); }
for i in "${!command[@]}"; do
  package=${command[i]}
  [[ $package == bench/* && -f $package/main.go ]] || continue
  commit=$(git describe --always --dirty --exclude='*' --abbrev=10) # that the figures name
  command[i]=bin/bench-$(tr / - <<<"${package#bench/}")
  mkdir -p bin "$(dirname "$figures")"
  go build -ldflags "-X inferplan/bench/figures.commit=$commit" -o "${command[i]}" "./$package"
done
exec ${slow[@]+"${slow[@]}"} "${command[@]}" "$@"
