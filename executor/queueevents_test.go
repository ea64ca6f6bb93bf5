package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"inferplan/engine/llm/deltas"
	"inferplan/executor/completions"
	"inferplan/executor/text"
	"inferplan/testkit/llm/fake"
)

// wide are requests whose answers are more than a text, as a front end hands them on.
var wide = []struct {
	name    string
	chat    bool
	choices int
	fields  string
}{
	{"a call of a tool", true, 1, `"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"look_up"}}]`},
	{"three chats", true, 3, `"messages":[{"role":"user","content":"hi"}],"n":3`},
	{"two calls with probabilities", true, 2, `"messages":[{"role":"user","content":"hi"}],"n":2,"logprobs":true,"tools":[{}]`},
	{"two completions with probabilities", false, 2, `"prompt":"hi","n":2,"logprobs":1`},
}

const wideTokens = 24

func (d *desk) wide(i int, shown bool) *completions.Request {
	d.ids++
	w := wide[i]
	return &completions.Request{ID: fmt.Sprint("w", d.ids), Model: "a", Chat: w.chat, Events: true, PartialShown: shown, Choices: w.choices,
		Body: fmt.Appendf(nil, `{"model":"a",%s,"max_tokens":%d}`, w.fields, wideTokens), PromptTokens: 2, MaxTokens: wideTokens, Accepted: time.Now()}
}

var ids = regexp.MustCompile(`"id":"call_\d+_`)

// wants is what the server answers at once to the same request.
func (d *desk) wants(r *completions.Request) string {
	d.t.Helper()
	path := "/v1/completions"
	if r.Chat {
		path = "/v1/chat/completions"
	}
	resp, err := http.Post(d.servers[0].URL()+path, "application/json", bytes.NewReader(r.Body))
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	var whole struct{ Choices []map[string]any }
	d2 := json.NewDecoder(bytes.NewReader(data))
	d2.UseNumber()
	if err == nil {
		err = d2.Decode(&whole)
	}
	if err != nil || len(whole.Choices) != r.Choices {
		d.t.Fatalf("%s: %v", data, err)
	}
	for _, c := range whole.Choices {
		if _, ok := c["logprobs"]; !ok {
			c["logprobs"] = nil
		}
		if m, ok := c["message"].(map[string]any); ok && m["content"] == nil {
			m["content"] = nil
		}
	}
	text, _ := json.Marshal(whole.Choices)
	return ids.ReplaceAllString(string(text), `"id":"call_0_`)
}

func answerIn(log string, chat bool) string {
	text, _ := json.Marshal(deltas.CompleteChoices(log, chat))
	return ids.ReplaceAllString(string(text), `"id":"call_0_`)
}

// Calls of tools, probabilities and several answers come back whole, whatever happens to
// their servers on the way: begun anew where nobody has seen anything, else compared and
// continued, also where the second run comes in other pieces.
func TestEventAnswersSurviveLostServers(t *testing.T) {
	for i, w := range wide {
		for _, shown := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, shown %v", w.name, shown), func(t *testing.T) {
				faults := []fake.Fault{{DieAt: 7}, {DieAt: -1}, {Pieces: 4, DieAt: 16}, {Full: true}}
				d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond / 4, Fault: func(n int, _ string) fake.Fault {
					if n < len(faults) {
						return faults[n]
					}
					return fake.Fault{Pieces: 3}
				}}, nil)
				r, s := d.wide(i, shown), newSheet()
				d.q.Serve(r, s)
				end := s.wait(t)
				log, _ := s.written()
				if got, want := answerIn(log, w.chat), d.wants(r); end.Err != nil || got != want {
					t.Fatalf("%v:\n%s\nexpected\n%s\nlog\n%s", end.Err, got, want, log)
				}
				if taken := strings.Count(log, "\n"+deltas.RestartLine); shown && taken != 0 || !shown && taken != 2 {
					t.Errorf("%d times something was taken back:\n%s", taken, log)
				}
				if n := d.completions(); n < 5 {
					t.Errorf("%d completions: the faults did not come", n)
				}
			})
		}
	}
}

// A second run that says something else ends what a client has seen, with the reason. It
// is the answer where nobody has seen the first.
func TestQueuesEventsDiffer(t *testing.T) {
	for _, shown := range []bool{false, true} {
		d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond / 4, Fault: func(n int, _ string) fake.Fault {
			return []fake.Fault{{DieAt: 9}, {WrongAt: 8}}[min(n, 1)]
		}}, nil)
		s := newSheet()
		d.q.Serve(d.wide(0, shown), s)
		end := s.wait(t)
		log, _ := s.written()
		got := answerIn(log, true)
		var said *completions.ServerError
		switch {
		case shown && (!errors.As(end.Err, &said) || said.Status != 502 || said.Code != "not_continued" || !strings.Contains(said.Msg, "another answer than before")):
			t.Errorf("the end is %+v", end)
		case shown && strings.Contains(got, "#"), !shown && (end.Err != nil || !strings.Contains(got, "#")):
			t.Errorf("shown %v: %v, %s", shown, end.Err, got)
		}
	}
}

// Runs that come no further than the one before are given up, and what they wrote does
// not pile up.
func TestQueuesEventsNoFurther(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Fault: func(n int, _ string) fake.Fault { return fake.Fault{DieAt: 5} }}, nil)
	s := newSheet()
	d.q.Serve(d.wide(3, false), s)
	if end := s.wait(t); end.Err == nil || d.completions() > text.MaxAttempts+1 {
		t.Errorf("after %d runs: %+v", d.completions(), end)
	}
}

// A request that was evicted again and again is answered whole.
func TestQueuesEventsEvicted(t *testing.T) {
	d := openDesk(t, queuePlan(1, 4, time.Minute, "a"), fake.Options{Models: []string{"a"}, Token: time.Millisecond}, nil)
	r, s := d.wide(1, true), newSheet()
	d.q.Serve(r, s)
	<-s.first
	c := d.x.core.Load()
	for range 3 {
		c.Loop.CallInRound(func() {
			for slot := range int32(64) {
				b := c.Batches.BatchIn(slot)
				if b != nil {
					c.Backends.BackendOf(b.Device()).EvictBatch(b, false)
				}
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
	end := s.wait(t)
	log, tokens := s.written()
	if got, want := answerIn(log, true), d.wants(r); end.Err != nil || got != want || tokens != 3*wideTokens {
		t.Errorf("%v, %d tokens:\n%s\nexpected\n%s", end.Err, tokens, got, want)
	}
	if d.completions() < 2 {
		t.Error("nothing was evicted")
	}
}
