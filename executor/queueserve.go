package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/completions"
	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
	"inferplan/executor/series"
	"inferplan/executor/turn"
	"inferplan/formats"
)

// QueueOptions are what plan serve is told of plans of queues.
type QueueOptions struct {
	// Front configures the front end; Store, Server, Door and Log are filled in.
	Front completions.Options
	// Open opens the store of accepted requests.
	Open func() (durable.Store, error)
	// Share opens a store that several processes share, instead of Open. Agents serve the
	// requests (ServeAgent), and one of the processes plans.
	Share func(context.Context) (durable.Shared, error)
}

// writesText tells whether a plan's models answer with text: it is served over OpenAI's
// protocol alone.
func writesText(plan *formats.Plan) bool { return formats.QueueOf(plan) != nil }

// queueFront is the front end of a plan of queues with its store.
type queueFront struct {
	*completions.Front
	queues *Queues
	store  durable.Store
	plans  *planning // nil: one process does all
}

// newQueueFront makes the front end of a host's plan, behind a door, where that is one of
// queues; nil: it is another.
func newQueueFront(ctx context.Context, h host, o *QueueOptions, door *httplimit.Door) (*queueFront, error) {
	c := h.inForce()
	if !writesText(c.Plan) {
		return nil, nil
	}
	if o.Open == nil && o.Share == nil {
		return nil, fmt.Errorf("%w: a plan of queues needs a store for the requests that it accepts", turn.ErrPlan)
	}
	f := &queueFront{queues: newQueues(h)}
	front := o.Front
	front.Server, front.Door, front.Log, front.Now = f.queues, door, h.log, c.Options.Clock
	var err error
	agents := elsewhere(c.Options)
	if agents != nil {
		f.plans = &planning{queues: f.queues, agents: agents, front: front}
		front.Server, front.Elsewhere = f.plans, true
		f.store, err = o.Share(ctx)
	} else {
		f.store, err = o.Open()
	}
	if err != nil {
		return nil, err
	}
	front.Store = f.store
	if f.Front, err = completions.New(front); err != nil {
		return nil, errors.Join(err, f.store.Close())
	}
	h.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: series.Prefix + "store_full", Help: "1 while the disk of accepted requests is full and new ones are refused.",
	}, func() float64 {
		if f.Full() {
			return 1
		}
		return 0
	}))
	if f.plans != nil {
		f.plans.others.log, f.plans.others.stores = h.log, []durable.Shared{agents.store, f.store.(durable.Shared)}
		h.registry.MustRegister(f.plans.others.series())
		f.plans.begin()
	}
	return f, nil
}

// hide lets the front end serve on while its health says that it is not ready.
func (f *queueFront) hide() {
	if f != nil {
		f.Front.Hide()
	}
}

// leave lets another process plan.
func (f *queueFront) leave() {
	if f != nil && f.plans != nil {
		f.plans.end()
	}
}

// close ends the front end after the executor. What is not answered stays in the store.
func (f *queueFront) close() error {
	f.queues.Wait()
	err := errors.Join(f.Front.Close(), f.store.Close())
	if f.plans != nil {
		err = errors.Join(err, f.plans.agents.store.Close())
	}
	return err
}
