package flow

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/policy/flow"
)

// resolvedProblem is the problem that the documents describe, as numbers.
type resolved struct {
	in        *kind.Problem
	run       *kind.Run
	objective string
	margin    float64 // share of the SLO that is kept back
	turns     bool    // modules may take turns on the devices of time-shared pools
	problem   *problem
	asked     formats.Applications // applications of the workload, with defaults filled in
	pools     []formats.Pool       // with defaults filled in
	measured  []measured           // by model of the problem
}

// resolve reads the problem from the documents. It returns an error that names the place in a document if
// something is missing or contradictory.
func resolve(in *kind.Problem, run *kind.Run) (*resolved, error) {
	if err := in.Complete(); err != nil {
		return nil, err
	}
	r := &resolved{in: in, run: run, objective: in.Values.Word("objective"), margin: in.Values.Number("margin"), problem: &problem{}}

	// Turns are planned for throughput only, and only if replicas do not come and go.
	r.turns = r.objective == "throughput" && in.Values.Time("cold-start") == 0
	if err := r.resolvePools(); err != nil {
		return nil, err
	}
	var models []*formats.ProfileModel
	for i := range in.Profile.Models {
		models = append(models, &in.Profile.Models[i])
	}
	if err := in.MeasuredPools(models); err != nil {
		return nil, err
	}
	for i, a := range formats.ApplicationsOf(in.Workload) {
		if err := r.application(i, a.WithDefaults()); err != nil {
			return nil, err
		}
	}
	if len(r.asked) == 0 {
		return nil, in.Fail("workload", "applications", "no application", "at least one", "")
	}
	return r, nil
}

// resolvePools reads the pools and the price of a device by the objective. A pool that the cluster shares
// in time becomes exclusive if the plan is of a sort in which modules cannot take turns.
func (r *resolved) resolvePools() error {
	devices := 0
	for i, pool := range r.in.Cluster.Pools {
		if slices.ContainsFunc(r.pools, func(o formats.Pool) bool { return o.Device == pool.Device }) {
			return r.in.Fail("cluster", fmt.Sprintf("pools[%d].device", i), pool.Device+" a second time", "each device kind once", "add up the counts")
		}
		turns := pool.Sharing == formats.SharingTime && r.turns
		if pool.TimeShared() && !turns {
			r.run.Assume("sharing: exclusive on %s: a module has devices of its own", pool.Device)
			pool.Sharing = formats.SharingExclusive
		}
		pool = pool.WithDefaults()

		// Price of a device: its cost, its power or, for the number of devices and for throughput, 1.
		price, field := 1.0, ""
		switch r.objective {
		case "cost":
			price, field = pool.USDPerHour, "usd_per_hour"
		case "power":
			price, field = pool.Watts, "watts"
		}
		if !(price > 0) {
			return r.in.Fail("cluster", fmt.Sprintf("pools[%d].%s", i, field), "nothing", "what a "+pool.Device+" takes, for --objective "+r.objective, "")
		}
		devices += pool.Count
		r.pools = append(r.pools, pool)
		one := poolOf(&pool, price)
		one.time, one.memory = turns, int64(pool.Memory)
		r.problem.pools = append(r.problem.pools, one)
	}
	if devices == 0 {
		return r.in.Fail("cluster", "pools", "no device", "at least one", "")
	}
	return nil
}

// newPool returns a pool of the problem.
func poolOf(p *formats.Pool, price float64) pool {
	return pool{kind: p.Device, count: p.Count, price: price}
}

