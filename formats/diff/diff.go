package diff

import (
	"fmt"
	"math"
	"strconv"

	"inferplan/formats"
)

// What happened to something.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// Change is one thing that moved.
type Change struct {
	Section  string   `json:"section"`            // objective, models, pipelines, devices, policy, options, inputs, blocks, …
	What     string   `json:"what"`               // added, removed, changed
	Path     string   `json:"path"`               // model resnet50 rps
	Old      string   `json:"old,omitempty"`      // as written for people, with its unit
	New      string   `json:"new,omitempty"`      // the same on the other side
	Relative *float64 `json:"relative,omitempty"` // (new - old) / old, where both are numbers and old is not 0
	Note     string   `json:"note,omitempty"`     // better, worse, or what else helps to judge
}

// String is the change on one line.
func (c *Change) String() string {
	s := c.Path
	switch c.What {
	case Added:
		s = "+ " + s
		if c.New != "" {
			s += ": " + c.New
		}
	case Removed:
		s = "- " + s
		if c.Old != "" {
			s += ": " + c.Old
		}
	default:
		s = "~ " + s + ": " + c.Old + " -> " + c.New
	}
	if c.Relative != nil {
		s += " (" + percent(*c.Relative) + ")"
	}
	if c.Note != "" {
		s += ", " + c.Note
	}
	return s
}

// Result is what moved between two documents, in the order of the document.
type Result struct {
	Kind    string        `json:"kind"` // of the documents
	Changes []Change      `json:"changes"`
	Blocks  []BlockChange `json:"blocks,omitempty"` // profiles: the moved latencies as numbers
}

// Empty tells whether nothing moved.
func (r *Result) Empty() bool { return len(r.Changes) == 0 }

// Lines returns the changes for people: a heading per section and a line per
// change; none when nothing moved.
func (r *Result) Lines() []string {
	var out []string
	section := ""
	for i := range r.Changes {
		c := &r.Changes[i]
		if c.Section != section {
			section = c.Section
			out = append(out, section)
		}
		out = append(out, "  "+c.String())
	}
	return out
}

// Recorder fills a Result; its methods record only what differs.
type Recorder struct {
	Result
	section string
}

func (r *Recorder) add(what, path, old, new string, relative *float64, note string) {
	r.Changes = append(r.Changes, Change{Section: r.section, What: what, Path: path, Old: old, New: new, Relative: relative, Note: note})
}

// text compares words.
func (r *Recorder) text(path, old, new string) {
	if old != new {
		r.add(Changed, path, orNone(old), orNone(new), nil, "")
	}
}

// direction says which way of moving is good.
type direction int

const (
	neutral direction = iota
	moreIsBetter
	lessIsBetter
)

// figure compares numbers; differences within rounding are none.
func (r *Recorder) figure(path string, old, new float64, unit string, d direction) {
	if old == new || math.Abs(old-new) <= 1e-9*max(math.Abs(old), math.Abs(new)) {
		return
	}
	r.add(Changed, path, figureText(old, unit), figureText(new, unit), relative(old, new), judge(old, new, d))
}

// optional compares numbers that may be absent.
func (r *Recorder) optional(path string, old, new *float64, unit string, d direction) {
	switch {
	case old != nil && new != nil:
		r.figure(path, *old, *new, unit, d)
	case old != nil:
		r.add(Removed, path, figureText(*old, unit), "", nil, "")
	case new != nil:
		r.add(Added, path, "", figureText(*new, unit), nil, "")
	}
}

// span compares times.
func (r *Recorder) span(path string, old, new formats.Micros, d direction) {
	if old != new {
		r.add(Changed, path, spanText(old), spanText(new), relative(float64(old), float64(new)), judge(float64(old), float64(new), d))
	}
}

// count compares whole numbers.
func (r *Recorder) count(path string, old, new int, d direction) {
	if old != new {
		r.add(Changed, path, strconv.Itoa(old), strconv.Itoa(new), nil, judge(float64(old), float64(new), d))
	}
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func judge(old, new float64, d direction) string {
	switch {
	case d == neutral || old == new:
		return ""
	case (new > old) == (d == moreIsBetter):
		return "better"
	}
	return "worse"
}

func relative(old, new float64) *float64 {
	if old == 0 {
		return nil
	}
	x := (new - old) / math.Abs(old)
	return &x
}

func percent(x float64) string { return fmt.Sprintf("%+.3g%%", 100*x) }

// figureText writes a number with six digits: enough to tell apart what the
// relative change then judges.
func figureText(x float64, unit string) string {
	s := strconv.FormatFloat(x, 'g', 6, 64)
	if unit != "" {
		s += " " + unit
	}
	return s
}

func spanText(m formats.Micros) string { return formats.SLO{Duration: m.D()}.String() }

// union returns the names of a in order, then those only in b; inA and inB map
// them to indexes.
func union[T any](a, b []T, name func(*T) string) (names []string, inA, inB map[string]int) {
	inA, inB = map[string]int{}, map[string]int{}
	for i := range a {
		n := name(&a[i])
		if _, dup := inA[n]; !dup {
			inA[n] = i
			names = append(names, n)
		}
	}
	for i := range b {
		n := name(&b[i])
		if _, dup := inB[n]; dup {
			continue
		}
		inB[n] = i
		if _, ok := inA[n]; !ok {
			names = append(names, n)
		}
	}
	return names, inA, inB
}

// matched walks two lists by name, in the order of union: what is only in one
// is removed or added, with its text; what is in both is compared.
func matched[T any](r *Recorder, section string, a, b []T, name func(*T) string, label string, text func(*T) string, both func(name string, x, y *T)) {
	names, inA, inB := union(a, b, name)
	for _, n := range names {
		r.section = section
		i, okA := inA[n]
		k, okB := inB[n]
		switch {
		case !okB:
			r.add(Removed, label+n, text(&a[i]), "", nil, "")
		case !okA:
			r.add(Added, label+n, "", text(&b[k]), nil, "")
		default:
			both(n, &a[i], &b[k])
		}
	}
}

// untold is the text of what says enough by its name.
func untold[T any](*T) string { return "" }
