package transitions

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"inferplan/formats/document"
)

// Attributes that name a model, in order of preference: ours, and those of the semantic conventions for generative
// AI.
var modelKeys = []string{"inferplan.model", "gen_ai.request.model", "gen_ai.response.model"}

// applicationKey is the attribute that names the application of a trace. Without it, the name of the first span
// does.
const applicationKey = "inferplan.application"

// exportedTraces is the output of an OpenTelemetry exporter. Other fields are skipped.
type exportedTraces struct {
	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []span `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

type span struct {
	TraceID    string      `json:"traceId"`
	SpanID     string      `json:"spanId"`
	ParentID   string      `json:"parentSpanId"`
	Name       string      `json:"name"`
	Start      nanoseconds `json:"startTimeUnixNano"`
	End        nanoseconds `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes"`
}

// nanoseconds is a time. OTLP writes it as text, some exporters as a number.
type nanoseconds int64

// UnmarshalJSON implements json.Unmarshaler: it reads a count of nanoseconds, a number or a text.
func (n *nanoseconds) UnmarshalJSON(b []byte) error {
	text := string(b)
	if s, err := strconv.Unquote(text); err == nil {
		text = s
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 {
		return fmt.Errorf("found %s, expected a time in nanoseconds", b)
	}
	*n = nanoseconds(v)
	return nil
}

type attribute struct {
	Key   string `json:"key"`
	Value struct {
		String *string `json:"stringValue"`
	} `json:"value"`
}

// text returns an attribute of a span, or "" if it does not have it.
func (s *span) text(key string) string {
	for i := range s.Attributes {
		if a := &s.Attributes[i]; a.Key == key && a.Value.String != nil {
			return *a.Value.String
		}
	}
	return ""
}

// model returns the model that a span ran, by the first known attribute that names one, or "" if it ran none.
func (s *span) model() string {
	for _, key := range modelKeys {
		if text := s.text(key); text != "" {
			return text
		}
	}
	return ""
}

// trace is a request.
type trace struct {
	application string
	root        string // name of the first span
	began       nanoseconds
	calls       []Call
	parents     map[string]bool // ids of the spans around calls
}

// ReadSpans reads OpenTelemetry spans in JSON (one document, or one per line), adds the path of every trace to the
// recorder and returns their number. A trace is a request, and its spans that name a model are the tasks.
// application is for traces that do not name theirs; if it is empty, the name of their first span is used.
func ReadSpans(r io.Reader, name, application string, recorder *Recorder) (traces int, err error) {
	// Gather the spans of each trace.
	d := json.NewDecoder(r)
	tracesByID, traceOrder := map[string]*trace{}, []string(nil)
	for n := 1; ; n++ {
		var doc exportedTraces
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, &document.Error{File: name, Path: fmt.Sprintf("document %d", n), Found: document.FaultOfJSON(err), Expected: "spans as OTLP writes them in JSON: resourceSpans"}
		}
		for i := range doc.ResourceSpans {
			for k := range doc.ResourceSpans[i].ScopeSpans {
				for j := range doc.ResourceSpans[i].ScopeSpans[k].Spans {
					s := &doc.ResourceSpans[i].ScopeSpans[k].Spans[j]
					t := tracesByID[s.TraceID]
					if t == nil {
						t = &trace{began: 1<<63 - 1, parents: map[string]bool{}}
						tracesByID[s.TraceID] = t
						traceOrder = append(traceOrder, s.TraceID)
					}
					t.add(s)
				}
			}
		}
	}

	// Record the path of every trace that calls a model.
	for _, id := range traceOrder {
		t := tracesByID[id]
		t.calls = slices.DeleteFunc(t.calls, func(c Call) bool { return t.parents[c.ID] })
		if len(t.calls) > 0 && recorder.addCalls(cmp.Or(t.application, application, t.root, "unnamed"), "the trace "+document.Quote(id), t.calls) {
			traces++
		}
	}
	if traces == 0 {
		return 0, &document.Error{File: name, Found: "no trace with a span that names a model", Expected: "spans with an attribute such as " + modelKeys[1], Hint: recorder.Note()}
	}
	return traces, nil
}

// add adds a span of the trace. If it names a model, it is a call, in place of the span around it, which is then
// no task itself, whichever is read first.
func (t *trace) add(s *span) {
	if text := s.text(applicationKey); text != "" {
		t.application = text
	}
	if s.ParentID == "" || s.Start < t.began {
		t.began, t.root = s.Start, s.Name
	}
	if model := s.model(); model != "" {
		t.calls = append(t.calls, Call{Model: model, Start: int64(s.Start), EndedAt: max(int64(s.Start), int64(s.End)), ID: s.SpanID})
		if s.ParentID != "" && s.ParentID != s.SpanID {
			t.parents[s.ParentID] = true
		}
	}
}
