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

// ErrDiffers: an answer that was written again differs from what was sent before.
var ErrDiffers = errors.New("the server wrote another answer than before")

// Run is an answer that is written, or written again behind what was sent of it.
type Run struct {
	choices map[int]*choice
}

// choice is what a run knows of a choice.
type choice struct {
	sent     trail // before this run
	now      trail // of this run
	known    bool  // there are events of it from before
	finished bool
}

// trail is all that a choice has said, in a form in which it does not matter how it was
// cut into events.
type trail struct {
	text    strings.Builder
	path    string            // of the field that the text ends in
	whole   map[string]string // texts that come whole
	entries map[string]int    // elements of arrays that only grow
}

func newTrail() trail {
	return trail{whole: map[string]string{}, entries: map[string]int{}}
}

// NewRun begins a run behind a log.
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

// Finished says whether so many choices have ended.
func (r *Run) Finished(choices int) bool {
	n := 0
	for _, x := range r.choices {
		if x.finished {
			n++
		}
	}
	return n >= choices
}

// Fresh is what an event says that was not sent before; nil: nothing. ErrDiffers: it says
// something else.
func (r *Run) Fresh(event json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(event, &list); err != nil {
		return nil, fmt.Errorf("%w: %.80s", errNoChoice, event)
	}
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
	switch {
	case whole && len(out) > 0:
		return event, nil
	case len(out) == 0:
		return nil, nil
	}
	return json.Marshal(out)
}

// fresh takes from an event of a choice what was sent before; false: nothing is left.
func (x *choice) fresh(c object) (bool, error) {
	cut := &cut{sent: &x.sent}
	cut.text = x.sent.text.String()
	x.now.walk(c, "", cut)
	if cut.err != nil {
		return false, cut.err
	}
	return cut.left, nil
}

// Behind says how much of what was sent has not come again.
func (r *Run) Behind() error {
	for _, i := range slices.Sorted(maps.Keys(r.choices)) {
		if x := r.choices[i]; x.known && x.now.text.Len() < x.sent.text.Len() {
			return fmt.Errorf("choice %d: %w: it is shorter", i, ErrDiffers)
		}
	}
	return nil
}

// Ending is an event that ends the choices that have not ended; nil: all have.
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
	raw, _ := json.Marshal(out) // plain values
	return raw
}

// cut takes from an event what was sent before.
type cut struct {
	sent *trail
	text string // of sent
	left bool   // something is new
	err  error
}

// rank orders fields of one event as they come where each has an event of its own: a
// name before what is said of it, and the reason of an end behind all.
func rank(name string) int {
	switch {
	case name == "finish_reason" || name == "stop_reason":
		return 2
	case slices.Contains(once, name):
		return 0
	}
	return 1
}

// walk adds an event to a trail, field by field.
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

// field adds a text. Ids differ from run to run and say nothing.
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
		if t.whole[at] == v { // it is said again
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

// field takes from a text what was sent; begin is where it begins in the trail, from
// where the mark before it does.
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

// array adds an array: elements with an index each to its own, others behind those that
// were there.
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
