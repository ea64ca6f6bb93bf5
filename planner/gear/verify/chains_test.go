package verify_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/gear/verify"
	"inferplan/planner/kind"
	"inferplan/planner/recompute"
	"inferplan/solver/highs"
)

// chainedPlan is a plan on one device whose large model was cut in two by hand: its
// second block runs on a device of another kind, twice as fast.
func chainedPlan(t *testing.T) (*formats.Plan, planner.Inputs) {
	in := cascadeDocuments(1, 0, 3)
	large := &in.Profile.Models[2]
	large.Blocks = []formats.Block{{Name: "first", WeightBytes: 1000, CutBytesFP32: 400}, {Name: "second", WeightBytes: 2000}}
	var fresh []formats.Measurement
	for i := range large.Measurements {
		ms := &large.Measurements[i]
		half := ms.Blocks[0].WallUS / 2
		ms.Blocks = []formats.Latency{{WallUS: half}, {WallUS: half}}
		fresh = append(fresh, formats.Measurement{Device: "cpu-4", Share: 1, Batch: ms.Batch, Blocks: []formats.Latency{{WallUS: half / 2}, {WallUS: half / 2}}})
	}
	p := gearPlan(t, in)
	large.Measurements = append(large.Measurements, fresh...)
	pool := formats.Pool{Device: "cpu-4", Count: 1, Sharing: p.Pools[0].Sharing, Memory: 5000}
	in.Cluster.Host = formats.HostShared
	in.Cluster.Pools, p.Pools = append(in.Cluster.Pools, pool), append(p.Pools, pool)
	at := slices.IndexFunc(p.Deployment, func(m formats.Deployed) bool { return m.Model == "large" })
	if at < 0 {
		t.Fatal("the plan does not use the large model")
	}
	pl := &p.Deployment[at].Pipelines[0]
	second := pl.Stages[0]
	pl.Stages[0].Blocks, second.Blocks = [2]int{0, 1}, [2]int{1, 2}
	pl.Stages[0].Cut = &formats.Cut{DType: "FP32", Bytes: 400, TransferUS: make([]document.Micros, pl.Batch)}
	second.Device = "cpu-4"
	second.InferUS = slices.Clone(second.InferUS)
	pl.Stages = append(pl.Stages, second)
	for k := range pl.Stages {
		at := &pl.Stages[k]
		for b := range at.InferUS {
			today, _ := (&recompute.CurrentCosts{}).BatchTime(large, at.Device, 1, b+1, at.Blocks[0], at.Blocks[1])
			at.InferUS[b] = document.Micros(today.Median)
		}
	}
	for i := range formats.GearOf(p).Gears {
		g := &formats.GearOf(p).Gears[i]
		load := map[string]float64{}
		for _, s := range g.Stages {
			m := slices.IndexFunc(p.Deployment, func(m formats.Deployed) bool { return m.Model == s.Model })
			l := &p.Deployment[m].Pipelines[0]
			for _, on := range l.Stages {
				load[on.Device] += g.ToQPS * s.Fraction * on.InferUS[l.Batch-1].D().Seconds() / float64(l.Batch)
			}
		}
		g.Utilisation, g.Bound = math.Max(load["cpu-1"], load["cpu-4"]), 1
	}
	one := 1.0
	p.Objective.Bound = &one
	wholeOnly(t, p) // else the bound is that of plans with members in stages
	return p, in
}

// wholeOnly makes a plan one that members in stages were not looked at for.
func wholeOnly(t *testing.T, p *formats.Plan) {
	if err := p.Options.Set("max-partitions", 1); err != nil {
		t.Fatal(err)
	}
}

