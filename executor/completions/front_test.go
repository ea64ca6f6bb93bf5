package completions

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/httplimit"
)

func TestCompletionsAreAnswered(t *testing.T) {
	r := start(t, &fake{}, Options{})
	body, want := prompt("hello", 5, "")
	var c completion
	r.ok(&c, "POST", "/v1/completions", body)
	if c.Object != "text_completion" || !strings.HasPrefix(c.ID, "cmpl-") || c.Model != "m" || len(c.Choices) != 1 ||
		*c.Choices[0].Text != want || *c.Choices[0].Finish != "length" || *c.Usage != (usage{7, 5, 12}) {
		t.Errorf("completion: %+v", c)
	}
	chat := `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":4}`
	r.ok(&c, "POST", "/v1/chat/completions", chat)
	if c.Object != "chat.completion" || !strings.HasPrefix(c.ID, "chatcmpl-") || c.Choices[0].Message.Role != "assistant" ||
		*c.Choices[0].Message.Content != fullText([]byte(chat), 4) {
		t.Errorf("chat completion: %+v", c)
	}
	// The server sees the request without what is the front end's.
	body, _ = prompt("hello", 5, `,"stream":true,"stream_options":{"include_usage":true},"slo_class":"batch","store":false,"metadata":{"a":"b"},"temperature":0`)
	resp, err := http.DefaultClient.Do(r.request("POST", "/v1/completions", body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, lines := events(t, resp.Body)
	seen := r.fake.served[2]
	if string(seen.Body) != `{"model":"m","prompt":"hello","max_tokens":5,"temperature":0}` || seen.Class != "batch" || seen.MaxTokens != 5 || seen.PromptTokens != 2 {
		t.Errorf("the server saw %+v with %s", seen, seen.Body)
	}
	if want = fullText(seen.Body, 5); text != want || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Request-Id") != seen.ID {
		t.Errorf("streamed %q, expected %q; %v", text, want, resp.Header)
	}
	n := len(lines)
	if n < 4 || lines[n-1] != "[DONE]" || !strings.Contains(lines[n-2], `"choices":[]`) || !strings.Contains(lines[n-2], `"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`) ||
		!strings.Contains(lines[n-3], `"finish_reason":"length"`) || !strings.Contains(lines[0], `"usage":null`) {
		t.Errorf("the stream ends with %q", lines)
	}
	settles(t, "something is left", r.idle)
}

func TestChatIsStreamed(t *testing.T) {
	r := start(t, &fake{every: time.Millisecond}, Options{})
	body := `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`
	resp, err := http.DefaultClient.Do(r.request("POST", "/v1/chat/completions", body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, lines := events(t, resp.Body)
	if want := fullText(r.fake.served[0].Body, 12); text != want {
		t.Errorf("streamed %q, expected %q", text, want)
	}
	if !strings.Contains(lines[0], `"object":"chat.completion.chunk"`) || !strings.Contains(lines[0], `"delta":{"role":"assistant","content":`) ||
		strings.Contains(lines[1], "assistant") || strings.Contains(lines[1], "usage") || !strings.Contains(lines[len(lines)-2], `"delta":{},"logprobs":null,"finish_reason":"length"`) {
		t.Errorf("chunks %q", lines)
	}
}

func TestModelsAreListed(t *testing.T) {
	r := start(t, &fake{}, Options{})
	_, text := r.do("GET", "/v1/models", "")
	want := `{"object":"list","data":[{"id":"m","object":"model","created":1700000000,"owned_by":"inferplan","slo_classes":["chat","batch"]},` +
		`{"id":"free/model","object":"model","created":0,"owned_by":"inferplan"}],"has_more":false}`
	if text != want {
		t.Errorf("models %s", text)
	}
	if _, text = r.do("GET", "/v1/models/free/model", ""); !strings.Contains(text, `"id":"free/model"`) {
		t.Errorf("one model: %s", text)
	}
	if resp, text := r.do("GET", "/v1/models/none", ""); resp.StatusCode != 404 || !strings.Contains(text, `"code":"model_not_found"`) {
		t.Errorf("no such model: %d %s", resp.StatusCode, text)
	}
	if resp, _ := r.do("GET", "/health", ""); resp.StatusCode != 200 {
		t.Errorf("health: %d", resp.StatusCode)
	}
}

// What is refused, with OpenAI's form of errors.
func TestRefusalsHaveOpenAIErrors(t *testing.T) {
	r := start(t, &fake{}, Options{MaxBodyBytes: 4096})
	good := `"model":"m","prompt":"x"`
	for _, c := range []struct {
		path, body, header, value string
		status                    int
		want                      string
	}{
		{"/v1/completions", `{` + good, "", "", 400, `"type":"invalid_request_error"`},
		{"/v1/completions", `[1]`, "", "", 400, `it begins with [`},
		{"/v1/completions", `{` + good + `}{}`, "", "", 400, `something follows it`},
		{"/v1/completions", "{" + good + ",\"user\":\"\xff\"}", "", "", 400, `not UTF-8`},
		{"/v1/completions", `{` + good + `,"model":"m"}`, "", "", 400, `"param":"model"`},
		{"/v1/completions", `{"prompt":"x"}`, "", "", 400, `"message":"model: missing`},
		{"/v1/completions", `{"model":"m"}`, "", "", 400, `"param":"prompt"`},
		{"/v1/completions", `{"model":"m","messages":[]}`, "", "", 400, `"param":"prompt"`},
		{"/v1/completions", `{"model":7,"prompt":"x"}`, "", "", 400, `found 7, expected the name of a model`},
		{"/v1/completions", `{"model":"none","prompt":"x"}`, "", "", 404, `"code":"model_not_found"`},
		{"/v1/completions", `{"model":"m","prompt":[1,-2]}`, "", "", 400, `expected a text, an array of texts, or tokens`},
		{"/v1/completions", `{"model":"m","prompt":["a",7]}`, "", "", 400, `expected a text, an array of texts, or tokens`},
		{"/v1/completions", `{"model":"m","prompt":[[1],[]]}`, "", "", 400, `expected a text, an array of texts, or tokens`},
		{"/v1/completions", `{` + good + `,"n":0}`, "", "", 400, `expected a number of answers from 1 to 128`},
		{"/v1/completions", `{"model":"m","prompt":["a","b"],"n":65}`, "", "", 400, `130 answers are asked for, at most 128`},
		{"/v1/completions", `{` + good + `,"best_of":2}`, "", "", 400, `"code":"unsupported_value"`},
		{"/v1/completions", `{` + good + `,"response_format":"json"}`, "", "", 400, `"param":"response_format"`},
		{"/v1/completions", `{` + good + `,"max_tokens":0}`, "", "", 400, `"param":"max_tokens"`},
		{"/v1/completions", `{` + good + `,"max_tokens":1e3}`, "", "", 400, `"param":"max_tokens"`},
		{"/v1/completions", `{` + good + `,"max_tokens":5,"max_completion_tokens":6}`, "", "", 400, `give one of them`},
		{"/v1/completions", `{` + good + `,"stream":1}`, "", "", 400, `"param":"stream"`},
		{"/v1/completions", `{` + good + `,"slo_class":"gold"}`, "", "", 400, `its classes: chat, batch`},
		{"/v1/completions", `{` + good + `}`, "X-SLO-Class", "gold", 400, `"param":"slo_class"`},
		{"/v1/completions", `{` + good + `,"slo_class":"chat"}`, "X-SLO-Class", "batch", 400, `in X-SLO-Class`},
		{"/v1/completions", `{` + good + `}`, "Content-Type", "text/plain", 415, `"param":"Content-Type"`},
		{"/v1/completions", `{` + good + `}`, "Content-Encoding", "gzip", 415, `content_encoding`},
		{"/v1/completions", `{` + good + `}`, "Origin", "http://evil.example", 403, `"type":"permission_error"`},
		{"/v1/completions", `{"model":"m","prompt":"` + strings.Repeat("x", 5000) + `"}`, "", "", 413, `at most 4096 are taken`},
		{"/v1/chat/completions", `{"model":"m","messages":[]}`, "", "", 400, `"param":"messages"`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"content":"x"}]}`, "", "", 400, `messages[0].role`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":7}]}`, "", "", 400, `messages[0].content`},
		{"/v1/chat/completions", `{"model":"m","messages":"x"}`, "", "", 400, `expected an array of messages`},
		{"/v1/nothing", `{}`, "", "", 404, `"type":"not_found_error"`},
	} {
		header := []string{c.header, c.value}
		if c.header == "" {
			header = nil
		}
		resp, text := r.do("POST", c.path, c.body, header...)
		if resp.StatusCode != c.status || !strings.Contains(text, c.want) || !strings.HasPrefix(text, `{"error":{"message":`) {
			t.Errorf("%.60s: %d %s, expected %d with %s", c.body, resp.StatusCode, text, c.status, c.want)
		}
	}
	if len(r.fake.served) != 0 {
		t.Errorf("%d refused requests were served", len(r.fake.served))
	}
	settles(t, "something is left", r.idle)
}

