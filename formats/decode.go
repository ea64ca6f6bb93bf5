package formats

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

// Kinds of documents.
const (
	KindProfile  = "profile"
	KindCluster  = "cluster"
	KindWorkload = "workload"
	KindPlan     = "plan"
	KindReport   = "report"
	// KindTransitions is which ways requests of workflows took.
	KindTransitions = "transitions"
)

// Values of the format field.
const (
	FormatProfile  = "inferplan.profile/v1"
	FormatCluster  = "inferplan.cluster/v1"
	FormatWorkload = "inferplan.workload/v1"
	FormatPlan     = "inferplan.plan/v2"
	FormatReport   = "inferplan.report/v1"
	// FormatTransitions is of recorded ways.
	FormatTransitions = "inferplan.transitions/v1"
)

// document is what all kinds have in common.
type document interface{ Validate() error }

// kindInfo describes one kind of document.
type kindInfo struct {
	name    string
	format  string
	version int
	make    func() document
	older   []olderForm
}

// olderForm is a version of a document that is still read.
type olderForm struct {
	format string
	make   func() older
}

// older is a document of an older version.
type older interface {
	// upgrade makes the document of today.
	upgrade() (document, error)
	// path is where the old document has what the new one has at a path.
	path(today string) string
}

// kindTable is the only list of kinds: reading, schemas and tests follow it.
var kindTable = []kindInfo{
	{KindProfile, FormatProfile, 1, func() document { return new(Profile) }, nil},
	{KindCluster, FormatCluster, 1, func() document { return new(Cluster) }, nil},
	{KindWorkload, FormatWorkload, 1, func() document { return new(Workload) }, nil},
	{KindPlan, FormatPlan, 2, func() document { return new(Plan) }, []olderForm{{"inferplan.plan/v1", func() older { return new(planV1) }}}},
	{KindReport, FormatReport, 1, func() document { return new(Report) }, nil},
	{KindTransitions, FormatTransitions, 1, func() document { return new(Transitions) }, nil},
}

// Kinds lists the kinds of documents.
func Kinds() []string {
	return named(kindTable, func(k *kindInfo) string { return k.name })
}

// named lists the names of the entries of a table.
func named[T any](list []T, name func(*T) string) []string {
	var out []string
	for i := range list {
		out = append(out, name(&list[i]))
	}
	return out
}

// find is the first entry of a list that is the one; nil where there is none.
func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

func kindOf(name string) *kindInfo {
	return find(kindTable, func(k *kindInfo) bool { return k.name == name })
}

// Decode reads a document of any kind from bytes. doc is a *Profile, *Cluster
// and so on. name is what errors call it, and its ending (.json, .yaml, .yml) tells
// the syntax. Without a known ending, text that starts with a brace is JSON.
func Decode(data []byte, name string) (kind string, doc any, err error) {
	return decode(string(data), name, "")
}

// ReadProfile reads, decodes and validates a profile.
func ReadProfile(path string) (*Profile, error) { return read[*Profile](path, KindProfile) }

// ReadCluster reads, decodes and validates a cluster.
func ReadCluster(path string) (*Cluster, error) { return read[*Cluster](path, KindCluster) }

// ReadWorkload reads, decodes and validates a workload.
func ReadWorkload(path string) (*Workload, error) { return read[*Workload](path, KindWorkload) }

// ReadPlan reads, decodes and validates a plan.
func ReadPlan(path string) (*Plan, error) { return read[*Plan](path, KindPlan) }

// ReadReport reads, decodes and validates a report.
func ReadReport(path string) (*Report, error) { return read[*Report](path, KindReport) }

// ReadTransitions reads, decodes and validates recorded ways.
func ReadTransitions(path string) (*Transitions, error) {
	return read[*Transitions](path, KindTransitions)
}

// DecodeProfile is ReadProfile for bytes.
func DecodeProfile(data []byte, name string) (*Profile, error) {
	return decodeAs[*Profile](data, name, KindProfile)
}

// DecodePlan is ReadPlan for bytes.
func DecodePlan(data []byte, name string) (*Plan, error) {
	return decodeAs[*Plan](data, name, KindPlan)
}

func read[T any](path, kind string) (T, error) {
	data, err := readFile(path)
	if err != nil {
		var none T
		return none, err
	}
	return decodeText[T](data, path, kind)
}

func decodeAs[T any](data []byte, name, kind string) (T, error) {
	return decodeText[T](string(data), name, kind)
}

func decodeText[T any](text, name, kind string) (T, error) {
	_, doc, err := decode(text, name, kind)
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

// decode reads a document of the wanted kind, or of any when want is empty.
func decode(text, name, want string) (string, document, error) {
	src, root, err := parse(text, name)
	if err != nil {
		return "", nil, err
	}
	info, e := formatOf(src, &root, want)
	if e != nil {
		return "", nil, e
	}
	b := &binder{src: src}
	here := func(path string) string { return path }
	var doc document
	if i := slices.IndexFunc(info.older, func(o olderForm) bool { return o.format == root.field("format").text }); i >= 0 {
		old := info.older[i].make()
		b.bind(&root, reflect.ValueOf(old).Elem())
		if err := b.findings.err(); err != nil {
			return info.name, nil, err
		}
		if doc, err = old.upgrade(); err != nil {
			return info.name, nil, place(err, src, &root, here)
		}
		here = old.path
	} else {
		doc = info.make()
		b.bind(&root, reflect.ValueOf(doc).Elem())
		if err := b.findings.err(); err != nil {
			return info.name, nil, err
		}
	}
	if err := doc.Validate(); err != nil {
		return info.name, nil, place(err, src, &root, here)
	}
	return info.name, doc, nil
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
func formatOf(src *source, root *node, want string) (*kindInfo, *Error) {
	expected := "a document of inferplan: " + strings.Join(Kinds(), ", ")
	if w := kindOf(want); w != nil {
		expected = "format: " + w.format
	}
	if root.kind != objectNode {
		return nil, src.fail(root.pos, "", root.describe(), expected, "")
	}
	f := root.field("format")
	if f == nil {
		hint := "start the file with its format, such as `format: " + FormatCluster + "`"
		if w := kindOf(want); w != nil {
			hint = "start the file with the line `format: " + w.format + "`"
		}
		return nil, src.fail(root.pos, "format", "nothing", expected, hint)
	}
	if f.kind != stringNode {
		return nil, src.fail(f.pos, "format", f.describe(), expected, "")
	}
	rest, ours := strings.CutPrefix(f.text, "inferplan.")
	kind, version, _ := strings.Cut(rest, "/v")
	info := kindOf(kind)
	if !ours || info == nil {
		all := named(kindTable, func(k *kindInfo) string { return k.format })
		return nil, src.fail(f.pos, "format", f.describe(), expected, DidYouMean(f.text, all))
	}
	if want != "" && kind != want {
		return nil, src.fail(f.pos, "format", "a "+kind, expected, "this file is a "+kind+"; give a "+want+" here")
	}
	if f.text == info.format || slices.ContainsFunc(info.older, func(o olderForm) bool { return o.format == f.text }) {
		return info, nil
	}
	hint := "the version that this program writes is " + info.format
	if v, err := strconv.Atoi(version); err == nil && v > info.version {
		hint = "a newer inferplan wrote this file: upgrade this one, or write the file anew"
	}
	return nil, src.fail(f.pos, "format", f.describe(), "format: "+info.format, hint)
}
