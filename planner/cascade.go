package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/gear"
	policygear "inferplan/policy/gear"
	"inferplan/solver/milp"
)

// MethodGear plans cascades of a family of models.
const MethodGear = "gear"

// Algorithms of the method gear: each step as exactly as it can be solved, or
// the paper's alternation.
const (
	AlgorithmExact = gear.Exact
	AlgorithmEM    = gear.EM
)

// family is a cascade workload as numbers.
type family struct {
	*resolved
	problem     *gear.Problem
	profile     []*formats.ProfileModel
	weights     string
	score       string                         // of the records
	calibration map[string]formats.Calibration // by model
}

// solveGear plans the workload's cascade.
func solveGear(ctx context.Context, in Inputs, opt Options, solver milp.Solver, progress func(Progress)) (*Result, error) {
	start, cpu := time.Now(), cpuTime()
	r := &resolved{in: in, opt: opt, assumptions: slices.Clone(opt.Assumptions)}
	switch {
	case in.Profile == nil:
		return nil, r.fail("profile", "", "nothing", "a profile", "")
	case in.Cluster == nil:
		return nil, r.fail("cluster", "", "nothing", "a cluster", "")
	case in.Workload == nil || in.Workload.Cascade == nil:
		return nil, r.fail("workload", "cascade", "nothing", "a cascade, for the method gear", "")
	case len(in.Workload.Models) > 0 || len(in.Workload.Applications) > 0 || len(in.Workload.LLM) > 0:
		return nil, r.fail("workload", "cascade", "a cascade beside others", "one of them", "each needs a method of its own: plan them one by one")
	}
	switch opt.Algorithm {
	case "", AlgorithmTemplate:
		r.opt.Algorithm = AlgorithmExact // the other method's default
	case AlgorithmExact, AlgorithmEM:
	default:
		return nil, &formats.Error{Path: "--algorithm", Found: fmt.Sprintf("%q", opt.Algorithm), Expected: "exact (the default) or em for the method gear", Hint: "leave it out"}
	}
	f, err := r.resolveFamily()
	if err != nil {
		return nil, err
	}
	if err := f.objective(); err != nil {
		return nil, err
	}
	if len(r.pools) > 1 && r.opt.Algorithm == AlgorithmEM {
		return nil, r.fail("cluster", "pools[1]", "a second device kind, "+r.pools[1].Device, "one, for --algorithm em: the paper's Algorithm 1 shares work over devices that are all alike",
			"leave em out, or all pools but one")
	}
	r.checkModelFiles()
	outer := ctx
	if opt.TimeLimit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opt.TimeLimit)
		defer cancel()
	}
	out, err := gear.Solve(ctx, f.problem, solver, gear.Options{Algorithm: r.opt.Algorithm, Seed: opt.Seed, Progress: func(done, ranges int) {
		if progress != nil {
			progress(Progress{Phase: "gears", Fraction: float64(done) / float64(ranges), Value: math.NaN(), Bound: math.NaN()})
		}
	}})
	if inf, ok := errors.AsType[*gear.Infeasible](err); ok {
		return nil, r.noGears(inf, f.problem.Devices)
	}
	if err != nil {
		if ctx.Err() != nil && outer.Err() == nil {
			return nil, fmt.Errorf("the time limit of %v ended before every range had a gear: raise it or leave it out: %w", opt.TimeLimit, err)
		}
		return nil, err
	}
	res := &Result{Plan: f.write(out, solverName(solver)), Templates: out.Cascades}
	res.StoppedBy = res.Plan.StoppedBy
	res.Status = status(milp.StoppedBy(res.StoppedBy))
	res.Incumbents = []Incumbent{incumbent(cpuTime()-cpu, res.Plan.Objective.Value, *res.Plan.Objective.Bound)}
	res.WallMS = math.Round(time.Since(start).Seconds()*1e6) / 1e3
	return res, nil
}

