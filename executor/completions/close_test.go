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

// closeAfterClaim returns a store with one record, which a front end has claimed while it closed.
func closeAfterClaim(t *testing.T, record *durable.Record) durable.Store {
	t.Helper()
	store, err := bolt.Open(filepath.Join(t.TempDir(), "store"), bolt.Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
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
	return store
}

// A request or a batch that a front end claims while it closes is given back: the next one to claim gets it.
func TestCloseGivesBackTheLastClaim(t *testing.T) {
	for id, record := range map[string]*requestRecord{
		"cmpl-1":  {Model: "m", MaxTokens: 3, Body: []byte(`{"model":"m","prompt":"hi","max_tokens":3}`), Accepted: time.Now()},
		"batch-1": {Batch: "batch-1", Accepted: time.Now()},
	} {
		t.Run(id, func(t *testing.T) {
			r, err := record.durableRecord(id)
			if err != nil {
				t.Fatal(err)
			}
			store := closeAfterClaim(t, r)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			st, err := store.Claim(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatal("it is still claimed by the front end that has closed")
			}
			if err != nil || st.ID != id {
				t.Errorf("claimed %+v: %v", st, err)
			}
		})
	}
}

// A record that cannot be read ends with an error, also if the front end that claims it closes.
func TestCloseEndsUnreadableRecord(t *testing.T) {
	store := closeAfterClaim(t, &durable.Record{ID: "cmpl-1", Data: []byte("no request")})
	if st, err := store.Get(t.Context(), "cmpl-1"); err != nil || st.Result == nil {
		t.Errorf("the record has not ended: %+v, %v", st, err)
	}
}
