package figures

import (
	"fmt"
	"strconv"
	"strings"
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
