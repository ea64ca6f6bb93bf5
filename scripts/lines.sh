#!/usr/bin/env bash
# Lines of Go that git tracks, by top folder and in total: all lines, lines of code (neither blank nor
# comment alone) and lines of comment per line of code. Without tests (the kind of plan that tests alone
# have among them), what tests and instruments share (testkit/), generated code (*.pb.go) and the measurements in
# bench/. Arguments: none for top folders, or a depth: 2 gives planner/pool and planner/gear apart.
set -euo pipefail
cd "$(dirname "$0")/.."
depth=${1:-1}

git ls-files -z -- '*.go' ':!:*_test.go' ':!:*_testkind.go' ':!:planner/echo/' ':!:policy/echo/' ':!:*.pb.go' ':!:bench/' ':!:testkit/' |
  while IFS= read -r -d '' file; do
    [ -f "$file" ] || continue # removed, and not yet committed
    printf '%s\0' "$file"
  done |
  xargs -0 awk -v depth="$depth" '
    FNR == 1 {
      n = split(FILENAME, part, "/"); folder = n == 1 ? "." : part[1]
      for (i = 2; i <= depth && i < n; i++) folder = folder "/" part[i]
      files[folder]++; block = 0
    }
    { lines[folder]++ }
    block { comments[folder]++; if ($0 ~ /\*\//) block = 0; next }
    /^[ \t]*$/ { next }
    /^[ \t]*\/\// { comments[folder]++; next }
    /^[ \t]*\/\*/ { comments[folder]++; if ($0 !~ /\*\//) block = 1; next }
    { code[folder]++ }
    END {
      for (folder in lines) print folder, lines[folder], code[folder] + 0, comments[folder] + 0, files[folder]
    }' |
  LC_ALL=C sort |
  awk '
    function row(name, lines, code, comments, files) {
      printf "%-24s %8d lines %8d code %6.3f comments a line of code %5d files\n", name, lines, code, code ? comments / code : 0, files
    }
    { row($1, $2, $3, $4, $5); lines += $2; code += $3; comments += $4; files += $5 }
    END { row("total", lines, code, comments, files) }'
