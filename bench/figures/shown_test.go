package figures

import (
	"regexp"
	"strings"
)

// ClaimsShown returns the claims of a bench that a document shows, in rows or insertions.
func ClaimsShown(text, bench string, list []Figure) map[string]bool {
	out := map[string]bool{}
	note := func(group []Figure, err error) {
		for _, f := range group {
			if err == nil {
				out[f.Claim] = true
			}
		}
	}
	for _, m := range rowTables.FindAllStringSubmatch(text, -1) {
		if m[2] != bench {
			continue
		}
		for row := range strings.Lines(m[3]) {
			if cells := rowCells(row); cells != nil {
				words, _ := claimWords(cells[0])
				note(claimsWith(list, words))
			}
		}
	}
	for _, m := range insertion.FindAllStringSubmatch(text, -1) {
		if m[1] == bench {
			if f, err := findClaim(list, m[2]); err == nil {
				out[f.Claim] = true
			}
		}
	}
	return out
}

var (
	code    = regexp.MustCompile("(?s)```.*?```|`[^`]*`|(?m)^    [^\n]*$")
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
	linked  = regexp.MustCompile(`\]\([^)]*\)`)
	// unit is a number with a unit of time, size, rate or share behind it.
	unit = regexp.MustCompile(`(?:\d[\d.,]*|\.\d+) ?(?:%|(?:ns|µs|us|ms|s|min|h|seconds?|minutes?|hours?|KB|MB|GB|KiB|MiB|GiB|points?|requests/s|rps)\b)`)
)

// Prose returns the numbers with a unit that stand in the prose of a document: neither in an insertion or a cell that Render
// makes, nor in code, a link, or the first cell of a table's row, which says what was asked.
func Prose(text string) []string {
	text = rowTables.ReplaceAllStringFunc(text, writtenCells)
	text = insertion.ReplaceAllString(text, "")
	text = code.ReplaceAllString(text, "")
	text = comment.ReplaceAllString(text, "")
	text = linked.ReplaceAllString(text, "]")
	var out []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "|") {
			_, line, _ = strings.Cut(line[1:], "|")
		}
		out = append(out, unit.FindAllString(line, -1)...)
	}
	return out
}

// writtenCells returns the cells of a table of rows that Render does not make, without the first.
func writtenCells(table string) string {
	var b strings.Builder
	for row := range strings.Lines(rowTables.FindStringSubmatch(table)[3]) {
		if cells := rowCells(row); len(cells) > 1+madeCells {
			b.WriteString("| | " + strings.Join(cells[1+madeCells:], " | ") + " |\n")
		}
	}
	return b.String()
}
