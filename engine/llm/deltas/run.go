package deltas

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ErrDiffers is returned when an answer that is generated again differs from what was sent.
var ErrDiffers = errors.New("the server wrote another answer than before")

// AnswerRun is a run of an answer: the first, or a repeated one after a part was sent.
type Run struct {
	choices map[int]*choice
}

// choiceState is the state of one choice in a run.
type choice struct {
	sent     trail // content of earlier runs
	now      trail // content of this run
	known    bool  // earlier runs have events of it
	finished bool
}

// choiceContent is all content of a choice, in a form that does not depend on how it was divided into events.
type trail struct {
	text    strings.Builder
	path    string            // the path of the field that the text ends in
	whole   map[string]string // the texts that come complete, by path
	entries map[string]int    // the lengths of arrays that only grow, by path
}

func newTrail() trail {
	return trail{whole: map[string]string{}, entries: map[string]int{}}
}

// NewAnswerRun begins a run after the events of a log.
func NewRun(log string) *Run {
	r := &Run{map[int]*choice{}}
	for choices := range Lines(log) {
		for _, raw := range choices {
			c, index, err := read(raw)
			if err != nil {
				continue
			}
			x := r.choice(index)
			x.known = true
			x.sent.walk(c, "", nil)
			x.finished = x.finished || finish(c) != ""
		}
	}
	return r
}

func (r *Run) choice(index int) *choice {
	x := r.choices[index]
	if x == nil {
		x = &choice{sent: newTrail(), now: newTrail()}
		r.choices[index] = x
	}
	return x
}

func finish(c object) string {
	s, _ := c["finish_reason"].(string)
	return s
}

// HasFinished reports whether at least the given number of choices have finished.
func (r *Run) Finished(choices int) bool {
	n := 0
	for _, x := range r.choices {
		if x.finished {
			n++
		}
	}
	return n >= choices
}

// UnsentPart returns the part of an event that was not sent before, or nil if all of it was. It returns ErrDiffers
// if the event differs from what was sent.
func (r *Run) Fresh(event json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(event, &list); err != nil {
		return nil, fmt.Errorf("%w: %.80s", errNoChoice, event)
	}

	// Keep the choices that have something new.
	var out []any
	whole := true
	for _, raw := range list {
		c, index, err := read(raw)
		if err != nil {
			return nil, err
		}
		x := r.choice(index)
		x.finished = x.finished || finish(c) != ""
		if !x.known {
			out = append(out, c)
			continue
		}
		whole = false
		fresh, err := x.fresh(c)
		if err != nil {
			return nil, fmt.Errorf("choice %d: %w", index, err)
		}
		if fresh {
			out = append(out, c)
		}
	}

	// Return the event itself if nothing was cut.
	switch {
	case whole && len(out) > 0:
		return event, nil
	case len(out) == 0:
		return nil, nil
	}
	return json.Marshal(out)
}

// removeSent removes from an event's choice what was sent before. It returns false if nothing is left.
func (x *choice) fresh(c object) (bool, error) {
	cut := &cut{sent: &x.sent}
	cut.text = x.sent.text.String()
	x.now.walk(c, "", cut)
	if cut.err != nil {
		return false, cut.err
	}
	return cut.left, nil
}

// CheckComplete returns ErrDiffers if this run ended before all that was sent had come again.
func (r *Run) Behind() error {
	for _, i := range slices.Sorted(maps.Keys(r.choices)) {
		if x := r.choices[i]; x.known && x.now.text.Len() < x.sent.text.Len() {
			return fmt.Errorf("choice %d: %w: it is shorter", i, ErrDiffers)
		}
	}
	return nil
}

// EndingEvent returns an event that finishes the choices that have not finished, or nil if all have.
func (r *Run) Ending(reason string, chat bool) json.RawMessage {
	var out []object
	for _, i := range slices.Sorted(maps.Keys(r.choices)) {
		if r.choices[i].finished {
			continue
		}
		c := object{"index": i, "finish_reason": reason, "logprobs": nil}
		if chat {
			c["delta"] = object{}
		} else {
			c["text"] = ""
		}
		out = append(out, c)
	}
	if out == nil {
		return nil
	}
	raw, _ := json.Marshal(out) // cannot fail with these values
	return raw
}

// sentFilter removes from an event what was sent before.
type cut struct {
	sent *trail
	text string // text of sentContent
	left bool   // something in the event was not sent
	err  error
}

// fieldRank orders the fields of an event as they would come in events of their own: names first, finish reasons
// last.
func rank(name string) int {
	switch {
	case name == "finish_reason" || name == "stop_reason":
		return 2
	case slices.Contains(once, name):
		return 0
	}
	return 1
}

// addObject adds an object to the content, field by field.
func (t *trail) walk(o object, path string, cut *cut) {
	names := slices.SortedFunc(maps.Keys(o), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		at := path + "/" + name
		switch v := o[name].(type) {
		case string:
			t.field(o, name, v, at, cut)
		case object:
			t.walk(v, at, cut)
		case []any:
			t.array(o, name, v, at, cut)
		}
	}
}

// addText adds a text. Texts of id, type and role are not compared, because they differ between runs.
func (t *trail) field(o object, name, v, at string, cut *cut) {
	if v == "" {
		return
	}
	if slices.Contains(once, name) {
		if name == "id" || name == "type" || name == "role" {
			if cut != nil && (cut.sent.whole[at] != "" || name == "role") {
				delete(o, name)
			}
			t.whole[at] = v
			return
		}
		if t.whole[at] == v { // repeated unchanged
			return
		}
		t.whole[at] = v
	}
	from := t.text.Len()
	if t.path != at {
		t.path = at
		t.text.WriteString("\x00" + at + "\x00")
	}
	begin := t.text.Len()
	t.text.WriteString(v)
	if cut != nil {
		cut.field(o, name, v, t.text.String()[from:], from, begin)
	}
}

// filterText removes from a text what was sent. start is where its mark begins in the content, textStart where the
// text itself does.
func (c *cut) field(o object, name, v, added string, from, begin int) {
	n := min(len(c.text)-from, len(added))
	if n <= 0 {
		c.left = true
		return
	}
	if added[:n] != c.text[from:from+n] {
		c.err = ErrDiffers
		return
	}
	switch rest := begin + len(v) - len(c.text); {
	case rest > 0:
		o[name], c.left = v[len(v)-rest:], true
	case name == "finish_reason":
		o[name] = nil
	case name == "text":
		o[name] = ""
	default:
		delete(o, name)
	}
}

// addArray adds an array. Elements with an index are added under that index, others are counted.
func (t *trail) array(o object, name string, list []any, at string, cut *cut) {
	plain := 0
	for _, v := range list {
		index, ok := indexOf(v)
		if !ok {
			plain++
			continue
		}
		t.walk(v.(object), at+"/"+strconv.Itoa(index), cut)
	}
	if plain == 0 {
		return
	}
	before := t.entries[at]
	t.entries[at] += plain
	if cut == nil {
		return
	}
	sent := min(max(cut.sent.entries[at]-before, 0), len(list))
	if o[name] = list[sent:]; sent < len(list) {
		cut.left = true
	}
}
