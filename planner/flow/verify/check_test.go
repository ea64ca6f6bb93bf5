package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// documents are those of an application of three modules, one of them with
// variants, on two kinds of devices.
func documents() kind.Documents {
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{{Device: "new"}, {Device: "old"}}}
	for _, m := range []struct {
		name       string
		first, per float64 // of a batch on the new kind, ms
	}{{"detect", 6, 3}, {"face-large", 4, 4}, {"face-small", 2, 1.5}, {"plate", 3, 2}} {
		one := formats.ProfileModel{Model: m.name, Blocks: []formats.Block{{Name: "all", WeightBytes: 1 << 20}}}
		for slow, device := range []string{"new", "old"} {
			for _, b := range []int{1, 2, 4, 8} {
				took := formats.Latency{WallUS: document.Micros(1e6 * float64(slow+1) * (m.first + m.per*float64(b)))}
				one.Measurements = append(one.Measurements, formats.Measurement{Device: device, Share: 1, Batch: b, MemoryBytes: int64(b) << 20, Blocks: []formats.Latency{took}, WholeModel: &took})
			}
		}
		p.Models = append(p.Models, one)
	}
	return kind.Documents{Profile: p,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "new", Count: 5, Memory: 6 << 20, USDPerHour: 2}, {Device: "old", Count: 4, Memory: 6 << 20, USDPerHour: .5}}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.Applications{{Name: "traffic", SLO: document.SLO{Duration: 120 * time.Millisecond}, RPS: 150, Accuracy: .94,
			Modules: []formats.Module{{Name: "detect"}, {Name: "face", Variants: []formats.Variant{{Model: "face-large", Accuracy: .95}, {Model: "face-small", Accuracy: .8}}}, {Name: "plate"}}}}}}
}

