package completions

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"inferplan/executor/durable"
)

// A client that goes away frees everything, and its request is stopped.
func TestClientGoesAway(t *testing.T) {
	for _, stream := range []bool{false, true} {
		f := &fake{every: 5 * time.Millisecond}
		r := start(t, f, Options{})
		body, _ := prompt("x", 100000, fmt.Sprintf(`,"stream":%t`, stream))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			resp, err := http.DefaultClient.Do(r.request("POST", "/v1/completions", body).WithContext(ctx))
			if err == nil {
				_, err = resp.Body.Read(make([]byte, 10))
				cancel()
				resp.Body.Close()
			}
			done <- err
		}()
		settles(t, "it is not served", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.served) == 1 })
		if !stream {
			cancel()
		}
		<-done
		settles(t, "something is left", r.idle)
		f.mu.Lock()
		id := f.served[0].ID
		if len(f.forgot) != 1 || f.forgot[0] != id {
			t.Errorf("stream %t: forgotten %v", stream, f.forgot)
		}
		f.mu.Unlock()
		var c completion
		if r.ok(&c, "GET", "/v1/completions/"+id, ""); c.Status != "cancelled" {
			t.Errorf("stream %t: %+v", stream, c)
		}
		cancel()
		f.halt()
	}
}

// A client with a key comes again and finds its request, which was served once.
func TestIdempotencyKeyFindsRequest(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, Options{})
	body, want := prompt("x", 6, "")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := http.DefaultClient.Do(r.request("POST", "/v1/completions", body, "Idempotency-Key", "k1").WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
	}()
	f.hold <- struct{}{}
	f.hold <- struct{}{}
	var c completion
	id := f.served[0].ID
	settles(t, "the text does not show", func() bool {
		r.ok(&c, "GET", "/v1/completions/"+id, "")
		return c.Status == "in_progress" && *c.Choices[0].Text == want[:2] && c.Choices[0].Finish == nil
	})
	cancel()
	<-gone
	close(f.hold)
	for range 2 { // while it runs or has ended
		r.ok(&c, "POST", "/v1/completions", body, "Idempotency-Key", "k1")
		if c.ID != id || *c.Choices[0].Text != want {
			t.Errorf("the second time: %+v", c)
		}
		settles(t, "something is left", r.idle)
	}
	if resp, text := r.do("POST", "/v1/completions", strings.Replace(body, "x", "y", 1), "Idempotency-Key", "k1"); resp.StatusCode != 400 || !strings.Contains(text, "idempotency_key_reused") {
		t.Errorf("the key with another body: %d %s", resp.StatusCode, text)
	}
	if r.ok(&c, "GET", "/v1/completions/"+id, ""); c.Status != "completed" || *c.Choices[0].Text != want {
		t.Errorf("by id: %+v", c)
	}
	resp, err := http.DefaultClient.Do(r.request("GET", "/v1/completions/"+id+"?stream=true", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := events(t, resp.Body); text != want {
		t.Errorf("streamed again: %q", text)
	}
	if len(f.served) != 1 || len(f.forgot) != 0 {
		t.Errorf("served %d times, forgotten %v", len(f.served), f.forgot)
	}
	if resp, _ := r.do("GET", "/v1/completions/cmpl-none", ""); resp.StatusCode != 404 {
		t.Errorf("an unknown id: %d", resp.StatusCode)
	}
}

func TestCancelByID(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, Options{})
	body, want := prompt("x", 6, `,"store":true`)
	go func() { f.hold <- struct{}{} }()
	done := make(chan string, 1)
	go func() {
		_, text := r.do("POST", "/v1/completions", body)
		done <- text
	}()
	settles(t, "not served", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.served) == 1 })
	id := f.served[0].ID
	var c completion
	settles(t, "no text", func() bool { r.ok(&c, "GET", "/v1/completions/"+id, ""); return *c.Choices[0].Text != "" })
	r.ok(&c, "POST", "/v1/completions/"+id+"/cancel", "")
	if c.Status != "cancelled" || *c.Choices[0].Text != want[:1] {
		t.Errorf("cancelled: %+v", c)
	}
	if text := <-done; !strings.Contains(text, `"code":"cancelled"`) {
		t.Errorf("who waits: %s", text)
	}
	settles(t, "something is left", r.idle)
}