// noGears turns the method's infeasibility into the planner's.
func (r *resolved) noGears(inf *gear.Infeasible, devices int) *InfeasibleError {
	out := &InfeasibleError{Model: inf.Model, Constraint: "slo", Reason: inf.Reason()}
	if inf.Target > 0 {
		out.Constraint = "accuracy"
	}
	if len(r.pools) > 1 {
		return out // which kind it should be more of is not said
	}
	out.Nearest.SLOUS = float64(inf.SLO) / 1e3
	if more := max(inf.Enough, inf.Devices) - devices; more > 0 && inf.Target == 0 {
		out.Constraint = "devices"
		out.Nearest.Devices = []MissingCount{{Device: r.pools[0].Device, Count: more}}
	}
	return out
}

func (r *resolved) resolveFamily() (*family, error) {
	w := r.in.Workload.Cascade
	p := &gear.Problem{Grid: w.Grid}
	f := &family{resolved: r, problem: p}
	if p.Grid == 0 {
		p.Grid = 10
		r.assume("grid 10: quantile thresholds per model")
	}
	if err := r.gearPools(); err != nil {
		return nil, err
	}
	for _, pool := range r.pools {
		p.Devices, p.Memory = pool.Count, int64(pool.Memory) // of the only kind: Kinds says what several have
		if pool.Memory == 0 {
			r.assume("every model of the family fits on a device of kind %s together with the others: the pool gives no memory", pool.Device)
		}
		if len(r.pools) > 1 {
			p.Kinds = append(p.Kinds, gear.Kind{Name: pool.Device, Devices: pool.Count, Memory: int64(pool.Memory), Of: -1})
		}
	}
	for i, name := range w.Family {
		m, err := f.member(name, fmt.Sprintf("cascade.family[%d]", i))
		if err != nil {
			return nil, err
		}
		p.Models = append(p.Models, *m)
	}
	if err := f.records(w.Family); err != nil {
		return nil, err
	}
	if err := f.target(w, p.Models[len(p.Models)-1].Times[0]); err != nil {
		return nil, err
	}
	if err := f.inStages(); err != nil {
		return nil, err
	}
	return f, f.ranges(&w.QPS)
}

// gearPools are the pools to plan for. On each the models take turns.
func (r *resolved) gearPools() error {
	for _, p := range r.in.Cluster.Pools {
		if p.Count == 0 {
			continue
		}
		p = p.WithDefaults()
		if p.Sharing != formats.SharingTime {
			r.assume("sharing: time on %s: the models of a cascade take turns on a device", p.Device)
		}
		p.Sharing, p.MaxShares = formats.SharingTime, 1
		r.pools = append(r.pools, p)
	}
	if len(r.pools) == 0 {
		return r.fail("cluster", "pools", "no device", "at least one", "")
	}
	return nil
}

// member reads a model's latencies; of several kinds of devices at least one must
// have been measured.
func (f *family) member(name, path string) (*gear.Model, error) {
	profile := f.in.Profile
	at := slices.IndexFunc(profile.Models, func(m formats.ProfileModel) bool { return m.Model == name })
	if at < 0 {
		var names []string
		for _, m := range profile.Models {
			names = append(names, m.Model)
		}
		return nil, f.fail("workload", path, fmt.Sprintf("%q", name), "a model of "+f.in.file("profile"), "the profile has "+strings.Join(names, ", "))
	}
	pm := &profile.Models[at]
	f.profile = append(f.profile, pm)
	f.models = append(f.models, resolvedModel{profile: pm})
	m := &gear.Model{Name: name}
	var kinds []string
	for _, pool := range f.pools {
		v := f.variant(pm, pool.Device)
		kinds = append(kinds, pool.Device)
		m.Memory = max(m.Memory, v.Memory)
		for b, t := range v.Times {
			if b == len(m.Times) {
				m.Times = append(m.Times, t)
			}
			m.Times[b] = min(m.Times[b], t)
		}
		m.On = append(m.On, v)
	}
	if len(m.Times) == 0 {
		return nil, f.fail("profile", fmt.Sprintf("models[%d].measurements", at), "none of "+name+" on "+strings.Join(kinds, " or "), "at least one", "measure it there: plan profile --device …")
	}
	return m, nil
}

