package deltas

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func logOf(t interface{ Fatal(...any) }, events ...string) string {
	var b strings.Builder
	for _, e := range events {
		line, err := LogLine(json.RawMessage(e))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
	}
	return b.String()
}

func whole(t *testing.T, log string, chat bool) string {
	t.Helper()
	out, err := json.Marshal(CompleteChoices(log, chat))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Events make the answer that a server gives where it does not stream.
func TestEventsMakeUnstreamedAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		chat   bool
		events []string
		want   string
	}{
		{"calls of tools, as vLLM streams them", true, []string{
			`[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`,
			`[{"index":0,"delta":{"tool_calls":[{"id":"call_1","type":"function","index":0,"function":{"name":"look_up"}}]},"finish_reason":null}]`,
			`[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]`,
			`[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},{"index":1,"id":"call_2","type":"function","function":{"name":"b","arguments":"{}"}}]}}]`,
			`[{"index":0,"delta":{"content":""},"finish_reason":"tool_calls","stop_reason":null}]`},
			`[{"finish_reason":"tool_calls","index":0,"logprobs":null,"message":{"content":"","role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\":1}","name":"look_up"},"id":"call_1","type":"function"},{"function":{"arguments":"{}","name":"b"},"id":"call_2","type":"function"}]},"stop_reason":null}]`},
		{"two choices with reasoning", true, []string{
			`[{"index":1,"delta":{"role":"assistant","content":null}}]`, `[{"index":0,"delta":{"reasoning_content":"I th"}}]`, `[{"index":1,"delta":{"content":"B"}}]`,
			`[{"index":0,"delta":{"reasoning_content":"ink"}}]`, `[{"index":0,"delta":{"content":"A"},"finish_reason":"stop"}]`, `[{"index":1,"delta":{},"finish_reason":"length"}]`},
			`[{"finish_reason":"stop","index":0,"logprobs":null,"message":{"content":"A","reasoning_content":"I think","role":"assistant"}},{"finish_reason":"length","index":1,"logprobs":null,"message":{"content":"B","role":"assistant"}}]`},
		{"probabilities of a completion, numbers as they are", false, []string{
			`[{"text":"a","index":0,"logprobs":{"tokens":["a"],"token_logprobs":[-0.10],"text_offset":[0]},"finish_reason":null}]`,
			`[{"text":"b","index":0,"logprobs":{"tokens":["b"],"token_logprobs":[-1e-9],"text_offset":[1]},"finish_reason":"stop"}]`},
			`[{"finish_reason":"stop","index":0,"logprobs":{"text_offset":[0,1],"token_logprobs":[-0.10,-1e-9],"tokens":["a","b"]},"text":"ab"}]`},
		{"taken back, and broken lines", false, []string{`[{"index":0,"text":"x"}]`, `null`, `[{"index":0,"text":"y"}]`}, `[{"finish_reason":null,"index":0,"logprobs":null,"text":"y"}]`},
		{"nothing", true, nil, `[]`},
	} {
		if got := whole(t, logOf(t, c.events...), c.chat); got != c.want {
			t.Errorf("%s:\n%s\nexpected\n%s", c.name, got, c.want)
		}
	}
	if got := whole(t, "null\n[{\"text\":\"a\"}]\n[{\"te\nxt\n[7]\n[{\"text\":\"b\"}]\n[{\"text\":\"cut", false); !strings.Contains(got, `"text":"ab"`) {
		t.Errorf("a log with broken lines gives %s", got)
	}
}

// answer is a random answer: what each choice says, a token a letter.
type answer struct {
	chat    bool
	choices []spoken
}

type spoken struct{ reasoning, content, arguments string }

func drawAnswer(t *rapid.T) answer {
	a := answer{chat: rapid.Bool().Draw(t, "chat")}
	text := rapid.StringMatching(`[a-c"\\é]{0,12}`)
	for range rapid.IntRange(1, 3).Draw(t, "choices") {
		s := spoken{content: text.Draw(t, "content")}
		if a.chat {
			s.reasoning, s.arguments = text.Draw(t, "reasoning"), text.Draw(t, "arguments")
		}
		a.choices = append(a.choices, s)
	}
	return a
}

