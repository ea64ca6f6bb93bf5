package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/calls"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/executor/programs"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/policy"
)

// Executor serves a plan. It implements oip.Backend and oip.ModelReadier.
type Executor struct {
	opt      Options
	core     atomic.Pointer[turn.Core]
	draining atomic.Bool
	notReady atomic.Bool // requests are still accepted, but load balancers should send no more
	reload   sync.Mutex  // held by Reload, Drain and Close
	closed   bool
	history  planHistory
	metrics  *executorMetrics // series that outlive plans
}

// New starts the backends (workers and language models) of a plan and returns when all of them are ready and the plan is
// in force. ctx bounds only the start; Close ends the executor.
func New(ctx context.Context, plan *formats.Plan, o Options) (*Executor, error) {
	x := &Executor{opt: o, metrics: newExecutorMetrics(), history: newPlanHistory()}
	x.opt.SetDefaults()
	c, err := x.start(ctx, plan, x.opt.PlanSHA256)
	if err != nil {
		return nil, err
	}
	x.install(c)
	return x, nil
}

// install puts a core in force.
func (x *Executor) install(c *turn.Core) {
	x.history.install(c)
	x.core.Store(c)
}

// start makes a core of a plan, starts its backends, binds its modules and starts its loop. It returns the core ready to
// serve, not yet in force. If anything fails, what was started is closed. sha is the SHA-256 of the plan's file. New
// calls it for the first plan, Reload for a later one.
func (x *Executor) start(ctx context.Context, plan *formats.Plan, sha string) (_ *turn.Core, err error) {
	c, err := x.compile(plan, sha)
	if err != nil {
		return nil, err
	}
	if err = c.Backends.StartBackends(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Backends.CloseBackends()
		}
	}()
	if err = bindModules(c); err != nil {
		return nil, err
	}
	log := x.opt.EventLog
	if x.core.Load() != nil {
		log = nil // the log has only the first plan's events
	}
	return c, c.StartLoop(log)
}

// Drain refuses new requests and waits until all accepted ones are answered. If ctx ends before, it returns an error,
// and Close then answers the rest with the reason draining.
func (x *Executor) Drain(ctx context.Context) error {
	x.reload.Lock()
	defer x.reload.Unlock()
	x.draining.Store(true)
	c := x.core.Load()
	if c == nil || x.closed {
		return nil
	}
	if err := c.Drain(ctx); err != nil {
		return fmt.Errorf("drain: requests are still under way: %w", err)
	}
	return nil
}

// Close refuses new requests, answers the remaining ones with the reason draining and ends the workers. It waits for a
// Reload under way. A second call does nothing.
func (x *Executor) Close() error {
	x.draining.Store(true)
	x.reload.Lock()
	defer x.reload.Unlock()
	if x.closed {
		return nil
	}
	x.closed = true
	return x.core.Load().Stop()
}

// PolicySpec returns the policy in force with its parameters, including defaults. A simulation with it decides as
// this executor does.
func (x *Executor) PolicySpec() formats.PolicySpec { return x.core.Load().Spec }

// Ready reports whether requests are welcome. While the server is about to leave, they are accepted but not welcome.
func (x *Executor) Ready() bool { return !x.draining.Load() && !x.notReady.Load() }

// ModelReady reports whether, for each class of the model, every stage of some pipeline has a running worker.
func (x *Executor) ModelReady(name, version string) bool {
	c := x.core.Load()
	classes := c.ServedModels.ClassesOf(name)
	return len(classes) > 0 && x.Ready() && !slices.ContainsFunc(classes, func(m *turn.Model) bool { return !c.IsReady(m) })
}

// Models returns the catalog of the plan in force.
func (x *Executor) Models() *oip.Catalog { return x.core.Load().ServedModels.Catalog }

// Statistics returns the statistics of the models of the plan in force, since the start of the process.
func (x *Executor) Statistics(model, version string) []oip.ModelStatistics {
	return x.core.Load().ServedModels.StatisticsOf(model, x.history.statisticsOf)
}

