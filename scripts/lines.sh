#!/usr/bin/env bash
# Lines of Go that git tracks, by top folder and in total, without tests (the kind of plan
# that tests alone have among them), generated
# code (*.pb.go) and the measurements in bench/. Arguments: none.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files -z -- '*.go' ':!:*_test.go' ':!:*_testkind.go' ':!:planner/echo/' ':!:policy/echo/' ':!:*.pb.go' ':!:bench/' |
  while IFS= read -r -d '' file; do
    [ -f "$file" ] || continue # removed, and not yet committed
    folder=${file%%/*}
    [ "$folder" != "$file" ] || folder=.
    printf '%s %d\n' "$folder" "$(wc -l <"$file")"
  done |
  awk '{ lines[$1] += $2; files[$1]++; all += $2; n++ }
    END {
      for (folder in lines) printf "%-12s %8d lines %5d files\n", folder, lines[folder], files[folder] | "LC_ALL=C sort"
      close("LC_ALL=C sort")
      printf "%-12s %8d lines %5d files\n", "total", all, n
    }'
