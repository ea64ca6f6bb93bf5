package verify_test

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/solver/highs"
)

func ms(v float64) document.Micros { return document.Micros(math.Round(v * 1e6)) }

// cascadeDocuments are a family of three with made-up records; memory 0 means
// no limit.
func cascadeDocuments(devices int, memory document.Bytes, seed uint64) planner.Inputs {
	const n = 1200
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "cpu-1"}}}
	rec := formats.Records{Samples: n, PlanningSamples: 1000}
	names := []string{"small", "middle", "large"}
	for k, name := range names {
		m := formats.ProfileModel{Model: name, Blocks: []formats.Block{{Name: "all", WeightBytes: int64(1000 * (k + 1))}}}
		for _, b := range []int{1, 4, 16} {
			m.Measurements = append(m.Measurements, formats.Measurement{Device: "cpu-1", Share: 1, Batch: b, Blocks: []formats.Latency{{WallUS: ms(.125 + .075*float64(b*(int(1)<<(2*k))))}}})
		}
		p.Models = append(p.Models, m)
		r := formats.ModelRecords{Model: name}
		right := []byte{}
		for range n {
			ok, c := rng.Float64() < .7+.1*float64(k), rng.Float64()
			if ok {
				c = max(c, rng.Float64())
			}
			r.Certainty = append(r.Certainty, math.Round(1e4*c)/1e4)
			right = append(right, "01"[map[bool]int{true: 1}[ok]])
		}
		r.Correct = string(right)
		rec.Models = append(rec.Models, r)
	}
	p.Records = []formats.Records{rec}
	return planner.Inputs{Profile: p,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "cpu-1", Count: devices, Memory: memory}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: &formats.Cascade{
			Family: names, SLO: formats.CascadeSLO{Latency: document.SLO{Duration: 100e6}}, Grid: 5,
			QPS: formats.CascadeQPS{Max: 1500, Ranges: 3, Distribution: "zipf"},
		}}}
}

func gearPlan(t testing.TB, in planner.Inputs) *formats.Plan {
	res, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

// duplicate copies all that can be reached.
func duplicate[T any](_ testing.TB, v *T) *T {
	return deepCopy(reflect.ValueOf(v)).Interface().(*T)
}

func deepCopy(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return out
		}
		if v.Kind() == reflect.Interface {
			out.Set(deepCopy(v.Elem()))
			return out
		}
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(deepCopy(v.Elem()))
	case reflect.Slice:
		if v.IsNil() {
			return out
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(deepCopy(v.Index(i)))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(deepCopy(v.Field(i)))
			}
		}
	}
	return out
}

// A fresh plan holds, whatever the memory; nothing is found.
func TestGearPlanHolds(t *testing.T) {
	planned := 0
	for _, memory := range []document.Bytes{0, 3000, 4500, 9000} {
		for devices := 1; devices <= 3; devices++ {
			in := cascadeDocuments(devices, memory, uint64(devices)+uint64(memory))
			res, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
			if err != nil {
				continue // few devices with little memory
			}
			planned++
			for _, f := range check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload) {
				t.Errorf("memory %d, %d devices: %s", memory, devices, f)
			}
			for _, f := range check.Recompute(res.Plan, in.Profile, in.Cluster, nil) {
				t.Errorf("memory %d, %d devices, without a workload: %s", memory, devices, f)
			}
		}
	}
	if planned < 8 {
		t.Errorf("only %d of 12 cases have a plan", planned)
	}
}

