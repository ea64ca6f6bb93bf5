package completions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
	"inferplan/executor/httplimit"
)

var quiet = slog.New(slog.DiscardHandler)

// fake is a deterministic server: the text of a request depends on its prompt alone, a
// letter a token.
type fake struct {
	every    time.Duration          // between tokens
	admit    func(r *Request) error // nil: all come in
	evict    int                    // after so many tokens of a run the request is evicted, and goes on
	end      func(r *Request) error // the error that a request ends with; nil: none
	hold     chan struct{}          // when set, tokens wait for it
	onServe  func(r *Request, out Output) (mine bool)
	mu       sync.Mutex
	served   []*Request
	stops    map[string]context.CancelFunc
	forgot   []string
	running  sync.WaitGroup
	halted   bool // it begins nothing more
	evicted  int
	partials int // requests that came with text
}

func (f *fake) Models() []Model {
	return []Model{{ID: "m", Created: time.Unix(1700000000, 0), Classes: []string{"chat", "batch"}}, {ID: "free/model"}}
}

func (f *fake) Admit(r *Request) (time.Duration, error) {
	if f.admit == nil {
		return 0, nil
	}
	return 0, f.admit(r)
}

// fullText is the answer to a body.
func fullText(body []byte, tokens int) string {
	sum := sha256.Sum256(body)
	var b strings.Builder
	for i := range tokens {
		b.WriteByte("abcdefghijklmnopqrstuvwxyz "[int(sum[i%32]+byte(i))%27])
	}
	return b.String()
}

func (r *Request) tokens() int {
	if r.MaxTokens > 0 {
		return r.MaxTokens
	}
	return 12
}

func (f *fake) Serve(r *Request, out Output) {
	ctx, stop := context.WithCancel(context.Background())
	f.mu.Lock()
	f.served = append(f.served, r)
	if f.stops == nil {
		f.stops = map[string]context.CancelFunc{}
	}
	f.stops[r.ID] = stop
	if r.Partial != "" {
		f.partials++
	}
	f.mu.Unlock()
	if f.onServe != nil && f.onServe(r, out) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.halted {
		f.running.Go(func() { f.run(ctx, r, out) })
	}
}

// wide writes an answer that is more than a text: a call of a tool where the body has
// tools, else text, with probabilities where they are asked for.
func (f *fake) wide(r *Request, out Output) {
	text := fullText(r.Body, r.tokens())
	send := func(format string, args ...any) { out.Text(fmt.Sprintf(format, args...)+"\n", 1) }
	for n := range r.Choices {
		if r.Chat {
			send(`[{"index":%d,"delta":{"role":"assistant","content":null},"logprobs":null,"finish_reason":null}]`, n)
		}
	}
	for at := range len(text) {
		for n := range r.Choices {
			logprobs := "null"
			if strings.Contains(string(r.Body), `"logprobs":`) {
				logprobs = fmt.Sprintf(`{"content":[{"token":%q,"logprob":-0.5,"bytes":null,"top_logprobs":[]}]}`, text[at:at+1])
				if !r.Chat {
					logprobs = fmt.Sprintf(`{"tokens":[%q],"token_logprobs":[-0.5],"text_offset":[%d],"top_logprobs":[{}]}`, text[at:at+1], at)
				}
			}
			switch {
			case !r.Chat:
				send(`[{"index":%d,"text":%q,"logprobs":%s,"finish_reason":null}]`, n, text[at:at+1], logprobs)
			case strings.Contains(string(r.Body), `"tools":`) && at == 0:
				send(`[{"index":%d,"delta":{"tool_calls":[{"index":0,"id":"call_%d","type":"function","function":{"name":"look_up","arguments":"{\"of\":\"%s"}}]},"finish_reason":null}]`, n, n, text[:1])
			case strings.Contains(string(r.Body), `"tools":`):
				send(`[{"index":%d,"delta":{"tool_calls":[{"index":0,"function":{"arguments":%q}}]},"finish_reason":null}]`, n, text[at:at+1])
			default:
				send(`[{"index":%d,"delta":{"content":%q},"logprobs":%s,"finish_reason":null}]`, n, text[at:at+1], logprobs)
			}
		}
		if at == 3 {
			if err := out.Partial(); err != nil {
				out.Done(Result{Err: err})
				return
			}
		}
	}
	for n := range r.Choices {
		switch {
		case !r.Chat:
			send(`[{"index":%d,"text":"","finish_reason":"length"}]`, n)
		case strings.Contains(string(r.Body), `"tools":`):
			send(`[{"index":%d,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]},"finish_reason":"tool_calls"}]`, n)
		default:
			send(`[{"index":%d,"delta":{},"finish_reason":"length"}]`, n)
		}
	}
	out.Done(Result{Finish: "length", PromptTokens: 7, OutputTokens: len(text) * r.Choices})
}

