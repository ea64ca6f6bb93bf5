package jetstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"inferplan/executor/durable"
	"inferplan/testkit/durabletest"
	"inferplan/testkit/natstest"
)

// What others write under our names is counted and left aside: records and ends of ours
// before and behind it come, and are cleaned up.
func TestForeignMessagesAreLeftAside(t *testing.T) {
	for name, sealer := range map[string]*durable.Sealer{"plain": nil, "sealed": durabletest.Sealer(t, "a")} {
		t.Run(name, func(t *testing.T) {
			url := natstest.Run(t)
			s := place(url, Options{Replicas: 1, Sealer: sealer}).Open(t).(*Store)
			defer s.Close()
			conn, err := nats.Connect(url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			strange := func(subject string, header nats.Header, data string) {
				if _, err := conn.RequestMsgWithContext(ctx, &nats.Msg{Subject: "inferplan." + subject, Header: header, Data: []byte(data)}); err != nil {
					t.Fatal(err)
				}
			}
			serve := func(id string) {
				if _, err := s.Accept(ctx, &durable.Record{ID: id, Class: "c", Data: []byte("data")}); err != nil {
					t.Fatal(err)
				}
				st, err := s.Claim(ctx)
				if err != nil || st.ID != id {
					t.Fatalf("claimed %+v, %v", st, err)
				}
				if err := s.Finish(ctx, id, []byte("end")); err != nil {
					t.Fatal(err)
				}
			}
			serve("before")
			strange("req.without-class", nil, "x")
			strange("req.no!name", nats.Header{headerClass: {`"c"`}}, "x")
			strange("due.without-time", nil, "")
			strange("due.other-time", nats.Header{headerClass: {`"c"`}, headerEnded: {"soon"}}, "")
			if sealer != nil {
				strange("req.not-sealed", nats.Header{headerClass: {`"c"`}}, "x")
			}
			serve("behind")
			if n, err := s.Expire(ctx, time.Now().Add(time.Hour), func(string) time.Duration { return time.Minute }); n != 2 || err != nil {
				t.Errorf("%d records were deleted, %v", n, err)
			}
			if n := s.RefusedMessages(); n < 4 {
				t.Errorf("%d messages were refused", n)
			}
		})
	}
}

// The term of the leader can be read by others as long as it leads.
func TestTermCanBeReadWhileLeading(t *testing.T) {
	a, b := pair(t, Options{AckWait: time.Second})
	for round := range 2 {
		if term, err := b.Term(t.Context()); term != 0 || err != nil {
			t.Errorf("nobody leads, and the term is %d, %v", term, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		led := make(chan uint64)
		done := make(chan error, 1)
		go func() {
			done <- a.Lead(ctx, func(ctx context.Context, term uint64) { led <- term; <-ctx.Done() })
		}()
		term := <-led
		for range 3 { // it stays while the key is written again
			if got, err := b.Term(t.Context()); got != term || err != nil {
				t.Errorf("round %d: the term is %d, read as %d, %v", round, term, got, err)
			}
			time.Sleep(250 * time.Millisecond)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Whoever reads the key reads the term of who leads: it is written with the name.
func TestTermIsWrittenAtOnce(t *testing.T) {
	a, b := pair(t, Options{AckWait: time.Second})
	watch, err := b.bucket.Watch(t.Context(), leadKey)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	var terms []uint64
	for _, s := range []*Store{a, b, a} {
		ctx, cancel := context.WithCancel(t.Context())
		led, done := make(chan uint64), make(chan error, 1)
		go func() {
			done <- s.Lead(ctx, func(ctx context.Context, term uint64) { led <- term; <-ctx.Done() })
		}()
		terms = append(terms, <-led)
		time.Sleep(300 * time.Millisecond) // it is written again
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if !(0 < terms[0] && terms[0] < terms[1] && terms[1] < terms[2]) {
		t.Errorf("the terms are %v", terms)
	}
	if e := <-watch.Updates(); e != nil { // nothing was there before
		t.Errorf("before: %q", e.Value())
	}
	seen := 0
	for { // what was written again before it was told is not told
		select {
		case e := <-watch.Updates():
			if len(e.Value()) == 0 {
				continue
			}
			seen++
			if !slices.ContainsFunc(terms, func(term uint64) bool { return strings.HasSuffix(string(e.Value()), fmt.Sprint(" ", term)) }) {
				t.Errorf("%q is written, the terms are %v", e.Value(), terms)
			}
			continue
		case <-time.After(300 * time.Millisecond):
		}
		break
	}
	if seen < len(terms) {
		t.Errorf("%d values were seen", seen)
	}
}

// A process whose write was done, and the answer lost, leads at its next try. Another
// one waits.
func TestLeaseOfAnAnswerLost(t *testing.T) {
	a, b := pair(t, Options{AckWait: time.Minute})
	own, other := &lease{client: &a.clusterClient, name: "own"}, &lease{client: &b.clusterClient, name: "other"}
	first, err := own.acquire(t.Context())
	if first == 0 || err != nil {
		t.Fatalf("revision %d, %v", first, err)
	}
	term := own.term
	if revision, err := other.acquire(t.Context()); revision != 0 || err != nil {
		t.Errorf("another process takes it, too: revision %d, %v", revision, err)
	}
	if revision, err := own.acquire(t.Context()); revision <= first || own.term <= term || err != nil {
		t.Errorf("revision %d, term %d after revision %d, term %d: %v", revision, own.term, first, term, err)
	}
}
