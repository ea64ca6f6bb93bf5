package text

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

// QueueOptions are the options of plan serve for plans of queues.
type QueueOptions struct {
	// Front configures the front end. NewFront fills in Store, Server, Door and Log.
	Front completions.Options
	// Open opens the store of accepted requests.
	Open func() (durable.Store, error)
	// OpenShared opens a store that several processes share, in place of Open. Agents serve the requests
	// (ServeAgent), and one of the processes plans.
	OpenShared func(context.Context) (durable.Shared, error)
}

// ServesText reports whether a plan's models answer with text. Such a plan is served only over the OpenAI protocol.
func ServesText(plan *formats.Plan) bool { return formats.QueueOf(plan) != nil }

// Front is the front end of a plan of queues, with its store.
type Front struct {
	*completions.Front
	queues  *Queues
	store   durable.Store
	planner *sharedPlanner // nil if one process does all
}

// NewFront opens the store and the front end for text (the HTTP protocol of OpenAI) of the plan that host h has in
// force, behind a door, which checks keys and limits. If the plan is not one of queues, it returns nil.
func NewFront(ctx context.Context, h Host, o *QueueOptions, door *httplimit.Door) (*Front, error) {
	c := h.CurrentCore()
	if !ServesText(c.Plan) {
		return nil, nil
	}
	if o.Open == nil && o.OpenShared == nil {
		return nil, fmt.Errorf("%w: a plan of queues needs a store for the requests that it accepts", turn.ErrPlan)
	}
	f := &Front{queues: NewQueues(h)}
	front := o.Front
	front.Server, front.Door, front.Log, front.Now = f.queues, door, h.Log, c.Options.Clock

	// Open the store. With agents it is shared: several processes accept requests, and the one among them that plans has
	// agents in other processes answer them.
	var err error
	agents := h.Agents
	if agents != nil {
		f.planner = &sharedPlanner{queues: f.queues, Agents: agents, front: front}
		front.Server, front.ServedElsewhere = f.planner, true
		f.store, err = o.OpenShared(ctx)
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

	// Register the series, and, with agents, compete to be the process that plans.
	h.Registry.MustRegister(f.queues.forwarded, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: series.Prefix + "store_full", Help: "1 while the disk of accepted requests is full and new ones are refused.",
	}, func() float64 {
		if f.StoreFull() {
			return 1
		}
		return 0
	}))
	if f.planner != nil {
		f.planner.refused.open(h.Log, agents.store, f.store.(durable.Shared))
		h.Registry.MustRegister(f.planner.refused.series())
		f.planner.startLeading()
	}
	return f, nil
}

// Unready makes the health check of the front end answer "not ready". Requests are still served.
func (f *Front) Unready() {
	if f != nil {
		f.Front.MarkNotReady()
	}
}

// StopPlanning lets another process plan.
func (f *Front) StopPlanning() {
	if f != nil && f.planner != nil {
		f.planner.stopLeading()
	}
}

// DrainForwarded refuses requests that would pass through to servers, and waits for those that do, until ctx ends.
func (f *Front) DrainForwarded(ctx context.Context) error {
	if f == nil {
		return nil
	}
	return f.Front.DrainForwarded(ctx)
}

// CloseAll ends the front end after the executor. Requests without a result stay in the store.
func (f *Front) CloseAll() error {
	f.queues.Wait()
	err := errors.Join(f.Front.Close(), f.store.Close())
	if f.planner != nil {
		err = errors.Join(err, f.planner.Agents.store.Close())
	}
	return err
}
