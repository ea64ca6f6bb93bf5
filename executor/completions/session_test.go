package completions

import (
	"testing"

	"inferplan/executor/durable"
)

// The turns of a chat are one session, as are requests with the same prompt_cache_key or header. Other chats, models and texts are not.
func TestSessionsOfRequests(t *testing.T) {
	r := start(t, &fake{}, Options{})
	session := func(path, body string, headers ...string) int64 {
		t.Helper()
		var c completion
		r.ok(&c, "POST", path, body, headers...)
		r.fake.mu.Lock()
		defer r.fake.mu.Unlock()
		return r.fake.served[len(r.fake.served)-1].Session
	}
	const chat, text = "/v1/chat/completions", "/v1/completions"
	const first = `{"role":"system","content":"be brief"},{"role":"user","content":"hi"}`
	one := session(chat, `{"model":"m","max_tokens":2,"messages":[`+first+`]}`)
	if one <= 0 {
		t.Fatalf("a chat has session %d", one)
	}
	for name, c := range map[string]struct {
		same       bool
		path, body string
		headers    []string
	}{
		"next turn":     {true, chat, `{"model":"m","max_tokens":2,"messages":[` + first + `,{"role":"assistant","content":"a"},{"role":"user","content":"more"}],"user":"u"}`, nil},
		"other chat":    {false, chat, `{"model":"m","max_tokens":2,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]}`, nil},
		"other system":  {false, chat, `{"model":"m","max_tokens":2,"messages":[{"role":"system","content":"be briefer"},{"role":"user","content":"hi"}]}`, nil},
		"other model":   {false, chat, `{"model":"free/model","max_tokens":2,"messages":[` + first + `]}`, nil},
		"joined texts":  {false, chat, `{"model":"m","max_tokens":2,"messages":[{"role":"system","content":"be"},{"role":"user","content":"brief"}]}`, nil},
		"key":           {false, chat, `{"model":"m","max_tokens":2,"messages":[` + first + `],"prompt_cache_key":"k"}`, nil},
		"header":        {false, chat, `{"model":"m","max_tokens":2,"messages":[` + first + `]}`, []string{"X-Session-Id", "k"}},
		"no user yet":   {false, chat, `{"model":"m","max_tokens":2,"messages":[{"role":"system","content":"be brief"}]}`, nil},
		"null for key":  {true, chat, `{"model":"m","max_tokens":2,"messages":[` + first + `],"prompt_cache_key":null}`, nil},
		"a text":        {false, text, `{"model":"m","max_tokens":2,"prompt":"hi"}`, nil},
		"user's member": {false, text, `{"model":"m","max_tokens":2,"prompt":"hi","user":"u"}`, nil},
	} {
		got := session(c.path, c.body, c.headers...)
		if (got == one) != c.same || got < 0 || (name == "a text" || name == "no user yet" || name == "user's member") != (got == 0) {
			t.Errorf("%s: session %d, that of the chat is %d", name, got, one)
		}
	}

	// The key goes before the header, and both name the same session with the same name.
	byKey := session(text, `{"model":"m","max_tokens":2,"prompt":"hi","prompt_cache_key":"k"}`, "X-Session-Id", "other")
	byHeader := session(text, `{"model":"m","max_tokens":2,"prompt":"ho"}`, "X-Session-Id", "k")
	if byKey <= 0 || byKey != byHeader {
		t.Errorf("by key %d, by header %d", byKey, byHeader)
	}
	if resp, _ := r.do("POST", text, `{"model":"m","prompt":"hi","prompt_cache_key":7}`); resp.StatusCode != 400 {
		t.Errorf("a key that is no text: %d", resp.StatusCode)
	}

	// A request has the same session after the store has kept it.
	record := &requestRecord{Owner: "o", Model: "m", Body: []byte(`{}`)}
	record.Session = record.sessionOf(hashName("k"))
	stored, err := record.durableRecord("cmpl-1")
	if err != nil {
		t.Fatal(err)
	}
	other := &requestRecord{Owner: "p", Model: "m"}
	if read, _, err := readRecord(&durable.State{Record: *stored}); err != nil || read.serverRequest("cmpl-1", "", 0).Session != record.Session || other.sessionOf(hashName("k")) == record.Session {
		t.Errorf("read %+v: %v", read, err)
	}
}
