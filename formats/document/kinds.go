package document

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// Document is what all kinds have in common.
type Document interface{ Validate() error }

// Kind describes one kind of document.
type Kind struct {
	Name    string
	Format  string // the value of the format field: inferplan.NAME/vVERSION
	Version int
	Make    func() Document
	Older   []OlderForm
}

// OlderForm is a version of a document that is still read.
type OlderForm struct {
	Format string
	Make   func() Older
}

// Older is a document of an older version.
type Older interface {
	// Upgrade makes the document of today.
	Upgrade() (Document, error)
	// Path is where the old document has what the new one has at a path.
	Path(today string) string
}

// Kinds is a table of kinds, which reading follows.
type Kinds []Kind

// Names lists the kinds.
func (t Kinds) Names() []string { return t.all(func(k *Kind) string { return k.Name }) }

// all lists something of each kind.
func (t Kinds) all(of func(*Kind) string) []string {
	var out []string
	for i := range t {
		out = append(out, of(&t[i]))
	}
	return out
}

// Find returns the kind of a name; nil if there is none.
func (t Kinds) Find(name string) *Kind {
	if i := slices.IndexFunc(t, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return &t[i]
	}
	return nil
}

// Read reads, decodes and validates the document of a kind in a file.
func Read[T any](t Kinds, path, kind string) (T, error) {
	text, err := readFile(path)
	if err != nil {
		var none T
		return none, err
	}
	return Decode[T](t, text, path, kind)
}

// Decode is Read for a text; name is what errors call it.
func Decode[T any](t Kinds, text, name, kind string) (T, error) {
	_, doc, err := t.Decode(text, name, kind)
	if err != nil {
		var none T
		return none, err
	}
	return doc.(T), nil
}

// maxDocument bounds the size of a file that is read at all.
var maxDocument atomic.Int64

// DefaultMaxDocument is the largest file that is read where SetMaxDocument has
// said nothing else.
const DefaultMaxDocument = 64 << 20

func init() { maxDocument.Store(DefaultMaxDocument) }

// SetMaxDocument sets the largest file that Read and its kin read, in bytes.
func SetMaxDocument(n int64) { maxDocument.Store(n) }

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading a document: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		return "", &Error{File: path, Found: "a folder", Expected: "a file"}
	}
	// What does not begin like a text is not read to its end, which a device
	// does not have.
	head := make([]byte, 64<<10)
	n, rerr := io.ReadFull(f, head)
	if head = head[:n]; rerr == nil && !beginsText(head) {
		return string(head), nil // whoever decodes it says what it is
	}
	most := maxDocument.Load()
	tooLarge := &Error{File: path, Found: "more than " + Bytes(most).String(), Expected: "a document of no more than that", Hint: "--max-document raises the limit"}
	switch {
	case errors.Is(rerr, io.EOF), errors.Is(rerr, io.ErrUnexpectedEOF):
		if int64(n) > most {
			return "", tooLarge
		}
		return string(head), nil
	case rerr != nil:
		return "", fmt.Errorf("reading %s: %w", path, rerr)
	}
	var text strings.Builder
	if err == nil && info.Mode().IsRegular() {
		if info.Size() > most {
			return "", tooLarge
		}
		text.Grow(int(info.Size()) + 1)
	}
	text.Write(head)
	if _, err := io.Copy(&text, io.LimitReader(f, most+1-int64(n))); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(text.Len()) > most {
		return "", tooLarge
	}
	return text.String(), nil
}

// beginsText tells whether what a file begins with is UTF-8 without control
// characters that no text has; its last character may be cut.
func beginsText(head []byte) bool {
	for cut := range utf8.UTFMax {
		if cut <= len(head) && utf8.Valid(head[:len(head)-cut]) {
			return bytes.IndexByte(head, 0) < 0
		}
	}
	return false
}