// Gatherer returns the series of the plan in force, whose counters continue those of earlier plans, and the series of
// the process.
func (x *Executor) Gatherer() prometheus.Gatherer {
	return prometheus.Gatherers{&x.history, x.metrics.registry}
}

// textHost returns what requests for text need of the executor.
func (x *Executor) textHost() text.Host {
	return text.Host{CurrentCore: x.core.Load, IsDraining: x.draining.Load, Log: x.opt.Log, Registry: x.metrics.registry, PlansGauge: x.metrics.planning, Agents: x.opt.Agents}
}

// Programs returns the backend of workflows as code over HTTP.
func (x *Executor) Programs() calls.Backend { return programs.New(x.core.Load, x.draining.Load) }

// Infer runs one validated request in the plan in force and returns its response. Transports call it on the goroutine of
// their client, and it waits until the request is answered or ctx ends. If the plan is replaced before its core has
// accepted the request, it tries again with the new plan.
func (x *Executor) Infer(ctx context.Context, req *oip.Request) (*oip.Response, error) {
	for {
		if x.draining.Load() {
			return nil, turn.ErrDraining
		}
		c := x.core.Load()
		// Models that are compiled for several input lengths are buckets: take the one that fits, and pad the input for
		// it. Then make a job of the request and submit it.
		fitted, fitting, err := c.ServedModels.FitBucket(req)
		if err != nil {
			return nil, err
		}
		j, err := prepareJob(c, fitted)
		if err != nil {
			return nil, err
		}
		if !c.Inbox.SubmitJob(j) {
			j.ReleaseUntaken()
			if x.core.Load() == c {
				return nil, turn.ErrDraining
			}
			continue // a new plan has come into force just now
		}
		// Wait for the answer, without what the padding has added.
		answer, err := j.Wait(ctx, c)
		return fitting.TrimAnswer(answer), err
	}
}

// prepareJob returns a job (a client's request inside the executor) for the core c, not yet submitted. It refuses
// requests for unknown models, with wrong inputs, or that the plan's answerer does not admit. The job's inputs alias the
// request's memory, which is valid until Infer returns.
func prepareJob(c *turn.Core, req *oip.Request) (*turn.Job, error) {
	m, refusal := c.ServedModels.FindModel(req)
	if refusal != nil {
		return nil, refusal
	}
	j := turn.NewJob(m, max(req.Batch, 1))
	j.Stream, j.Answerer = req.Text, c.Answerer
	if refusal := j.Answerer.Admit(j, req.Params); refusal != nil {
		j.ReleaseUntaken()
		return nil, refusal
	}

	j.Trace = req.Trace

	// Find the request's tensors.
	for i := range m.Inputs {
		in := &m.Inputs[i]
		t := turn.FindTensor(req.Inputs, i, in.Name)
		if t == nil || len(t.Data) != j.Samples*in.Bytes || t.Datatype != in.Datatype {
			j.ReleaseUntaken()
			return nil, httplimit.Invalid("inputs", "input %q of model %q: expected %d bytes of %s", in.Name, m.Name, max(req.Batch, 1)*in.Bytes, in.Datatype)
		}
		j.Inputs = append(j.Inputs, t.Data)
	}

	// Set the client's number, arrival and deadline. Arrival and deadline are times since the core's clock started. The
	// deadline is the arrival plus the model's SLO, or the request's own timeout if that is shorter.
	j.Client = policy.ClientNumber(req.Client)
	now := c.Loop.Now()
	j.ArrivedAt = now
	if !req.Received.IsZero() {
		// The request may have arrived before the plan came into force.
		j.ArrivedAt = min(max(req.Received.Sub(c.Loop.Epoch()), 0), now)
	}
	budget := m.Slo
	if req.Timeout > 0 {
		budget = min(budget, req.Timeout)
	}
	j.Deadline = j.ArrivedAt + budget
	return j, nil
}

var _ oip.Backend = (*Executor)(nil)
var _ oip.ModelReadier = (*Executor)(nil)
