package arrivals

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"inferplan/formats"
)

// file is an open file, unpacked when it is a gzip file, whatever its name.
type file struct {
	name   string
	r      *bufio.Reader
	closes []io.Closer
}

func open(path string) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading arrivals: %w", err)
	}
	x, err := newFile(f, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	x.closes = append(x.closes, f)
	return x, nil
}

func newFile(r io.Reader, name string) (*file, error) {
	f := &file{name: name, r: bufio.NewReaderSize(r, 1<<16)}
	if magic, _ := f.r.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(f.r)
		if err != nil {
			return nil, &formats.Error{File: name, Found: "a gzip file that cannot be unpacked: " + err.Error()}
		}
		f.r = bufio.NewReaderSize(z, 1<<16)
		f.closes = append(f.closes, z)
	}
	return f, nil
}

// Close closes what was opened.
func (f *file) Close() error {
	var errs []error
	for _, c := range f.closes {
		errs = append(errs, c.Close())
	}
	f.closes = nil
	return errors.Join(errs...)
}

// maxLine bounds a line: a longer one is no trace, and would be kept whole in
// memory.
const maxLine = 1 << 20

// lineGuard fails on lines that are too long before they are gathered.
type lineGuard struct {
	f    *file
	line int
	n    int
}

func (g *lineGuard) Read(p []byte) (int, error) {
	n, err := g.f.r.Read(p)
	for _, b := range p[:n] {
		if b == '\n' {
			g.line++
			g.n = 0
			continue
		}
		if g.n++; g.n > maxLine {
			return 0, &formats.Error{File: g.f.name, Line: g.line + 1, Column: 1, Found: "a line of more than " + formats.Bytes(maxLine).String(), Expected: "a CSV file"}
		}
	}
	return n, err
}

// table reads a CSV file with a header, strictly: every line has the columns
// of the header, quotes are closed, no name stands twice.
type table struct {
	*file
	csv    *csv.Reader
	header []string
	row    []string
}

func newTable(f *file) (*table, error) {
	t := &table{file: f, csv: csv.NewReader(&lineGuard{f: f})}
	t.csv.ReuseRecord = true
	header, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, &formats.Error{File: f.name, Found: "an empty file", Expected: "a header line of column names"}
	}
	if err != nil {
		return nil, t.wrap(err)
	}
	seen := map[string]bool{}
	for i, name := range header {
		name = strings.TrimPrefix(name, "\ufeff")
		if name = strings.TrimSpace(name); name == "" || seen[name] {
			return nil, t.fail(i, "", fmt.Sprintf("the column name %q", name), "each column once, with a name")
		}
		seen[name] = true
		t.header = append(t.header, strings.Clone(name))
	}
	return t, nil
}

// next reads a row into t.row; io.EOF at the end.
func (t *table) next() error {
	row, err := t.csv.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return t.wrap(err)
	}
	t.row = row
	return nil
}

// wrap turns what encoding/csv says into the error type of documents.
func (t *table) wrap(err error) error {
	if p, ok := errors.AsType[*csv.ParseError](err); ok {
		if e, ok := errors.AsType[*formats.Error](p.Err); ok {
			return e
		}
		e := &formats.Error{File: t.name, Line: p.Line, Column: p.Column, Found: "a line that is no CSV: " + p.Err.Error()}
		if errors.Is(p.Err, csv.ErrFieldCount) {
			e.Found, e.Expected = "another number of columns", fmt.Sprintf("%d, as in the header: %s", len(t.header), strings.Join(t.header, ","))
		}
		return e
	}
	if e, ok := errors.AsType[*formats.Error](err); ok {
		return e
	}
	return fmt.Errorf("reading %s: %w", t.name, err)
}

// fail is a finding about field i of the row at hand.
func (t *table) fail(i int, column, found, expected string) *formats.Error {
	line, col := t.csv.FieldPos(i)
	return &formats.Error{File: t.name, Line: line, Column: col, Path: column, Found: found, Expected: expected}
}

// cell is a finding about the text of field i.
func (t *table) cell(i int, expected string) *formats.Error {
	return t.fail(i, t.header[i], shorten(t.row[i]), expected)
}

func shorten(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:60], "") + "…"
	}
	return fmt.Sprintf("the text %q", s)
}
