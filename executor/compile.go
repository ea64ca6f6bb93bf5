package executor

import (
	"fmt"
	"log/slog"

	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// Compile makes all that Serve makes of a plan before it starts anything, and returns
// why it cannot be served, with an error that is ErrPlan. Models are looked at as far
// as the plan has their tensors; replay makes the answers as the engine replay does,
// which tells no ways and scores.
func Compile(plan *formats.Plan, replay bool) error {
	o := Options{Engine: "replay", Log: slog.New(slog.DiscardHandler), evaluate: !replay}.withDefaults()
	x := &Executor{opt: o, own: newExecutorMetrics()}
	c, _, err := x.compile(plan, "")
	if err != nil {
		return err
	}
	if err := workersOf(c).crew.assume(); err != nil {
		return err
	}
	return link(c)
}

// compile makes a core with its tables, its policy and what executes on its devices.
// Nothing is started.
func (x *Executor) compile(plan *formats.Plan, sha string) (*core, policy.Policy, error) {
	tables, err := policies.Compile(plan)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	spec := effective(plan.Policy, x.opt.Policy)
	pol, err := x.opt.NewPolicy(tables, spec)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrPlan, err)
	}
	c := &core{opt: &x.opt, kinds: &kindsServed, plan: plan, sha: sha, spec: spec, tables: tables, control: x.opt.control(tables), decides: pol}
	if err := c.prepare(); err != nil {
		return nil, nil, err
	}
	if err := c.addBackends(c); err != nil {
		return nil, nil, err
	}
	if len(x.opt.Servers) > 0 && !c.asksServers() {
		return nil, nil, fmt.Errorf("%w: a server of a language model (%s): the plan has no language model", ErrPlan, x.opt.Servers[0].URL)
	}
	return c, pol, nil
}

// link binds modules to the tensors of those that they read, and makes the catalog.
func link(c *core) error {
	if f, ok := c.answers.(*flow); ok {
		if err := f.join(); err != nil {
			return fmt.Errorf("%w: %w", ErrPlan, err)
		}
	}
	if err := c.served.describe(c.opt); err != nil {
		return fmt.Errorf("%w: %w", ErrPlan, err)
	}
	return nil
}
