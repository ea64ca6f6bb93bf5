package csvfile

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats/document"
)

// File is an open file. If it is compressed with gzip, whatever its name, it is decompressed.
type File struct {
	*bufio.Reader
	Name    string // the file's name in errors
	MaxLine int    // largest length of a line in bytes; 0 means a mebibyte
	isPlain bool   // not gzip although its name ends like that
	closes  []io.Closer
}

// Open opens a file, plain or gzip, or standard input (-). The caller closes it.
func Open(path string) (*File, error) {
	if path == document.Stdin {
		r, err := document.Open(path)
		if err != nil {
			return nil, err
		}
		return New(r, "standard input")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(&document.Error{File: path, Found: "a folder", Expected: "a file"}, f.Close())
	}
	x, err := New(f, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	x.closes = append(x.closes, f)
	return x, nil
}

// New returns r as a file, unpacked if it is gzip. Binary data is an error. Errors use name for it. If the name ends
// in .gz but the content is plain text, isPlain is set, for hints in errors.
func New(r io.Reader, name string) (*File, error) {
	f := &File{Name: name, Reader: bufio.NewReaderSize(r, 1<<16)}
	if magic, _ := f.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(f.Reader)
		if err != nil {
			return nil, &document.Error{File: name, Found: "a gzip file that cannot be unpacked: its beginning is damaged or cut off"}
		}
		f.Reader = bufio.NewReaderSize(z, 1<<16)
		f.closes = append(f.closes, z)
		return f, nil
	}
	f.isPlain = strings.HasSuffix(name, ".gz")
	if head, _ := f.Peek(512); bytes.ContainsFunc(head, isBinary) {
		e := &document.Error{File: name, Found: "binary data", Expected: "a text, plain or packed with gzip"}
		if f.isPlain {
			e.Found = "binary data that is no gzip, in spite of the name"
		}
		return nil, e
	}
	return f, nil
}

// readPlain is the hint for errors in such a file.
const readPlain = "it is no gzip, in spite of its name, and was read as text"

// isBinary reports whether a character is a control character that texts do not have.
func isBinary(r rune) bool { return r < '\t' || r > '\r' && r < 0x1b }

// Close closes the file, if this package opened it.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.closes {
		errs = append(errs, c.Close())
	}
	f.closes = nil
	return errors.Join(errs...)
}

// maxLine bounds a line if the file sets no other bound. Longer lines are not CSV, and would be kept in memory.
const maxLine = 1 << 20

// lineGuard fails on lines that are too long before they are collected in memory.
type lineGuard struct {
	f    *File
	line int
	n    int
	max  int
}

// Read reads from the file, and fails at a line longer than max bytes. Without that limit, the CSV reader above it
// would hold all of a file that has no line breaks in memory.
func (g *lineGuard) Read(p []byte) (int, error) {
	n, err := g.f.Read(p)
	for _, b := range p[:n] {
		if b == '\n' {
			g.line++
			g.n = 0
			continue
		}
		if g.n++; g.n > g.max {
			return 0, &document.Error{File: g.f.Name, Line: g.line + 1, Column: 1, Found: "a line of more than " + document.Bytes(g.max).String(), Expected: "a CSV file"}
		}
	}
	return n, err
}

// Table is a CSV file with a header.
type Table struct {
	*File
	Header  []string
	Row     []string // the current row; its texts are valid until the next one
	csv     *csv.Reader
	cellErr error // the error of the row's first cell that could not be read, see Number
}

// ReadTable reads the header of a text, plain or compressed. Errors use name for it.
func ReadTable(r io.Reader, name string) (*Table, error) {
	f, err := New(r, name)
	if err != nil {
		return nil, err
	}
	return NewTable(f)
}

