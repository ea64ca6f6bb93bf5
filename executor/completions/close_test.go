package completions

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
)

// lateStore hands out a claimed record only after the one who claims is about to leave, as where its goroutine stands still meanwhile.
type lateStore struct {
	durable.Store
	claimed chan struct{}
}

func (s *lateStore) Claim(ctx context.Context) (*durable.State, error) {
	st, err := s.Store.Claim(ctx)
	if err == nil {
		close(s.claimed)
		<-ctx.Done()
		time.Sleep(100 * time.Millisecond) // the front end closes by now
	}
	return st, err
}

// A request that a front end claims while it closes is given back: the next one to claim gets it.
func TestCloseGivesBackTheLastClaim(t *testing.T) {
	store, err := bolt.Open(filepath.Join(t.TempDir(), "store"), bolt.Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	record, err := (&requestRecord{Model: "m", MaxTokens: 3, Body: []byte(`{"model":"m","prompt":"hi","max_tokens":3}`), Accepted: time.Now()}).durableRecord("cmpl-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Accept(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	late, server := &lateStore{store, make(chan struct{})}, &fake{hold: make(chan struct{})}
	front, err := New(Options{Store: late, Server: server, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	<-late.claimed
	if err := front.Close(); err != nil {
		t.Error(err)
	}
	server.halt()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	st, err := store.Claim(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("the request is still claimed by the front end that has closed")
	}
	if err != nil || st.ID != "cmpl-1" {
		t.Errorf("claimed %+v: %v", st, err)
	}
}