// addApplication adds an application of the workload to the problem.
func (r *resolved) application(i int, w formats.Application) error {
	at := fmt.Sprintf("applications[%d]", i)
	graph, err := flow.Graph(w.Modules, at)
	if err != nil {
		return err
	}

	// The rate at factor 1 is the weight or, for other objectives than throughput, the requested rate.
	a := app{name: w.Name, weight: w.Weight, floor: w.Accuracy}
	if r.objective != "throughput" {
		if a.weight = w.RPS; !(w.RPS > 0) {
			return r.in.Fail("workload", at+".rps", "no rate to carry", "one of every application with --objective "+r.objective, "")
		}
	}

	// Modules with their choices. A variant that runs on no device of the cluster is left out.
	for k := range w.Modules {
		n := node{name: w.Modules[k].Name, chance: graph.Nodes[k].Chance}
		for _, v := range w.Modules[k].Models() {
			u, err := r.model(v.Model, fmt.Sprintf("%s.modules[%d]", at, k))
			if err != nil {
				return err
			}
			if len(r.problem.models[u].levels) == 0 && len(w.Modules[k].Variants) > 0 {
				r.run.Warn("%s was measured on no device of the cluster where it fits: it is not chosen", v.Model)
				continue
			}
			n.of = append(n.of, choice{model: u, accuracy: v.Accuracy})
		}
		if err := r.runs(&n, at, k); err != nil {
			return err
		}
		a.nodes = append(a.nodes, n)
	}

	// Paths: the graph's are those that follow the entry.
	for _, path := range graph.Nodes[0].Paths {
		list := []int{0}
		for _, n := range path {
			list = append(list, int(n))
		}
		a.paths = append(a.paths, list)
	}
	if err := r.deadline(&a, &w, at); err != nil {
		return err
	}
	if w.Percentile == "" {
		w.Percentile = "p99"
	}
	r.asked = append(r.asked, w)
	r.problem.apps = append(r.problem.apps, a)
	return r.accurate(&a)
}

// checkModuleRuns returns an error if no choice of a module runs on a device of the cluster.
func (r *resolved) runs(n *node, at string, k int) error {
	if !slices.ContainsFunc(n.of, func(c choice) bool { return len(r.problem.models[c.model].levels) > 0 }) {
		return r.in.Fail("workload", fmt.Sprintf("%s.modules[%d].model", at, k), "a model that was measured on no device of the cluster on which it fits", "one that was",
			"the cluster has "+kindsOf(r.pools)+": measure the model there (plan profile --device …)")
	}
	return nil
}

// deviceNames returns the device kinds of pools as text.
func kindsOf(pools []formats.Pool) string {
	var names []string
	for i := range pools {
		names = append(names, pools[i].Device)
	}
	return strings.Join(names, ", ")
}

// setDeadline sets the SLO and the margin of an application. "5x" is a multiple of the longest path in
// batches of one on the fastest devices.
func (r *resolved) deadline(a *app, w *formats.Application, at string) error {
	target := w.SLO
	if slo := r.in.Values.SLO("slo"); !slo.IsZero() {
		target = slo
	}
	if target.IsZero() {
		return r.in.Fail("workload", at+".slo", "nothing", "a latency target such as 400ms or 5x", "--slo sets it for all applications")
	}
	base := time.Duration(0)
	if target.Times > 0 {
		for _, path := range a.paths {
			sum := time.Duration(0)
			for _, i := range path {
				sum += r.alone(&a.nodes[i])
			}
			base = max(base, sum)
		}
		r.run.Assume("slo of %s: %s of the longest path in batches of one, %s, is %s", a.name, target, document.Duration(base), document.Duration(target.Of(base)))
	}
	if a.slo = target.Of(base); a.slo <= 0 {
		return r.in.Fail("workload", at+".slo", target.String(), "more than 0", "")
	}
	a.margin = kind.Margin(a.slo, r.margin)
	return nil
}

// minSingleTime returns the least time that a batch of one takes in a module.
func (r *resolved) alone(n *node) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, c := range n.of {
		least = min(least, r.measured[c.model].alone)
	}
	return least
}

// checkAccuracyFloor returns an error if even the most accurate variants miss an application's floor.
func (r *resolved) accurate(a *app) error {
	best, unknown := 1.0, []string(nil)
	for i := range a.nodes {
		top := 0.0
		for _, c := range a.nodes[i].of {
			if c.accuracy == 0 {
				c.accuracy = 1
				unknown = append(unknown, a.nodes[i].name)
			}
			top = max(top, c.accuracy)
		}
		best *= top
	}
	switch {
	case a.floor == 0:
		return nil
	case best < a.floor-1e-12:
		return &kind.InfeasibleError{Model: a.name, Constraint: "accuracy",
			Reason: fmt.Sprintf("the most accurate variants of %s reach %.6g over all modules, and its floor is %.6g", a.name, best, a.floor)}
	case len(unknown) > 0:
		r.run.Assume("accuracy 1 for %s of %s: no accuracy is given", strings.Join(unknown, ", "), a.name)
	}
	return nil
}
