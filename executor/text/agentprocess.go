package text

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"inferplan/executor/completions"
	"inferplan/executor/durable"
	"inferplan/executor/tracing"
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
	TextStoreInterval time.Duration
	Metrics           string // address of a server of metrics; there is none if it is empty
	OnReady           func() // called when the agent can be reached
	Log               *slog.Logger
	Tracer            *tracing.Tracer // makes spans of runs; nil if there is none
}

// agentProcess is the process of plan agent. It has the requests that it is given answered by its servers, and stores
// their text and results itself. It makes no decisions.
type agentProcess struct {
	opt       AgentOptions
	bootID    string // random; differs after a restart
	beganAt   time.Time
	front     *completions.Front
	instances map[int]*servedInstance // by the instance's number
	ctx       context.Context
	wg        sync.WaitGroup
	refused   refusedMessages

	orders orderQueue
	runs   *agentRuns
}

// ServeAgent runs the process of `plan agent` until ctx ends: it serves some instances (servers of language models) by
// orders of the process that plans, which reach it through the shared store. It returns an error if the options are
// wrong or an instance has an agent already. When it ends, the text of all open requests is stored, and they are given
// back.
func ServeAgent(ctx context.Context, o AgentOptions) error {
	o.TextStoreInterval = cmp.Or(o.TextStoreInterval, 250*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.Default()
	}

	// The process, its front end and its metrics.
	p := &agentProcess{opt: o, bootID: rand.Text(), beganAt: time.Now(), instances: map[int]*servedInstance{},
		orders: orderQueue{termUnread: make(chan struct{}, 1)}, runs: newAgentRuns()}
	var stop context.CancelCauseFunc
	p.ctx, stop = context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errTakenOver)
	var err error
	if p.front, err = completions.New(completions.Options{Store: o.Store, Server: p, ServedElsewhere: true, OnRequestGone: p.requestGone, TextStoreInterval: o.TextStoreInterval, Log: o.Log}); err != nil {
		return err
	}
	p.refused.open(o.Log, o.Store)
	stats, err := p.refused.serve(o.Metrics)
	if err != nil {
		return errors.Join(err, p.front.Close())
	}
	defer stats()

	// Answer orders until ctx ends.
	p.wg.Go(p.watchTerm)
	stops, err := p.registerInstances(ctx)
	defer func() {
		for _, s := range stops {
			s()
		}
	}()
	if err == nil {
		p.wg.Go(p.sendUpdates)
		if o.OnReady != nil {
			o.OnReady()
		}
		<-ctx.Done()
	}

	// End all runs. Their text is stored and their requests are given back.
	p.closeOrders()
	stop(errTakenOver)
	p.wg.Wait()
	return errors.Join(err, p.front.Close())
}

// registerInstances connects to the servers of each instance and makes the instance reachable in the store, under its
// name, for orders. It returns functions that undo it, also with an error. If all servers have answered, it returns an
// error for an adapter (a small addition to a base model) whose base none of them has.
func (p *agentProcess) registerInstances(ctx context.Context) (unregister []func(), err error) {
	var adapters []string // adapters whose base one of the servers has
	allAnswered := true   // all servers have answered
	for _, s := range p.opt.Servers {
		if p.instances[s.Instance] != nil {
			continue
		}

		instance, withBase, answered, err := p.connectInstance(ctx, s.Instance)
		if err != nil {
			return unregister, err
		}
		adapters, allAnswered = append(adapters, withBase...), allAnswered && answered

		// From here on it receives orders.
		p.orders.Lock()
		p.instances[s.Instance] = instance
		p.orders.Unlock()
		stop, err := p.opt.Store.Answer(AgentName(s.Instance), instance.receive)
		if err != nil {
			return unregister, err
		}
		unregister = append(unregister, stop)
	}

	// Each adapter needs a server with its base.
	for _, a := range p.opt.Adapters {
		if allAnswered && !slices.Contains(adapters, a.Model) {
			return unregister, fmt.Errorf("%w: adapter %s: found no server that has its base %s", turn.ErrPlan, a.Model, a.Base)
		}
	}
	return unregister, nil
}

// connectInstance connects to the servers of an instance that no other process serves. It returns the adapters whose
// base they have, and whether all have answered.
func (p *agentProcess) connectInstance(ctx context.Context, number int) (instance *servedInstance, adapters []string, allAnswered bool, err error) {
	// Make sure that no other process serves the instance.
	askCtx, cancel := context.WithTimeout(ctx, ResendInterval)
	_, err = p.opt.Store.Ask(askCtx, AgentName(number), Encode(AgentOrder{Kind: OrderLook}))
	cancel()
	if err == nil {
		return nil, nil, false, fmt.Errorf("%w: instance %d has an agent already", turn.ErrPlan, number)
	}

	// Connect to its servers, and check that they support their adapters.
	instance = &servedInstance{process: p, runs: p.runs, instance: number, statusSlots: make(chan struct{}, maxStatusRequests)}
	if instance.servers, err = NewLocalServers(p.opt.Servers, p.opt.Adapters, number); err != nil {
		return nil, nil, false, fmt.Errorf("%w: %w", turn.ErrPlan, err)
	}
	instance.servers.tracer, instance.servers.name = p.opt.Tracer, strconv.Itoa(number)
	adapters, allAnswered, err = instance.checkAdapters(ctx)
	if err != nil {
		return nil, nil, false, fmt.Errorf("%w: instance %d: %w", turn.ErrPlan, number, err)
	}
	return instance, adapters, allAnswered, nil
}

// Models implements completions.Server. It is not called: clients ask other front ends.
func (p *agentProcess) Models() []completions.Model { return nil }

// Admit implements completions.Server. It is not called either.
func (p *agentProcess) Admit(*completions.Request) (time.Duration, error) { return 0, nil }

// Serve implements completions.Server: it hands the request to the run that has claimed it.
func (p *agentProcess) Serve(r *completions.Request, output completions.Output) {
	if run := p.runs.servingRun(r.ID); run != nil {
		run.text = newRequestText(nil, r, output)
	}
}

// Forget implements completions.Server: another process has the request, or has ended it.
func (p *agentProcess) Forget(id string) {
	if run := p.runs.servingRun(id); run != nil {
		run.cancel(errTakenOver)
	}
}

// requestGone is called when the front end no longer has a request.
func (p *agentProcess) requestGone(id string, resultStored bool) {
	if run := p.runs.servingRun(id); run != nil {
		run.release(resultStored)
	}
}

var _ completions.Server = (*agentProcess)(nil)