func (f *fake) run(ctx context.Context, r *Request, out Output) {
	if r.Events {
		f.wide(r, out)
		return
	}
	text := fullText(r.Body, r.tokens())
	for at := len(r.Partial); at < len(text); at++ {
		if f.hold != nil {
			select {
			case <-f.hold:
			case <-ctx.Done():
				return
			}
		}
		if f.every > 0 {
			select {
			case <-time.After(f.every):
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		out.Text(text[at:at+1], 1)
		if f.evict > 0 && at%f.evict == f.evict-1 {
			f.mu.Lock()
			f.evicted++
			f.mu.Unlock()
			if err := out.Partial(); err != nil {
				out.Done(Result{Err: err})
				return
			}
		}
	}
	res := Result{Finish: "length", PromptTokens: 7}
	if f.end != nil {
		res.Err = f.end(r)
	}
	out.Done(res)
}

func (f *fake) Forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot = append(f.forgot, id)
	if stop := f.stops[id]; stop != nil {
		stop()
	}
}

// halt stops all requests where they are, as the end of a process does.
func (f *fake) halt() {
	f.mu.Lock()
	f.halted = true
	for _, stop := range f.stops {
		stop()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// rig is a front end with its store and server.
type rig struct {
	t     *testing.T
	path  string
	store durable.Store
	fake  *fake
	front *Front
	http  *httptest.Server
	token string
	wrap  func(durable.Store) durable.Store // nil: the store as it is
}

func start(t *testing.T, f *fake, opt Options) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "store"), fake: f}
	r.up(opt)
	t.Cleanup(r.down)
	return r
}

// up brings the front end up on its store.
func (r *rig) up(opt Options) {
	r.t.Helper()
	r.fake.mu.Lock()
	r.fake.halted = false
	r.fake.mu.Unlock()
	var err error
	if r.store, err = bolt.Open(r.path, bolt.Options{Log: quiet}); err != nil {
		r.t.Fatal(err)
	}
	if r.wrap != nil {
		r.store = r.wrap(r.store)
	}
	if opt.Store, opt.Log = r.store, quiet; opt.Server == nil {
		opt.Server = r.fake
	}
	if r.front, err = New(opt); err != nil {
		r.t.Fatal(err)
	}
	r.http = httptest.NewUnstartedServer(nil)
	r.http.Config = r.front.server
	r.http.Start()
}

// down ends everything, with requests where they are.
func (r *rig) down() {
	r.fake.halt()
	if err := r.front.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	r.http.Close()
	if err := r.store.Close(); err != nil {
		r.t.Errorf("close the store: %v", err)
	}
}

func (r *rig) request(method, path, body string, header ...string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// do sends a request and reads the whole answer.
func (r *rig) do(method, path, body string, header ...string) (*http.Response, string) {
	r.t.Helper()
	resp, err := http.DefaultClient.Do(r.request(method, path, body, header...))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(text)
}

// ok sends a request that must succeed and decodes its answer.
func (r *rig) ok(to any, method, path, body string, header ...string) {
	r.t.Helper()
	resp, text := r.do(method, path, body, header...)
	if resp.StatusCode != 200 {
		r.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), to); err != nil {
		r.t.Fatalf("%s: %v", text, err)
	}
}

// prompt is a completion's body, and what the fake answers to it.
func prompt(text string, tokens int, more string) (body, answer string) {
	body = fmt.Sprintf(`{"model":"m","prompt":%q,"max_tokens":%d`, text, tokens)
	return body + more + "}", fullText([]byte(body+"}"), tokens)
}

// events reads a stream: the texts of its chunks, and its last lines.
func events(t *testing.T, from io.Reader) (text string, lines []string) {
	t.Helper()
	all, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(all, []byte("\n\n")) {
		data, ok := strings.CutPrefix(string(line), "data: ")
		if !ok {
			continue
		}
		lines = append(lines, data)
		var c completion
		if json.Unmarshal([]byte(data), &c) == nil {
			for _, ch := range c.Choices {
				switch {
				case ch.Text != nil:
					text += *ch.Text
				case ch.Delta != nil && ch.Delta.Content != nil:
					text += *ch.Delta.Content
				}
			}
		}
	}
	return text, lines
}

// settles waits until a condition holds.
func settles(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// idle says whether the front end holds nothing any more.
func (r *rig) idle() bool {
	requests, _, senders := r.front.requests.counts("")
	r.front.batches.mu.Lock()
	defer r.front.batches.mu.Unlock()
	return requests == 0 && senders == 0 && len(r.front.batches.byID) == 0 && r.front.opt.Door.Budget.UsedBytes() == 0
}

// ring is a keyring.
func ring(t *testing.T, keys ...httplimit.Key) *httplimit.Keyring {
	t.Helper()
	k, err := httplimit.NewKeyring(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