// OpenTable opens a file and reads its header; the caller closes it.
func OpenTable(path string) (*Table, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	t, err := NewTable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// NewTable returns the table in a file, after reading its header. If the file is plain in spite of a name that
// ends in .gz, an error says so.
func NewTable(f *File) (*Table, error) {
	t, err := newTable(f)
	if e, ok := errors.AsType[*document.Error](err); ok && f.isPlain && e.Hint == "" {
		e.Hint = readPlain
	}
	return t, err
}

// newTable reads a CSV file's header and returns the table, whose rows Next reads. Names of columns lose the
// spaces around them and the byte order mark that some programs write first. An empty or repeated name is an
// error.
func newTable(f *File) (*Table, error) {
	t := &Table{File: f, csv: csv.NewReader(&lineGuard{f: f, max: cmp.Or(f.MaxLine, maxLine)})}
	t.csv.ReuseRecord = true
	header, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, &document.Error{File: f.Name, Found: "an empty file", Expected: "a header line of column names"}
	}
	if err != nil {
		return nil, t.documentError(err)
	}
	seenNames := map[string]bool{}
	for i, name := range header {
		name = strings.TrimPrefix(name, "\ufeff")
		if name = strings.TrimSpace(name); name == "" || seenNames[name] {
			return nil, t.Fail(i, "", fmt.Sprintf("the column name %q", name), "each column once, with a name")
		}
		seenNames[name] = true
		t.Header = append(t.Header, strings.Clone(name))
	}
	return t, nil
}

// Expect returns an error unless the table's header is exactly this one.
func (t *Table) Expect(header ...string) error {
	if slices.Equal(t.Header, header) {
		return nil
	}
	e := &document.Error{File: t.Name, Line: 1, Column: 1, Found: "the columns " + strings.Join(t.Header, ","), Expected: strings.Join(header, ",")}
	if t.isPlain {
		e.Hint = readPlain
	}
	return e
}

// Next reads a row into t.Row. At the end it returns io.EOF.
func (t *Table) Next() error {
	row, err := t.csv.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return t.documentError(err)
	}
	t.Row = row
	return nil
}

// EachRow calls row for every remaining row, which reads the cells. It ends with the error of row, or of a cell
// that was wrong.
func (t *Table) EachRow(row func() error) error {
	for {
		if err := t.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		err := row()
		if t.cellErr != nil {
			return t.cellErr
		}
		if err != nil {
			return err
		}
	}
}

// Column returns the first of the names that the table has as a column, and its index, or -1 if it has none.
func (t *Table) Column(names ...string) (string, int) {
	for _, name := range names {
		if i := slices.Index(t.Header, name); i >= 0 {
			return name, i
		}
	}
	return "", -1
}

// Require fails unless the table has these columns. A name may list alternatives with a | between them.
func (t *Table) Require(names ...string) error {
	for _, name := range names {
		if _, i := t.Column(strings.Split(name, "|")...); i < 0 {
			expected := strings.ReplaceAll(strings.Join(names, ", "), "|", " or ") + " among them"
			return &document.Error{File: t.Name, Line: 1, Column: 1, Found: "the columns " + strings.Join(t.Header, ","), Expected: expected}
		}
	}
	return nil
}

// Text returns a cell of the row without spaces around it, or "" if the table has no such column.
func (t *Table) Text(column string) string {
	i := slices.Index(t.Header, column)
	if i < 0 {
		return ""
	}
	return strings.Clone(strings.TrimSpace(t.Row[i]))
}

