# inferplan: build, test and package. `make help` lists the targets; everything a target needs it sets up itself.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

.PHONY: help setup build llama demo test lint docs bench microbench dist clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Variables: NAME (bench), ARGS (flags of test, bench and microbench; all of clean), PKGS and BENCH"
	@echo "(microbench: packages and benchmarks), CUDA=1 (setup, dist)"

setup: ## HiGHS, ONNX Runtime, models and headers below third_party/ (idempotent)
	@CUDA=$(CUDA) third_party/setup.sh

# The tag leaves out what gonum.org/v1/plot has for PDF, TeX, EPS and bitmaps.
build: setup ## bin/plan
	@mkdir -p bin
	go build -tags minimal -o bin/plan ./cmd/plan

llama: ## a server of language models and small models in third_party/llama (20 s, no root)
	@scripts/llama-setup.sh
	go run ./bench/llm/models -o third_party/llama/models

demo: build ## profile, solve, simulate, serve and load real models on this machine
	scripts/demo.sh

test: setup ## vet and every test, with the race detector where goroutines meet
	@scripts/test.sh all $(ARGS)

lint: setup ## gofmt, vet, staticcheck, shell syntax, notices, govulncheck where it can run
	@scripts/lint.sh

docs: setup ## tables, figures and references in documents; notices
	@scripts/docs.sh

# Every instrument has flags of its own: make bench NAME=gate ARGS=-h.
bench: ## the instrument or check NAME; without a NAME their list
	@scripts/bench.sh '$(NAME)' $(ARGS)

microbench: setup ## Go benchmarks with allocations
	@scripts/test.sh micro $(ARGS)

dist: setup ## a self-contained folder in dist/, an archive of it and an image recipe
	@CUDA='$(CUDA)' third_party/dist/make.sh

clean: ## what build and dist made; with ARGS=all set-up and its cache, too
	rm -rf bin dist
	[ '$(ARGS)' != all ] || rm -rf third_party/cache third_party/tools third_party/highs/build third_party/highs/prefix \
	  third_party/ort/lib third_party/ort/include third_party/ort/node_modules \
	  third_party/models/files third_party/models/node_modules third_party/llama