// Overload and failures of servers, as clients see them.
func TestAdmissionAndFailures(t *testing.T) {
	f := &fake{}
	r := start(t, f, Options{})
	body, _ := prompt("x", 3, "")
	f.admit = func(*Request) error {
		return &Refusal{Reason: "overload", Msg: "too much waits", RetryAfter: 2300 * time.Millisecond}
	}
	resp, text := r.do("POST", "/v1/completions", body)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3" || resp.Header.Get("Retry-After-Ms") != "2300" || !strings.Contains(text, `"type":"rate_limit_error"`) || !strings.Contains(text, `"code":"overload"`) {
		t.Errorf("overload: %d %v %s", resp.StatusCode, resp.Header, text)
	}
	f.admit = nil
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{&ServerError{Status: 400, Type: "invalid_request_error", Code: "context_length_exceeded", Param: "messages", Msg: "too long"}, 400, `"code":"context_length_exceeded"`},
		{&Refusal{Reason: "deadline", Msg: "it cannot be met"}, 429, `"code":"deadline"`},
		{errors.New("the disk burns"), 500, `"type":"server_error"`},
	} {
		f.end = func(*Request) error { return c.err }
		resp, text := r.do("POST", "/v1/completions", body)
		if resp.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%v: %d %s", c.err, resp.StatusCode, text)
		}
		// In a stream that has begun the error is an event.
		hold := make(chan struct{})
		f.hold = hold
		req := r.request("POST", "/v1/completions", body[:len(body)-1]+`,"stream":true}`)
		go func() {
			for range 3 {
				hold <- struct{}{}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		sresp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, lines := events(t, sresp.Body)
		sresp.Body.Close()
		f.hold = nil
		if sresp.StatusCode != 200 || !strings.Contains(lines[len(lines)-1], c.want) {
			t.Errorf("%v in a stream: %d %q", c.err, sresp.StatusCode, lines)
		}
	}
	settles(t, "something is left", r.idle)
}

