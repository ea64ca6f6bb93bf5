package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"inferplan/engine/llm"
	"inferplan/engine/llm/deltas"
	"inferplan/executor/completions"
	"inferplan/executor/text"
	"inferplan/testkit/llm/llamatest"
)

// On llama-server answers that are more than a text are those of requests that were never
// disturbed, though each was evicted twice: probabilities, a grammar, and two answers at once. The
// generated model has no form for calls of tools. Ids, and probabilities to the last digit, differ from run to run.
func TestLlamaEventsSurviveEvictions(t *testing.T) {
	const tokens = 60
	d, servers := llamaDesk(t, queuePlan(1, 4, 10*time.Minute, llamatest.TinyA), 4, nil)
	differ := regexp.MustCompile(`"(id|logprob|bytes|token_logprobs|top_logprobs)":("[^"]*"|-?[0-9.e+-]+|\[[^]]*\])`)
	for _, c := range []struct {
		name    string
		chat    bool
		choices int
		fields  string
		holds   string
	}{
		{"tools that the model does not call", true, 1, `"messages":[{"role":"user","content":"call"}],"tools":[{"type":"function","function":{"name":"look_up","parameters":{"type":"object","properties":{"of":{"type":"string","maxLength":20}},"required":["of"]}}}],"tool_choice":"required"`, `"role":"assistant"`},
		{"probabilities", true, 1, `"messages":[{"role":"user","content":"hi"}],"logprobs":true,"top_logprobs":2`, `"logprobs":{"content":[{`},
		{"probabilities of a completion", false, 1, `"prompt":"once","logprobs":2`, `"logprobs":{`},
		{"a format", true, 1, `"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"a":{"type":"string","maxLength":30}},"required":["a"]}}}`, `\"a\" :`},
		{"two answers", true, 2, `"messages":[{"role":"user","content":"hi"}],"n":2`, `"index":1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := fmt.Appendf(nil, `{"model":%q,%s,"max_tokens":%d,"temperature":0,"seed":7}`, llamatest.TinyA, c.fields, tokens)
			r := &completions.Request{ID: "e" + strings.ReplaceAll(c.name, " ", "-"), Model: llamatest.TinyA, Chat: c.chat, Events: true, PartialShown: true, Choices: c.choices, Body: body, MaxTokens: tokens, PromptTokens: 10, Accepted: time.Now()}
			s := newSheet()
			d.q.Serve(r, s)
			core, evicted := d.x.core.Load(), 0
			for over := false; !over; time.Sleep(2 * time.Millisecond) {
				select {
				case <-s.done:
					over = true
				default:
				}
				core.Loop.CallInRound(func() {
					for slot := range int32(64) {
						b := core.Batches.BatchIn(slot)
						if b == nil || evicted >= 2 {
							continue
						}
						if _, so, _ := text.JobText(core.Ledger.RequestIn(b.Tasks[0]).Job).PartialOf(0); so >= 10*(evicted+1) {
							evicted++
							core.Backends.BackendOf(b.Device()).EvictBatch(b, false)
						}
					}
				})
			}
			end := s.wait(t)
			log, _ := s.written()
			want := undisturbedLog(t, servers[0].URL, body, c.chat)
			show := func(log string) string {
				data, err := json.Marshal(deltas.CompleteChoices(log, c.chat))
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			got := show(log)
			if end.Err != nil || differ.ReplaceAllString(got, "") != differ.ReplaceAllString(show(want), "") || !strings.Contains(got, c.holds) {
				t.Errorf("%+v, %d evictions:\n%s\nexpected\n%s", end, evicted, got, show(want))
			}
			t.Logf("%d evictions, %d events", evicted, strings.Count(log, "\n"))
		})
	}
}

// undisturbedLog is what a server answers with nothing else to do.
func undisturbedLog(t *testing.T, url string, body []byte, chat bool) string {
	t.Helper()
	c, err := llm.New(url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var log strings.Builder
	_, err = c.Complete(ctx, &llm.Request{Model: llamatest.TinyA, Chat: chat, Body: body, Events: true}, func(p llm.Token) error {
		line, err := deltas.LogLine(p.Choices)
		log.Write(line)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return log.String()
}