// variant is what a model takes on a kind of devices; an unmeasured batch costs
// the next larger measured one.
func (f *family) variant(pm *formats.ProfileModel, device string) gear.Variant {
	var m gear.Variant
	var batches []formats.Measurement
	for _, ms := range pm.Measurements {
		if ms.Device == device && ms.Share <= 1 {
			batches = append(batches, ms)
		}
	}
	slices.SortFunc(batches, func(a, b formats.Measurement) int { return a.Batch - b.Batch })
	for _, ms := range batches {
		took := time.Duration(0)
		if ms.Whole != nil {
			took = ms.Whole.WallUS.D()
		} else {
			for b := range ms.Blocks {
				took += ms.Blocks[b].WallUS.D()
			}
		}
		for len(m.Times) < ms.Batch && (f.opt.MaxBatch == 0 || len(m.Times) < f.opt.MaxBatch) {
			m.Times = append(m.Times, took)
		}
		m.Memory = max(m.Memory, ms.MemoryBytes)
	}
	if m.Memory == 0 {
		for b := range pm.Blocks {
			m.Memory += pm.Blocks[b].WeightBytes
		}
	}
	return m
}

// records takes the first entry of the profile's records that has the family.
func (f *family) records(names []string) error {
	for i := range f.in.Profile.Records {
		r := &f.in.Profile.Records[i]
		missing := slices.ContainsFunc(names, func(n string) bool {
			return !slices.ContainsFunc(r.Models, func(m formats.ModelRecords) bool { return m.Model == n })
		})
		if missing {
			continue
		}
		var err error
		p := f.problem
		f.score, f.calibration = r.Score, map[string]formats.Calibration{}
		for k := range r.Models {
			f.calibration[r.Models[k].Model] = r.Models[k].Calibration
		}
		if p.Thresholds, p.Planned, p.HeldOut, err = gear.Grade(r, names, p.Grid); err != nil {
			return f.fail("workload", "cascade.grid", fmt.Sprint(p.Grid), fmt.Sprintf("2 to %d", formats.MaxGrid), err.Error())
		}
		if r.Planning < 5000 {
			f.warn("planned on %d samples: below 5000 the accuracy of the chosen cascades is noticeably biased", r.Planning)
		}
		if p.HeldOut.N == 0 {
			f.warn("no samples are held out: accuracies are those of the samples that the cascades were chosen on")
		}
		return nil
	}
	return f.fail("profile", "records", fmt.Sprintf("%d sets of records, none with all of %s", len(f.in.Profile.Records), strings.Join(names, ", ")),
		"the certainty and correctness of every model of the family on the same samples", "record them: plan profile --records, or import them: plan import records")
}

// target reads the SLO. "5x" is a multiple of the last model's batch-1 latency.
func (f *family) target(w *formats.Cascade, last time.Duration) error {
	slo := w.SLO.Latency
	if !f.opt.SLO.IsZero() {
		slo = f.opt.SLO
	}
	f.problem.Target = w.SLO.Accuracy
	if !slo.IsZero() {
		f.problem.SLO = slo.Of(last)
	} else if f.problem.Target == 0 {
		return f.fail("workload", "cascade.slo", "neither latency nor accuracy", "a latency or an accuracy target", "")
	}
	if slo.Times > 0 {
		f.assume("slo: %s of %s at batch 1 is %s", slo, w.Family[len(w.Family)-1], formats.Duration(f.problem.SLO))
	}
	percentile := w.SLO.Percentile
	if percentile == "" {
		percentile = "p95"
		f.assume("percentile p95 of the cascade")
	}
	v, err := formats.ParsePercentile(percentile)
	if err != nil {
		return f.fail("workload", "cascade.slo.percentile", percentile, "a percentile such as p95", "")
	}
	f.problem.Percentile = v
	f.problem.Overall = w.SLO.Over == formats.OverRequests
	if f.opt.Margin > 0 {
		f.assume("margin 0: tail latencies of gears are simulated, not added up")
	}
	return nil
}

