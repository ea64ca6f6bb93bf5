package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/policies"
)

// ErrSimulatedOnly says of a plan that plan serve serves no plan of its sort: it can be
// checked and simulated.
var ErrSimulatedOnly = errors.New("plans of this sort are not served")

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
	if err := c.workers.crew.assume(); err != nil {
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
	c := &core{opt: &x.opt, plan: plan, sha: sha, spec: spec, tables: tables, control: x.opt.control(tables)}
	c.expects, _ = policy.As[expecter](pol)
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

// assume takes the boundaries of models from the plan, as if workers had loaded them,
// and divides their memory.
func (k *crew) assume() error {
	for _, d := range k.own {
		cfg := k.workerConfig(d, k.places[d.index])
		loaded := make([]worker.Loaded, len(cfg.Stages))
		for i := range cfg.Stages {
			s := &cfg.Stages[i]
			loaded[i] = worker.Loaded{ID: s.ID, Inputs: s.Inputs, Outputs: s.Outputs, WeightBytes: s.WeightBytes}
		}
		k.divide(d, loaded)
	}
	if err := k.readModels(); err != nil {
		return err
	}
	_, err := k.settleAll()
	return err
}

// settleAll cuts the slots of what every device holds at first.
func (k *crew) settleAll() ([][]worker.Swap, error) {
	first := make([][]worker.Swap, len(k.own))
	for i, d := range k.own {
		if d.home == nil {
			continue
		}
		if err := k.loadsInTime(d); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPlan, err)
		}
		var err error
		if first[i], err = homesOf(k).settle(d); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPlan, err)
		}
	}
	return first, nil
}

// loadsInTime returns an error where a device that replays loads would not have its first networks
// before its worker has to be there.
func (k *crew) loadsInTime(d *device) error {
	if k.c.opt.Engine != "replay" {
		return nil
	}
	loads, names := time.Duration(0), []string(nil)
	for _, n := range homesOf(k).residents(d) {
		network := &k.c.tables.Networks[n]
		if names = append(names, network.Name); network.Load != nil {
			loads += network.Load[k.c.tables.Devices[d.index].Kind][1]
		}
		if loads < 0 || loads > k.c.opt.StartTimeout {
			return fmt.Errorf("device %d (%s) loads %s for more than the %v in which a worker has to start", d.index, d.kind, strings.Join(names, ", "), k.c.opt.StartTimeout)
		}
	}
	return nil
}
