package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inferplan/executor/durable"
	"inferplan/executor/text"
	"inferplan/testkit/llm/fake"
)

// hookedStore is an agent's store. The test says who plans, and holds calls up.
type hookedStore struct {
	durable.Shared
	term   func(ctx context.Context) (uint64, error)
	before func(call, id string) // nil: nothing
}

func (h *hookedStore) Term(ctx context.Context) (uint64, error) { return h.term(ctx) }

func (h *hookedStore) hook(call, id string) {
	if h.before != nil {
		h.before(call, id)
	}
}

func (h *hookedStore) Append(ctx context.Context, id string, at int, text []byte, tokens int) error {
	h.hook("append", id)
	return h.Shared.Append(ctx, id, at, text, tokens)
}

func (h *hookedStore) Finish(ctx context.Context, id string, end []byte) error {
	h.hook("finish", id)
	return h.Shared.Finish(ctx, id, end)
}

// script is a process that plans as the test says. An order is sent once.
type script struct {
	*fleet
	store durable.Shared
	ends  chan text.AgentMessage
}

func newScript(t *testing.T, opt fake.Options) *script {
	s := &script{fleet: openFleet(t, queuePlan(1, 4, time.Minute, "a"), opt), ends: make(chan text.AgentMessage, 100)}
	var err error
	if s.store, err = s.share(); err != nil {
		t.Fatal(err)
	}
	stop, err := s.store.Answer(text.PlannerName, func(message []byte, reply func([]byte)) {
		n := text.AgentMessage{}
		if err := json.Unmarshal(message, &n); err != nil {
			t.Error(err)
		}
		for _, r := range n.Runs {
			if r.Result != nil {
				s.ends <- text.AgentMessage{Term: n.Term, Runs: []text.RunUpdate{r}}
			}
		}
		reply(text.Encode(text.PlannerAnswer{}))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		s.store.Close()
	})
	return s
}

// serve starts the agent over a hooked store.
func (s *script) serve(h *hookedStore) (stop func()) {
	s.t.Helper()
	store, err := s.share()
	if err != nil {
		s.t.Fatal(err)
	}
	h.Shared = store
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- text.ServeAgent(ctx, text.AgentOptions{Store: h, Servers: []text.InstanceServer{{URL: s.fakes[0].URL()}}, TextStoreInterval: 20 * time.Millisecond, Log: s.log, OnReady: func() { close(ready) }})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, store.Close()); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-ended:
		s.t.Fatal(err)
	}
	return stop
}

// scriptWithin bounds how long an agent may take.
const scriptWithin = 10 * time.Second

func (s *script) send(within time.Duration, o text.AgentOrder) (*text.AgentAnswer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	data, err := s.store.Ask(ctx, text.AgentName(0), text.Encode(o))
	if err != nil {
		return nil, err
	}
	a := &text.AgentAnswer{}
	return a, json.Unmarshal(data, a)
}

// answered sends an order that is to be carried out.
func (s *script) answered(o text.AgentOrder) *text.AgentAnswer {
	s.t.Helper()
	a, err := s.send(scriptWithin, o)
	if err != nil {
		s.t.Fatalf("%+v: %v", o, err)
	}
	if a.Error != nil {
		s.t.Fatalf("%+v: %v", o, a.Error.Err())
	}
	return a
}

// done has an order done that takes its time.
func (s *script) done(o text.AgentOrder) {
	s.t.Helper()
	for end := time.Now().Add(scriptWithin); !s.answered(o).Done; time.Sleep(text.PollInterval) {
		if time.Now().After(end) {
			s.t.Fatalf("%+v is not done within %v", o, scriptWithin)
		}
	}
}

// request stores a request and claims it; what it gives is the order to run it.
func (s *script) request(id string, tokens int) text.AgentOrder {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), scriptWithin)
	defer cancel()
	data := fmt.Appendf(nil, `{"model":"a","max_tokens":%d,"body":{"model":"a","prompt":%q,"max_tokens":%[1]d}}`, tokens, id)
	if _, err := s.store.Accept(ctx, &durable.Record{ID: id, Data: data}); err != nil {
		s.t.Fatal(err)
	}
	if st, err := s.store.Claim(ctx); err != nil || st.ID != id {
		s.t.Fatalf("claimed %+v, %v", st, err)
	}
	return s.handed(id)
}

