package executor

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
	"inferplan/executor/durable"
)

// AgentOptions are what plan agent is told.
type AgentOptions struct {
	Store   durable.Shared
	Servers []InstanceServer // of one or several instances
	// StoreText is how often text is stored, from which on clients see it; 0: 250 ms.
	StoreText time.Duration
	Metrics   string // address of a server of metrics; empty: none
	Ready     func() // the agent can be reached
	Log       *slog.Logger
}

// agentProcess is the process of plan agent. It serves the requests that it is given at
// its servers, and stores their text and their ends itself. It decides nothing.
type agentProcess struct {
	opt    AgentOptions
	boot   string
	began  time.Time
	front  *completions.Front
	places map[int]*agentPlace
	ctx    context.Context
	wg     sync.WaitGroup
	kick   chan struct{} // there is something to tell
	others refusals

	asking sync.Mutex
	asked  time.Time // when the store was asked who plans

	mu      sync.Mutex
	term    uint64
	runs    map[string]*agentRun // by request
	numbers map[uint64]*agentRun // of this term; nil: it has ended
	tell    map[uint64]runNews
}

// ServeAgent serves the instances of some servers until ctx ends.
func ServeAgent(ctx context.Context, o AgentOptions) error {
	set(&o.StoreText, 250*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &agentProcess{opt: o, boot: rand.Text(), began: time.Now(), places: map[int]*agentPlace{}, kick: make(chan struct{}, 1),
		runs: map[string]*agentRun{}, numbers: map[uint64]*agentRun{}, tell: map[uint64]runNews{}}
	var stop context.CancelCauseFunc
	p.ctx, stop = context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errLeft)
	var err error
	if p.front, err = completions.New(completions.Options{Store: o.Store, Server: p, Elsewhere: true, Gone: p.gone, StoreText: o.StoreText, Log: o.Log}); err != nil {
		return err
	}
	p.others.log, p.others.stores = o.Log, []durable.Shared{o.Store}
	stats, err := p.others.serve(o.Metrics)
	if err != nil {
		return errors.Join(err, p.front.Close())
	}
	defer stats()
	stops, err := p.attach(ctx)
	defer func() {
		for _, s := range stops {
			s()
		}
	}()
	if err == nil {
		p.wg.Go(p.telling)
		if o.Ready != nil {
			o.Ready()
		}
		<-ctx.Done()
	}
	stop(errLeft)
	p.wg.Wait() // what came is stored, and given back
	return errors.Join(err, p.front.Close())
}

// attach makes the instances known under their names.
func (p *agentProcess) attach(ctx context.Context) (stops []func(), err error) {
	for _, s := range p.opt.Servers {
		if p.places[s.Instance] != nil {
			continue
		}
		name := nameOfAgent(s.Instance)
		try, cancel := context.WithTimeout(ctx, resend)
		_, err := p.opt.Store.Ask(try, name, encode(agentOrder{What: orderLook}))
		cancel()
		if err == nil {
			return stops, fmt.Errorf("%w: instance %d has an agent already", ErrPlan, s.Instance)
		}
		place := &agentPlace{agentProcess: p, instance: s.Instance, looks: make(chan struct{}, mostLooks)}
		if place.reach, err = newReach(p.opt.Servers, s.Instance); err != nil {
			return stops, fmt.Errorf("%w: %w", ErrPlan, err)
		}
		p.places[s.Instance] = place
		stop, err := p.opt.Store.Answer(name, place.take)
		if err != nil {
			return stops, err
		}
		stops = append(stops, stop)
	}
	return stops, nil
}

// termEvery is how often the store is asked who plans, at most.
const termEvery = 100 * time.Millisecond