// objective holds --objective against what the workload's SLO leaves to be
// optimised.
func (f *family) objective() error {
	goal, asked := f.problem.Goal(), f.opt.Objective
	fewest := asked == ObjectiveGPUs || asked == ObjectiveCost || asked == ObjectivePower
	switch {
	case asked == "" || asked == ObjectiveThroughput || asked == goal: // throughput is the other method's default
		f.opt.Objective = goal
	case fewest && goal == gear.FewestDevices:
	default:
		hint := "leave it out: a latency SLO leaves accuracy to be optimised, an accuracy SLO latency, both together the devices"
		return &formats.Error{Path: "--objective", Found: fmt.Sprintf("%q", asked), Expected: goal + " for this workload's cascade.slo", Hint: hint}
	}
	for i := range f.pools {
		pool, price := &f.pools[i], f.price(i)
		switch {
		case price > 0:
		case f.opt.Objective == ObjectiveCost:
			return f.fail("cluster", "pools", "no usd_per_hour of "+pool.Device, "its price, for --objective cost", "")
		default:
			return f.fail("cluster", "pools", "no watts of "+pool.Device, "its power, for --objective power", "")
		}
	}
	for k := range f.problem.Kinds {
		f.problem.Kinds[k].Price = f.price(k)
	}
	return nil
}

// price is what a device of a pool costs by the objective.
func (f *family) price(pool int) float64 {
	switch f.opt.Objective {
	case ObjectiveCost:
		return f.pools[pool].USDPerHour
	case ObjectivePower:
		return f.pools[pool].Watts
	}
	return 1
}

// value is what the objective came to, with its bound.
func (f *family) value(out *gear.Outcome) formats.Objective {
	value, bound, sense := out.Value, out.ValueBound, milp.Minimize
	switch {
	case f.opt.Objective == gear.MostAccurate:
		sense = milp.Maximize
	case f.opt.Objective == gear.LeastLatency || out.Priced:
	default: // devices that are all alike
		value, bound = value*f.price(0), bound*f.price(0)
	}
	gap := max(0, milp.RelativeGap(sense, value, bound))
	return formats.Objective{Name: f.opt.Objective, Value: value, Bound: &bound, Gap: &gap}
}

func (f *family) ranges(q *formats.CascadeQPS) error {
	p := f.problem
	n := q.Ranges
	switch {
	case q.Measured != "":
		return f.measured(q)
	case q.Histogram != nil:
		if n != 0 && n != len(q.Histogram) {
			return f.fail("workload", "cascade.qps.ranges", fmt.Sprint(n), fmt.Sprintf("%d, the bars of the histogram", len(q.Histogram)), "leave it out")
		}
		f.weights = "histogram"
		p.Weights = gear.Shares(q.Histogram)
		n = len(q.Histogram)
	case q.Distribution == "uniform":
		f.weights, p.Weights = "uniform", gear.Uniform(n)
	default:
		f.weights, p.Weights = "zipf", gear.Zipf(n)
	}
	if n < 1 || n > 1000 || !(q.Max > 0) {
		return f.fail("workload", "cascade.qps", fmt.Sprintf("%d ranges up to %v requests per second", n, q.Max), "1 to 1000 ranges up to a positive rate", "")
	}
	p.Edges = gear.Ranges(q.Max, n)
	return nil
}