func (s *script) handed(id string) text.AgentOrder {
	s.t.Helper()
	ticket, err := s.store.HandOver(id)
	if err != nil {
		s.t.Fatal(err)
	}
	return text.AgentOrder{Kind: text.OrderRun, ID: id, Ticket: ticket}
}

// ended waits until the agent has told of the end of a run.
func (s *script) ended(term, number uint64) *text.WireResult {
	s.t.Helper()
	late := time.After(scriptWithin)
	for {
		select {
		case n := <-s.ends:
			if n.Term == term && n.Runs[0].Number == number {
				return n.Runs[0].Result
			}
		case <-late:
			s.t.Fatalf("the end of run %d of term %d was not told within %v", number, term, scriptWithin)
		}
	}
}

func ordered(o text.AgentOrder, term, number uint64) text.AgentOrder {
	o.Term, o.Number = term, number
	return o
}

// fixedTerm says who plans.
func fixedTerm(term *atomic.Uint64) func(context.Context) (uint64, error) {
	return func(context.Context) (uint64, error) { return term.Load(), nil }
}

// The first orders of a term come before the agent knows of it. None is lost, however
// they and the reading of the term follow each other, and they keep their order.
func TestAgentsFirstOrdersOfATerm(t *testing.T) {
	for _, c := range []struct {
		name string
		// reads are what the store says, one after the other; the last stays.
		reads []uint64
		fail  int // so many reads fail first
		// held: the first read is under way when the orders come, and began before.
		held bool
	}{
		{name: "written before", reads: []uint64{5}},
		{name: "read before it is written", reads: []uint64{0, 5}, held: true},
		{name: "another term is read before", reads: []uint64{3, 5}, held: true},
		{name: "written while it is read", reads: []uint64{5}, held: true},
		{name: "the store fails", reads: []uint64{5}, fail: 2},
		{name: "the store fails meanwhile", reads: []uint64{5}, fail: 2, held: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, fake.Options{Models: []string{"a"}})
			var reads atomic.Int32
			reading, release := make(chan struct{}, 100), make(chan struct{})
			s.serve(&hookedStore{term: func(ctx context.Context) (uint64, error) {
				n := int(reads.Add(1)) - 1
				reading <- struct{}{}
				if c.held && n == 0 {
					<-release
				}
				if n < c.fail {
					return 0, errors.New("no answer")
				}
				return c.reads[min(n-c.fail, len(c.reads)-1)], nil
			}})
			if c.held {
				go func() { _, _ = s.send(time.Second, text.AgentOrder{Kind: text.OrderLook, Term: 99}) }() // a stranger's
				<-reading
			}
			var sent sync.WaitGroup
			for n := uint64(1); n <= 3; n++ {
				sent.Go(func() {
					if a, err := s.send(scriptWithin, text.AgentOrder{Kind: text.OrderPrepare, Model: "a", Term: 5, Number: n}); err != nil || a.Error != nil {
						t.Errorf("order %d: %+v, %v", n, a, err)
					}
				})
				time.Sleep(20 * time.Millisecond) // they come in this order
			}
			close(release)
			sent.Wait()
			if t.Failed() {
				return
			}
			s.done(text.AgentOrder{Kind: text.OrderPrepare, Model: "a", Term: 5, Number: 3})
			for n, want := range []error{text.ErrOldTerm, text.ErrOldTerm, nil} {
				if a, err := s.send(scriptWithin, text.AgentOrder{Kind: text.OrderPrepare, Term: 5, Number: uint64(n) + 1}); err != nil || !errors.Is(a.Error.Err(), want) {
					t.Errorf("order %d came again: %+v, %v", n+1, a, err)
				}
			}
		})
	}
}