// Every figure of a gear plan is recomputed: a changed one is found, by name.
func TestGearPlanTampered(t *testing.T) {
	in := cascadeDocuments(2, 0, 1)
	plan := gearPlan(t, in)
	for name, c := range map[string]struct {
		change     func(*formats.Plan, *planner.Inputs)
		constraint string
		severity   check.Severity
	}{
		"accuracy":                    {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).Gears[1].Accuracy += .001 }, "accuracy", check.Error},
		"fraction":                    {func(p *formats.Plan, _ *planner.Inputs) { lastStage(formats.GearOf(p).Gears[2].Stages).Fraction *= .9 }, "fraction", check.Error},
		"utilisation":                 {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).Gears[0].Utilisation *= .5 }, "utilisation", check.Error},
		"bound low":                   {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).Gears[2].Bound -= .001 }, "bound", check.Error},
		"bound high":                  {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).Gears[2].Bound += .001 }, "bound", check.Error},
		"objective":                   {func(p *formats.Plan, _ *planner.Inputs) { p.Objective.Value += .001 }, "objective", check.Error},
		"tried bound below the value": {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).TriedBound = p.Objective.Value - .001 }, "bound", check.Error},
		"tried bound above the bound": {func(p *formats.Plan, _ *planner.Inputs) { formats.GearOf(p).TriedBound = *p.Objective.Bound + .001 }, "bound", check.Error},
		"objective's bound below the value": {func(p *formats.Plan, _ *planner.Inputs) {
			*p.Objective.Bound = p.Objective.Value - .001
		}, "objective", check.Error},
		"objective's bound above the gears'": {func(p *formats.Plan, _ *planner.Inputs) {
			*p.Objective.Bound = mixtureBound(p) + .001
		}, "objective", check.Error},
		"latency": {func(p *formats.Plan, _ *planner.Inputs) {
			formats.GearOf(p).Gears[0].LatencyUS = formats.GearOf(p).SLOUS + 1
		}, "slo", check.Error},
		"split": {func(p *formats.Plan, _ *planner.Inputs) {
			formats.GearOf(p).Gears[2].Stages[0].Split = []float64{1, 0}
		}, "utilisation", check.Error},
		"memory": {func(_ *formats.Plan, in *planner.Inputs) { in.Cluster.Pools[0].Memory = 2500 }, "memory", check.Error},
		"device gone": {func(_ *formats.Plan, in *planner.Inputs) {
			in.Cluster.Pools[0].Count = 1
		}, "placement", check.Error},
		"model gone": {func(_ *formats.Plan, in *planner.Inputs) {
			formats.CascadeOf(in.Workload).Family = []string{"small", "middle"}
		}, "model", check.Error},
		"records gone": {func(_ *formats.Plan, in *planner.Inputs) { in.Profile.Records = nil }, "records", check.Error},
		"records moved": {func(_ *formats.Plan, in *planner.Inputs) {
			m := &in.Profile.Records[0].Models[2]
			m.Correct = strings.Repeat("0", 100) + m.Correct[100:]
		}, "accuracy", check.Warning},
		"slower": {func(_ *formats.Plan, in *planner.Inputs) {
			for i := range in.Profile.Models[2].Measurements {
				in.Profile.Models[2].Measurements[i].Blocks[0].WallUS *= 3
			}
		}, "utilisation", check.Error},
		"a little slower": {func(_ *formats.Plan, in *planner.Inputs) {
			in.Profile.Models[2].Measurements[0].Blocks[0].WallUS += 2000
		}, "latency", check.Warning},
		"slo":     {func(_ *formats.Plan, in *planner.Inputs) { formats.CascadeOf(in.Workload).SLO.Latency.Duration = 1e6 }, "slo", check.Error},
		"weights": {func(_ *formats.Plan, in *planner.Inputs) { formats.CascadeOf(in.Workload).QPS.Distribution = "uniform" }, "qps", check.Warning},
	} {
		p := duplicate(t, plan)
		now := planner.Inputs{Profile: duplicate(t, in.Profile), Cluster: duplicate(t, in.Cluster), Workload: duplicate(t, in.Workload)}
		c.change(p, &now)
		got := check.Recompute(p, now.Profile, now.Cluster, now.Workload)
		if !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Constraint == c.constraint && f.Severity == c.severity }) {
			t.Errorf("%s: no %s about %s in %v", name, c.severity, c.constraint, got)
		}
	}
}

// mixtureBound is the bound that those of the gears come to.
func mixtureBound(p *formats.Plan) float64 {
	sum := 0.0
	for _, g := range formats.GearOf(p).Gears {
		sum += g.Weight * g.Bound
	}
	return sum
}

// The bound of one cascade per range is recomputed: a plan's is it, what is a little lower
// is found. One that is higher, as of mixtures, is no error, up to what the gears' bounds
// come to.
func TestGearPlanBound(t *testing.T) {
	sharper, apart := 0, 0
	for seed := range uint64(12) {
		in := cascadeDocuments(1+int(seed)%3, []document.Bytes{3000, 4500, 5000, 9000}[seed%4], seed)
		formats.CascadeOf(in.Workload).QPS.Max = 1500 * float64(1+seed%3)
		res, err := planner.Solve(context.Background(), in, planner.Options{}, highs.Solver{}, nil)
		if err != nil {
			continue // few devices with little memory
		}
		value, bound, mixed := res.Plan.Objective.Value, *res.Plan.Objective.Bound, mixtureBound(res.Plan)
		if bound < mixed-1e-4 {
			sharper++
		}
		if value < bound-1e-4 {
			apart++
		}
		for _, c := range []struct {
			bound      float64
			constraint string // empty: nothing is wrong
		}{{bound, ""}, {(bound + mixed) / 2, ""}, {mixed, ""}, {mixed + 1e-5, "objective"}, {bound - 1e-5, "bound"}, {value - 1e-5, "objective"}} {
			p := duplicate(t, res.Plan)
			*p.Objective.Bound = c.bound
			got := check.Recompute(p, in.Profile, in.Cluster, in.Workload)
			if c.constraint == "" && len(got) == 0 {
				continue
			}
			if !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Constraint == c.constraint && f.Severity == check.Error }) {
				t.Errorf("seed %d: bound %v, planned %v with value %v, of mixtures %v: %v, expected %q", seed, c.bound, bound, value, mixed, got, c.constraint)
			}
		}
	}
	if sharper < 3 || apart < 1 {
		t.Errorf("%d bounds below that of mixtures, %d above the value", sharper, apart)
	}
}

