# inferplan: build, test and package. `make help` lists the targets; everything a target needs it sets up itself.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GO ?= go
MODULE := inferplan

# Packages whose tests run under the race detector instead of plainly; of these packages, tests that run plainly instead
# (real models: what computes shows nothing more under it); and tests of other packages that run under it, too, as PACKAGE=PATTERN.
# `make race` runs all under it. PURE: packages that need neither HiGHS nor ONNX Runtime.
RACE := executor engine$$ engine/llm engine/ort engine/replay engine/worker solver/highs testkit
COMPUTING := ^(TestChainEqualsWhole|TestChainOfCNNs|TestHalf|TestOCRReads|TestOCRReadsPages|TestPipelineAnswersAsTheWholeModel|TestServeQueuesKilled|TestSwitchOfARealModelUnderLoad|TestWork)$$
RACE_NAMED := cmd/plan=^TestImportsAtOnce$$|^TestScripts$$/^(output|replay)$$ \
  engine/models/digits=^TestLanesAtOnce$$ \
  sim=^(TestReportBytesDependOnTheSeedOnly|TestInterruptedRuns|TestCancelledRun|TestFindMaxLoad)$$
PURE := formats policy sim solver/knapsack solver/milp solver/pareto solver/queueing solver/refine solver/stoch solver/tolerance engine/graph executor/oip testkit/balance third_party

# Tests of the plan kind that exists behind the build tag testkind.
TESTKIND := ^TestEcho|^TestSchemas

# Property tests (rapid) draw from a fixed seed, so that a verdict of `make test` depends on the commit only; `make explore`
# draws new ones. A failure names its seed, so no fail file is kept (one lying in testdata/rapid would be run, too).
RAPID_SEED ?= 1
RAPID_NOFAILFILE ?= 1
RAPID_ENV = RAPID_SEED='$(RAPID_SEED)' RAPID_NOFAILFILE='$(RAPID_NOFAILFILE)'

# go vet has read all before.
TEST = $(GO) test -vet=off -timeout 20m $(TESTFLAGS)

# Variables for the user.
CHECKS ?= 1000
BENCH ?= .
BENCHTIME ?= 1s
FUZZTIME ?= 60s
TESTFLAGS ?=
PKGS ?= ./...
PPIPE ?=
GEAR ?=
QLM ?=
SOAK ?= 1h

# ONNX Runtime for what the targets start; set-up must see only the user's own choice.
ORT_LIB = $(or $(INFERPLAN_ORT_LIB),$(CURDIR)/third_party/ort/lib/libonnxruntime.so.1)

# in-folders LIST: a regular expression for the packages below those folders.
empty :=
space := $(empty) $(empty)
in-folders = ^$(MODULE)/($(subst $(space),|,$(strip $(1))))(/|$$)

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Variables: CUDA=1 (setup, dist), CHECK (gpu-check), TESTFLAGS, PKGS, RAPID_SEED (test, explore), CHECKS (explore), BENCH, BENCHTIME, FUZZTIME, PPIPE (bench-ppipe), RANGES (bench-ranges), RATES (bench-rates), PLANS (bench-plans), SCALE (bench-scale), GEAR (bench-gear), PARD (bench-pard), DIGITS (bench-digits), QLM (bench-qlm), DYORC (bench-dyorc), WORKFLOWS (bench-workflows), RAG (bench-rag), GATE (bench-gate), ODD (bench-odd), INFEASIBLE (bench-infeasible), EXPORTED (bench-exported), KILLS (bench-llm-kills), SERVED (bench-promise), PROMISE (bench-llm-promise), ATTACK (attack), SOAK (soak), SM (dist)"

.PHONY: setup
setup: ## HiGHS, ONNX Runtime, models and headers below third_party/ (idempotent)
	@CUDA=$(CUDA) third_party/setup.sh

.PHONY: build
build: setup ## bin/plan
	@mkdir -p bin
	$(GO) build -o bin/plan ./cmd/plan

.PHONY: llama
llama: ## a real server of language models and three small generated models in third_party/llama (20 s, no root)
	@scripts/llama-setup.sh
	$(GO) run ./bench/llm/models -o third_party/llama/models

.PHONY: demo
demo: build ## profile, solve, simulate, serve and load real models here (DEMO_BATCHES, DEMO_LOAD, DEMO_BUSY)
	scripts/demo.sh

