#!/usr/bin/env bash
# Checks the alert rules of examples/grafana with the packages of Prometheus that promtool check rules calls, in a module of their own:
# as a dependency of this project they would bring the clients of three clouds.
#   scripts/alerts.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
file=$(realpath "${1:-examples/grafana/alerts.yaml}")
version=v0.316.0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	groups, errs := rulefmt.ParseFile(os.Args[1], false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		fmt.Println(err)
	}
	if len(errs) > 0 {
		os.Exit(1)
	}
	for _, g := range groups.Groups {
		fmt.Printf("SUCCESS: %d rules found in group %s\n", len(g.Rules), g.Name)
	}
}
GO
go mod init alerts 2> /dev/null
go get "github.com/prometheus/prometheus@$version" 2> /dev/null
go mod tidy 2> /dev/null
go run . "$file"
