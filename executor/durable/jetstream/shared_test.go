package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/testkit/durabletest"
	"inferplan/testkit/natstest"
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var seen []durable.Change
	ends := make(chan string, 9)
	if err := a.FollowEnds(ctx, func(id string) { ends <- id }); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"r", "s"} {
		stop, err := a.Follow(id, func(c durable.Change) { mu.Lock(); defer mu.Unlock(); seen = append(seen, c) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if _, err := a.Accept(ctx, &durable.Record{ID: id, Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
		if st, err := a.Claim(ctx); err != nil || st.ID != id {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	if _, err := b.HandOver("r"); !errors.Is(err, durable.ErrNotFound) {
		t.Errorf("b hands on what it does not have: %v", err)
	}
	adopt := func(id string) *durable.State {
		ticket, err := a.HandOver(id)
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
	if len(seen) != 4 || string(seen[0].Text) != "one " || seen[0].Tokens != 1 || string(seen[1].Result) != "b" || !seen[1].Ended || string(seen[2].Text) != "two" || string(seen[3].Result) != "dropped" {
		t.Errorf("the changes: %+v", seen)
	}
	for _, want := range []string{"r", "s"} {
		select {
		case id := <-ends:
			if id != want {
				t.Errorf("%s ended, expected %s", id, want)
			}
		case <-ctx.Done():
			t.Fatalf("the end of %s was not told", want)
		}
	}
}

// A record of many pieces is read back in a fixed number of round trips, also by a
// process that did not write it.
func TestReadBackTakesFixedRoundTrips(t *testing.T) {
	a, b := pair(t, Options{Sealer: durabletest.Sealer(t, "a")})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, id := range []string{"r", "between"} {
		if _, err := a.Accept(ctx, &durable.Record{ID: id, Data: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	const pieces = 50
	b.pageSize = pieces - 10
	want := ""
	for n := range pieces {
		piece := fmt.Sprint(n, " ")
		if err := a.Append(ctx, "r", len(want), []byte(piece), 1); err != nil {
			t.Fatal(err)
		}
		want += piece
		if n == 10 {
			if err := a.Append(ctx, "between", 0, []byte("other"), 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(most uint64) *durable.State {
		before := b.conn.Stats().OutMsgs
		st, err := b.Get(ctx, "r")
		if err != nil {
			t.Fatal(err)
		}
		if trips := b.conn.Stats().OutMsgs - before; trips > most {
			t.Errorf("%d round trips for %d tokens, expected at most %d", trips, st.Tokens, most)
		}
		return st
	}
	if st := read(4); string(st.Text) != want || st.Tokens != pieces || st.Result != nil {
		t.Errorf("%d bytes of text and %d tokens are read, %d were written", len(st.Text), st.Tokens, len(want))
	}
	if err := a.Finish(ctx, "r", []byte("end")); err != nil {
		t.Fatal(err)
	}
	if st := read(4); string(st.Text) != want || string(st.Result) != "end" {
		t.Errorf("after the end: %d bytes, %q", len(st.Text), st.Result)
	}
}

// Who follows a record receives its text, and that of no other.
func TestFollowerReceivesOnlyItsRecord(t *testing.T) {
	a, b := pair(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, id := range []string{"mine", "others"} {
		if _, err := a.Accept(ctx, &durable.Record{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	heard := make(chan durable.Change, 9)
	stop, err := b.Follow("mine", func(c durable.Change) { heard <- c })
	if err != nil {
		t.Fatal(err)
	}
	if err := b.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	before := b.conn.Stats().InBytes
	const size = 1 << 16
	for n := range 10 {
		if err := a.Append(ctx, "others", n*size, bytes.Repeat([]byte("x"), size), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Append(ctx, "mine", 0, []byte("text"), 1); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-heard:
		if c.ID != "mine" || string(c.Text) != "text" {
			t.Errorf("%+v", c)
		}
	case <-ctx.Done():
		t.Fatal("nothing is heard")
	}
	if in := b.conn.Stats().InBytes - before; in > size {
		t.Errorf("%d bytes came for a text of four", in)
	}
	stop()
	if err := b.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(ctx, "mine", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-heard:
		t.Errorf("%+v is told to one who has stopped", c)
	case <-time.After(100 * time.Millisecond):
	}
}

// One process leads at a time. When it stops, or is silent, another does, in a later term.
func TestOneProcessLeadsAtATime(t *testing.T) {
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
func TestMessagesAreAnsweredInOrder(t *testing.T) {
	a, b := pair(t, Options{Sealer: durabletest.Sealer(t, "a")})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop, err := b.Answer("echo", func(m []byte, reply func([]byte)) { go reply(append([]byte("got "), m...)) })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Ask(ctx, "echo", []byte("x")); err != nil || string(got) != "got x" {
		t.Errorf("%q, %v", got, err)
	}
	stop()
	if _, err := a.Ask(ctx, "echo", []byte("x")); !errors.Is(err, durable.ErrNoAnswerer) {
		t.Errorf("an answer after the end: %v", err)
	}
}