.PHONY: chat
chat: build llama ## measure, solve, simulate, serve and load a chat on a real llama-server here (CHAT_LOAD, CHAT_BUDGET)
	scripts/chat.sh

.PHONY: rag
rag: build llama ## an embedder, passages and a generator: measure, solve, simulate, serve and load the application here (RAG_LOAD, RAG_BUDGET)
	scripts/rag.sh

.PHONY: hosts
hosts: build ## a plan over two hosts (network namespaces) that loses one and takes it back; needs root
	scripts/hosts.sh

.PHONY: e2e
e2e: build ## drive a served plan with independent clients
	scripts/e2e.sh

.PHONY: e2e-llm
e2e-llm: llama build ## queues of language models in front of a real llama-server: swaps, evictions, kills; kills of front ends, nodes and agents
	INFERPLAN_LLM=1 $(GO) test -count=1 -timeout 6m -v -run 'TestLlama' ./executor | grep -v '^=== '
	$(GO) build -o bin/bench-llm-kills ./bench/llm/kills
	bin/bench-llm-kills -requests 150 -kills 2

# KILLS holds flags of bench/llm/kills, for example KILLS="-parts agent -requests 1000".
.PHONY: bench-llm-kills
bench-llm-kills: build ## kill what serves language models, 10,000 requests each: front ends, nodes of NATS, agents, servers; bench/llm/kills/figures.json (KILLS)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-llm-kills ./bench/llm/kills
	nice -n 10 bin/bench-llm-kills -figures bench/llm/kills/figures.json $(KILLS)

# SERVED holds flags of bench/promise, for example SERVED="-only pool -runs 1".
.PHONY: bench-promise
bench-promise: build llama ## a plan of each kind, promised against simulated and served at loads .1 to 2, on a quiet machine: tables in docs/benchmarks/promise.md and bench/promise/figures.json (SERVED)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-promise ./bench/promise
	INFERPLAN_ORT_LIB='$(ORT_LIB)' bin/bench-promise -figures bench/promise/figures.json -doc docs/benchmarks/promise.md $(SERVED)

# PROMISE holds flags of bench/llm/promise, for example PROMISE="-parts beside -turns 1".
.PHONY: bench-llm-promise
bench-llm-promise: build llama ## a plan of queues simulated against served by a real llama-server, and batches beside interactive requests: bench/llm/promise/figures.json (PROMISE)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-llm-promise ./bench/llm/promise
	bin/bench-llm-promise -figures bench/llm/promise/figures.json $(PROMISE)

.PHONY: openai
openai: ## the front end for completions under OpenAI's own clients (npm openai, openai-go)
	GO='$(GO)' third_party/openai/setup.sh
	INFERPLAN_OPENAI='$(CURDIR)/third_party/openai' $(GO) test -count=1 -v -run TestOpenAIClients ./executor/completions

.PHONY: page
page: ## the page of the queues in a headless Chromium
	third_party/chromium/setup.sh
	INFERPLAN_CHROMIUM='$(CURDIR)/third_party/chromium' $(GO) test -count=1 -v -run TestQueuePageInBrowser ./executor

.PHONY: test
test: setup ## vet, and every test; the race detector where goroutines meet
	$(GO) vet ./...
	@export INFERPLAN_ORT_LIB='$(ORT_LIB)' $(RAPID_ENV); \
	all=$$($(GO) list ./...); \
	race=$$(grep -E '$(call in-folders,$(RACE))' <<<"$$all"); \
	plain=$$(grep -vE '$(call in-folders,$(RACE))' <<<"$$all"); \
	bad=0; \
	$(TEST) $$plain || bad=1; \
	$(TEST) -run '$(COMPUTING)' ./executor ./engine/ort || bad=1; \
	$(TEST) -race -skip '$(COMPUTING)' $$race || bad=1; \
	for named in $(foreach n,$(RACE_NAMED),'$n'); do \
	  $(TEST) -race -run "$${named#*=}" ./$${named%%=*} || bad=1; \
	done; \
	$(TEST) -tags testkind -run '$(TESTKIND)' ./formats ./cmd/plan || bad=1; \
	$(TEST) -tags testfault -run Exception ./solver/highs || bad=1; \
	exit $$bad

.PHONY: race
race: setup ## every test of PKGS under the race detector, an hour for all
	@export INFERPLAN_ORT_LIB='$(ORT_LIB)' $(RAPID_ENV); $(TEST) -race -timeout 2h $(PKGS)

