package completions

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"inferplan/executor/durable"
)

// crowded is a store whose disk can be full.
type crowded struct {
	durable.Store
	full *atomic.Bool
}

func (c crowded) error() error {
	if c.full.Load() {
		return fmt.Errorf("write: %w", syscall.ENOSPC)
	}
	return nil
}

func (c crowded) Accept(ctx context.Context, r *durable.Record) (bool, error) {
	if err := c.error(); err != nil {
		return false, err
	}
	return c.Store.Accept(ctx, r)
}

func (c crowded) Put(ctx context.Context, key string, value []byte) error {
	if err := c.error(); err != nil {
		return err
	}
	return c.Store.Put(ctx, key, value)
}

// logged is a log that tests read.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// On a full disk requests are told to come again, the front end is not ready and says so
// once; with room it goes on by itself.
func TestFullDiskRefusesRequests(t *testing.T) {
	var full atomic.Bool
	r := &rig{t: t, path: t.TempDir() + "/store", fake: &fake{}, wrap: func(s durable.Store) durable.Store { return crowded{s, &full} }}
	r.up(Options{})
	t.Cleanup(r.down)
	log := &logged{}
	r.front.opt.Log = slog.New(slog.NewTextHandler(log, nil))
	body := `{"model":"m","prompt":"x","max_tokens":2}`
	if resp, text := r.do("POST", "/v1/completions", body); resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, text)
	}
	full.Store(true)
	for range 20 {
		resp, text := r.do("POST", "/v1/completions", body)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(text, "store_full") {
			t.Fatalf("%d, retry after %q: %s", resp.StatusCode, resp.Header.Get("Retry-After"), text)
		}
	}
	for _, path := range []string{"/health"} {
		if resp, text := r.do("GET", path, ""); resp.StatusCode != 503 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
	}
	if n := strings.Count(log.buf.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d lines of log for 20 requests: %s", n, log.buf.String())
	}
	full.Store(false)
	if resp, _ := r.do("GET", "/health", ""); resp.StatusCode != 200 {
		t.Errorf("with room: health %d", resp.StatusCode)
	}
	if resp, text := r.do("POST", "/v1/completions", body); resp.StatusCode != 200 {
		t.Errorf("with room: %d %s", resp.StatusCode, text)
	}
}
