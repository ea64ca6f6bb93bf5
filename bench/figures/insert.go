package figures

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// insertion is a place in the prose of a document for a figure: <!-- BENCH: WORDS -->1.2 s<!-- end -->. The words are the figure's claim, or words
// that only its claim has. A format may follow an arrow, as in <!-- scale: re-plan → {2} s of CPU -->. A field is {DIGITS}, the measured value with so
// many digits behind the point, {+DIGITS} with its sign; {DIGITS*100} and {DIGITS/60} scale it, and {low DIGITS} and {high DIGITS} are the ends of its interval.
var (
	insertion = regexp.MustCompile(`<!-- ([a-z/-]+): ([^→\n]+?)( → [^\n]*?)? -->([^<]*)<!-- end -->`)
	field     = regexp.MustCompile(`\{(low |high )?(\+?)(\d)(?:([*/])(\d+))?\}`)
)

// Render returns a document with all its rows and insertions made from figures, which list returns by bench. Words that no claim has
// are an error, and so are words of an insertion that several have, and an interval of a figure without one.
func Render(text string, list func(bench string) ([]Figure, error)) (string, error) {
	var errs []error
	text = rowTables.ReplaceAllStringFunc(text, func(old string) string {
		m := rowTables.FindStringSubmatch(old)
		figures, err := list(m[2])
		rows := m[3]
		if err == nil {
			rows, err = renderRows(rows, figures)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("rows of bench/%s: %w", m[2], err))
			return old
		}
		return m[1] + rows + m[4]
	})
	text = insertion.ReplaceAllStringFunc(text, func(old string) string {
		m := insertion.FindStringSubmatch(old)
		figures, err := list(m[1])
		var f *Figure
		if err == nil {
			f, err = findClaim(figures, m[2])
		}
		content := ""
		if err == nil {
			content, err = f.format(strings.TrimPrefix(m[3], " → "))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", old, err))
			return old
		}
		return "<!-- " + m[1] + ": " + m[2] + m[3] + " -->" + content + "<!-- end -->"
	})
	return text, errors.Join(errs...)
}

// findClaim returns the figure whose claim is the words, or the only one whose claim has them.
func findClaim(list []Figure, words string) (found *Figure, err error) {
	if strings.Contains(words, "--") {
		return nil, errors.New("words with -- end the comment in some readers of Markdown")
	}
	count := 0
	for i := range list {
		if list[i].Claim == words {
			return &list[i], nil
		}
		if strings.Contains(list[i].Claim, words) {
			count++
			found = &list[i]
		}
	}
	if count != 1 {
		return nil, fmt.Errorf("%d claims have these words, expected one", count)
	}
	return found, nil
}

// format returns the figure in a format; without one, as Table shows it.
func (f *Figure) format(format string) (string, error) {
	if format == "" {
		return strings.TrimSpace(number(f.Measured) + " " + f.Unit), nil
	}
	var err error
	return field.ReplaceAllStringFunc(format, func(text string) string {
		m, v := field.FindStringSubmatch(text), f.Measured
		if m[1] != "" && f.Interval == nil {
			err = errors.New("the figure has no interval")
		} else if m[1] == "low " {
			v = f.Interval[0]
		} else if m[1] == "high " {
			v = f.Interval[1]
		}
		factor, _ := strconv.ParseFloat(m[5], 64) // digits, or nothing
		switch m[4] {
		case "*":
			v *= factor
		case "/":
			v /= factor
		}
		digits, _ := strconv.Atoi(m[3])
		text = fmt.Sprintf("%"+m[2]+".*f", digits, v)
		if strings.Trim(text, "-0.") == "" { // no zero with a sign
			text = strings.TrimPrefix(text, "-")
		}
		return text
	}), err
}
