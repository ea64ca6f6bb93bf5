package document

import (
	"errors"
	"fmt"
	"strings"
)

// Error is one finding about a document: its position, what was found there, what was expected and, if possible,
// what to do. All errors in the content of a file are reported as an *Error, or as Errors if there are several.
// Failures to read or write the file itself wrap the system's error.
type Error struct {
	File     string // the caller's name of the file
	Line     int    // the line, from 1; 0 if it is not known
	Column   int    // the column in characters, from 1
	Path     string // the field's path, such as pools[1].nic_gbps; empty for the document
	Found    string // text or value at that place
	Expected string // the value or form that should be there
	Hint     string // the remedy, if there is one to name
}

// Error returns the message on one line, as "file:line:column: path: found …, expected …", and a hint on a second
// line if there is one.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
		}
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	switch {
	case e.Found != "" && e.Expected != "":
		fmt.Fprintf(&b, "found %s, expected %s", e.Found, e.Expected)
	case e.Found != "":
		b.WriteString(e.Found)
	case e.Expected != "":
		fmt.Fprintf(&b, "expected %s", e.Expected)
	}
	if e.Hint != "" {
		b.WriteString("\n  hint: ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// Errors is several findings about one document, in the order of the document.
type Errors []*Error

// Error returns the messages of all findings, one after the other.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the single findings for errors.As and errors.Is.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Findings returns the findings inside err, which may wrap an *Error or Errors, or nil if there are none.
func Findings(err error) []*Error {
	if es, ok := errors.AsType[Errors](err); ok {
		return es
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return []*Error{e}
	}
	return nil
}

// maxFindings bounds the findings about one document. More would not help.
const maxFindings = 20

// findings collects what is wrong with a document.
type findings struct {
	list    Errors
	hasMore bool
}

// isFull reports whether there are as many findings as are shown, and records that there are more. No more are
// needed then, which saves the time of making and finding them.
func (f *findings) isFull() bool {
	f.hasMore = f.hasMore || len(f.list) >= maxFindings
	return f.hasMore
}

// add adds an error to the list, unless the list is full.
func (f *findings) add(e *Error) {
	if f.isFull() {
		return
	}
	f.list = append(f.list, e)
}

// err returns the findings as an error: nil, the only one, or all of them.
func (f *findings) err() error {
	switch len(f.list) {
	case 0:
		return nil
	case 1:
		return f.list[0]
	}
	if f.hasMore {
		lastFinding := f.list[len(f.list)-1]
		return append(f.list, &Error{File: lastFinding.File, Found: fmt.Sprintf("more than %d findings; the rest is left out", maxFindings)})
	}
	return f.list
}

// encodingHint returns the probable encoding of a text that is not UTF-8.
func encodingHint(text string) string {
	if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") || len(text) > 1 && (text[0] == 0) != (text[1] == 0) {
		return "it looks like UTF-16: save it as UTF-8"
	}
	if strings.HasPrefix(text, "\x1f\x8b") {
		return "it is packed with gzip: unpack it first"
	}
	return ""
}

// Quote quotes a text of a document for a message, shortened if it is long.
func Quote(s string) string { return fmt.Sprintf("%q", shortened(s)) }

// shortened cuts a text for a message to maxLength bytes and an ellipsis. It does not cut inside a character.
func shortened(s string) string {
	const maxLength = 60
	if len(s) <= maxLength {
		return s
	}
	end := maxLength
	for end > 0 && s[end]&0xC0 == 0x80 { // do not cut inside a character
		end--
	}
	return s[:end] + "…"
}

// DidYouMean returns a hint at the candidate that s was probably meant to be, or "".
func DidYouMean(s string, candidates []string) string {
	if similar := Nearest(s, candidates); similar != "" {
		return "did you mean " + similar + "?"
	}
	return ""
}

// Nearest returns the candidate that s was probably meant to be, the one with the fewest typing mistakes if they
// are few, or "".
func Nearest(s string, candidates []string) string {
	nearest, bestDist := "", 1+max(1, (len(s)+1)/3)
	for _, c := range candidates {
		if d := editDistance(s, c, bestDist); d < bestDist {
			nearest, bestDist = c, d
		}
	}
	return nearest
}

// editDistance returns the Levenshtein distance, where a swap of neighbouring characters, the most frequent typing
// mistake, counts once. If the distance is limit or more, it returns limit.
func editDistance(a, b string, limit int) int {
	if len(a) > 100 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	rowBeforeLast, lastRow, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	// Fill the table of distances row by row. After the rotation, row is the row of i, lastRow that of i-1 and
	// rowBeforeLast that of i-2, which a swap needs.
	for i := 1; i <= len(a); i++ {
		rowBeforeLast, lastRow, row = lastRow, row, rowBeforeLast
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(lastRow[j]+1, row[j-1]+1, lastRow[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], rowBeforeLast[j-2]+1)
			}
		}
	}
	return min(row[len(b)], limit)
}
