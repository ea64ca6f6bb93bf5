package figures

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// rowTables are the places of tables whose rows an author chooses. A row's first cell has words of claims, in which … stands for anything:
//
//	<!-- rows of bench/pard -->
//	| what | asked | measured | holds | why not more |
//	|---|---|---|---|---|
//	| S0: drop rate of … over that of pard | | | | Clipper++ drops less where … |
//	<!-- end of rows -->
//
// Where the claim's words are no good name, the cell has another name and the words behind it, with a format as an insertion has one:
// devices of bert5 <!-- devices of bert5 at … → {1} -->. Render makes the cells asked, measured and holds; it leaves the first cell and those behind holds as they are.
var rowTables = regexp.MustCompile(`(?s)(<!-- rows of bench/([a-z/-]+) -->\n[^\n]*\n[^\n]*\n)(.*?)(<!-- end of rows -->\n)`)

// rowWords are the words of a row behind its name.
var rowWords = regexp.MustCompile(`<!-- ([^\n]+?)( → [^\n]*?)? -->`)

// madeCells is the number of cells of a row that Render makes, behind the first.
const madeCells = 3

// renderRows returns the rows of a table with asked, measured and holds made from the figures that their words name.
func renderRows(rows string, list []Figure) (string, error) {
	var b strings.Builder
	var errs []error
	for row := range strings.Lines(rows) {
		cells := rowCells(row)
		if cells == nil {
			errs = append(errs, fmt.Errorf("row %q: found no row of a table with a first cell", strings.TrimSpace(row)))
			continue
		}
		words, format := claimWords(cells[0])
		group, err := claimsWith(list, words)
		made := []string{"", "", ""}
		if err == nil {
			made, err = summary(group, format)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("row %q: %w", cells[0], err))
		}
		out := append([]string{cells[0]}, made...)
		if len(cells) > 1+madeCells {
			out = append(out, cells[1+madeCells:]...)
		}
		b.WriteString("| " + strings.Join(out, " | ") + " |\n")
	}
	return b.String(), errors.Join(errs...)
}

// rowCells returns the cells of a line of a table. If the line is none, it returns nil.
func rowCells(line string) []string {
	line = strings.TrimSpace(line)
	if len(line) < 2 || line[0] != '|' || line[len(line)-1] != '|' {
		return nil
	}
	const bar = "\x00"
	cells := strings.Split(strings.ReplaceAll(line[1:len(line)-1], `\|`, bar), "|")
	for i := range cells {
		cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), bar, `\|`)
	}
	return cells
}

// claimWords returns the words and the format of a row's first cell.
func claimWords(cell string) (words, format string) {
	words = cell
	if m := rowWords.FindStringSubmatch(cell); m != nil {
		words, format = m[1], strings.TrimPrefix(m[2], " → ")
	}
	return strings.ReplaceAll(words, `\|`, "|"), format
}

// claimsWith returns the figure whose claim is the words, or else all whose claims have them. In the words … stands for anything.
func claimsWith(list []Figure, words string) (group []Figure, err error) {
	for _, f := range list {
		if f.Claim == words {
			return []Figure{f}, nil
		}
	}
	parts := strings.Split(words, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(parts[i]))
	}
	pattern, err := regexp.Compile(strings.Join(parts, ".*"))
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if pattern.MatchString(f.Claim) {
			group = append(group, f)
		}
	}
	if group == nil || strings.TrimSpace(words) == "" {
		return nil, errors.New("no claim has these words")
	}
	return group, nil
}

// summary returns the cells asked, measured and holds of figures. Of several it has the least and the most, of more than two the
// median as well (of an even number the lower of the two in the middle), and how many hold of those with a verdict. What does not hold is bold.
func summary(group []Figure, format string) ([]string, error) {
	byValue := slices.Clone(group)
	slices.SortStableFunc(byValue, func(a, b Figure) int {
		switch {
		case a.Measured < b.Measured:
			return -1
		case a.Measured > b.Measured:
			return 1
		}
		return 0
	})
	lowest, median, highest := byValue[0], byValue[(len(group)-1)/2], byValue[len(group)-1]

	// What was asked stands once, if it is the same for all.
	asked := group[0].Asked
	judged, hold := 0, 0
	for _, f := range group {
		if f.Asked != group[0].Asked {
			asked = "each its own"
		}
		if f.Unit != group[0].Unit {
			return nil, fmt.Errorf("units %q and %q in one row", group[0].Unit, f.Unit)
		}
		if f.Holds != "" {
			judged++
		}
		if f.Holds == Yes {
			hold++
		}
	}

	var errs []error
	show := func(f Figure, unit bool) string {
		if format != "" {
			format := format
			if !unit {
				format = format[:strings.LastIndex(format, "}")+1]
			}
			text, err := f.format(format)
			errs = append(errs, err)
			return text
		}
		if !unit {
			return number(f.Measured)
		}
		return strings.TrimSpace(number(f.Measured) + " " + unitsShown(f.Unit))
	}
	measured, holds := show(lowest, true), string(group[0].Holds)
	if len(group) == 1 && lowest.Interval != nil && lowest.Interval[0] < lowest.Interval[1] && format == "" {
		measured += fmt.Sprintf(" (%s to %s)", number(lowest.Interval[0]), number(lowest.Interval[1]))
	}
	if len(group) > 1 {
		if show(lowest, true) != show(highest, true) {
			measured = fmt.Sprintf("%s to %s", show(lowest, false), show(highest, true))
			if len(group) > 2 {
				measured += ", median " + show(median, false)
			}
		}
		holds = ""
		if judged > 0 {
			holds = fmt.Sprintf("%d of %d", hold, judged)
		}
	}
	if hold < judged {
		measured, holds = "**"+measured+"**", "**"+holds+"**"
	}
	return []string{cell(asked), cell(measured), holds}, errors.Join(errs...)
}

// unitsShown returns a unit as a row shows it: not at all if it says only that the figure has none.
func unitsShown(unit string) string {
	if unit == "ratio" || unit == "share" {
		return ""
	}
	return unit
}