func TestKeysLimitTheirHolders(t *testing.T) {
	keys, err := httplimit.ParseKeys([]byte("# keys\nsecret-of-the-first name=a class=batch rps=2 burst=3\n\nsecret-of-the-second name=b open=2\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, Options{Door: &httplimit.Door{Keys: ring(t, keys...), Log: quiet}})
	body, _ := prompt("x", 1, "")
	for _, token := range []string{"", "wrong", "secret-of-the-firs"} {
		r.token = token
		if resp, text := r.do("POST", "/v1/completions", body); resp.StatusCode != 401 || !strings.Contains(text, "authentication_error") || resp.Header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("token %q: %d %s", token, resp.StatusCode, text)
		}
	}
	close(f.hold)
	r.token = keys[0].Token
	codes := map[int]int{}
	for range 6 {
		resp, _ := r.do("POST", "/v1/completions", body)
		codes[resp.StatusCode]++
		if resp.StatusCode == 429 && resp.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
		}
	}
	if codes[200] < 3 || codes[200] > 5 || codes[200]+codes[429] != 6 {
		t.Errorf("2 requests a second, 3 at once: %v", codes)
	}
	if f.served[0].Class != "batch" {
		t.Errorf("the key's class: %q", f.served[0].Class)
	}
	// What one key asked the other does not see.
	resp, _ := r.do("GET", "/v1/completions/"+f.served[0].ID, "")
	r.token = keys[1].Token
	other, _ := r.do("GET", "/v1/completions/"+f.served[0].ID, "")
	if resp.StatusCode != 200 || other.StatusCode != 404 {
		t.Errorf("own %d, the other's %d", resp.StatusCode, other.StatusCode)
	}
	f.hold = make(chan struct{})
	defer close(f.hold)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 2 {
		wg.Go(func() { r.do("POST", "/v1/completions", body) })
	}
	settles(t, "two wait", func() bool { _, ofSender, _ := r.front.requests.counts("b"); return ofSender == 2 })
	if resp, text := r.do("POST", "/v1/completions", body); resp.StatusCode != 429 || !strings.Contains(text, "of this key") {
		t.Errorf("a third: %d %s", resp.StatusCode, text)
	}
	for range 2 {
		f.hold <- struct{}{}
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	for _, text := range []string{"short", "long-enough-token rps=x", "long-enough-token rps=-1", "long-enough-token rps=NaN", "long-enough-token what=1", "long-enough-token\nlong-enough-token"} {
		if keys, err := httplimit.ParseKeys([]byte(text)); err == nil {
			t.Errorf("%q was taken: %+v", text, keys)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"model":"m","prompt":"x"}`, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"stream":true}`, `{"a":1,"a":2}`, `{"max_tokens":1e9}`, `[`, `{"model":null,"prompt":null}`} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, chat bool) {
		parsed, err := parseCompletion(body, chat)
		if err != nil {
			if parsed != nil || err.Code.HTTPStatus()/100 != 4 {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if parsed.model == "" || !json.Valid(parsed.body) {
			t.Errorf("%q: %+v", body, parsed)
		}
		// What the server is given means the same when it is read again.
		again, err := parseCompletion(parsed.body, chat)
		if err != nil || again.model != parsed.model || again.maxTokens != parsed.maxTokens || string(again.body) != string(parsed.body) {
			t.Errorf("%q: %+v, then %+v, %v", body, parsed, again, err)
		}
		b := &runningBatch{front: &Front{}, state: &batchState{Endpoint: "/v1/completions"}}
		if _, _, err := b.parseLine(body); err == nil && !json.Valid(body) {
			t.Errorf("%q was taken as a line", body)
		}
	})
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte("0123456789abcdef name=a rps=1.5 burst=2 open=3\n# x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := httplimit.ParseKeys(text)
		if err != nil {
			return
		}
		for _, k := range keys {
			if len(k.Token) < 16 || k.RPS < 0 || k.Burst < 0 || k.MaxOpen < 0 {
				t.Errorf("%q: %+v", text, k)
			}
		}
	})
}
