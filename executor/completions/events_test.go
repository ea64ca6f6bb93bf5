package completions

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"inferplan/engine/llm/deltas"
)

// What a request asks for decides whether its answer is one text that can be continued.
func TestFieldsDecideWhetherAnswerIsEvents(t *testing.T) {
	for _, c := range []struct {
		body    string
		events  bool
		choices int
		prompt  int
	}{
		{`"prompt":"12345678"`, false, 1, 3},
		{`"prompt":["12345678"]`, false, 1, 3},
		{`"prompt":"x","n":1,"best_of":1,"logprobs":null,"tools":[],"echo":false,"suffix":"","response_format":{"type":"text"},"stop":"x","top_p":0.5`, false, 1, 1},
		{`"prompt":"x","response_format":null,"seed":7`, false, 1, 1},
		{`"prompt":"x","n":2`, true, 2, 1},
		{`"prompt":["a","b"],"n":3`, true, 6, 3},
		{`"prompt":[1,2,3,4,5]`, true, 1, 5},
		{`"prompt":[[1,2],[3]]`, true, 2, 3},
		{`"prompt":"x","logprobs":0`, true, 1, 1},
		{`"prompt":"x","suffix":"y"`, true, 1, 1},
		{`"prompt":"x","response_format":{"type":"json_object"}`, true, 1, 1},
		{`"prompt":"x","grammar":"root ::= \"a\""`, true, 1, 1},
	} {
		parsed, err := parseCompletion([]byte(`{"model":"m",`+c.body+`}`), false)
		if err != nil || parsed.events != c.events || parsed.choices != c.choices || parsed.promptTokens != c.prompt {
			t.Errorf("%s: %+v, %v", c.body, parsed, err)
		}
	}
	chat := `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"tools":[{}]`
	for more, seeds := range map[string]int{"": 1, `,"seed":null`: 1, `,"seed":5`: 1} {
		parsed, err := parseCompletion([]byte(chat+more+"}"), true)
		if err != nil || !parsed.events || strings.Count(string(parsed.body), `"seed":`) != seeds || strings.Contains(string(parsed.body), "null") {
			t.Errorf("%s: %s, %v", more, parsed.body, err)
		}
	}
}

// lines are the events of a chat with two choices, one of which calls a tool.
func lines(of int) []string {
	call := `[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_%d","type":"function","function":{"name":"f","arguments":"{"}}]},"logprobs":null,"finish_reason":null}]`
	return []string{fmt.Sprintf(call, of), `[{"index":1,"delta":{"role":"assistant","content":"B <&"},"logprobs":{"content":[{"token":"B","logprob":-0.50}]},"finish_reason":null}]`,
		`[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]},"finish_reason":"tool_calls"}]`, `[{"index":1,"delta":{},"finish_reason":"stop","stop_reason":7}]`}
}

const wholeChoices = `[{"finish_reason":"tool_calls","index":0,"logprobs":null,"message":{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"call_%d","type":"function"}]}},` +
	`{"finish_reason":"stop","index":1,"logprobs":{"content":[{"logprob":-0.50,"token":"B"}]},"message":{"content":"B <&","role":"assistant"},"stop_reason":7}]`

// two is a server of such answers: the first run of a request writes all but the last
// event and then holds; the second takes back what nobody has seen, and writes all.
func two(t *testing.T, wrote chan<- string) *fake {
	return &fake{onServe: func(r *Request, out Output) bool {
		if !r.Events || r.Choices != 2 {
			t.Errorf("the server gets %+v", r)
		}
		list := lines(1)
		if r.Partial != "" {
			list = lines(2)
			if !r.PartialShown {
				out.Text(deltas.RestartLine, 0)
			} else if list = list[strings.Count(r.Partial, "\n"):]; len(list) != 1 {
				t.Errorf("the server goes on behind %q", r.Partial)
			}
		} else if wrote != nil {
			list = list[:3]
		}
		for _, l := range list {
			out.Text(l+"\n", 1)
		}
		if r.Partial == "" && wrote != nil {
			if err := out.Partial(); err != nil {
				t.Error(err)
			}
			wrote <- r.ID
			return true
		}
		out.Done(Result{Finish: "stop", PromptTokens: 5, OutputTokens: 4})
		return true
	}}
}

