package diff

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"inferplan/formats/document"
)

// Kinds of a Change.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is one difference.
type Change struct {
	Section  string   `json:"section"`            // objective, models, pipelines, devices, policy, options, inputs, blocks, …
	Kind     string   `json:"what"`               // added, removed, changed
	Path     string   `json:"path"`               // model resnet50 planned rps
	Old      string   `json:"old,omitempty"`      // the old value as people read it, with its unit
	New      string   `json:"new,omitempty"`      // the same on the other side
	Relative *float64 `json:"relative,omitempty"` // (new - old) / old, if both are numbers and old is not 0
	Note     string   `json:"note,omitempty"`     // better, worse, or another help to judge it
}

// marks stand in front of a change on a line.
var marks = map[string]string{Added: "+ ", Removed: "- ", Changed: "~ "}

// String returns the change on one line.
func (c *Change) String() string { return marks[c.Kind] + c.detail() }

// words returns a change as text: "added" or "removed", unless a value has changed, and the details.
func (c *Change) words() string {
	if c.Kind == Changed {
		return c.detail()
	}
	return c.Kind + " " + c.detail()
}

// detail returns a change as text, "path: old -> new (relative change), note", without the parts that it does not
// have.
func (c *Change) detail() string {
	s := c.Path
	switch {
	case c.Kind == Changed && c.Old != "":
		s += ": " + c.Old + " -> " + c.New
	case c.Kind == Removed && c.Old != "":
		s += ": " + c.Old
	case c.Kind != Removed && c.New != "":
		s += ": " + c.New
	}
	if c.Relative != nil {
		s += " (" + percent(*c.Relative) + ")"
	}
	if c.Note != "" {
		s += ", " + c.Note
	}
	return s
}

// Result holds the differences between two documents, in the order of the document.
type Result struct {
	Kind    string        `json:"kind"`              // the kind of the documents
	Summary string        `json:"summary,omitempty"` // the changes on one line, for plans and profiles
	Changes []Change      `json:"changes"`
	Blocks  []BlockChange `json:"blocks,omitempty"` // the changed latencies of profiles, as numbers
}

// Empty reports whether there are no differences.
func (r *Result) Empty() bool { return len(r.Changes) == 0 }

// Lines returns the changes for people: the summary, a heading per section and a line per change. Without changes
// it returns nothing.
func (r *Result) Lines() []string {
	return r.lines(r.Summary, func(section string) []string { return []string{section} }, func(c *Change) string { return "  " + c.String() })
}

// Markdown returns the diff as lines of Markdown, with a list for each section.
func (r *Result) Markdown() []string {
	summary := ""
	if r.Summary != "" {
		summary = "**" + r.Summary + "**"
	}
	return r.lines(summary, func(section string) []string { return []string{"", "*" + section + "*", ""} },
		func(c *Change) string { return "- " + markdownEscapes.Replace(c.words()) })
}

// lines returns the text of a diff: the summary, and for every section its heading and one line per change.
func (r *Result) lines(summary string, heading func(section string) []string, line func(*Change) string) []string {
	var out []string
	if summary != "" {
		out = append(out, summary)
	}
	section := ""
	for i := range r.Changes {
		c := &r.Changes[i]
		if c.Section != section {
			section = c.Section
			out = append(out, heading(section)...)
		}
		out = append(out, line(c))
	}
	return out
}

var markdownEscapes = strings.NewReplacer("<", "&lt;", "*", "\\*", "_", "\\_", "`", "\\`", "|", "\\|")

// Recorder fills a Result. Its methods record only differences.
type Recorder struct {
	Result
	section string
}

func (r *Recorder) addChange(what, path, old, new string, relative *float64, note string) {
	r.Changes = append(r.Changes, Change{Section: r.section, Kind: what, Path: path, Old: old, New: new, Relative: relative, Note: note})
}

// addText compares texts.
func (r *Recorder) addText(path, old, new string) {
	if old != new {
		r.addChange(Changed, path, cmp.Or(old, "none"), cmp.Or(new, "none"), nil, "")
	}
}

// direction says in which direction a figure is better.
type direction int

const (
	neutral direction = iota
	moreIsBetter
	lessIsBetter
)

// addFigure records a number that has changed, and whether that is better, if d says which direction is.
// Differences within rounding are ignored.
func (r *Recorder) addFigure(path string, old, new float64, unit string, d direction) {
	if old == new || math.Abs(old-new) <= 1e-9*max(math.Abs(old), math.Abs(new)) {
		return
	}
	r.addChange(Changed, path, figureText(old, unit), figureText(new, unit), relative(old, new), verdictOf(old, new, d))
}

// addOptional compares numbers that may be absent.
func (r *Recorder) addOptional(path string, old, new *float64, unit string, d direction) {
	text := func(x float64) string { return figureText(x, unit) }
	r.addPresence(path, old, new, text, func() { r.addFigure(path, *old, *new, unit, d) })
}

