package csvfile

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats/document"
)

func pack(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll reads a table to its end or its first error.
func readAll(r io.Reader, maxLine int) (header []string, rows [][]string, err error) {
	f, err := New(r, "x.csv")
	if err != nil {
		return nil, nil, err
	}
	f.MaxLine = maxLine
	t, err := NewTable(f)
	if err != nil {
		return nil, nil, err
	}
	for {
		switch err := t.Next(); {
		case errors.Is(err, io.EOF):
			return t.Header, rows, nil
		case err != nil:
			return t.Header, rows, err
		}
		rows = append(rows, slices.Clone(t.Row))
	}
}

func TestPlainAndPackedAreRead(t *testing.T) {
	const text = "\ufeffa, b ,c\n1,\"2,2\",\n,x,3\n"
	dir := t.TempDir()
	for name, data := range map[string][]byte{"plain.csv": []byte(text), "packed.csv.gz": pack(t, text), "packed.txt": pack(t, text)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		header, rows, err := readAll(f, 0)
		if err != nil || !slices.Equal(header, []string{"a", "b", "c"}) || len(rows) != 2 || !slices.Equal(rows[0], []string{"1", "2,2", ""}) {
			t.Errorf("%s: %q %q %v", name, header, rows, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "x.csv: found an empty file, expected a header line",
		"a,a\n":                `x.csv:1:3: found the column name "a", expected each column once`,
		"a,\n":                 `x.csv:1:3: found the column name ""`,
		"a,b\n1\n":             "x.csv:2:1: found another number of columns, expected 2, as in the header: a,b",
		"a\n\"x\n":             "x.csv:",
		"a\nx\"y\n":            "x.csv:2:2: a line that is no CSV",
		"a\n12345678901\n":     "x.csv:2:1: found a line of more than 10, expected a CSV file",
		"\x1f\x8bno":           "x.csv: a gzip file that cannot be unpacked",
		"a\n" + "1234567890\n": "",
	} {
		_, _, err := readAll(strings.NewReader(text), 10)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestCellsAndHeaders(t *testing.T) {
	f, err := New(strings.NewReader("a,b\n1,oops\n"), "x.csv")
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewTable(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Expect("a", "b"); err != nil {
		t.Error(err)
	}
	if err := in.Expect("a"); err == nil || err.Error() != "x.csv:1:1: found the columns a,b, expected a" {
		t.Errorf("%v", err)
	}
	if err := in.Next(); err != nil {
		t.Fatal(err)
	}
	if err := in.CellError(1, "a number"); err.Error() != `x.csv:2:3: b: found the text "oops", expected a number` {
		t.Errorf("%v", err)
	}
	if got := Quote(strings.Repeat("é", 99)); len(got) > 90 || !strings.HasSuffix(got, "…\"") {
		t.Errorf("%s", got)
	}
}

// Whatever the bytes, rows have the columns of the header, and errors are those
// of documents.
func FuzzTable(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n"))
	f.Add(pack(f, "a\n\"x\ny\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		header, rows, err := readAll(bytes.NewReader(data), 0)
		for _, r := range rows {
			if len(r) != len(header) {
				t.Fatalf("a row of %d under a header of %d", len(r), len(header))
			}
		}
		var e *document.Error
		if err != nil && errors.As(err, &e) && e.File == "" {
			t.Fatalf("no file in %v", err)
		}
	})
}

// A file that is no gzip in spite of its name is told so, and binary data is no CSV.
func TestNamedGzip(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"noise.csv.gz": {"PK\x03\x04\x14\x00\x00\x00", "binary data that is no gzip, in spite of the name, expected a text, plain or packed with gzip"},
		"noise.csv":    {"PK\x03\x04\x14\x00\x00\x00", "found binary data, expected a text"},
		"text.csv.gz":  {"a,a\n1,2\n", "hint: it is no gzip, in spite of its name"},
		"cut.csv.gz":   {string(pack(t, "a,b\n1,2\n")[:11]), "unexpected EOF"},
		"good.csv.gz":  {"a,b\n1,2\n", ""},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err == nil {
			_, err = NewTable(f)
			f.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "found a folder, expected a file") {
		t.Errorf("a folder: %v", err)
	}
}

// Typed cells are read by the names of their columns, and the first that is wrong ends the reading with its place.
func TestTypedCells(t *testing.T) {
	open := func(text string) *Table {
		f, err := New(strings.NewReader(text), "x.csv")
		if err != nil {
			t.Fatal(err)
		}
		tab, err := NewTable(f)
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	tab := open("name,n,share,wait_us,wait_ms,wait_s\n a ,4.0,0.5,1.5,1.5,1.5\n")
	err := tab.EachRow(func() error {
		if tab.Text("name") != "a" || tab.Text("none") != "" || tab.WholeNumber("n", 1, 4) != 4 || tab.Number("share", 0, 1) != .5 {
			t.Errorf("%q is read otherwise", tab.Row)
		}
		for column, want := range map[string]time.Duration{"wait_us": 1500, "wait_ms": 1500 * time.Microsecond, "wait_s": 1500 * time.Millisecond} {
			if got := tab.Time(column, time.Hour); got != want {
				t.Errorf("%s is %v, want %v", column, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"n,share\n5,0\n":   `x.csv:2:1: n: found the text "5", expected a whole number from 1 to 4`,
		"n,share\n1.5,0\n": `x.csv:2:1: n: found the text "1.5", expected a whole number from 1 to 4`,
		"n,share\n1,NaN\n": `x.csv:2:3: share: found the text "NaN", expected a number from 0 to 1`,
		"n,share\n9,7\n":   `x.csv:2:1: n:`,
		"n\n1\n":           "found no column share",
	} {
		tab := open(text)
		err := tab.EachRow(func() error { tab.WholeNumber("n", 1, 4); tab.Number("share", 0, 1); return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := open("b,a\n").Require("a|x", "b"); err != nil {
		t.Error(err)
	}
	if err := open("b,c\n").Require("b", "a|x"); err == nil || !strings.Contains(err.Error(), "x.csv:1:1: found the columns b,c, expected b, a or x among them") {
		t.Error(err)
	}
}
