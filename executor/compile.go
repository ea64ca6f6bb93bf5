package executor

import (
	"fmt"
	"log/slog"

	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/policy/policies"
)

// Compile does everything that Serve does with a plan before it starts anything. If the plan cannot be served, the
// error is ErrPlan. Models are checked only as far as the plan names their tensors. replay makes the answers of the
// engine replay, which have no paths and scores.
func Compile(plan *formats.Plan, replay bool) error {
	x := &Executor{metrics: newExecutorMetrics()}
	x.opt.Engine, x.opt.Log, x.opt.EvaluateReplay = "replay", slog.New(slog.DiscardHandler), !replay
	x.opt.SetDefaults()
	c, err := x.compile(plan, "")
	if err != nil {
		return err
	}
	if err := c.Backends.Assume(); err != nil {
		return err
	}
	return bindModules(c)
}

// compile makes a core (a plan in execution) of a plan with its tables, its policy and its backends, which execute
// batches. Nothing is started. sha is the SHA-256 of the plan's file, for reports. It returns turn.ErrPlan if this
// process cannot serve the plan.
func (x *Executor) compile(plan *formats.Plan, sha string) (*turn.Core, error) {
	tables, err := policies.Compile(plan)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
	}
	spec := turn.EffectivePolicy(plan.Policy, x.opt.Policy)
	pol, err := x.opt.NewPolicy(tables, spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", turn.ErrPlan, err)
	}
	c := &turn.Core{Options: &x.opt.CoreOptions, Factories: kindsServed(&x.opt), Plan: plan, PlanSHA: sha, Spec: spec, Tables: tables, Control: x.opt.Control(tables), Policy: pol}
	if err := c.Prepare(); err != nil {
		return nil, err
	}
	if err := c.Backends.AddBackends(c); err != nil {
		return nil, err
	}
	// A server of a language model that the user names must not be left unused.
	if len(x.opt.Servers) > 0 && !c.Backends.HasServers() {
		return nil, fmt.Errorf("%w: a server of a language model (%s): the plan has no language model", turn.ErrPlan, x.opt.Servers[0].URL)
	}
	if x.opt.Discovery != nil && !text.ServesText(plan) {
		return nil, fmt.Errorf("%w: servers that come and go (%s): expected a plan of queues of language models; others take --server N=URL", turn.ErrPlan, x.opt.Discovery.Sources[0])
	}
	return c, nil
}

// bindModules binds each module of an application (a graph of models that one request runs through) to the tensors of
// the modules that it reads, where the plan's kind has modules, and then makes the catalog of models that clients see.
// It runs after the backends have started, since the tensors are known by then.
func bindModules(c *turn.Core) error {
	if f, ok := c.Answerer.(interface{ Join() error }); ok {
		if err := f.Join(); err != nil {
			return fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
	}
	if err := c.ServedModels.BuildCatalog(c.Options); err != nil {
		return fmt.Errorf("%w: %w", turn.ErrPlan, err)
	}
	return nil
}