// Orders of terms that nobody has are not answered, whatever their number, and those of
// who plans are. One of a term before hears that another process plans.
func TestAgentsTermsOfNobody(t *testing.T) {
	s := newScript(t, fake.Options{Models: []string{"a"}})
	var term atomic.Uint64
	term.Store(5)
	s.serve(&hookedStore{term: fixedTerm(&term)})
	var strangers sync.WaitGroup
	for n := range uint64(2 * text.MaxEarlyOrders) {
		strangers.Go(func() {
			if a, err := s.send(time.Second, text.AgentOrder{Kind: text.OrderRun, Term: 6 + n, Number: n, ID: "x"}); err == nil {
				t.Errorf("term %d is answered: %+v", 6+n, a)
			}
		})
	}
	var err error
	for range 20 { // who plans sends again where more came than wait
		if _, err = s.send(text.ResendInterval, text.AgentOrder{Kind: text.OrderLook, Term: 5}); err == nil {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
	strangers.Wait()
	s.answered(text.AgentOrder{Kind: text.OrderLook, Term: 5})
	for _, old := range []uint64{1, 4} {
		if a, err := s.send(scriptWithin, text.AgentOrder{Kind: text.OrderPrepare, Term: old, Number: 9}); err != nil || !errors.Is(a.Error.Err(), text.ErrOldTerm) {
			t.Errorf("term %d: %+v, %v", old, a, err)
		}
	}
	if a, err := s.send(scriptWithin, text.AgentOrder{Kind: text.OrderLeave}); err != nil || !errors.Is(a.Error.Err(), text.ErrOldTerm) {
		t.Errorf("no term: %+v, %v", a, err)
	}
}

// Who plans anew counts its orders from 1. Those of before do not stand in their way.
func TestAgentsNumbersOfATerm(t *testing.T) {
	s := newScript(t, fake.Options{Models: []string{"a"}, Token: 2 * time.Millisecond})
	var term atomic.Uint64
	term.Store(1)
	var held atomic.Bool
	release := make(chan struct{})
	s.serve(&hookedStore{term: fixedTerm(&term), before: func(call, _ string) {
		if call == "append" && held.Load() {
			<-release
		}
	}})
	s.done(text.AgentOrder{Kind: text.OrderPrepare, Model: "a", Term: 1, Number: 500})
	run, before := s.request("x", 400), s.fakes[0].Counts().Completions
	s.answered(ordered(run, 1, 501))
	for end := time.Now().Add(scriptWithin); s.fakes[0].Counts().Completions == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the request is not answered")
		}
	}
	held.Store(true) // its text is stored late
	term.Store(2)
	s.answered(text.AgentOrder{Kind: text.OrderLook, Term: 2})
	s.answered(text.AgentOrder{Kind: text.OrderPrepare, Model: "a", Term: 2, Number: 1})
	held.Store(false)
	close(release)
	s.done(text.AgentOrder{Kind: text.OrderPrepare, Model: "a", Term: 2, Number: 1}) // the run of before has ended
	s.answered(ordered(s.handed("x"), 2, 501))
	if end := s.ended(2, 501); end.Error != nil || end.OutputTokens != 400 {
		t.Errorf("it ended with %+v", end)
	}
}

// A request that is ordered again while its end is being stored does not keep the agent
// from anything: the first run ends, and then the second.
func TestAgentsRequestOrderedAgain(t *testing.T) {
	s := newScript(t, fake.Options{Models: []string{"a"}})
	var term atomic.Uint64
	term.Store(1)
	storing, release := make(chan struct{}, 9), make(chan struct{})
	s.serve(&hookedStore{term: fixedTerm(&term), before: func(call, _ string) {
		if call == "finish" {
			storing <- struct{}{}
			<-release
		}
	}})
	s.done(text.AgentOrder{Kind: text.OrderPrepare, Model: "a", Term: 1, Number: 1})
	run := s.request("x", 20)
	s.answered(ordered(run, 1, 2))
	select {
	case <-storing:
	case <-time.After(scriptWithin):
		t.Fatal("its end is not stored")
	}
	term.Store(2) // the same process plans again: it has prepared the instance before
	s.answered(ordered(run, 2, 1))
	close(release)
	if end := s.ended(2, 1); end.Error != nil {
		t.Errorf("it ended with %v", end.Error.Err())
	}
	s.done(text.AgentOrder{Kind: text.OrderPrepare, Model: "a", Term: 2, Number: 3})
	st, err := s.store.Get(t.Context(), "x")
	if err != nil || st.Result == nil {
		t.Errorf("the store has %+v, %v", st, err)
	}
}

// Orders come while the agent ends.
func TestAgentEndsUnderOrders(t *testing.T) {
	s := newScript(t, fake.Options{Models: []string{"a"}})
	var term atomic.Uint64
	term.Store(1)
	for range 5 {
		stop := s.serve(&hookedStore{term: fixedTerm(&term)})
		s.answered(text.AgentOrder{Kind: text.OrderLook, Term: 1})
		over, sent := make(chan struct{}), sync.WaitGroup{}
		for range 4 {
			sent.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
						_, _ = s.send(50*time.Millisecond, text.AgentOrder{Kind: text.OrderLook, Term: 1})
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		stop()
		close(over)
		sent.Wait()
	}
}