// After a restart every request goes on where its stored text ends.
func TestRequestsContinueAfterRestart(t *testing.T) {
	const n = 20
	f := &fake{every: 2 * time.Millisecond, evict: 3}
	r := start(t, f, Options{TextStoreInterval: 5 * time.Millisecond})
	want := map[string]string{}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range n {
		body, text := prompt(fmt.Sprint("prompt ", i), 40, "")
		key := fmt.Sprint("key-", i)
		want[key] = text
		go func() {
			if resp, err := http.DefaultClient.Do(r.request("POST", "/v1/completions", body, "Idempotency-Key", key).WithContext(ctx)); err == nil {
				resp.Body.Close()
			}
		}()
	}
	settles(t, "not all are served", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.served) == n })
	leave()
	for range 3 {
		time.Sleep(10 * time.Millisecond)
		r.down()
		r.up(Options{})
	}
	for i := range n {
		body, text := prompt(fmt.Sprint("prompt ", i), 40, "")
		var c completion
		if r.ok(&c, "POST", "/v1/completions", body, "Idempotency-Key", fmt.Sprint("key-", i)); *c.Choices[0].Text != text || c.Usage.Completion != 40 {
			t.Errorf("request %d: %q, expected %q (%d tokens)", i, *c.Choices[0].Text, text, c.Usage.Completion)
		}
	}
	if f.partials == 0 || f.evicted == 0 {
		t.Errorf("%d requests went on with text, %d evictions: the test does not test", f.partials, f.evicted)
	}
	seenNames := map[string]bool{}
	for _, q := range f.served {
		seenNames[q.ID] = true
	}
	if len(seenNames) != n {
		t.Errorf("%d requests, %d ids", n, len(seenNames))
	}
}

// A drain refuses what is new and answers what is inside.
func TestDrainAnswersAcceptedRequests(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, Options{})
	body, want := prompt("x", 3, "")
	got := make(chan string, 1)
	go func() {
		_, text := r.do("POST", "/v1/completions", body)
		got <- text
	}()
	settles(t, "not served", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.served) == 1 })
	drained := make(chan error, 1)
	go func() { drained <- r.front.Drain(t.Context()) }()
	settles(t, "new ones come in", func() bool {
		resp, text := r.do("POST", "/v1/completions", body)
		return resp.StatusCode == 503 && strings.Contains(text, "shutting down")
	})
	close(f.hold)
	if text := <-got; !strings.Contains(text, want) {
		t.Errorf("what was inside: %s", text)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// A client that does not read is cut off; the request is stopped.
func TestClientDoesNotRead(t *testing.T) {
	f := &fake{}
	f.onServe = func(r *Request, out Output) bool {
		f.running.Go(func() {
			for range 64 {
				out.Text(strings.Repeat("x", 1<<20), 1)
			}
		})
		return true
	}
	r := start(t, f, Options{StallTimeout: 100 * time.Millisecond})
	body, _ := prompt("x", 5, `,"stream":true`)
	req := r.request("POST", "/v1/completions", body)
	conn, err := net.Dial("tcp", req.URL.Host) // Go's client would read the header, in time or not
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	stopped := func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.forgot) == 1 }
	settles(t, "the request goes on", stopped)
	settles(t, "something is left", r.idle)
	if !stopped() {
		t.Errorf("forgotten %v", f.forgot)
	}
}

// Two front ends share a store; one of them serves.
func TestFrontEndsShareStore(t *testing.T) {
	f := &fake{every: time.Millisecond}
	r := start(t, f, Options{TextStoreInterval: 5 * time.Millisecond})
	other, err := New(Options{Store: r.store, Server: &fake{}, ServedElsewhere: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	own := r.front
	body, want := prompt("x", 50, "")
	for _, more := range []string{"", `,"stream":true`} {
		req := r.request("POST", "/v1/completions", body[:len(body)-1]+more+"}")
		w := httptest.NewRecorder()
		other.ServeHTTP(w, req)
		text := w.Body.String()
		if more != "" {
			text, _ = events(t, w.Body)
		}
		if w.Code != 200 || !strings.Contains(text, want) {
			t.Errorf("by the other front end: %d %s, expected %s", w.Code, text, want)
		}
	}
	if len(f.served) != 2 || own == other {
		t.Errorf("served %d", len(f.served))
	}
	// It is cancelled by the one and stops at the other.
	f.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		other.ServeHTTP(httptest.NewRecorder(), r.request("POST", "/v1/completions", body).WithContext(ctx))
	}()
	f.hold <- struct{}{}
	cancel()
	<-gone
	ended := make(chan struct{})
	defer close(ended)
	go func() { // where the request has stopped already, nobody takes it
		select {
		case f.hold <- struct{}{}:
		case <-ended:
		}
	}()
	settles(t, "the request goes on", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.forgot) == 1 })
	settles(t, "something is left", r.idle)
}

// taken is a store in which another process has stored text of every request.
type taken struct{ durable.Store }

func (taken) Append(context.Context, string, int, []byte, int) error { return durable.ErrConflict }

// A request that another process has taken over is stopped here. Its client gets what
// that process makes of it.
func TestTakenOverRequestIsFollowed(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, Options{})
	front, err := New(Options{Store: taken{r.store}, Server: f, TextStoreInterval: 5 * time.Millisecond, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	if err := r.front.Close(); err != nil { // the other one takes no requests over
		t.Fatal(err)
	}
	body, _ := prompt("x", 6, "")
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() { defer close(done); front.ServeHTTP(w, r.request("POST", "/v1/completions", body)) }()
	f.hold <- struct{}{}
	settles(t, "the request goes on here", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.forgot) == 1 })
	if err := r.store.Finish(t.Context(), f.served[0].ID, []byte(`{"finish":"stop","tail":"theirs","output_tokens":2}`)); err != nil {
		t.Fatal(err)
	}
	<-done
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"text":"theirs"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