.PHONY: test-pure
test-pure: ## tests of the packages that need no native library, without cgo and without set-up
	@all=$$(CGO_ENABLED=0 $(GO) list ./... | grep -E '$(call in-folders,$(PURE))'); \
	export CGO_ENABLED=0 $(RAPID_ENV); $(GO) vet $$all && $(GO) test -timeout 20m $(TESTFLAGS) $$all

# Without RAPID_SEED each test draws its own seed, and a failure tells how to draw it again; PKGS narrows the packages.
.PHONY: explore
explore: setup ## property tests with random seeds and CHECKS (1000) draws each (PKGS)
	@export INFERPLAN_ORT_LIB='$(ORT_LIB)' RAPID_CHECKS='$(CHECKS)' RAPID_NOFAILFILE='$(RAPID_NOFAILFILE)'; \
	pkgs=$$($(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' $(PKGS) | awk '/ pgregory\.net\/rapid( |$$)/{print $$1}'); \
	bad=0; \
	for pkg in $$pkgs; do \
	  nice -n 19 $(GO) test -count=1 -timeout 12h $(TESTFLAGS) $$pkg || bad=1; \
	done; exit $$bad

.PHONY: bench
bench: setup ## Go benchmarks with allocations (BENCH, BENCHTIME, PKGS)
	INFERPLAN_ORT_LIB='$(ORT_LIB)' $(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 60m $(PKGS)

# PPIPE selects tables and cases, for example PPIPE="-tables load -cases G4/HC2 -runs 2"; a second start goes on where the first was stopped.
.PHONY: bench-ppipe
bench-ppipe: setup ## tables and plots against PPipe from its reference data, kept in bench/ppipe/results (INFERPLAN_DATA, PPIPE: see bench/ppipe)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-ppipe ./bench/ppipe
	nice -n 19 bin/bench-ppipe -data '$(or $(INFERPLAN_DATA),../shared/data)' -keep bench/ppipe/results -plots bench/ppipe/results -figures bench/ppipe/figures.json $(PPIPE)

# GEAR selects, for example GEAR="-tables gpus -families bert5"; a second start goes on where the first was stopped.
.PHONY: bench-gear
bench-gear: ## cascades against their baselines: tables, CSV and pictures in bench/gear/results, bench/gear/figures.json (INFERPLAN_DATA, GEAR=-cost: what it takes)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-gear ./bench/gear
	nice -n 19 bin/bench-gear -figures bench/gear/figures.json $(GEAR)

# PARD holds flags of bench/pard, for example PARD="-parts S0 -seeds 1"; a second start goes on where the first was stopped.
.PHONY: bench-pard
bench-pard: ## pipelines under one deadline: policies against each other and a bound, tables and bench/pard/figures.json (INFERPLAN_DATA)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-pard ./bench/pard
	INFERPLAN_ORT_LIB='$(ORT_LIB)' nice -n 19 bin/bench-pard $(PARD)

# DYORC selects, for example DYORC="-tables rows -seeds 1,2"; a second start goes on where the first was stopped.
.PHONY: bench-dyorc
bench-dyorc: ## dynamic workflows against DyOrc's baselines: tables, and bench/dyorc/figures.json (INFERPLAN_DATA, DYORC)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-dyorc ./bench/dyorc
	nice -n 19 bin/bench-dyorc -data '$(or $(INFERPLAN_DATA),../shared/data)' $(DYORC)

.PHONY: bench-ranges
bench-ranges: setup ## times of stages, estimated against measured: an hour of one core, kept in bench/ranges/results (RANGES: see bench/ranges)
	$(GO) build -o bin/bench-ranges ./bench/ranges
	mkdir -p bench/ranges/results
	nice -n 5 bin/bench-ranges -profile bench/ranges/results/ranges.json -figures bench/ranges/results/figures.json $(RANGES)

# RATES holds flags of bench/rates, for example RATES="-first 31 -last 33 -flags=false".
.PHONY: bench-rates
bench-rates: setup ## what default plans of every kind state against what they hold, explicit flags and bounds; bench/rates/figures.json (RATES)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-rates ./bench/rates
	nice -n 10 bin/bench-rates -figures bench/rates/figures.json $(RATES)

# PLANS holds flags of bench/plans, for example PLANS="-against bench/plans/results/before.json".
.PHONY: bench-plans
bench-plans: setup ## what the planner states on 150 recorded and drawn problems, kept or held against what another commit kept (INFERPLAN_DATA, PLANS)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-plans ./bench/plans
	nice -n 10 bin/bench-plans -data '$(or $(INFERPLAN_DATA),../shared/data)' $(PLANS)

# SCALE holds flags of bench/scale, for example SCALE="-tables many -seeds 1".
.PHONY: bench-scale
bench-scale: setup ## how the planner of pools scales: gap over CPU time, re-plans; bench/scale/figures.json (INFERPLAN_DATA, SCALE)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-scale ./bench/scale
	nice -n 10 bin/bench-scale -data '$(or $(INFERPLAN_DATA),../shared/data)' -figures bench/scale/figures.json $(SCALE)

# INFEASIBLE holds flags of bench/infeasible, for example INFEASIBLE="-n 100 -kind flow".
.PHONY: bench-infeasible
bench-infeasible: setup ## 1,000 problems without a plan: the verdict, its cause and what is nearest, each checked by solving: table and bench/infeasible/figures.json; a second start goes on where the first was stopped (INFEASIBLE: such as -fresh)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-infeasible ./bench/infeasible
	nice -n 10 bin/bench-infeasible -results bench/infeasible/results/verdicts.jsonl -figures bench/infeasible/figures.json $(INFEASIBLE)

# ODD holds flags of bench/odd, for example ODD="-first 301 -v".
.PHONY: bench-odd
bench-odd: build ## 300 problems that are tiny, huge, equal or one too many: what a search takes, and how soon it hears Ctrl-C: bench/odd/figures.json (ODD: such as -first 301 -v)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-odd ./bench/odd
	nice -n 10 bin/bench-odd -figures bench/odd/figures.json $(ODD)

# EXPORTED holds flags of bench/exported, for example EXPORTED="-only silero" or EXPORTED=-drive.
.PHONY: bench-exported
bench-exported: build ## models as people exported them: profile, solve, serve, and an answer held against ONNX Runtime's: table in docs/benchmarks/exported.md and bench/exported/figures.json (EXPORTED)
	third_party/setup.sh exported
	$(GO) build $(COMMIT_FLAG) -o bin/bench-exported ./bench/exported
	INFERPLAN_ORT_LIB='$(ORT_LIB)' nice -n 10 bin/bench-exported -figures bench/exported/figures.json -doc docs/benchmarks/exported.md $(EXPORTED)

# GATE holds flags of bench/gate, for example GATE=-v.
.PHONY: bench-gate
bench-gate: setup ## false alarms and misses of plan check by profiles that were taken at different times: bench/gate/figures.json (GATE)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-gate ./bench/gate
	nice -n 10 bin/bench-gate -figures bench/gate/figures.json $(GATE)

# DIGITS holds flags of bench/digits, for example DIGITS="-parts runs -only 700/azure -seconds 10".
.PHONY: bench-digits
bench-digits: build ## gear plans of a real cascade, served here against plan and simulator: table and bench/digits/results/figures.json (INFERPLAN_DATA, DIGITS)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-digits ./bench/digits
	INFERPLAN_ORT_LIB='$(ORT_LIB)' scripts/digits.sh $(DIGITS)

# WORKFLOWS holds flags of bench/workflows, for example WORKFLOWS="-rps 2 -length 20s".
.PHONY: bench-workflows
bench-workflows: build ## a workflow of real models, served here and simulated: table and bench/workflows/figures.json (WORKFLOWS)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-workflows ./bench/workflows
	INFERPLAN_ORT_LIB='$(ORT_LIB)' bin/bench-workflows -figures bench/workflows/figures.json $(WORKFLOWS)

# RAG holds flags of bench/rag, for example RAG="-first 6 -last 7".
.PHONY: bench-rag
bench-rag: setup ## drawn applications with language models: plans against the best split of the devices by hand; bench/rag/figures.json (RAG)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-rag ./bench/rag
	nice -n 10 bin/bench-rag -figures bench/rag/figures.json $(RAG)

# QLM holds flags of bench/qlm, for example QLM="-parts search -tables orders"; a second start goes on where the first was stopped.
.PHONY: bench-qlm
bench-qlm: setup ## language model queues against QLM and what is proven: tables and bench/qlm/figures.json (INFERPLAN_DATA, QLM)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-qlm ./bench/qlm
	nice -n 19 bin/bench-qlm -data '$(or $(INFERPLAN_DATA),../shared/data)' -figures bench/qlm/figures.json $(QLM)

# What the instruments below were built from, for the figures that they write.
COMMIT_FLAG = -ldflags "-X $(MODULE)/bench/figures.commit=$$(git describe --always --dirty --exclude='*' --abbrev=10)"

# ATTACK holds flags of bench/attack, for example ATTACK="-parts greedy,hang -scale 0.1".
.PHONY: attack
attack: build ## attack plan from outside: hostile requests, files, clients and faults; table and bench/attack/figures.json (ATTACK)
	$(GO) build $(COMMIT_FLAG) -o bin/bench-attack ./bench/attack
	INFERPLAN_ORT_LIB='$(ORT_LIB)' nice bin/bench-attack -figures bench/attack/figures.json -doc docs/benchmarks/attack.md $(ATTACK)

# SOAK is its length; 10m is the short form.
.PHONY: soak
soak: build ## serve for SOAK (1h) at 70 % of the planned rate: answers, memory, descriptors, goroutines; bench/attack/figures.json, docs/soak.svg
	$(GO) build $(COMMIT_FLAG) -o bin/bench-attack ./bench/attack
	INFERPLAN_ORT_LIB='$(ORT_LIB)' bin/bench-attack -parts soak -soak $(SOAK) -figures bench/attack/figures.json -doc docs/benchmarks/attack.md -picture docs/soak.svg

.PHONY: fuzz
fuzz: setup ## every fuzz target for FUZZTIME (60s)
	@export INFERPLAN_ORT_LIB='$(ORT_LIB)'; bad=0; \
	for pkg in $$($(GO) list $(PKGS)); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; \
	    $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzzminimizetime 10x -fuzztime $(FUZZTIME) $$pkg || bad=1; \
	  done; \
	done; exit $$bad

# Why a version and not a tool line in go.mod: where a module that govulncheck needs cannot be had, only this step
# is lost, not the build.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: lint
lint: setup ## gofmt, vet, staticcheck, shell syntax, notices, govulncheck where it can run
	@unformatted=$$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "gofmt -l:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	@git ls-files -z --cached --others --exclude-standard '*.sh' .ci/run | xargs -0 -r -n 1 bash -n
	@GO='$(GO)' scripts/notices.sh check
	@rc=0; out=$$(timeout 300 $(GO) run $(GOVULNCHECK) ./... 2>&1) || rc=$$?; \
	if [ $$rc = 0 ]; then echo "govulncheck: no known vulnerabilities"; \
	elif grep -q '^exit status 3$$' <<<"$$out"; then echo "$$out"; exit 1; \
	else echo "govulncheck did NOT run: $$(grep -v '^exit status' <<<"$$out" | tail -n 2 | tr -s '\n\t' ' ')"; fi

.PHONY: lines
lines: ## lines of Go by top folder, without tests, testkit/, generated code and bench/
	@scripts/lines.sh

# CHECK holds arguments, for example CHECK="--device cpu" (a rehearsal) or CHECK="--steps outputs,profile".
.PHONY: gpu-check
gpu-check: build ## everything that needs an NVIDIA GPU, in steps; results in gpu-check/ (CUDA=1, CHECK)
	scripts/gpu-check.sh $(CHECK)

.PHONY: notices
notices: ## third_party/licenses/NOTICES.txt: licences of what is linked and shipped (lint tells when it is due)
	@GO='$(GO)' scripts/notices.sh

# SM=90 keeps the CUDA provider's kernels for that architecture only.
.PHONY: dist
dist: setup ## dist/inferplan-linux-amd64: a self-contained folder, an archive of it and an OCI image recipe (CUDA=1, SM=90, FULL=1)
	@CUDA='$(CUDA)' SM='$(SM)' FULL='$(FULL)' GO='$(GO)' ORT_LIB='$(ORT_LIB)' third_party/dist/make.sh

.PHONY: first-verdict
first-verdict: dist ## what a CI job takes from the archive of dist to a verdict, without a compiler (at most 60 s)
	scripts/first-verdict.sh

.PHONY: clean
clean: ## remove what build and dist made (set-up stays)
	rm -rf bin dist

.PHONY: distclean
distclean: clean ## remove set-up and its cache, too
	rm -rf third_party/cache third_party/tools third_party/highs/build third_party/highs/prefix \
	  third_party/ort/lib third_party/ort/include third_party/ort/node_modules \
	  third_party/models/files third_party/models/node_modules third_party/llama
