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
type AnswerRun struct {
	choices map[int]*choiceState
}

// choiceState is the state of one choice in a run.
type choiceState struct {
	sentContent choiceContent // content of earlier runs
	newContent  choiceContent // content of this run
	wasSent     bool          // earlier runs have events of it
	finished    bool
}

// choiceContent is all content of a choice, in a form that does not depend on how it was divided into events.
type choiceContent struct {
	text         strings.Builder
	path         string            // the path of the field that the text ends in
	wholeTexts   map[string]string // the texts that come complete, by path
	arrayLengths map[string]int    // the lengths of arrays that only grow, by path
}

func newContent() choiceContent {
	return choiceContent{wholeTexts: map[string]string{}, arrayLengths: map[string]int{}}
}

// NewAnswerRun begins a run after the events of a log.
func NewAnswerRun(log string) *AnswerRun {
	r := &AnswerRun{map[int]*choiceState{}}
	for choices := range LoggedEvents(log) {
		for _, raw := range choices {
			c, index, err := parseChoice(raw)
			if err != nil {
				continue
			}
			x := r.stateOf(index)
			x.wasSent = true
			x.sentContent.addObject(c, "", nil)
			x.finished = x.finished || finishReason(c) != ""
		}
	}
	return r
}

func (r *AnswerRun) stateOf(index int) *choiceState {
	x := r.choices[index]
	if x == nil {
		x = &choiceState{sentContent: newContent(), newContent: newContent()}
		r.choices[index] = x
	}
	return x
}

func finishReason(c object) string {
	s, _ := c["finish_reason"].(string)
	return s
}

// HasFinished reports whether at least the given number of choices have finished.
func (r *AnswerRun) HasFinished(choices int) bool {
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
func (r *AnswerRun) UnsentPart(event json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(event, &list); err != nil {
		return nil, fmt.Errorf("%w: %.80s", errNoChoice, event)
	}

	// Keep the choices that have something new.
	var out []any
	isUnchanged := true
	for _, raw := range list {
		c, index, err := parseChoice(raw)
		if err != nil {
			return nil, err
		}
		x := r.stateOf(index)
		x.finished = x.finished || finishReason(c) != ""
		if !x.wasSent {
			out = append(out, c)
			continue
		}
		isUnchanged = false
		hasUnsent, err := x.removeSent(c)
		if err != nil {
			return nil, fmt.Errorf("choice %d: %w", index, err)
		}
		if hasUnsent {
			out = append(out, c)
		}
	}

	// Return the event itself if nothing was cut.
	switch {
	case isUnchanged && len(out) > 0:
		return event, nil
	case len(out) == 0:
		return nil, nil
	}
	return json.Marshal(out)
}

// removeSent removes from an event's choice what was sent before. It returns false if nothing is left.
func (x *choiceState) removeSent(c object) (bool, error) {
	filter := &sentFilter{sentContent: &x.sentContent}
	filter.text = x.sentContent.text.String()
	x.newContent.addObject(c, "", filter)
	if filter.err != nil {
		return false, filter.err
	}
	return filter.hasUnsent, nil
}

// CheckComplete returns ErrDiffers if this run ended before all that was sent had come again.
func (r *AnswerRun) CheckComplete() error {
	for _, i := range slices.Sorted(maps.Keys(r.choices)) {
		if x := r.choices[i]; x.wasSent && x.newContent.text.Len() < x.sentContent.text.Len() {
			return fmt.Errorf("choice %d: %w: it is shorter", i, ErrDiffers)
		}
	}
	return nil
}

// EndingEvent returns an event that finishes the choices that have not finished, or nil if all have.
func (r *AnswerRun) EndingEvent(reason string, chat bool) json.RawMessage {
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
type sentFilter struct {
	sentContent *choiceContent
	text        string // text of sentContent
	hasUnsent   bool   // something in the event was not sent
	err         error
}

// fieldRank orders the fields of an event as they would come in events of their own: names first, finish reasons
// last.
func fieldRank(name string) int {
	switch {
	case name == "finish_reason" || name == "stop_reason":
		return 2
	case slices.Contains(wholeFields, name):
		return 0
	}
	return 1
}

// addObject adds an object to the content, field by field.
func (t *choiceContent) addObject(o object, path string, filter *sentFilter) {
	names := slices.SortedFunc(maps.Keys(o), func(a, b string) int {
		return cmp.Or(cmp.Compare(fieldRank(a), fieldRank(b)), cmp.Compare(a, b))
	})
	for _, name := range names {
		fieldPath := path + "/" + name
		switch v := o[name].(type) {
		case string:
			t.addText(o, name, v, fieldPath, filter)
		case object:
			t.addObject(v, fieldPath, filter)
		case []any:
			t.addArray(o, name, v, fieldPath, filter)
		}
	}
}

// addText adds a text. Texts of id, type and role are not compared, because they differ between runs.
func (t *choiceContent) addText(o object, name, v, fieldPath string, filter *sentFilter) {
	if v == "" {
		return
	}
	if slices.Contains(wholeFields, name) {
		if name == "id" || name == "type" || name == "role" {
			if filter != nil && (filter.sentContent.wholeTexts[fieldPath] != "" || name == "role") {
				delete(o, name)
			}
			t.wholeTexts[fieldPath] = v
			return
		}
		if t.wholeTexts[fieldPath] == v { // repeated unchanged
			return
		}
		t.wholeTexts[fieldPath] = v
	}
	start := t.text.Len()
	if t.path != fieldPath {
		t.path = fieldPath
		t.text.WriteString("\x00" + fieldPath + "\x00")
	}
	begin := t.text.Len()
	t.text.WriteString(v)
	if filter != nil {
		filter.filterText(o, name, v, t.text.String()[start:], start, begin)
	}
}

// filterText removes from a text what was sent. start is where its mark begins in the content, textStart where the
// text itself does.
func (c *sentFilter) filterText(o object, name, v, added string, start, textStart int) {
	n := min(len(c.text)-start, len(added))
	if n <= 0 {
		c.hasUnsent = true
		return
	}
	if added[:n] != c.text[start:start+n] {
		c.err = ErrDiffers
		return
	}
	switch unsent := textStart + len(v) - len(c.text); {
	case unsent > 0:
		o[name], c.hasUnsent = v[len(v)-unsent:], true
	case name == "finish_reason":
		o[name] = nil
	case name == "text":
		o[name] = ""
	default:
		delete(o, name)
	}
}

// addArray adds an array. Elements with an index are added under that index, others are counted.
func (t *choiceContent) addArray(o object, name string, list []any, fieldPath string, filter *sentFilter) {
	plainCount := 0
	for _, v := range list {
		index, ok := indexOf(v)
		if !ok {
			plainCount++
			continue
		}
		t.addObject(v.(object), fieldPath+"/"+strconv.Itoa(index), filter)
	}
	if plainCount == 0 {
		return
	}
	earlierCount := t.arrayLengths[fieldPath]
	t.arrayLengths[fieldPath] += plainCount
	if filter == nil {
		return
	}
	sentCount := min(max(filter.sentContent.arrayLengths[fieldPath]-earlierCount, 0), len(list))
	if o[name] = list[sentCount:]; sentCount < len(list) {
		filter.hasUnsent = true
	}
}