// events streams an answer in random pieces; run is in the ids of calls.
func (a answer) events(t *rapid.T, run int) (out []string) {
	pieces := make([][]object, len(a.choices))
	for i, s := range a.choices {
		if a.chat {
			pieces[i] = append(pieces[i], object{"index": i, "delta": object{"role": "assistant", "content": nil}})
		}
		for n, field := range []string{s.reasoning, s.content, s.arguments} {
			for first := true; field != "" || first && n == 2 && a.chat; first = false {
				k := rapid.IntRange(min(1, len([]rune(field))), len([]rune(field))).Draw(t, "piece")
				piece := string([]rune(field)[:k])
				field = field[len(piece):]
				c := object{"index": i, "finish_reason": nil, "logprobs": object{"content": entries(piece)}}
				switch {
				case !a.chat:
					c["text"] = piece
				case n == 0:
					c["delta"] = object{"reasoning_content": piece}
				case n == 1:
					c["delta"] = object{"content": piece}
				default:
					call := object{"index": 0, "function": object{"arguments": piece}}
					if first {
						call["id"], call["type"], call["function"].(object)["name"] = fmt.Sprint("call_", run), "function", "f"
					}
					c["delta"] = object{"tool_calls": []any{call}}
				}
				pieces[i] = append(pieces[i], c)
			}
		}
		pieces[i] = append(pieces[i], object{"index": i, "finish_reason": "stop"})
	}
	for left := len(pieces); left > 0; {
		i := rapid.IntRange(0, len(pieces)-1).Draw(t, "next")
		if len(pieces[i]) == 0 {
			left = 0
			for _, p := range pieces {
				left += len(p)
			}
			continue
		}
		raw, _ := json.Marshal([]any{pieces[i][0]})
		out, pieces[i] = append(out, string(raw)), pieces[i][1:]
	}
	return out
}

func entries(piece string) []any {
	out := []any{}
	for _, r := range piece {
		out = append(out, object{"token": string(r), "logprob": -1})
	}
	return out
}

// An answer that breaks off anywhere, and is written again in other pieces, goes on with
// nothing repeated and nothing missing.
func TestRunContinues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAnswer(t)
		first, second := a.events(t, 1), a.events(t, 2)
		log := logOf(t, first[:rapid.IntRange(0, len(first)).Draw(t, "broken at")]...)
		r := NewAnswerRun(log)
		known := len(CompleteChoices(log, a.chat))
		for _, e := range second {
			fresh, err := r.UnsentPart(json.RawMessage(e))
			if err != nil {
				t.Fatalf("%s behind\n%s: %v", e, log, err)
			}
			if fresh != nil {
				log += logOf(t, string(fresh))
			}
		}
		if err := r.CheckComplete(); err != nil || !r.HasFinished(len(a.choices)) || r.EndingEvent("length", a.chat) != nil {
			t.Fatalf("the second run is not whole: %v", err)
		}
		got, want := decoded(CompleteChoices(log, a.chat)), decoded(CompleteChoices(logOf(t, second...), a.chat))
		if known > 0 { // ids are those that were sent
			got, want = idless(got), idless(want)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("log\n%s\ngives\n%v\nexpected\n%v", log, got, want)
		}
	})
}

func decoded(list []json.RawMessage) (out []any) {
	for _, raw := range list {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			panic(err)
		}
		out = append(out, v)
	}
	return out
}

func idless(list []any) []any {
	for _, c := range list {
		m, _ := c.(object)["message"].(object)
		calls, _ := m["tool_calls"].([]any)
		for _, call := range calls {
			delete(call.(object), "id")
		}
	}
	return list
}

// Another answer is told from the one that was sent, and so is a shorter one.
func TestRunDiffers(t *testing.T) {
	sent := logOf(t, `[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x"}}]}}]`)
	for _, event := range []string{
		`[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"g"}}]}}]`,
		`[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"y"}}]}}]`,
		`[{"index":0,"delta":{"content":"no call"}}]`,
		`[{"index":0,"delta":{},"finish_reason":"stop"}]`,
	} {
		if fresh, err := NewAnswerRun(sent).UnsentPart(json.RawMessage(event)); !errors.Is(err, ErrDiffers) {
			t.Errorf("%s: %s, %v", event, fresh, err)
		}
	}
	r := NewAnswerRun(sent)
	if _, err := r.UnsentPart(json.RawMessage(`[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}}]`)); err != nil || !errors.Is(r.CheckComplete(), ErrDiffers) {
		t.Errorf("a shorter answer: %v, %v", err, r.CheckComplete())
	}
	if got := string(r.EndingEvent("length", true)); got != `[{"delta":{},"finish_reason":"length","index":0,"logprobs":null}]` {
		t.Errorf("ends with %s", got)
	}
	for _, bad := range []string{`{}`, `[7]`, `[{"index":-1}]`, `[{"index":99999}]`, `[null]`} {
		if _, err := r.UnsentPart(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// No log and no event makes a reader fail otherwise than with an error.
func FuzzRun(f *testing.F) {
	f.Add("[{\"index\":0,\"text\":\"a\"}]\n", `[{"index":0,"text":"ab","logprobs":{"tokens":["a","b"]}}]`)
	f.Add("null\n[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"x\",\"function\":{\"arguments\":\"{\"}}]}}]\n", `[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]`)
	f.Fuzz(func(t *testing.T, log, event string) {
		CompleteChoices(log, true)
		CompleteChoices(log, false)
		r := NewAnswerRun(log)
		if fresh, err := r.UnsentPart(json.RawMessage(event)); err == nil && fresh != nil && !json.Valid(fresh) {
			t.Errorf("%s is not JSON", fresh)
		}
		r.CheckComplete()
		r.EndingEvent("stop", true)
	})
}
