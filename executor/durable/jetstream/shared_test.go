package jetstream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/durable/durabletest"
	"inferplan/executor/durable/jetstream/natstest"
)

// pair are two processes of a store.
func pair(t *testing.T, opt Options) (a, b *Store) {
	t.Helper()
	url := natstest.Run(t)
	opt.Replicas = 1
	a, b = place(url, opt).Open(t).(*Store), place(url, opt).Open(t).(*Store)
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

// A record that was handed on is served by the one who adopts it. The one who claimed it
// may still end it, and hears of its end. Given back, it does not come twice.
func TestHandAndAdopt(t *testing.T) {
	a, b := pair(t, Options{AckWait: time.Second, Sealer: durabletest.Sealer(t, "a")})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var mu sync.Mutex
	var seen []durable.Change
	if err := a.Changes(ctx, func(c durable.Change) { mu.Lock(); defer mu.Unlock(); seen = append(seen, c) }); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"r", "s"} {
		if _, err := a.Accept(ctx, &durable.Record{ID: id, Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
		if st, err := a.Claim(ctx); err != nil || st.ID != id {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	if _, err := b.Hand("r"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("b hands on what it does not have: %v", err)
	}
	adopt := func(id string) *durable.State {
		ticket, err := a.Hand(id)
		if err != nil {
			t.Fatal(err)
		}
		st, err := b.Adopt(ctx, id, ticket)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	adopt("r")
	if err := b.Append(ctx, "r", 0, []byte("one "), 1); err != nil {
		t.Fatal(err)
	}
	if err := b.Release(ctx, "r"); err != nil {
		t.Fatal(err)
	}
	short, end := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer end()
	if st, err := a.Claim(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what b gives back comes to a, which has it: %+v, %v", st, err)
	}
	if st := adopt("r"); string(st.Text) != "one " {
		t.Errorf("b goes on with %+v", st)
	}
	if err := b.Finish(ctx, "r", []byte("b")); err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(ctx, "r", []byte("a")); !errors.Is(err, durable.ErrFinished) {
		t.Errorf("a ends it, too: %v", err)
	}
	// a ends what b has written text of.
	adopt("s")
	if err := b.Append(ctx, "s", 0, []byte("two"), 1); err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(ctx, "s", []byte("dropped")); err != nil {
		t.Errorf("a drops it: %v", err)
	}
	if err := b.Append(ctx, "s", 3, []byte("!"), 1); !errors.Is(err, durable.ErrFinished) {
		t.Errorf("b writes on: %v", err)
	}
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		if n >= 4 || time.Now().After(until) {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 4 || string(seen[0].Text) != "one " || seen[0].Tokens != 1 || string(seen[1].End) != "b" || !seen[1].Ended || string(seen[2].Text) != "two" || string(seen[3].End) != "dropped" {
		t.Errorf("the changes: %+v", seen)
	}
}

// One process leads at a time. When it stops, or is silent, another does, in a later term.
func TestLead(t *testing.T) {
	a, b := pair(t, Options{AckWait: 600 * time.Millisecond})
	type turn struct {
		who  string
		term uint64
	}
	turns := make(chan turn, 10)
	var mu sync.Mutex
	leading := 0
	lead := func(ctx context.Context, s *Store, who string) *sync.WaitGroup {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Lead(ctx, func(ctx context.Context, term uint64) {
				mu.Lock()
				if leading++; leading > 1 {
					t.Error("two lead")
				}
				mu.Unlock()
				turns <- turn{who, term}
				<-ctx.Done()
				mu.Lock()
				leading--
				mu.Unlock()
			}); err != nil {
				t.Error(err)
			}
		})
		return &wg
	}
	ctxA, stopA := context.WithCancel(t.Context())
	first := lead(ctxA, a, "a")
	one := <-turns
	ctxB, stopB := context.WithCancel(t.Context())
	second := lead(ctxB, b, "b")
	select {
	case x := <-turns:
		t.Fatalf("%+v leads beside %+v", x, one)
	case <-time.After(1500 * time.Millisecond):
	}
	stopA()
	first.Wait()
	two := <-turns
	if two.who != "b" || two.term <= one.term {
		t.Errorf("after %+v leads %+v", one, two)
	}
	stopB()
	second.Wait()
}

// Messages are answered in their order; nobody answers for a name that is not there.
func TestAsk(t *testing.T) {
	a, b := pair(t, Options{Sealer: durabletest.Sealer(t, "a")})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stop, err := b.Answer("echo", func(m []byte, reply func([]byte)) { go reply(append([]byte("got "), m...)) })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Ask(ctx, "echo", []byte("x")); err != nil || string(got) != "got x" {
		t.Errorf("%q, %v", got, err)
	}
	stop()
	if _, err := a.Ask(ctx, "echo", []byte("x")); !errors.Is(err, durable.ErrNobody) {
		t.Errorf("an answer after the end: %v", err)
	}
}
