#!/usr/bin/env bash
# gofmt, vet, staticcheck, shell syntax, notices, and govulncheck where it can run. `make lint` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
# Why a version and not a tool line in go.mod: where a module that govulncheck needs cannot be had, only this step
# is lost, not the build.
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0

unformatted=$(git ls-files -z --cached --others --exclude-standard '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r gofmt -l)
[ -z "$unformatted" ] || { printf 'gofmt -l:\n%s\n' "$unformatted"; exit 1; }
go vet ./...
go vet -tags rivals ./executor/oip ./formats/document
GOGC=400 GOMEMLIMIT=4GiB go tool staticcheck ./... # three tenths less CPU for more memory
git ls-files -z --cached --others --exclude-standard '*.sh' .ci/run | xargs -0 -r -n 1 bash -n
scripts/notices.sh check

# govulncheck reads and type-checks every package before it asks the database, so the database is asked first.
database=https://vuln.go.dev
if command -v curl >/dev/null && ! said=$(curl -sSf --max-time 20 -o /dev/null "$database/index/modules.json.gz" 2>&1); then
  echo "govulncheck did NOT run: $database does not answer: $said"
  exit 0
fi
rc=0
said=$(timeout 300 go run "$govulncheck" ./... 2>&1) || rc=$?
if [ "$rc" = 0 ]; then
  echo "govulncheck: no known vulnerabilities"
elif grep -q '^exit status 3$' <<<"$said"; then
  echo "$said"
  exit 1
else
  echo "govulncheck did NOT run: $(grep -v '^exit status' <<<"$said" | tail -n 2 | tr -s '\n\t' ' ')"
fi