// A member in two stages on two kinds is checked device by device.
func TestChainedGearPlan(t *testing.T) {
	fresh, documents := chainedPlan(t)
	if got := check.Recompute(fresh, documents.Profile, documents.Cluster, documents.Workload); len(got) > 0 {
		t.Fatalf("%v", got)
	}
	documents.Cluster.Host = formats.HostShared
	today := &kind.CheckInput{Plan: fresh, Profile: documents.Profile, Cluster: documents.Cluster, Workload: documents.Workload}
	tail, err := verify.TailOf(t.Context(), today, 0)
	if slo := formats.GearOf(fresh).SLOUS.D(); err != nil || tail <= 0 || tail > slo {
		t.Errorf("a tail of %v in the first gear (%v), expected at most %v", tail, err, slo)
	}
	stages := func(p *formats.Plan) []formats.Stage {
		at := slices.IndexFunc(p.Deployment, func(m formats.Deployed) bool { return m.Model == "large" })
		return p.Deployment[at].Pipelines[0].Stages
	}
	for name, c := range map[string]struct {
		change     func(*formats.Plan, *planner.Inputs)
		constraint string
		severity   check.Severity
	}{
		"memory":    {func(_ *formats.Plan, in *planner.Inputs) { in.Cluster.Pools[1].Memory = 1900 }, "memory", check.Error},
		"placement": {func(p *formats.Plan, _ *planner.Inputs) { stages(p)[1].Placement[0].FirstDevice = 3 }, "placement", check.Error},
		"chains":    {func(p *formats.Plan, _ *planner.Inputs) { stages(p)[0].Replicas, stages(p)[1].Replicas = 3, 2 }, "pipelines", check.Error},
		"cut":       {func(_ *formats.Plan, in *planner.Inputs) { in.Profile.Models[2].Blocks[0].CutBytesFP32 = 800 }, "cut", check.Error},
		"less cut":  {func(_ *formats.Plan, in *planner.Inputs) { in.Profile.Models[2].Blocks[0].CutBytesFP32 = 200 }, "cut", check.Warning},
		"slower": {func(_ *formats.Plan, in *planner.Inputs) {
			for i := range in.Profile.Models[2].Measurements {
				if ms := &in.Profile.Models[2].Measurements[i]; ms.Device == "cpu-4" {
					ms.Blocks[1].WallUS *= 100
				}
			}
		}, "utilisation", check.Error},
		"load": {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).Gears[0].Utilisation *= .9 }, "utilisation", check.Error},
	} {
		p := duplicate(t, fresh)
		now := planner.Inputs{Profile: duplicate(t, documents.Profile), Cluster: duplicate(t, documents.Cluster), Workload: documents.Workload}
		c.change(p, &now)
		got := check.Recompute(p, now.Profile, now.Cluster, now.Workload)
		if !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Constraint == c.constraint && f.Severity == c.severity }) {
			t.Errorf("%s: no %s about %s in %v", name, c.severity, c.constraint, got)
		}
	}
}

// A plan that the planner made with a member in stages holds when it is fresh, with
// its bound, which whole models do not limit; a bound that no stages reach does not.
func TestGearPlanInStages(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears in stages need HiGHS: %v", err)
	}
	for name, c := range map[string]struct {
		factors []float64 // of the second kind's times, by block
		memory  document.Bytes
	}{"parts that are fast elsewhere": {[]float64{3, .2}, 0}, "a member that fits nowhere": {[]float64{1.5, 1.5}, 2500}} {
		in := cascadeDocuments(1, c.memory, 3)
		for k := range in.Profile.Models {
			m := &in.Profile.Models[k]
			m.Blocks = []formats.Block{{Name: "first", WeightBytes: m.Blocks[0].WeightBytes / 2, CutBytesFP32: 4000}, {Name: "second", WeightBytes: m.Blocks[0].WeightBytes / 2}}
			for _, ms := range m.Measurements {
				half, other := ms.Blocks[0].WallUS/2, formats.Measurement{Device: "cpu-4", Share: 1, Batch: ms.Batch}
				for _, f := range c.factors {
					other.Blocks = append(other.Blocks, formats.Latency{WallUS: document.Micros(f*float64(half)) / 1000 * 1000})
				}
				at := slices.IndexFunc(m.Measurements, func(o formats.Measurement) bool { return o.Batch == ms.Batch && o.Device == "cpu-1" })
				m.Measurements[at].Blocks = []formats.Latency{{WallUS: half}, {WallUS: half}}
				m.Measurements = append(m.Measurements, other)
			}
		}
		in.Cluster.Pools[0].NICGbps = 10
		in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "cpu-4", Count: 2, Memory: c.memory, NICGbps: 10})
		formats.CascadeOf(in.Workload).QPS.Max = 3000
		res, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.ContainsFunc(res.Plan.Deployment, func(m formats.Deployed) bool {
			return slices.ContainsFunc(m.Pipelines, func(l formats.Pipeline) bool { return len(l.Stages) > 1 })
		}) {
			t.Errorf("%s: no member in stages: %+v", name, res.Plan.Objective)
		}
		if got := check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
		gate, err := check.Gate(context.Background(), check.GateInput{Plan: res.Plan, Today: planner.Inputs{Profile: in.Profile}, Solver: highs.Solver{}})
		if err != nil || gate.Verdict != check.Pass {
			t.Errorf("%s: from the plan alone: %v, %+v", name, err, gate)
		}
		for i := range formats.GearOf(res.Plan).Gears {
			p := duplicate(t, res.Plan)
			*p.Objective.Bound += formats.GearOf(p).Gears[i].Weight * (1 - formats.GearOf(p).Gears[i].Bound)
			formats.GearOf(p).Gears[i].Bound = 1
			got := check.Recompute(p, in.Profile, in.Cluster, in.Workload)
			if !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Constraint == "bound" && f.Severity == check.Error }) {
				t.Errorf("%s: nothing is said of a bound of 1 in gear %d: %v", name, i, got)
			}
		}
	}
}
