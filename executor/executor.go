package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/calls"
	"inferplan/executor/loop"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// Executor serves a plan. It implements oip.Backend.
type Executor struct {
	opt      Options
	core     atomic.Pointer[core]
	draining atomic.Bool
	leaving  atomic.Bool // it still serves, and others should not send it more
	reload   sync.Mutex  // one Reload, Drain or Close at a time
	closed   bool
	history  history
	own      *executorMetrics // outlives plans
}

// New starts the workers of a plan and serves once all of them are ready. ctx
// bounds the start only; Close ends what was started.
func New(ctx context.Context, plan *formats.Plan, o Options) (*Executor, error) {
	x := &Executor{opt: o.withDefaults(), own: newExecutorMetrics(), history: newHistory()}
	c, err := x.start(ctx, plan, x.opt.PlanSHA256)
	if err != nil {
		return nil, err
	}
	x.install(c)
	return x, nil
}

func (x *Executor) install(c *core) {
	x.history.install(c)
	x.core.Store(c)
}

// start makes a core and its workers, ready to serve.
func (x *Executor) start(ctx context.Context, plan *formats.Plan, sha string) (_ *core, err error) {
	c, pol, err := x.compile(plan, sha)
	if err != nil {
		return nil, err
	}
	if err = c.startBackends(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.closeBackends()
		}
	}()
	if err = link(c); err != nil {
		return nil, err
	}
	log := x.opt.EventLog
	if x.core.Load() != nil {
		log = nil // it has the first plan's events
	}
	if c.loop, err = loop.New(pol, c, log); err != nil {
		return nil, err
	}
	c.begin()
	return c, nil
}

// Drain refuses new requests and waits until all accepted ones are answered or
// ctx ends; those left then are answered with the reason draining by Close.
func (x *Executor) Drain(ctx context.Context) error {
	x.reload.Lock()
	defer x.reload.Unlock()
	x.draining.Store(true)
	c := x.core.Load()
	if c == nil || x.closed {
		return nil
	}
	if err := c.drain(ctx); err != nil {
		return fmt.Errorf("drain: requests are still under way: %w", err)
	}
	return nil
}

// Close answers what is left with the reason draining and ends the workers.
func (x *Executor) Close() error {
	x.draining.Store(true)
	x.reload.Lock()
	defer x.reload.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	return x.core.Load().stop()
}

// PolicySpec is the policy in force with its parameters, defaults included: a
// simulation with it decides as this executor does.
func (x *Executor) PolicySpec() formats.PolicySpec { return x.core.Load().spec }

// Ready says whether requests are taken.
func (x *Executor) Ready() bool { return !x.draining.Load() && !x.leaving.Load() }

// ModelReady says whether every stage of some pipeline of the model has a
// worker that runs, for each of its classes.
func (x *Executor) ModelReady(name, version string) bool {
	c := x.core.Load()
	served := c.served.classesOf(name)
	return len(served) > 0 && x.Ready() && !slices.ContainsFunc(served, func(m *model) bool { return !c.ready(m) })
}

// Models is the catalog of the plan in force.
func (x *Executor) Models() *oip.Catalog { return x.core.Load().served.catalog }

// Statistics are those of the models of the plan in force, since the start.
func (x *Executor) Statistics(model, version string) []oip.ModelStatistics {
	return x.core.Load().served.statistics(model, x.history.statisticsOf)
}

// Gatherer gives the metrics of the plan in force, whose counters go on where another plan
// left them, and those of the process.
func (x *Executor) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{&x.history, x.own.registry}
}

// Programs is what the HTTP form of workflows as code runs on.
func (x *Executor) Programs() calls.Backend { return newPrograms(x.core.Load, x.draining.Load) }

// Infer runs one validated request.
func (x *Executor) Infer(ctx context.Context, req *oip.Request) (*oip.Response, error) {
	for {
		if x.draining.Load() {
			return nil, errDraining
		}
		c := x.core.Load()
		in, fit, err := c.served.fit(req)
		if err != nil {
			return nil, err
		}
		j, err := prepareJob(c, in)
		if err != nil {
			return nil, err
		}
		if !c.in.submit(j) {
			j.refs.Store(1)
			j.release()
			if x.core.Load() == c {
				return nil, errDraining
			}
			continue // a new plan came in force just now
		}
		answer, err := j.wait(ctx, c)
		return fit.answer(answer), err
	}
}

// prepareJob turns a request into a job. Its inputs stay the request's memory,
// which is valid until Infer returns.
func prepareJob(c *core, req *oip.Request) (*job, error) {
	m, refusal := c.served.find(req)
	if refusal != nil {
		return nil, refusal
	}
	brought, refusal := parseParameters(m, req.Params)
	if refusal != nil {
		return nil, refusal
	}
	j := newJob(m, max(req.Batch, 1))
	j.brought, j.stream = brought, req.Text
	for i := range m.inputs {
		in := &m.inputs[i]
		t := findTensor(req.Inputs, i, in.name)
		if t == nil || len(t.Data) != j.n*in.bytes || t.Datatype != in.datatype {
			j.refs.Store(1)
			j.release()
			return nil, oip.Invalid("inputs", "input %q of model %q: expected %d bytes of %s", in.name, m.name, max(req.Batch, 1)*in.bytes, in.datatype)
		}
		j.inputs = append(j.inputs, t.Data)
	}
	j.answers = c.answers
	j.answers.admit(j)
	j.client = policy.ClientNumber(req.Client)
	now := c.now()
	j.arrived = now
	if !req.Received.IsZero() {
		// Requests may come from before the plan was installed.
		j.arrived = min(max(req.Received.Sub(c.loop.Epoch()), 0), now)
	}
	budget := m.slo
	if req.Timeout > 0 {
		budget = min(budget, req.Timeout)
	}
	j.deadline = j.arrived + budget
	return j, nil
}

var _ oip.Backend = (*Executor)(nil)
var _ oip.ModelReadier = (*Executor)(nil)
