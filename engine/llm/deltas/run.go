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

// newContent returns an empty content.
func newContent() choiceContent {
	return choiceContent{wholeTexts: map[string]string{}, arrayLengths: map[string]int{}}
}

// NewAnswerRun begins a run of an answer, a generation of it. The log holds the events of earlier runs, which the
// client has received. A run that is repeated, because a server was lost, writes the answer from its beginning. What
// the client has already is compared and left out.
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

// stateOf returns the state of a choice, which it makes for a new index.
func (r *AnswerRun) stateOf(index int) *choiceState {
	x := r.choices[index]
	if x == nil {
		x = &choiceState{sentContent: newContent(), newContent: newContent()}
		r.choices[index] = x
	}
	return x
}

// finishReason returns why a choice ended ("stop"), or "" if it goes on.
func finishReason(c object) string {
	s, _ := c["finish_reason"].(string)
	return s
}

// HasFinished reports whether at least the given number of choices have finished.
func (r *AnswerRun) HasFinished(choices int) bool {
	finished := 0
	for _, x := range r.choices {
		if x.finished {
			finished++
		}
	}
	return finished >= choices
}

// UnsentPart returns the part of an event that was not sent before, or nil if all of it was. It returns ErrDiffers if
// the event differs from what was sent. Its result is a JSON list of choices, like the event. Choices that finish are
// noted.
func (r *AnswerRun) UnsentPart(event json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(event, &list); err != nil {
		return nil, fmt.Errorf("%w: %.80s", errNoChoice, event)
	}

	// Keep the choices that have something new.
	var out []any
	isAllNew := true
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
		isAllNew = false
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
	case isAllNew && len(out) > 0:
		return event, nil
	case len(out) == 0:
		return nil, nil
	}
	return json.Marshal(out)
}

// removeSent removes from an event's choice (decoded JSON, which it changes) what was sent in earlier runs. It
// returns false if nothing is left, and ErrDiffers if the choice says something else.
func (x *choiceState) removeSent(c object) (bool, error) {
	filter := &sentFilter{sentContent: &x.sentContent}
	filter.text = x.sentContent.text.String()
	x.newContent.addObject(c, "", filter)
	if filter.err != nil {
		return false, filter.err
	}
	return filter.hasUnsent, nil
}

// CheckComplete is called when a run has ended. It returns ErrDiffers if the run ended before all that was sent had
// come again.
func (r *AnswerRun) CheckComplete() error {
	for _, i := range slices.Sorted(maps.Keys(r.choices)) {
		if x := r.choices[i]; x.wasSent && x.newContent.text.Len() < x.sentContent.text.Len() {
			return fmt.Errorf("choice %d: %w: it is shorter", i, ErrDiffers)
		}
	}
	return nil
}

// EndingEvent returns an event that finishes the choices that have not finished, for the given reason, or nil if all
// have. It is sent in place of a rest that cannot come any more.
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

// addObject adds a piece of a choice to the content, field by field in a fixed order. path is where the object lies
// in the choice ("/delta"). With a filter, it also removes from the object what was sent before.
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

// addText adds the text of one field, name of o, to the content. fieldPath is the path of the field. With a filter,
// it also removes from o what was sent before. Texts of id, type and role are not compared, because they differ
// between runs.
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

	// A mark with the path begins each change of the field, so that equal contents are equal texts.
	start := t.text.Len()
	if t.path != fieldPath {
		t.path = fieldPath
		t.text.WriteString("\x00" + fieldPath + "\x00")
	}
	textStart := t.text.Len()
	t.text.WriteString(v)
	if filter != nil {
		filter.filterText(o, name, v, t.text.String()[start:], start, textStart)
	}
}

// filterText compares a text v, which this run has just added to its content, with the content that was sent, and
// removes from o[name] what was sent. added is what the run added to its content: v, behind a mark if the field
// changed. It begins at start in the content, v at textStart. A difference sets c.err.
func (c *sentFilter) filterText(o object, name, v, added string, start, textStart int) {
	compared := min(len(c.text)-start, len(added))
	if compared <= 0 { // this run is beyond all that was sent
		c.hasUnsent = true
		return
	}
	if added[:compared] != c.text[start:start+compared] {
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

// addArray adds the array in the field name of o to the content, whose path is fieldPath. Elements with an index,
// such as calls of tools, are added under that index. Others, such as log probabilities, are counted, and with a
// filter as many of the first are removed as were sent.
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