// parse turns text into nodes by its syntax.
func parse(text, name string) (*source, node, error) {
	src := &source{file: name, text: strings.TrimPrefix(text, "\ufeff")}
	if at := strings.IndexByte(src.text, 0); at >= 0 && utf8.ValidString(src.text) && encodingHint(src.text) == "" {
		return src, node{}, src.fail(int64(at), "", "binary data (a zero byte)", "a text: JSON or YAML", "")
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json":
	case ".yaml", ".yml":
		src.yaml = true
	default:
		src.yaml = !strings.HasPrefix(strings.TrimLeft(src.text, " \t\r\n"), "{")
	}
	var root node
	var e *Error
	if src.yaml {
		root, e = parseYAML(src)
	} else {
		root, e = scanJSON(src)
	}
	if e != nil {
		return src, root, e
	}
	return src, root, nil
}

// Decode decodes and validates a document of the wanted kind, or of any if want is empty. name is what errors call
// the text, and its ending (.json, .yaml, .yml) tells the syntax. Without a known ending, text that starts with a brace
// is JSON.
func (t Kinds) Decode(text, name, want string) (kind string, doc Document, err error) {
	src, root, err := parse(text, name)
	if err != nil {
		return "", nil, err
	}
	info, e := t.formatOf(src, &root, want)
	if e != nil {
		return "", nil, e
	}
	b := &binder{src: src}
	here := func(path string) string { return path }
	if i := slices.IndexFunc(info.Older, func(o OlderForm) bool { return o.Format == root.field("format").text }); i >= 0 {
		old := info.Older[i].Make()
		b.bind(&root, reflect.ValueOf(old).Elem())
		if err := b.findings.err(); err != nil {
			return info.Name, nil, err
		}
		if doc, err = old.Upgrade(); err != nil {
			return info.Name, nil, place(err, src, &root, here)
		}
		here = old.Path
	} else {
		doc = info.Make()
		b.bind(&root, reflect.ValueOf(doc).Elem())
		if err := b.findings.err(); err != nil {
			return info.Name, nil, err
		}
	}
	if err := doc.Validate(); err != nil {
		return info.Name, nil, place(err, src, &root, here)
	}
	return info.Name, doc, nil
}

// place gives the findings of Validate their file, line and column, and their
// paths in the document as it stands.
func place(err error, src *source, root *node, here func(path string) string) error {
	list := Findings(err)
	for _, e := range list {
		e.File = src.file
		if e.Path != "" {
			e.Path = here(e.Path)
		}
		e.Line, e.Column = src.locate(root.find(e.Path).pos)
	}
	head := list[:min(len(list), maxFindings)] // the note that there are more stays last
	slices.SortStableFunc(head, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return err
}

// formatOf reads the format field and checks it against the wanted kind.
func (t Kinds) formatOf(src *source, root *node, want string) (*Kind, *Error) {
	expected := "a document of inferplan: " + strings.Join(t.Names(), ", ")
	hint := "start the file with its format, such as `format: " + t[0].Format + "`"
	if w := t.Find(want); w != nil {
		expected = "format: " + w.Format
		hint = "start the file with the line `format: " + w.Format + "`"
	}
	if root.kind != objectNode {
		return nil, src.fail(root.pos, "", root.describe(), expected, "")
	}
	f := root.field("format")
	if f == nil {
		return nil, src.fail(root.pos, "format", "nothing", expected, hint)
	}
	if f.kind != stringNode {
		return nil, src.fail(f.pos, "format", f.describe(), expected, "")
	}
	unversioned := func(format string) string { base, _, _ := strings.Cut(format, "/v"); return base }
	at := slices.IndexFunc(t, func(k Kind) bool { return unversioned(k.Format) == unversioned(f.text) })
	if at < 0 {
		return nil, src.fail(f.pos, "format", f.describe(), expected, DidYouMean(f.text, t.all(func(k *Kind) string { return k.Format })))
	}
	info := &t[at]
	if want != "" && info.Name != want {
		return nil, src.fail(f.pos, "format", "a "+info.Name, expected, "this file is a "+info.Name+"; give a "+want+" here")
	}
	if f.text == info.Format || slices.ContainsFunc(info.Older, func(o OlderForm) bool { return o.Format == f.text }) {
		return info, nil
	}
	hint = "the version that this program writes is " + info.Format
	_, version, _ := strings.Cut(f.text, "/v")
	if v, err := strconv.Atoi(version); err == nil && v > info.Version {
		hint = "a newer inferplan wrote this file: upgrade this one, or write the file anew"
	}
	return nil, src.fail(f.pos, "format", f.describe(), "format: "+info.Format, hint)
}