// write makes the plan document.
func (f *family) write(out *gear.Outcome, solverName string) *formats.Plan {
	f.problem = out.Problem // with the latency or the devices that came out
	objective := f.value(out)
	opt := f.opt.plan()
	opt.Margin = 0
	p := &formats.Plan{
		Format: "inferplan.plan/v1", Kind: formats.PlanGear,
		Tool: formats.Tool{Version: Version, Solver: solverName}, Seed: f.opt.Seed, Algorithm: f.opt.Algorithm,
		Objective: objective,
		StoppedBy: string(milp.StoppedByWork), Inputs: f.in.Files, Options: opt, Pools: f.pools,
		Execution: f.in.Profile.Execution(f.pools),
		Gear:      out.Write(f.problem, f.weights), Arrivals: f.in.Workload.Arrivals,
		Assumptions: f.assumptions, Warnings: f.warnings,
	}
	switch {
	case out.Proved:
		p.StoppedBy = string(milp.StoppedByProof)
	case *objective.Gap <= f.opt.Gap:
		p.StoppedBy = string(milp.StoppedByGap)
	}
	for k, more := range out.MoreOf {
		if more >= out.Bound {
			p.Limits = append(p.Limits, formats.Limit{What: "device " + f.pools[k].Device, Change: "+1 device", Value: more, Gain: (more - out.Bound) / out.Bound})
		}
	}
	if more := out.MoreDevices; more > 0 {
		p.Limits = []formats.Limit{{What: "device " + f.pools[0].Device, Change: "+1 device", Value: more, Gain: (more - out.Bound) / out.Bound}}
	}
	if p.Arrivals == nil {
		p.Arrivals = &formats.Arrivals{Process: "poisson"}
	}
	if p.Inputs == nil {
		p.Inputs = []formats.Input{}
	}
	p.Gear.Score = f.score
	for i := range p.Gear.Models {
		p.Gear.Models[i].Calibration = f.calibration[p.Gear.Models[i].Model]
	}
	for _, d := range out.Deployments(f.problem) {
		f.deploy(p, &d)
	}
	window, hysteresis := policygear.WindowFor(f.problem.Edges[0])
	o := policygear.Options{Window: window, Hysteresis: hysteresis, Alpha: 8, Flush: f.problem.SLO / 4}
	p.Policy = formats.PolicySpec{Name: policygear.Name, Params: o.Params()}
	return p
}

// deploy adds a deployment to the plan: to the model before, where that stands on
// another kind of devices.
func (f *family) deploy(p *formats.Plan, d *gear.Deployment) {
	m, pm, g := &f.problem.Models[d.Model], f.profile[d.Model], p.Gear
	var pipeline formats.Pipeline
	if d.Chain != nil {
		pipeline = f.deployChain(p, d)
	} else {
		pipeline = f.deployWhole(d)
	}
	if n := len(p.Models) - 1; n >= 0 && p.Models[n].Model == m.Name {
		p.Models[n].Pipelines = append(p.Models[n].Pipelines, pipeline)
		p.Models[n].RPS += pipeline.RPS
		return
	}
	o := formats.PlanModel{
		Model: m.Name, SLOUS: g.SLOUS, Percentile: g.Percentile, Weight: 1, RPS: pipeline.RPS, Inputs: pm.Inputs, Outputs: pm.Outputs, NumBlocks: len(pm.Blocks),
		Pipelines: []formats.Pipeline{pipeline},
	}
	if pm.Source != nil {
		o.SHA256 = pm.Source.SHA256
	}
	p.Models = append(p.Models, o)
}

// deployWhole is a pipeline of a model that runs whole.
func (f *family) deployWhole(d *gear.Deployment) formats.Pipeline {
	m, pm := &f.problem.Models[d.Model], f.profile[d.Model]
	times := m.Times
	if f.problem.Mixed() {
		times = m.On[d.Kind].Times
	}
	s := formats.Stage{Blocks: [2]int{0, len(pm.Blocks)}, Device: f.pools[d.Kind].Device, Share: 1, Replicas: d.Replicas, GPUs: d.Devices, Placement: d.Placement}
	for _, t := range times[:d.Batch] {
		s.InferUS = append(s.InferUS, formats.Micros(t))
	}
	last := times[d.Batch-1]
	s.RPS = min(float64(d.Replicas), d.Devices) * float64(d.Batch) / last.Seconds()
	return formats.Pipeline{Batch: d.Batch, RPS: s.RPS, LatencyUS: formats.Micros(last), Stages: []formats.Stage{s}}
}
