package executor

import (
	"errors"
	"fmt"

	"inferplan/executor/completions"
	"inferplan/executor/durable"
	"inferplan/formats"
)

// QueueOptions are what plan serve is told of plans of queues.
type QueueOptions struct {
	// Front configures the front end; Store, Server, TLS, Hosts and Log are filled in.
	Front completions.Options
	// Open opens the store of accepted requests.
	Open func() (durable.Store, error)
}

// writesText tells whether a plan's models answer with text: it is served over OpenAI's
// protocol alone.
func writesText(plan *formats.Plan) bool { return formats.QueueOf(plan) != nil }

// queueFront is the front end of a plan of queues with its store.
type queueFront struct {
	*completions.Front
	queues *Queues
	store  durable.Store
}

// newQueueFront makes the front end of an executor's plan, where that is one of queues;
// nil: it is another.
func newQueueFront(x *Executor, o *ServeOptions) (*queueFront, error) {
	if !writesText(x.core.Load().plan) {
		return nil, nil
	}
	if o.Queue.Open == nil {
		return nil, fmt.Errorf("%w: a plan of queues needs a store for the requests that it accepts", ErrPlan)
	}
	store, err := o.Queue.Open()
	if err != nil {
		return nil, err
	}
	f := &queueFront{queues: NewQueues(x), store: store}
	front := o.Queue.Front
	front.Store, front.Server, front.TLS, front.Hosts, front.Log = store, f.queues, o.OIP.TLS, o.OIP.Hosts, o.Log
	if f.Front, err = completions.New(front); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return f, nil
}

// close ends the front end after the executor. What is not answered stays in the store.
func (f *queueFront) close() error {
	f.queues.Wait()
	return errors.Join(f.Front.Close(), f.store.Close())
}