// addPresence records a number that only one side has as added or removed. If both have it, it calls both to compare
// them. old and new are nil on a side that lacks the number. path names it, and text formats it.
func (r *Recorder) addPresence(path string, old, new *float64, text func(float64) string, both func()) {
	switch {
	case old != nil && new != nil:
		both()
	case old != nil:
		r.addChange(Removed, path, text(*old), "", nil, "")
	case new != nil:
		r.addChange(Added, path, "", text(*new), nil, "")
	}
}

// addTime compares times.
func (r *Recorder) addTime(path string, old, new document.Micros, d direction) {
	if old != new {
		r.addChange(Changed, path, spanText(old), spanText(new), relative(float64(old), float64(new)), verdictOf(float64(old), float64(new), d))
	}
}

// addCount compares whole numbers.
func (r *Recorder) addCount(path string, old, new int, d direction) {
	if old != new {
		r.addChange(Changed, path, strconv.Itoa(old), strconv.Itoa(new), nil, verdictOf(float64(old), float64(new), d))
	}
}

// verdictOf returns whether the change from old to new is "better" or "worse" if d says which is, or "" if it is
// neither.
func verdictOf(old, new float64, d direction) string {
	switch {
	case d == neutral || old == new:
		return ""
	case (new > old) == (d == moreIsBetter):
		return "better"
	}
	return "worse"
}

// relative returns the change from old to new as a part of old, or nil if old is 0.
func relative(old, new float64) *float64 {
	if old == 0 {
		return nil
	}
	x := (new - old) / math.Abs(old)
	return &x
}

func percent(x float64) string { return fmt.Sprintf("%+.3g %%", 100*x) }

// addShare compares shares, which are written as percentages. Differences below a millionth are ignored.
func (r *Recorder) addShare(path string, old, new *float64, d direction) {
	const minDifference = 1e-6
	text := func(x float64) string { return strconv.FormatFloat(100*x, 'g', 4, 64) + " %" }
	r.addPresence(path, old, new, text, func() {
		if math.Abs(*old-*new) > minDifference {
			r.addChange(Changed, path, text(*old), text(*new), nil, verdictOf(*old, *new, d))
		}
	})
}

// figureText writes a number with six digits, enough to distinguish values that differ.
func figureText(x float64, unit string) string {
	s := strconv.FormatFloat(x, 'g', 6, 64)
	if unit != "" {
		s += " " + unit
	}
	return s
}

// spanText writes a time in milliseconds, as in tables.
func spanText(m document.Micros) string {
	return strconv.FormatFloat(float64(m.D())/1e6, 'g', 5, 64) + " ms"
}

// pair holds the entries of both sides with one name. It is nil for a side that does not have the name.
type pair[T any] struct {
	name string
	a, b *T
}

// pairByName pairs two lists by name: the entries of a, in its order, and then those that are only in b. On each side
// the first entry of a name counts; the field of a side without one is nil.
func pairByName[T any](a, b []T, name func(*T) string) []pair[T] {
	var out []pair[T]
	index := map[string]int{}
	pairFor := func(n string) *pair[T] {
		if _, isKnown := index[n]; !isKnown {
			index[n] = len(out)
			out = append(out, pair[T]{name: n})
		}
		return &out[index[n]]
	}
	for i := range a {
		if p := pairFor(name(&a[i])); p.a == nil {
			p.a = &a[i]
		}
	}
	for i := range b {
		if p := pairFor(name(&b[i])); p.b == nil {
			p.b = &b[i]
		}
	}
	return out
}

// commonNames yields the entries that are in both lists, by name.
func commonNames[T any](a, b []T, name func(*T) string) iter.Seq2[string, pair[T]] {
	return func(yield func(string, pair[T]) bool) {
		for _, p := range pairByName(a, b, name) {
			if p.a != nil && p.b != nil && !yield(p.name, p) {
				return
			}
		}
	}
}

// eachPair compares two lists by name, in the order of pairByName. An entry on one side is recorded as removed or
// added, with its text. Entries on both sides are given to compareBoth. label stands before the name.
func eachPair[T any](r *Recorder, section string, a, b []T, name func(*T) string, label string, text func(*T) string, compareBoth func(name string, x, y *T)) {
	for _, p := range pairByName(a, b, name) {
		r.section = section
		switch {
		case p.b == nil:
			r.addChange(Removed, label+p.name, text(p.a), "", nil, "")
		case p.a == nil:
			r.addChange(Added, label+p.name, "", text(p.b), nil, "")
		default:
			compareBoth(p.name, p.a, p.b)
		}
	}
}

// orZero returns the value of a pointer, or the zero value if it is nil.
func orZero[T any](p *T) (x T) {
	if p != nil {
		x = *p
	}
	return x
}

// isUnstated is the text for entries whose name says enough.
func isUnstated[T any](*T) string { return "" }
