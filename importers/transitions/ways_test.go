package transitions

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// text writes ways on a line each.
func text(d *formats.Transitions) string {
	var b strings.Builder
	for _, a := range d.Applications {
		for _, w := range a.Paths {
			fmt.Fprintf(&b, "%s %dx %d:", a.Application, w.Count, w.KnownTasks)
			for _, t := range w.Tasks {
				fmt.Fprintf(&b, " %s%v", t.Model, t.Reads)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func spanText(trace, id, parent, name, model string, start, end int) string {
	attributes := ""
	if model != "" {
		attributes = fmt.Sprintf(`,"attributes":[{"key":"gen_ai.request.model","value":{"stringValue":%q}},{"key":"n","value":{"intValue":"3"}}]`, model)
	}
	return fmt.Sprintf(`{"traceId":%q,"spanId":%q,"parentSpanId":%q,"name":%q,"startTimeUnixNano":"%d","endTimeUnixNano":"%d"%s}`, trace, id, parent, name, start, end, attributes)
}

func recorded(spans ...string) string {
	return `{"resourceSpans":[{"resource":{},"scopeSpans":[{"spans":[` + strings.Join(spans, ",") + `]}]}]}` + "\n"
}

func TestSpansMakePaths(t *testing.T) {
	var in strings.Builder
	for _, trace := range []string{"a", "b"} {
		in.WriteString(recorded(
			spanText(trace, "0", "", "answer", "", 0, 100),
			spanText(trace, "1", "0", "call", "see", 1, 10),
			spanText(trace, "2", "0", "call", "see", 1, 12),
			spanText(trace, "3", "0", "call", "reply", 13, 30),
		))
		in.WriteString(recorded(spanText(trace, "4", "0", "agent", "draw", 31, 60), spanText(trace, "5", "4", "inner", "draw-small", 32, 50)))
	}
	in.WriteString(recorded(spanText("c", "9", "", "other", "", 0, 5)))
	r := NewRecorder()
	n, err := ReadSpans(strings.NewReader(in.String()), "spans.json", "", r)
	d := r.Document()
	if err != nil || n != 2 {
		t.Errorf("%d traces, %v", n, err)
	}
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	if want := "answer 2x 2: see[] see[] reply[2 1] draw-small[1]\n"; text(d) != want {
		t.Errorf("found\n%sexpected\n%s", text(d), want)
	}
	for _, bad := range []string{"", "[", `{"resourceSpans":7}`, recorded(spanText("a", "1", "", "x", "", 0, 1)), `{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":"x"}]}]}]}`} {
		if _, err := ReadSpans(strings.NewReader(bad), "spans.json", "", NewRecorder()); err == nil || !strings.Contains(err.Error(), "spans.json") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Spans in the whole form of OTLP's own example are read: resource, scope, kind, and identifiers in capitals.
func TestSpansOfTheSpecification(t *testing.T) {
	const text = `{"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "chat"}}]}, "scopeSpans": [{
		"scope": {"name": "tracer", "version": "1.0.0", "attributes": [{"key": "a", "value": {"boolValue": true}}]},
		"spans": [{"traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "EEE19B7EC3C1B174", "parentSpanId": "EEE19B7EC3C1B173", "name": "chat", "kind": 2,
			"startTimeUnixNano": "1544712660000000000", "endTimeUnixNano": "1544712661000000000",
			"attributes": [{"key": "gen_ai.request.max_tokens", "value": {"intValue": "64"}}, {"key": "gen_ai.request.model", "value": {"stringValue": "small"}}], "status": {}}]}]}]}`
	r := NewRecorder()
	if n, err := ReadSpans(strings.NewReader(text), "spans.json", "", r); n != 1 || err != nil || !strings.Contains(fmt.Sprintf("%+v", r.Document()), "small") {
		t.Errorf("%d traces, %v, %+v", n, err, r.Document())
	}
}

// A call in place of the one around it is the same whichever was written first: exporters write a span when it ends.
func TestSpansInAnyOrder(t *testing.T) {
	spans := []string{spanText("a", "1", "", "agent", "draw", 0, 60), spanText("a", "2", "1", "inner", "draw-small", 1, 50), spanText("a", "3", "2", "inmost", "draw-tiny", 2, 40)}
	for _, order := range [][3]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		r := NewRecorder()
		if _, err := ReadSpans(strings.NewReader(recorded(spans[order[0]], spans[order[1]])+recorded(spans[order[2]])), "spans.json", "", r); err != nil {
			t.Fatal(err)
		}
		if got := text(r.Document()); got != "agent 1x 1: draw-tiny[]\n" {
			t.Errorf("%v: %s", order, got)
		}
	}
}

func TestSessionsMakePaths(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"without ends calls follow each other", "t_s,session,model\n0,a,plan\n5,a,search\n6,b,plan\n9,a,answer\n40,a,plan\n41,b,x\n", "agent 2x 1: plan[]\nagent 1x 1: plan[] search[1] answer[1]\nagent 1x 1: x[]\n"},
		{"with ends some run at once", "t_us,end_us,session,model,application\n0,10,a,plan,chat\n11,20,a,search,chat\n11,25,a,search,chat\n30,31,a,answer,chat\n", "chat 1x 1: plan[] search[1] search[2] answer[2 1]\n"},
		{"hints say what is read", "t_s,session,model,id,reads\n0,a,plan,1,\n1,a,search,2,1\n2,a,answer,3,1 2\n", "agent 1x 1: plan[] search[1] answer[2 1]\n"},
	} {
		f, err := csvfile.New(strings.NewReader(c.in), "trace.csv")
		if err != nil {
			t.Fatal(err)
		}
		r := NewRecorder()
		if _, err := ReadSessions(f, "agent", 10*time.Second, r); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := r.Document(); text(d) != c.want || d.Validate() != nil {
			t.Errorf("%s: found\n%sexpected\n%s%v", c.name, text(d), c.want, d.Validate())
		}
	}
}

// Requests of more tasks than a document can hold are left out, and counted with the name of the first.
func TestLongRequestsAreLeftOut(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("t_s,session,model\n0,short,m\n")
	calls := make([]string, formats.MaxTasks+1)
	for i := range calls {
		rows.WriteString("1,long,m\n")
		calls[i] = spanText("long", fmt.Sprint(i+1), "", "x", "m", i, i+1)
	}
	sessions := func(text string) func(r *Recorder) (int, error) {
		return func(r *Recorder) (int, error) {
			f, err := csvfile.New(strings.NewReader(text), "x.csv")
			if err != nil {
				t.Fatal(err)
			}
			return ReadSessions(f, "", time.Second, r)
		}
	}
	spans := func(list []string) func(r *Recorder) (int, error) {
		return func(r *Recorder) (int, error) {
			return ReadSpans(strings.NewReader(recorded(list...)), "x.json", "", r)
		}
	}
	for note, read := range map[string][2]func(r *Recorder) (int, error){
		`left out 1 request of more than 4096 tasks, the first of them of the session "long"`: {sessions(rows.String()), sessions(strings.Replace(rows.String(), "0,short,m\n", "", 1))},
		`left out 1 request of more than 4096 tasks, the first of them the trace "long"`:      {spans(append(calls, spanText("short", "1", "", "x", "m", 0, 1))), spans(calls)},
	} {
		r := NewRecorder()
		if n, err := read[0](r); n != 1 || err != nil || r.Note() != note {
			t.Errorf("%d, %v, %s, expected %s", n, err, r.Note(), note)
		}
		if _, err := read[1](NewRecorder()); err == nil || !strings.Contains(err.Error(), note) {
			t.Error(err)
		}
	}
}

func FuzzSpans(f *testing.F) {
	f.Add(recorded(spanText("a", "1", "", "x", "m", 0, 1), spanText("a", "2", "1", "y", "n", 1, 0)))
	f.Add(`{"resourceSpans":[]}`)
	f.Fuzz(func(t *testing.T, in string) {
		r := NewRecorder()
		if _, err := ReadSpans(strings.NewReader(in), "x", "", r); err != nil {
			return
		}
		d := r.Document()
		data, err := document.Marshal(d)
		if err != nil {
			return // a name that no recorded may have
		}
		if _, _, err := formats.Decode(data, "x.json"); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzSessions(f *testing.F) {
	f.Add("t_s,session,model\n0,a,plan\n5,a,search\n")
	f.Add("t_us,end_us,session,model,id,reads\n0,10,a,plan,1,\n1,2,a,b,2,1 1 7\n")
	f.Fuzz(func(t *testing.T, in string) {
		file, err := csvfile.New(bytes.NewReader([]byte(in)), "x.csv")
		if err != nil {
			return
		}
		r := NewRecorder()
		if _, err := ReadSessions(file, "", time.Second, r); err != nil {
			return
		}
		if data, err := document.Marshal(r.Document()); err == nil {
			if _, _, err := formats.Decode(data, "x.json"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