func solve(t *testing.T, in kind.Documents, objective string) *formats.Plan {
	t.Helper()
	res, err := planner.Solve(context.Background(), planner.Inputs(in), planner.Options{Values: map[string]any{"objective": objective, "gap": 0.}}, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

func errorsOf(p *formats.Plan, in kind.Documents) []kind.Finding {
	return slices.DeleteFunc(check.Recompute(p, in.Profile, in.Cluster, in.Workload), func(f kind.Finding) bool { return f.Severity != check.Error })
}

// firstPipeline is the first pipeline of a plan.
func firstPipeline(p *formats.Plan) *formats.Pipeline { return &p.Deployment[0].Pipelines[0] }

// changeBatch gives a model of the deployment another batch, with the times of today.
func changeBatch(p *formats.Plan, in kind.Documents, at, batch int) {
	d := &p.Deployment[at]
	l := &d.Pipelines[0]
	for l.Batch = batch; len(l.Stages[0].InferUS) < batch; {
		l.Stages[0].InferUS = append(l.Stages[0].InferUS, l.LatencyUS)
	}
	for _, m := range in.Profile.Models {
		for _, x := range m.Measurements {
			if m.Model == d.Model && x.Device == l.Stages[0].Device && x.Batch == batch {
				l.LatencyUS = x.WholeModel.WallUS
			}
		}
	}
}

// breakage breaks a plan, or moves the documents away from it, in one place.
type breakage struct {
	name, objective, constraint, where string
	broken                             func(p *formats.Plan, in kind.Documents)
}

var breakages = []breakage{
	{"a batch beyond memory", "gpus", "memory", "deployment[0]", func(p *formats.Plan, in kind.Documents) {
		formats.ApplicationsOf(in.Workload)[0].SLO.Duration, formats.FlowOf(p).Applications[0].SLOUS = time.Second, document.Micros(time.Second)
		formats.FlowOf(p).Applications[0].MarginUS = document.Micros(100 * time.Millisecond)
		changeBatch(p, in, 0, 8)
	}},
	{"a path longer than the SLO", "gpus", "slo", "flow.applications[0].slo_us", func(p *formats.Plan, in kind.Documents) {
		in.Cluster.Pools[0].Memory, in.Cluster.Pools[1].Memory = 0, 0
		for at := range p.Deployment {
			changeBatch(p, in, at, 8)
		}
	}},
	{"an SLO that has become shorter", "gpus", "slo", "flow.applications[0].slo_us", func(_ *formats.Plan, in kind.Documents) {
		formats.ApplicationsOf(in.Workload)[0].SLO.Duration = 60 * time.Millisecond
	}},
	{"more workers than devices", "gpus", "placement", "deployment[0].pipelines[0].stages[0].placement[0]", func(p *formats.Plan, in kind.Documents) {
		s := &firstPipeline(p).Stages[0]
		s.Replicas += 9
		s.Placement[0].Replicas += 9
		p.Objective.Value += 9
	}},
	{"a device that is not there", "gpus", "placement", "deployment[0].pipelines[0].stages[0].placement[0]", func(p *formats.Plan, _ kind.Documents) {
		firstPipeline(p).Stages[0].Placement[0].FirstDevice = -1
	}},
	{"a replica without a device", "gpus", "placement", "deployment[0].pipelines[0].stages[0].placement", func(p *formats.Plan, _ kind.Documents) {
		firstPipeline(p).Stages[0].Replicas++
		p.Objective.Value++
	}},
	{"two modules on one device", "gpus", "placement", "deployment[", func(p *formats.Plan, _ kind.Documents) {
		p.Deployment[1].Pipelines[0].Stages[0].Device = firstPipeline(p).Stages[0].Device
		p.Deployment[1].Pipelines[0].Stages[0].Placement[0].FirstDevice = firstPipeline(p).Stages[0].Placement[0].FirstDevice
	}},
	{"a pool that is gone", "gpus", "pool", "", func(p *formats.Plan, in kind.Documents) {
		device := firstPipeline(p).Stages[0].Device
		in.Cluster.Pools = slices.DeleteFunc(in.Cluster.Pools, func(o formats.Pool) bool { return o.Device == device })
	}},
	{"a bound below the value", "throughput", "objective", "objective.bound", func(p *formats.Plan, _ kind.Documents) {
		bound := p.Objective.Value * .99
		p.Objective.Bound = &bound
	}},
	{"a bound above the price", "cost", "objective", "objective.bound", func(p *formats.Plan, _ kind.Documents) {
		bound := p.Objective.Value * 1.01
		p.Objective.Bound = &bound
	}},
	{"a rate that is not the applications'", "throughput", "objective", "objective.value", func(p *formats.Plan, _ kind.Documents) {
		p.Objective.Value *= .9
	}},
	{"a price that is not the devices'", "cost", "objective", "objective.value", func(p *formats.Plan, _ kind.Documents) {
		p.Objective.Value *= 1.1
	}},
	{"more devices than told", "gpus", "objective", "objective.value", func(p *formats.Plan, _ kind.Documents) {
		p.Objective.Value++
	}},
	{"a rate beyond the devices", "throughput", "rps", "deployment[", func(p *formats.Plan, _ kind.Documents) {
		formats.FlowOf(p).Applications[0].RPS *= 1.2
		p.Objective.Value *= 1.2
		p.Objective.Bound = &p.Objective.Value
	}},
	{"less than the workload asks for", "gpus", "min_rps", "flow.applications[0].rps", func(_ *formats.Plan, in kind.Documents) {
		formats.ApplicationsOf(in.Workload)[0].RPS = 151
	}},
	{"another graph", "gpus", "application", "flow.applications[0].modules", func(p *formats.Plan, in kind.Documents) {
		formats.ApplicationsOf(in.Workload)[0].Modules[2].Predecessors = []string{"detect"}
	}},
	{"an unknown module", "gpus", "application", "flow.applications[0].modules", func(p *formats.Plan, _ kind.Documents) {
		formats.FlowOf(p).Applications[0].Modules[2].Name = "plates"
	}},
	{"a cycle", "gpus", "graph", "flow.applications[0].modules", func(p *formats.Plan, in kind.Documents) {
		formats.FlowOf(p).Applications[0].Modules[1].Predecessors = []string{"plate"}
		in.Workload.Section = nil
	}},
	{"an unknown application", "gpus", "application", "flow.applications[0].model", func(_ *formats.Plan, in kind.Documents) {
		apps := formats.ApplicationsOf(in.Workload)
		apps[0].Name = "other"
	}},
	{"an application that is not served", "gpus", "application", "flow.applications", func(_ *formats.Plan, in kind.Documents) {
		apps := formats.ApplicationsOf(in.Workload)
		more := apps[0]
		more.Name = "more"
		in.Workload.Section = append(apps, more)
	}},
	{"a model that was never measured", "gpus", "model", "deployment[0].model", func(_ *formats.Plan, in kind.Documents) {
		in.Profile.Models = in.Profile.Models[1:]
	}},
	{"a batch that was not measured", "gpus", "measurement", "deployment[0].pipelines[0]", func(p *formats.Plan, in kind.Documents) {
		changeBatch(p, in, 0, 9)
	}},
	{"variants below the floor", "gpus", "accuracy", "flow.applications[0].modules", func(_ *formats.Plan, in kind.Documents) {
		formats.ApplicationsOf(in.Workload)[0].Accuracy = .96
	}},
	{"a margin that is not the options'", "gpus", "margin", "flow.applications[0].margin_us", func(p *formats.Plan, _ kind.Documents) {
		formats.FlowOf(p).Applications[0].MarginUS /= 2
	}},
	{"the section of another kind", "gpus", "kind", "flow", func(p *formats.Plan, _ kind.Documents) { p.Section = nil }},
}

// A plan that holds has no finding. One that was broken in one place has a finding of
// just that constraint: each is found by one check alone.
func TestBrokenPlansAreFound(t *testing.T) {
	for _, c := range breakages {
		t.Run(c.name, func(t *testing.T) {
			in := documents()
			p := solve(t, in, c.objective)
			if list := errorsOf(p, in); len(list) > 0 {
				t.Fatalf("the plan does not hold before it is broken: %v", list)
			}
			c.broken(p, in)
			if c.name == "a cycle" {
				in.Workload = nil
			}
			list := errorsOf(p, in)
			if !slices.ContainsFunc(list, func(f kind.Finding) bool { return f.Constraint == c.constraint && strings.HasPrefix(f.Path, c.where) }) {
				t.Errorf("found %v, want %s at %s", list, c.constraint, c.where)
			}
			for _, f := range list {
				if f.Constraint != c.constraint && c.constraint != "pool" && c.constraint != "model" && c.constraint != "measurement" && c.constraint != "graph" && c.constraint != "application" {
					t.Errorf("found %v beside %s", f, c.constraint)
				}
			}
		})
	}
}
