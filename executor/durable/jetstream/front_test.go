package jetstream_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/executor/completions"
	"inferplan/executor/durable/jetstream"
	"inferplan/testkit/natstest"
)

// letters answers every request with the alphabet, a letter a token.
type letters struct {
	mu    sync.Mutex
	stops map[string]chan struct{}
	from  []int // bytes of text that requests came with
}

func (l *letters) Models() []completions.Model                       { return []completions.Model{{ID: "m"}} }
func (l *letters) Admit(*completions.Request) (time.Duration, error) { return 0, nil }

func (l *letters) Serve(r *completions.Request, out completions.Output) {
	stop := make(chan struct{})
	l.mu.Lock()
	if l.stops == nil {
		l.stops = map[string]chan struct{}{}
	}
	l.stops[r.ID] = stop
	l.from = append(l.from, len(r.Partial))
	l.mu.Unlock()
	go func() {
		for at := len(r.Partial); at < r.MaxTokens; at++ {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			out.Text(string(rune('a'+at%26)), 1)
		}
		out.Done(completions.Result{Finish: "length"})
	}()
}

func (l *letters) Forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stop := l.stops[id]; stop != nil {
		close(stop)
		delete(l.stops, id)
	}
}

func (l *letters) forgetAll() {
	l.mu.Lock()
	ids := make([]string, 0, len(l.stops))
	for id := range l.stops {
		ids = append(ids, id)
	}
	l.mu.Unlock()
	for _, id := range ids {
		l.Forget(id)
	}
}

func (l *letters) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.from)
}

// front is a front end with a connection of its own.
func front(t *testing.T, url string, server completions.Server, elsewhere bool) (*completions.Front, func()) {
	t.Helper()
	store, err := jetstream.Open(t.Context(), url, jetstream.Options{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	f, err := completions.New(completions.Options{Store: store, Server: server, ServedElsewhere: elsewhere, TextStoreInterval: 20 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return f, sync.OnceFunc(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A front end that serves nothing itself streams what another process makes. When that
// one ends, the next goes on where its text ends.
func TestFrontEndsShareRequests(t *testing.T) {
	url := natstest.Run(t)
	first, second := &letters{}, &letters{}
	asking, stopAsking := front(t, url, &letters{}, true)
	defer stopAsking()
	_, stopFirst := front(t, url, first, false)
	defer stopFirst()
	web := httptest.NewServer(asking)
	defer web.Close()
	const tokens = 120
	body := fmt.Sprintf(`{"model":"m","prompt":"x","max_tokens":%d,"stream":true,"store":true}`, tokens)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got := make(chan string, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", web.URL+"/v1/completions", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		got <- fmt.Sprint(string(text), err)
	}()
	for first.count() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
	first.forgetAll()
	stopFirst()
	_, stopSecond := front(t, url, second, false)
	defer stopSecond()
	answer, text := <-got, ""
	for part := range strings.SplitSeq(answer, `"text":"`) {
		if !strings.HasPrefix(part, "data:") {
			text += part[:strings.IndexByte(part, '"')]
		}
	}
	want := strings.Repeat("abcdefghijklmnopqrstuvwxyz", 5)[:tokens]
	if text != want || !strings.Contains(answer, "[DONE]") {
		t.Errorf("streamed %q\n%s", text, answer)
	}
	if second.count() != 1 || second.from[0] == 0 {
		t.Errorf("the second began at %v", second.from)
	}
}
