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

// AgentOptions are the options of plan agent.
type AgentOptions struct {
	Store   durable.Shared   // shared with the processes that accept requests and plan
	Servers []InstanceServer // of one instance or several
	// Adapters are models that these servers serve as adapters of another one.
	Adapters []ModelAdapter
	// TextStoreInterval is the time between two writes of the text to the store, from where clients see it. The
	// default is 250 ms.
	StoreText time.Duration
	Metrics   string // address of a server of metrics; there is none if it is empty
	Ready     func() // called when the agent can be reached
	Log       *slog.Logger
}

// agentProcess is the process of plan agent. It has the requests that it is given answered by its servers, and stores
// their text and results itself. It makes no decisions.
type agentProcess struct {
	opt    AgentOptions
	boot   string // random; differs after a restart
	began  time.Time
	front  *completions.Front
	places map[int]*agentPlace // by the instance's number
	ctx    context.Context
	wg     sync.WaitGroup
	kick   chan struct{} // has an element while updates wait
	others refusals

	line line

	mu      sync.Mutex
	term    uint64
	runs    map[string]*agentRun // by id: the last run that was ordered of a request
	serving map[string]*agentRun // by id: the run that has the request now
	numbers map[uint64]*agentRun // runs of this term; nil if the run has ended
	tell    map[uint64]RunNews   // by number, of this term
}

// ServeAgent serves the instances of some servers until ctx ends. It returns an error if the options are wrong or an
// instance has an agent already.
func ServeAgent(ctx context.Context, o AgentOptions) error {
	turn.SetDefault(&o.StoreText, 250*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.Default()
	}

	// The process, its front end and its metrics.
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

	// Answer orders until ctx ends.
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

	// End all runs. Their text is stored and their requests are given back.
	p.close()
	stop(errLeft)
	p.wg.Wait()
	return errors.Join(err, p.front.Close())
}

// registerInstances makes the instances reachable under their names. It returns functions that undo it.
func (p *agentProcess) attach(ctx context.Context) (stops []func(), err error) {
	var fitting []string // adapters whose base one of the servers has
	seen := true         // all servers have answered
	for _, s := range p.opt.Servers {
		if p.places[s.Instance] != nil {
			continue
		}

		// Make sure that no other process serves the instance.
		name := NameOfAgent(s.Instance)
		try, cancel := context.WithTimeout(ctx, Resend)
		_, err := p.opt.Store.Ask(try, name, Encode(AgentOrder{What: OrderLook}))
		cancel()
		if err == nil {
			return stops, fmt.Errorf("%w: instance %d has an agent already", turn.ErrPlan, s.Instance)
		}

		// Connect to its servers, and check that they support their adapters.
		place := &agentPlace{agentProcess: p, instance: s.Instance, looks: make(chan struct{}, mostLooks)}
		if place.reach, err = NewReach(p.opt.Servers, p.opt.Adapters, s.Instance); err != nil {
			return stops, fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
		here, all, err := place.suits(ctx)
		if err != nil {
			return stops, fmt.Errorf("%w: instance %d: %w", turn.ErrPlan, s.Instance, err)
		}
		fitting, seen = append(fitting, here...), seen && all

		// From here on it receives orders.
		p.line.Lock()
		p.places[s.Instance] = place
		p.line.Unlock()
		stop, err := p.opt.Store.Answer(name, place.take)
		if err != nil {
			return stops, err
		}
		stops = append(stops, stop)
	}

	// Each adapter needs a server with its base.
	for _, a := range p.opt.Adapters {
		if seen && !slices.Contains(fitting, a.Model) {
			return stops, fmt.Errorf("%w: adapter %s: found no server that has its base %s", turn.ErrPlan, a.Model, a.Base)
		}
	}
	return stops, nil
}

// Models implements completions.Server. It is not called: clients ask other front ends.
func (p *agentProcess) Models() []completions.Model { return nil }

// Admit implements completions.Server. It is not called either.
func (p *agentProcess) Admit(*completions.Request) (time.Duration, error) { return 0, nil }

// Serve implements completions.Server: it hands the request to the run that has claimed it.
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

// requestGone is called when the front end no longer has a request.
func (p *agentProcess) gone(id string, ended bool) {
	if run := p.servingOf(id); run != nil {
		run.over(ended)
	}
}

// servingRun returns the run that has a request. If there is none, it returns nil. A later run of the request waits
// for the end of this one.
func (p *agentProcess) servingOf(id string) *agentRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serving[id]
}

var _ completions.Server = (*agentProcess)(nil)