const chatOfTwo = `{"model":"m","messages":[{"role":"user","content":"x"}],"n":2,"tools":[{"type":"function"}],"logprobs":true,"store":true`

func sameJSON(t *testing.T, got any, want string) {
	t.Helper()
	data, err := json.Marshal(got)
	var a, b any
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err == nil {
		err = json.Unmarshal([]byte(want), &b)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if err != nil || string(x) != string(y) {
		t.Errorf("%v: got\n%s\nexpected\n%s", err, x, y)
	}
}

type rawAnswer struct {
	ID, Object, Status string
	Choices            json.RawMessage
	Usage              *usage
}

// An answer of several choices, with calls of tools and probabilities, comes as the
// server wrote it: in one, streamed, by its id, and in a batch.
func TestEventAnswersComeAsServerWroteThem(t *testing.T) {
	r := start(t, two(t, nil), Options{})
	var c rawAnswer
	r.ok(&c, "POST", "/v1/chat/completions", chatOfTwo+"}")
	sameJSON(t, c.Choices, fmt.Sprintf(wholeChoices, 1))
	if c.Object != "chat.completion" || *c.Usage != (usage{5, 4, 9}) {
		t.Errorf("%+v", c)
	}
	id := c.ID
	c = rawAnswer{}
	r.ok(&c, "GET", "/v1/chat/completions/"+id, "")
	sameJSON(t, c.Choices, fmt.Sprintf(wholeChoices, 1))
	for _, get := range []bool{false, true} {
		req := r.request("POST", "/v1/chat/completions", chatOfTwo+`,"stream":true,"stream_options":{"include_usage":true}}`)
		if get { // of a request that was not streamed
			req = r.request("GET", "/v1/chat/completions/"+id+"?stream=true", "")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, list := events(t, resp.Body)
		resp.Body.Close()
		if len(list) != 6 || list[5] != "[DONE]" || !strings.Contains(list[4], `"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":4`) {
			t.Fatalf("%q", list)
		}
		for i, want := range lines(1) {
			c := rawAnswer{}
			if err := json.Unmarshal([]byte(list[i]), &c); err != nil || c.Object != "chat.completion.chunk" || !strings.HasPrefix(c.ID, "chatcmpl-") {
				t.Errorf("%s: %v", list[i], err)
			}
			sameJSON(t, c.Choices, want)
		}
	}
	settles(t, "something is left", r.idle)
}

// What a client may have seen goes on after a restart; what none has seen is taken back,
// and not shown before the end.
func TestShownEventsContinueAfterRestart(t *testing.T) {
	for _, shown := range []bool{false, true} {
		wrote := make(chan string, 1)
		r := start(t, two(t, wrote), Options{})
		body := chatOfTwo + fmt.Sprintf(`,"stream":%v}`, shown)
		gone := make(chan struct{})
		go func() { // its front end goes away
			defer close(gone)
			if resp, err := http.DefaultClient.Do(r.request("POST", "/v1/chat/completions", body)); err == nil {
				resp.Body.Close()
			}
		}()
		id := <-wrote
		var c rawAnswer
		r.ok(&c, "GET", "/v1/chat/completions/"+id, "")
		if seen := strings.Contains(string(c.Choices), "call_1"); c.Status != "in_progress" || seen != shown {
			t.Errorf("shown %v: under way it is %+v", shown, c)
		}
		r.down()
		<-gone
		r.up(Options{})
		settles(t, "the request has not ended", func() bool {
			r.ok(&c, "GET", "/v1/chat/completions/"+id, "")
			return c.Status != "in_progress" && c.Status != "queued"
		})
		sameJSON(t, c.Choices, fmt.Sprintf(wholeChoices, map[bool]int{true: 1, false: 2}[shown]))
	}
}