// goalDocuments are cascade documents that leave something else than accuracy to be
// optimised.
func goalDocuments(t testing.TB) map[string]planner.Inputs {
	out := map[string]planner.Inputs{}
	for _, name := range []string{"latency", "gpus", "cost", "power"} {
		in := cascadeDocuments(4, 4500, 1)
		in.Cluster.Pools[0].USDPerHour, in.Cluster.Pools[0].Watts = .5, 70
		formats.CascadeOf(in.Workload).SLO.Accuracy = .84
		if name == "latency" {
			formats.CascadeOf(in.Workload).SLO.Latency = document.SLO{}
		}
		out[name] = in
	}
	return out
}

// Objective and bound are recomputed for every goal; a changed one is found.
func TestGearPlanGoals(t *testing.T) {
	for name, in := range goalDocuments(t) {
		opt := planner.Options{}
		if name != "latency" {
			opt.Set("objective", name)
		}
		res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan := res.Plan
		if plan.Objective.Name != name {
			t.Fatalf("%s: objective %s", name, plan.Objective.Name)
		}
		if got := check.Recompute(plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
		gate, err := check.Gate(context.Background(), check.GateInput{Plan: plan, Today: planner.Inputs{Profile: in.Profile}})
		if err != nil || gate.Verdict != check.Pass {
			t.Errorf("%s, from the plan alone: %v, %+v", name, err, gate)
		}
		step := 1.0
		switch name {
		case "cost":
			step = .5
		case "power":
			step = 70
		}
		changes := map[string]struct {
			change     func(*formats.Plan)
			constraint string
		}{
			"value up":     {func(p *formats.Plan) { p.Objective.Value += step / 2 }, "objective"},
			"value down":   {func(p *formats.Plan) { p.Objective.Value -= step }, "objective"},
			"target":       {func(p *formats.Plan) { formats.GearOf(p).Accuracy = .95 }, "accuracy"},
			"gear's bound": {func(p *formats.Plan) { formats.GearOf(p).Gears[1].Bound += .001 }, "bound"},
			"bound high":   {func(p *formats.Plan) { *p.Objective.Bound = p.Objective.Value + step }, "bound"},
			"bound a bit high": {func(p *formats.Plan) {
				if name == "latency" {
					*p.Objective.Bound *= 1.05
				} else {
					*p.Objective.Bound += step
				}
			}, "bound"},
		}
		for what, c := range changes {
			p := duplicate(t, plan)
			c.change(p)
			got := check.Recompute(p, in.Profile, in.Cluster, in.Workload)
			if !slices.ContainsFunc(got, func(f check.Finding) bool { return f.Constraint == c.constraint && f.Severity == check.Error }) {
				t.Errorf("%s, %s: no error about %s in %v (value %v, bound %v)", name, what, c.constraint, got, p.Objective.Value, *p.Objective.Bound)
			}
		}
	}
}

// The least price is bounded by one cascade per range: a mixture on fewer devices may have
// the accuracy, and that is no error.
func TestLeastPricesHold(t *testing.T) {
	plans, above := 0, 0
	for _, seed := range []uint64{1, 10, 12, 13, 24, 39} {
		in := cascadeDocuments(5, []document.Bytes{3000, 4500, 9000}[seed%3], seed)
		c := formats.CascadeOf(in.Workload)
		c.SLO.Accuracy, c.QPS.Max = .78+.005*float64(seed%16), 1500*float64(1+seed%4)
		opt := planner.Options{}
		opt.Set("objective", "gpus")
		res, err := planner.Solve(context.Background(), in, opt, highs.Solver{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		plans++
		if *res.Plan.Objective.Bound > 1 {
			above++
		}
		if got := check.Recompute(res.Plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
			t.Errorf("seed %d: %v", seed, got)
		}
	}
	t.Logf("%d plans, of %d more than one device is needed", plans, above)
	if plans < 6 || above < 5 {
		t.Errorf("%d plans, of %d more than one device is needed, expected 6 and 5", plans, above)
	}
}

// An SLO over all requests allows ranges that are late, but not all together.
func TestGearPlanOverRequests(t *testing.T) {
	in := cascadeDocuments(1, 0, 1)
	formats.CascadeOf(in.Workload).SLO.Scope = formats.ScopeRequests
	formats.CascadeOf(in.Workload).SLO.Latency.Duration = 8e6
	formats.CascadeOf(in.Workload).QPS = formats.CascadeQPS{Max: 1500, Histogram: []float64{.7, .1, .2}}
	plan := gearPlan(t, in)
	if formats.GearOf(plan).SLOScope != formats.ScopeRequests {
		t.Fatalf("the plan does not say that its SLO is over requests: %+v", formats.GearOf(plan).SLOScope)
	}
	if got := check.Recompute(plan, in.Profile, in.Cluster, in.Workload); len(got) > 0 {
		t.Errorf("%v", got)
	}
	formats.GearOf(plan).Gears[2].LateShare = .3
	if got := check.Recompute(plan, in.Profile, in.Cluster, in.Workload); len(got) != 1 || got[0].Constraint != "slo" {
		t.Errorf("30 %% late in a range with a fifth of the requests: %v", got)
	}
}

func lastStage(s []formats.GearStage) *formats.GearStage { return &s[len(s)-1] }

// The gate compares accuracy, rate and simulated tails.
func TestGearGate(t *testing.T) {
	in := cascadeDocuments(2, 0, 1)
	plan := gearPlan(t, in)
	same, err := check.Gate(context.Background(), check.GateInput{Plan: plan, Today: planner.Inputs{Profile: in.Profile}})
	if err != nil || same.Verdict != check.Pass {
		t.Fatalf("unchanged: %v, %+v", err, same)
	}
	slow := duplicate(t, in.Profile)
	for m := range slow.Models {
		for i := range slow.Models[m].Measurements {
			slow.Models[m].Measurements[i].Blocks[0].WallUS += slow.Models[m].Measurements[i].Blocks[0].WallUS / 20
		}
	}
	res, err := check.Gate(context.Background(), check.GateInput{Plan: plan, Today: planner.Inputs{Profile: slow}, OldProfiles: []*formats.Profile{in.Profile}})
	if err != nil || res.Verdict != check.Fail {
		t.Fatalf("5 %% slower: %v, %+v", err, res)
	}
	if len(res.Blocks) == 0 {
		t.Error("5 % slower: no block is named")
	}
	for _, m := range []string{"rps", "p99"} {
		if !slices.ContainsFunc(res.Metrics, func(c check.Comparison) bool { return c.Metric == m && c.Failed }) {
			t.Errorf("5 %% slower: %s did not fail: %+v", m, res.Metrics)
		}
	}
	wrong := duplicate(t, in.Profile)
	for i := range wrong.Records[0].Models {
		m := &wrong.Records[0].Models[i]
		m.Correct = strings.Repeat("0", 60) + m.Correct[60:]
	}
	res, err = check.Gate(context.Background(), check.GateInput{Plan: plan, Today: planner.Inputs{Profile: wrong}})
	if err != nil || !slices.ContainsFunc(res.Metrics, func(c check.Comparison) bool { return c.Metric == "accuracy" && c.Failed }) {
		t.Errorf("60 wrong answers: %v, %+v", err, res.Metrics)
	}
}

// Models of a cascade take turns on GPUs, too, where pools of pipelines are each
// model's own: a fresh plan for a GPU holds.
func TestGearPlanOfAGPU(t *testing.T) {
	in := cascadeDocuments(2, 0, 5)
	in.Cluster.Pools[0].Device = "L4"
	for m := range in.Profile.Models {
		for i := range in.Profile.Models[m].Measurements {
			in.Profile.Models[m].Measurements[i].Device = "L4"
		}
	}
	if got := check.Recompute(gearPlan(t, in), in.Profile, in.Cluster, in.Workload); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// What moved between two plans is told once, whatever their kinds.
func TestGearPlanDiff(t *testing.T) {
	in := cascadeDocuments(2, 0, 1)
	plan := gearPlan(t, in)
	if r := planner.Diff(plan, plan); !r.Empty() {
		t.Errorf("a plan and itself: %v", r.Lines())
	}
	other := duplicate(t, plan)
	formats.GearOf(other).Gears[1].Accuracy -= .01
	if r := planner.Diff(plan, other); len(r.Changes) != 1 || r.Changes[0].Section != "gears" {
		t.Errorf("one accuracy changed: %v", r.Lines())
	}
	gears := 0
	for _, c := range planner.Diff(plan, &formats.Plan{Kind: formats.PlanPool, Section: &formats.PoolPlan{}}).Changes {
		if c.Section == "gears" && strings.HasPrefix(c.Path, "up to ") {
			gears++
		}
	}
	if want := len(formats.GearOf(plan).Gears); gears != want {
		t.Errorf("%d gears removed, expected %d", gears, want)
	}
}