// inTerm says whether an order is of the process that plans. When that is another one
// than before, all runs end: who plans now gives them out anew. Who plans is read from the
// store, since anybody might send a greater term.
func (p *agentProcess) inTerm(term uint64) (now uint64, in bool) {
	p.mu.Lock()
	now = p.term
	p.mu.Unlock()
	if term <= now {
		return now, term == now && term > 0
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	if time.Since(p.asked) >= termEvery {
		ctx, cancel := context.WithTimeout(p.ctx, resend)
		real, err := p.opt.Store.Term(ctx)
		cancel()
		if p.asked = time.Now(); err != nil {
			p.opt.Log.Warn("whether another process plans is not known", "error", err)
		} else {
			p.begin(real)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term, term == p.term
}

// begin takes orders of a term from now on.
func (p *agentProcess) begin(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if term > p.term {
		p.term = term
		for _, r := range p.runs {
			r.cancel(errLeft)
		}
		clear(p.numbers)
		clear(p.tell)
	}
}

// say has something told about a run.
func (p *agentProcess) say(term uint64, n runNews) {
	p.mu.Lock()
	if term == p.term {
		p.tell[n.Number] = n
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// telling tells the process that plans what there is to tell, until it has it.
func (p *agentProcess) telling() {
	for p.ctx.Err() == nil {
		select {
		case <-p.kick:
		case <-p.ctx.Done():
			return
		}
		for p.tellAll() && p.ctx.Err() == nil {
			time.Sleep(askAfter)
		}
	}
}

// tellAll tells once; left: there is something that was not heard.
func (p *agentProcess) tellAll() (left bool) {
	p.mu.Lock()
	n := agentNews{Term: p.term}
	for _, r := range p.tell {
		n.Runs = append(n.Runs, r)
	}
	p.mu.Unlock()
	if len(n.Runs) == 0 {
		return false
	}
	slices.SortFunc(n.Runs, func(a, b runNews) int { return cmp.Compare(a.Number, b.Number) })
	ctx, cancel := context.WithTimeout(p.ctx, resend)
	defer cancel()
	if _, err := p.opt.Store.Ask(ctx, planner, encode(n)); err != nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range n.Runs {
		if now, ok := p.tell[r.Number]; ok && now == r {
			delete(p.tell, r.Number)
		}
	}
	return len(p.tell) > 0
}

// Models implements completions.Server. Nobody asks: clients ask front ends.
func (p *agentProcess) Models() []completions.Model { return nil }

// Admit implements completions.Server.
func (p *agentProcess) Admit(*completions.Request) (time.Duration, error) { return 0, nil }

// Serve implements completions.Server: the run that has asked for the request gets it.
func (p *agentProcess) Serve(r *completions.Request, out completions.Output) {
	if run := p.runOf(r.ID); run != nil {
		run.text = newText(nil, r, out)
	}
}

// Forget implements completions.Server.
func (p *agentProcess) Forget(id string) {
	if run := p.runOf(id); run != nil {
		run.cancel(errOver)
	}
}

// gone takes from the front end that a request is over here.
func (p *agentProcess) gone(id string, ended bool) {
	if run := p.runOf(id); run != nil {
		run.over(ended)
	}
}

func (p *agentProcess) runOf(id string) *agentRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[id]
}

var _ completions.Server = (*agentProcess)(nil)

// agentPlace is an instance of the process.
type agentPlace struct {
	*agentProcess
	instance int
	reach    *reach
	looks    chan struct{}
	work     *agentWork // the last; of the goroutine that takes orders
}

// agentWork is an order that takes its time.
type agentWork struct {
	number uint64
	cancel context.CancelFunc
	done   chan struct{}
	err    error // with done
}

// An agent takes so many orders at once to look at its servers, and so many requests. No
// process that plans gives more.
const (
	mostLooks = 16
	mostRuns  = 1 << 14
)

// take takes an order.
func (p *agentPlace) take(message []byte, reply func([]byte)) {
	var o agentOrder
	if err := json.Unmarshal(message, &o); err != nil {
		p.others.add(err)
		return
	}
	a := agentAnswer{Boot: p.boot}
	switch now, in := p.inTerm(o.Term); {
	case o.What == orderLook && o.Term == 0: // another agent asks
	case !in && o.Term > now:
		p.others.add(fmt.Errorf("its term is %d, in term %d", o.Term, now))
		return // one of who plans is sent again
	case !in:
		a.Error = toWire(errOldTerm)
	case !slices.Contains(orderKinds, o.What):
		p.others.add(fmt.Errorf("found %.40q, expected one of %v", o.What, orderKinds))
		return
	case o.What == orderLook:
		select {
		case p.looks <- struct{}{}:
			p.wg.Go(func() { p.look(&o, a, reply); <-p.looks })
		default: // it is asked again
		}
		return
	case o.What == orderRun && p.count() >= mostRuns:
		a.Error = toWire(&llm.Error{Kind: llm.ErrFull, Text: "more requests run at this agent than a plan has"})
	case o.What == orderRun:
		p.run(&o)
	case o.What == orderLeave:
		p.mu.Lock()
		if run := p.numbers[o.Number]; run != nil {
			run.cancel(errEvicted)
		}
		p.mu.Unlock()
	default:
		a.Done, a.Error = p.worked(&o)
	}
	reply(encode(a))
}

// look looks at the servers. One that says nothing is not answered for.
func (p *agentPlace) look(o *agentOrder, a agentAnswer, reply func([]byte)) {
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	sight, err := p.reach.look(ctx, o.Model, p.count)
	a.Done, a.Sight, a.Error = true, sight, toWire(err)
	reply(encode(a))
}

// count is how many requests run here.
func (p *agentPlace) count() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		if r.place == p {
			n++
		}
	}
	return n
}

// worked begins an order that takes its time, or tells how it goes.
func (p *agentPlace) worked(o *agentOrder) (done bool, err *wireError) {
	w := p.work
	if w == nil || w.number < o.Number {
		if w != nil {
			w.cancel()
		}
		ctx, cancel := context.WithCancel(p.ctx)
		next := &agentWork{number: o.Number, cancel: cancel, done: make(chan struct{})}
		p.work, w = next, next
		p.wg.Go(func() {
			defer close(next.done)
			defer cancel()
			next.err = p.carryOut(ctx, o)
		})
	}
	if w.number != o.Number {
		return true, toWire(errOldTerm)
	}
	select {
	case <-w.done:
		return true, toWire(w.err)
	default:
		return false, nil
	}
}

func (p *agentPlace) carryOut(ctx context.Context, o *agentOrder) error {
	if o.What != orderPrepare {
		return p.reach.change(ctx, o.Model, o.What == orderLoad)
	}
	// What runs is of before: who plans does not know of it.
	p.mu.Lock()
	var before []*agentRun
	for _, r := range p.runs {
		if r.place == p {
			r.cancel(errLeft)
			before = append(before, r)
		}
	}
	p.mu.Unlock()
	for _, r := range before {
		select {
		case <-r.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !p.reach.has(o.Model) && o.Model != "" {
		return fmt.Errorf("instance %d has no server for %s", p.instance, o.Model)
	}
	return p.reach.prepare(ctx, o.Model, o.Others)
}
