package text

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"inferplan/executor/completions"
	"inferplan/executor/durable"
	"inferplan/executor/turn"
)

// AgentOptions are what plan agent is told.
type AgentOptions struct {
	Store   durable.Shared
	Servers []InstanceServer // of one or several instances
	// Adapters are models that these servers serve as adapters of another one.
	Adapters []ModelAdapter
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

	line line

	mu      sync.Mutex
	term    uint64
	runs    map[string]*agentRun // by request: the last that was ordered
	serving map[string]*agentRun // by request: the one that has it
	numbers map[uint64]*agentRun // of this term; nil: it has ended
	tell    map[uint64]RunNews   // of this term
}

// ServeAgent serves the instances of some servers until ctx ends.
func ServeAgent(ctx context.Context, o AgentOptions) error {
	turn.SetDefault(&o.StoreText, 250*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &agentProcess{opt: o, boot: rand.Text(), began: time.Now(), places: map[int]*agentPlace{}, kick: make(chan struct{}, 1),
		line: line{unread: make(chan struct{}, 1)}, runs: map[string]*agentRun{}, serving: map[string]*agentRun{}, numbers: map[uint64]*agentRun{}, tell: map[uint64]RunNews{}}
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
	p.wg.Go(p.readTerms)
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
	p.close()
	stop(errLeft)
	p.wg.Wait() // what came is stored, and given back
	return errors.Join(err, p.front.Close())
}

// attach makes the instances known under their names.
func (p *agentProcess) attach(ctx context.Context) (stops []func(), err error) {
	var fitting []string // adapters whose base one of the servers has
	seen := true         // all servers have answered
	for _, s := range p.opt.Servers {
		if p.places[s.Instance] != nil {
			continue
		}
		name := NameOfAgent(s.Instance)
		try, cancel := context.WithTimeout(ctx, Resend)
		_, err := p.opt.Store.Ask(try, name, Encode(AgentOrder{What: OrderLook}))
		cancel()
		if err == nil {
			return stops, fmt.Errorf("%w: instance %d has an agent already", turn.ErrPlan, s.Instance)
		}
		place := &agentPlace{agentProcess: p, instance: s.Instance, looks: make(chan struct{}, mostLooks)}
		if place.reach, err = NewReach(p.opt.Servers, p.opt.Adapters, s.Instance); err != nil {
			return stops, fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
		here, all, err := place.suits(ctx)
		if err != nil {
			return stops, fmt.Errorf("%w: instance %d: %w", turn.ErrPlan, s.Instance, err)
		}
		fitting, seen = append(fitting, here...), seen && all
		p.line.Lock()
		p.places[s.Instance] = place
		p.line.Unlock()
		stop, err := p.opt.Store.Answer(name, place.take)
		if err != nil {
			return stops, err
		}
		stops = append(stops, stop)
	}
	for _, a := range p.opt.Adapters {
		if seen && !slices.Contains(fitting, a.Model) {
			return stops, fmt.Errorf("%w: adapter %s: found no server that has its base %s", turn.ErrPlan, a.Model, a.Base)
		}
	}
	return stops, nil
}

// Models implements completions.Server. Nobody asks: clients ask front ends.
func (p *agentProcess) Models() []completions.Model { return nil }

// Admit implements completions.Server.
func (p *agentProcess) Admit(*completions.Request) (time.Duration, error) { return 0, nil }

// Serve implements completions.Server: the run that has asked for the request gets it.
func (p *agentProcess) Serve(r *completions.Request, out completions.Output) {
	if run := p.servingOf(r.ID); run != nil {
		run.text = newText(nil, r, out)
	}
}

// Forget implements completions.Server: another process has the request, or has ended it.
func (p *agentProcess) Forget(id string) {
	if run := p.servingOf(id); run != nil {
		run.cancel(errLeft)
	}
}

// gone takes from the front end that a request is over here.
func (p *agentProcess) gone(id string, ended bool) {
	if run := p.servingOf(id); run != nil {
		run.over(ended)
	}
}

// servingOf is the run that has a request. One that was ordered later waits for its end.
func (p *agentProcess) servingOf(id string) *agentRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving[id]
}

var _ completions.Server = (*agentProcess)(nil)
