package figures

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"inferplan/formats/document"
)

// Table is a list as a table of Markdown. What was asked and does not hold is bold.
func Table(list []Figure) string {
	var b strings.Builder
	b.WriteString("| what | asked | measured | holds |\n|---|---|---|---|\n")
	for _, f := range list {
		measured := strings.TrimSpace(number(f.Measured) + " " + f.Unit)
		if f.Interval != nil {
			measured += fmt.Sprintf(" (%s to %s)", number(f.Interval[0]), number(f.Interval[1]))
		}
		if f.Note != "" {
			measured += "; " + f.Note
		}
		holds := string(f.Holds)
		if f.Holds == No || f.Holds == Partly {
			measured, holds = "**"+measured+"**", "**"+holds+"**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(f.Claim), cell(f.Asked), cell(measured), holds)
	}
	return b.String()
}

// number has four digits at most where it is no whole number.
func number(v float64) string {
	if v == float64(int64(v)) && v < 1e15 && v > -1e15 {
		return strconv.FormatInt(int64(v), 10)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// marks are the lines of a document between which the table of a bench stands.
func marks(bench string) (begin, end string) {
	return "<!-- figures of bench/" + bench + " -->\n", "<!-- end of figures -->\n"
}

// Shown returns the table of a bench that stands in a document; false where there is
// no place for one.
func Shown(text, bench string) (table string, ok bool) {
	begin, end := marks(bench)
	_, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", false
	}
	table, _, ok = strings.Cut(rest, end)
	return table, ok
}

// Show puts the table of a bench into its place in a document.
func Show(path, bench string, list []Figure) error {
	begin, end := marks(bench)
	return Replace(path, begin, end, Table(list))
}

// Replace puts a text between two lines of a document.
func Replace(path, begin, end, content string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("showing figures: %w", err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("showing figures: %s: found no lines %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	_, err = document.WriteBytes(path, []byte(head+begin+content+end+tail), document.Force(true))
	return err
}
