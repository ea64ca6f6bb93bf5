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

// Document is the interface of all kinds of documents.
type Document interface{ Validate() error }

// Kind describes one kind of document.
type Kind struct {
	Name        string
	Format      string // the value of the format field: inferplan.NAME/vVERSION
	Version     int
	NewDocument func() Document
	Older       []OlderForm
}

// OlderForm is an older version of a document that can still be read.
type OlderForm struct {
	Format      string
	NewDocument func() Older
}

// Older is a document of an older version.
type Older interface {
	// Upgrade returns the document in today's version.
	Upgrade() (Document, error)
	// Path returns the path in the old document of a field of the new one.
	Path(today string) string
}

// Kinds is a table of the kinds that can be read.
type Kinds []Kind

// Names returns the names of the kinds.
func (t Kinds) Names() []string { return Map(t, func(k *Kind) string { return k.Name }) }

// Map returns a value for each entry of a list.
func Map[T, V any](list []T, valueOf func(*T) V) []V {
	var out []V
	for i := range list {
		out = append(out, valueOf(&list[i]))
	}
	return out
}

// First returns a pointer to the first entry that matches, or nil if there is none.
func First[T any](list []T, matches func(*T) bool) *T {
	for i := range list {
		if matches(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// Find returns the kind of a name, or nil if there is none.
func (t Kinds) Find(name string) *Kind {
	return First(t, func(k *Kind) bool { return k.Name == name })
}

// Read reads a file with a document of the given kind, decodes it into its type T and validates it.
func Read[T any](t Kinds, path, kind string) (doc T, err error) {
	text, err := readFile(path)
	if err != nil {
		return doc, err
	}
	return Decode[T](t, text, nameOf(path), kind)
}

// Decode decodes and validates a text with a document of a kind, as Read does with a file. Errors use name for the
// text.
func Decode[T any](t Kinds, text, name, kind string) (doc T, err error) {
	_, decoded, err := t.Decode(text, name, kind)
	if err == nil {
		doc = decoded.(T)
	}
	return doc, err
}

// maxDocument bounds the size of files that are read, in bytes.
var maxDocument atomic.Int64

// DefaultMaxDocument is the largest size of a file that is read, unless SetMaxDocument sets another.
const DefaultMaxDocument = 64 << 20

func init() { maxDocument.Store(DefaultMaxDocument) }

// SetMaxDocument sets the largest size of a file that this package reads, in bytes.
func SetMaxDocument(n int64) { maxDocument.Store(n) }

// readFile returns the text of a document's file, or of standard input (-), which may be no larger than the limit set for documents. It
// reads no more than that, because a device or pipe may have no end.
func readFile(path string) (string, error) {
	f, err := Open(path)
	if err != nil {
		return "", fmt.Errorf("reading a document: %w", err)
	}
	defer f.Close()
	path = nameOf(path)
	size := int64(-1) // of a regular file
	if file, ok := f.(*os.File); ok {
		info, err := file.Stat()
		if err == nil && info.IsDir() {
			return "", &Error{File: path, Found: "a folder", Expected: "a file"}
		}
		if err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
	}
	// Read only the beginning of a file that does not begin like a text, because a device has no end.
	head := make([]byte, 64<<10) // the beginning
	n, rerr := io.ReadFull(f, head)
	if head = head[:n]; rerr == nil && !beginsText(head) {
		return string(head), nil // decoding it will report what it is
	}
	maxBytes := maxDocument.Load()
	tooLarge := &Error{File: path, Found: "more than " + Bytes(maxBytes).String(), Expected: "a document of no more than that", Hint: "--max-document raises the limit"}
	if rerr != nil && !errors.Is(rerr, io.EOF) && !errors.Is(rerr, io.ErrUnexpectedEOF) {
		return "", fmt.Errorf("reading %s: %w", path, rerr)
	}
	var text strings.Builder
	if size > maxBytes {
		return "", tooLarge
	}
	text.Grow(int(size) + 1)
	text.Write(head)
	if _, err := io.Copy(&text, io.LimitReader(f, maxBytes+1-int64(n))); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(text.Len()) > maxBytes {
		return "", tooLarge
	}
	return text.String(), nil
}

// beginsText returns whether the beginning of a file looks like a text: UTF-8 without zero bytes. Its last character
// may be incomplete. So it also tries the text without its last one to three bytes.
func beginsText(head []byte) bool {
	for end := range utf8.UTFMax {
		if end <= len(head) && utf8.Valid(head[:len(head)-end]) {
			return bytes.IndexByte(head, 0) < 0
		}
	}
	return false
}

// parse parses a text into nodes. The ending of name selects JSON or YAML; without a known ending, a text that starts
// with a brace is JSON. The source has the text and finds lines in it.
func parse(text, name string) (*source, node, error) {
	src := &source{file: name, text: strings.TrimPrefix(text, "\ufeff")}
	if zeroByte := strings.IndexByte(src.text, 0); zeroByte >= 0 && utf8.ValidString(src.text) && encodingHint(src.text) == "" {
		return src, node{}, src.fail(int64(zeroByte), "", "binary data (a zero byte)", "a text: JSON or YAML", "")
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

// Decode decodes and validates a document of the wanted kind, or of any kind if wanted is empty. Errors use name
// for the text. Its ending (.json, .yaml, .yml) selects the syntax. Without a known ending, text that starts with
// a brace is read as JSON.
func (t Kinds) Decode(text, name, wanted string) (kind string, doc Document, err error) {
	src, root, err := parse(text, name)
	if err != nil {
		return "", nil, err
	}
	info, e := t.formatOf(src, &root, wanted)
	if e != nil {
		return "", nil, e
	}

	// Bind the nodes to the kind's Go type. An older form is upgraded.
	b := &binder{src: src}
	pathHere := func(path string) string { return path }
	if form := First(info.Older, func(o *OlderForm) bool { return o.Format == root.field("format").text }); form != nil {
		older := form.NewDocument()
		b.bind(&root, reflect.ValueOf(older).Elem())
		if err := b.findings.err(); err != nil {
			return info.Name, nil, err
		}
		if doc, err = older.Upgrade(); err != nil {
			return info.Name, nil, placeFindings(err, src, &root, pathHere)
		}
		pathHere = older.Path
	} else {
		doc = info.NewDocument()
		b.bind(&root, reflect.ValueOf(doc).Elem())
		if err := b.findings.err(); err != nil {
			return info.Name, nil, err
		}
	}
	if err := doc.Validate(); err != nil {
		return info.Name, nil, placeFindings(err, src, &root, pathHere)
	}
	return info.Name, doc, nil
}

// placeFindings adds file, line and column to the findings of Validate and sorts them by place. pathHere converts
// their paths to those in the text, which differ in older versions.
func placeFindings(err error, src *source, root *node, pathHere func(path string) string) error {
	list := Findings(err)
	for _, e := range list {
		e.File = src.file
		if e.Path != "" {
			e.Path = pathHere(e.Path)
		}
		e.Line, e.Column = src.locate(root.find(e.Path).pos)
	}
	head := list[:min(len(list), maxFindings)] // keep the note that there are more as the last one
	slices.SortStableFunc(head, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return err
}

// formatOf returns the kind of a document by its field format, or an error if it is missing, unknown, of another
// kind than wanted, or of a newer version.
func (t Kinds) formatOf(src *source, root *node, wanted string) (*Kind, *Error) {
	// Say what is expected, for the messages.
	expected := "a document of inferplan: " + strings.Join(t.Names(), ", ")
	hint := "start the file with its format, such as `format: " + t[0].Format + "`"
	if w := t.Find(wanted); w != nil {
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

	// Find the kind by the format's name without its version.
	unversioned := func(format string) string { base, _, _ := strings.Cut(format, "/v"); return base }
	info := First(t, func(k *Kind) bool { return unversioned(k.Format) == unversioned(f.text) })
	if info == nil {
		return nil, src.fail(f.pos, "format", f.describe(), expected, DidYouMean(f.text, Map(t, func(k *Kind) string { return k.Format })))
	}
	if wanted != "" && info.Name != wanted {
		return nil, src.fail(f.pos, "format", "a "+info.Name, expected, "this file is a "+info.Name+"; give a "+wanted+" here")
	}

	// Check the version.
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