// Number returns a cell of the row. If it is not a number within the bounds, Number returns minValue, and EachRow
// fails.
func (t *Table) Number(column string, minValue, maxValue float64) float64 {
	return number(t, column, minValue, maxValue, "a number from %g to %g", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
}

// WholeNumber returns the cell of the current row in a column as a whole number from minValue to maxValue. If it is
// wrong, it records an error, which EachRow returns.
func (t *Table) WholeNumber(column string, minValue, maxValue int) int {
	return number(t, column, minValue, maxValue, "a whole number from %d to %d", func(text string) (int, error) {
		x, err := strconv.ParseFloat(text, 64) // accepts 4.0, too
		if err == nil && (x != math.Trunc(x) || math.Abs(x) > 1<<53) {
			err = strconv.ErrSyntax
		}
		return int(x), err
	})
}

// Time returns the cell of the current row in a column as a time from 0 to maxTime. The unit is at the end of the
// column's name: _us, _ms or else seconds. If it is wrong, it records an error, which EachRow returns.
func (t *Table) Time(column string, maxTime time.Duration) time.Duration {
	unit := time.Second
	switch {
	case strings.HasSuffix(column, "_us"):
		unit = time.Microsecond
	case strings.HasSuffix(column, "_ms"):
		unit = time.Millisecond
	}
	return time.Duration(math.Round(t.Number(column, 0, float64(maxTime)/float64(unit)) * float64(unit)))
}

// number returns the current row's value in a column, from minValue to maxValue. If the column is absent or the
// value is wrong, it records an error in t, which EachRow returns, and returns minValue. expected is a format with
// two verbs, for the two limits.
func number[T int | float64](t *Table, column string, minValue, maxValue T, expected string, parse func(string) (T, error)) T {
	i := slices.Index(t.Header, column)
	if i < 0 {
		t.SetError(&document.Error{File: t.Name, Line: 1, Found: "no column " + column, Expected: "one"})
		return minValue
	}
	x, err := parse(strings.TrimSpace(t.Row[i]))
	if err != nil || !(x >= minValue && x <= maxValue) {
		t.SetError(t.CellError(i, fmt.Sprintf(expected, minValue, maxValue)))
		return minValue
	}
	return x
}

// SetError makes EachRow fail at the current row, unless an earlier error is set.
func (t *Table) SetError(err error) {
	if t.cellErr == nil {
		t.cellErr = err
	}
}

// documentError turns an error of encoding/csv into the error type of documents, with line and column.
func (t *Table) documentError(err error) error {
	if p, ok := errors.AsType[*csv.ParseError](err); ok {
		if e, ok := errors.AsType[*document.Error](p.Err); ok {
			return e
		}
		e := &document.Error{File: t.Name, Line: p.Line, Column: p.Column, Found: "a line that is no CSV: " + p.Err.Error()}
		if errors.Is(p.Err, csv.ErrFieldCount) {
			e.Found, e.Expected = "another number of columns", fmt.Sprintf("%d, as in the header: %s", len(t.Header), strings.Join(t.Header, ","))
		}
		return e
	}
	if e, ok := errors.AsType[*document.Error](err); ok {
		return e
	}
	return fmt.Errorf("reading %s: %w", t.Name, err)
}

// Fail returns an error about field i of the current row, with its position in the file. i is the index of the
// field's column, and column its name for the error, or "".
func (t *Table) Fail(i int, column, found, expected string) *document.Error {
	line, col := t.csv.FieldPos(i)
	e := &document.Error{File: t.Name, Line: line, Column: col, Path: column, Found: found, Expected: expected}
	if t.isPlain && line == 1 {
		e.Hint = readPlain
	}
	return e
}

// CellError returns a finding about the text of field i.
func (t *Table) CellError(i int, expected string) *document.Error {
	return t.Fail(i, t.Header[i], Quote(t.Row[i]), expected)
}

// Quote quotes a text of a file for a message.
func Quote(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return fmt.Sprintf("the text %q", s)
}

// WriteFile writes a file completely or not at all, compressed if path ends in .gz. The bytes depend only on the
// content. changed returns whether the file had other content before.
func WriteFile(path string, write func(io.Writer) error, force ...document.Force) (changed bool, err error) {
	var b bytes.Buffer
	if strings.HasSuffix(path, ".gz") {
		z := gzip.NewWriter(&b)
		if err = write(z); err == nil {
			err = z.Close()
		}
	} else {
		err = write(&b)
	}
	if err != nil {
		return false, err
	}
	return document.WriteBytes(path, b.Bytes(), force...)
}
