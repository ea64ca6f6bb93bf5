#!/usr/bin/env bash
# Makes again what documents show of figures and code: tables and numbers of bench/**/figures.json, the references of the command
# line, documents and metrics, and the notices of parts by others.
# `make docs` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
go test -vet=off -count=1 ./bench/figures -run '^TestDocumentsShowTheFigures$' -write-docs
go test -vet=off -count=1 ./formats -run '^TestDocumentReference$' -record-guards
go test -vet=off -count=1 ./executor -run '^TestMetricsReference$' -record-guards
go test -vet=off -count=1 ./cmd/plan -run '^Test(Reference|CommandsNotRunAreListed)$' -record-guards
scripts/notices.sh
