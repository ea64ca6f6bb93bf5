package planner

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	policygear "inferplan/policy/gear"
	"inferplan/policy/policies"
	"inferplan/sim"
	"inferplan/solver/highs"
)

// inBlocks is the family in four blocks each, on a second kind of devices as well,
// which takes factors, block by block, of the first's times.
func inBlocks(first, second int, factors []float64) Inputs {
	in := threeSizes(first)
	for k := range in.Profile.Models {
		m := &in.Profile.Models[k]
		whole := m.Blocks[0].WeightBytes
		m.Blocks = nil
		for i := range factors {
			b := formats.Block{Name: string(rune('a' + i)), WeightBytes: whole / int64(len(factors))}
			if i+1 < len(factors) {
				b.CutBytesFP32 = 40_000
				b.Cut = []formats.TensorInfo{{Name: "cut" + b.Name}}
			}
			m.Blocks = append(m.Blocks, b)
		}
		for _, ms := range m.Measurements {
			part := ms.Blocks[0].WallUS / document.Micros(len(factors))
			other := formats.Measurement{Device: "cpu-4", Share: 1, Batch: ms.Batch}
			for _, f := range factors {
				other.Blocks = append(other.Blocks, formats.Latency{WallUS: document.Micros(math.Round(f * float64(part)))})
			}
			m.Measurements = append(m.Measurements, other)
		}
		for i := range m.Measurements {
			if ms := &m.Measurements[i]; ms.Device == "cpu-1" {
				part := ms.Blocks[0].WallUS / document.Micros(len(factors))
				ms.Blocks = slices.Repeat([]formats.Latency{{WallUS: part}}, len(factors))
			}
		}
	}
	in.Cluster.Host = formats.HostShared
	in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{Device: "cpu-4", Count: second})
	return in
}

// gearsHold runs every gear alone a little below its upper edge and holds what it
// shows against what the plan says.
func gearsHold(t *testing.T, plan *formats.Plan) {
	for i, g := range formats.GearOf(plan).Gears {
		tables, err := policies.Compile(plan)
		if err != nil {
			t.Fatal(err)
		}
		own := policygear.TablesOf(tables)
		own.Gears = own.Gears[i : i+1]
		pol, err := policies.New(plan.Policy, tables)
		if err != nil {
			t.Fatal(err)
		}
		src, err := arrivals.Process(nil, seeded.New(3, "test"), 0, .95*g.ToQPS, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		run, err := sim.Run(context.Background(), sim.Config{Tables: tables, Policy: pol, Source: src, Duration: 10 * time.Second, Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		m := run.Report.Models[0]
		if run.Gears.Answered != int64(m.Completed) || m.Attainment < .95 {
			t.Errorf("gear %d at %.0f rps: %d answered of %d, attainment %.3f", i, .95*g.ToQPS, run.Gears.Answered, m.Completed, m.Attainment)
		}
		if d := math.Abs(run.Gears.Accuracy() - g.Accuracy); d > 3*math.Sqrt(.25/float64(run.Gears.Answered)) {
			t.Errorf("gear %d: %.4f of the answers are right, planned %.4f", i, run.Gears.Accuracy(), g.Accuracy)
		}
	}
}

// stagesOf are the kinds of the members that run in stages.
func stagesOf(p *formats.Plan) []string {
	var out []string
	for i := range p.Deployment {
		for k := range p.Deployment[i].Pipelines {
			if l := &p.Deployment[i].Pipelines[k]; len(l.Stages) > 1 {
				out = append(out, p.Deployment[i].Model+": "+l.DeviceKinds())
			}
		}
	}
	return out
}

func solvedGears(t *testing.T, in Inputs, partitions int) *formats.Plan {
	t.Helper()
	var opt Options
	opt.Set("max-partitions", partitions)
	res, err := Solve(context.Background(), in, opt, highs.Solver{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := formats.DecodePlan(planBytes(t, res.Plan), "plan.json"); err != nil {
		t.Fatalf("the plan does not read back: %v", err)
	}
	return res.Plan
}

// Where kinds are fast at different parts of a model, a plan with members in stages
// is more accurate than one of whole models, and holds what it says.
func TestGearPlanInStages(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	in := inBlocks(1, 2, []float64{3, 3, .3, .3})
	whole, staged := solvedGears(t, in, 1), solvedGears(t, in, 2)
	t.Logf("whole %.4f of %.4f, in stages %.4f of %.4f: %v", whole.Objective.Value, *whole.Objective.Bound, staged.Objective.Value, *staged.Objective.Bound, stagesOf(staged))
	if len(stagesOf(whole)) > 0 || len(stagesOf(staged)) == 0 || staged.Objective.Value <= whole.Objective.Value || staged.Objective.Value > *staged.Objective.Bound {
		t.Errorf("whole %+v, in stages %+v", whole.Objective, staged.Objective)
	}
	if !bytes.Equal(planBytes(t, staged), planBytes(t, solvedGears(t, in, 2))) {
		t.Error("another plan from the same inputs")
	}
	if !slices.ContainsFunc(staged.Assumptions, func(a string) bool { return strings.HasPrefix(a, "one host") }) {
		t.Errorf("assumptions %v say nothing of the network", staged.Assumptions)
	}
	gearsHold(t, staged)
}

// Over a network what crosses takes time and NICs: a slow one leaves nothing of what
// stages bring.
func TestGearPlanInStagesOverNetwork(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	values := map[float64]float64{}
	for _, gbps := range []float64{10, .01} {
		in := inBlocks(1, 2, []float64{3, 3, .3, .3})
		for i := range in.Cluster.Pools {
			in.Cluster.Pools[i].NICGbps = gbps
		}
		p := solvedGears(t, in, 2)
		values[gbps] = p.Objective.Value
		t.Logf("%v Gbit/s: %.4f of %.4f, %v", gbps, p.Objective.Value, *p.Objective.Bound, stagesOf(p))
		gearsHold(t, p)
	}
	if values[10] <= values[.01] {
		t.Errorf("accuracies by network %v", values)
	}
}

// A member that fits on no device runs in stages over two of them.
func TestGearPlanOfALargeMember(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears in stages need HiGHS: %v", err)
	}
	for _, c := range []struct {
		name          string
		first, second int
		memory        document.Bytes
	}{{"two kinds", 2, 2, 2600}, {"one kind", 4, 0, 2600}} {
		in := inBlocks(c.first, c.second, []float64{1.5, 1.5, 1.5, 1.5})
		for i := range in.Cluster.Pools {
			in.Cluster.Pools[i].Memory = c.memory
		}
		whole, staged := solvedGears(t, in, 1), solvedGears(t, in, 2)
		t.Logf("%s: whole %.4f of %.4f, in stages %.4f of %.4f: %v", c.name, whole.Objective.Value, *whole.Objective.Bound, staged.Objective.Value, *staged.Objective.Bound, stagesOf(staged))
		if len(stagesOf(staged)) == 0 || staged.Objective.Value <= whole.Objective.Value || staged.Objective.Value > *staged.Objective.Bound {
			t.Errorf("%s: whole %+v, in stages %+v", c.name, whole.Objective, staged.Objective)
		}
		gearsHold(t, staged)
	}
}

// Kinds that are alike block by block bring nothing in stages: the same plan as of
// whole models, but for the option, and for the bounds: those of one cascade per range and
// of trials are of whole models alone.
func TestGearPlanNeedsNoStages(t *testing.T) {
	if err := highs.Available(); err != nil {
		t.Skipf("gears on several kinds of devices need HiGHS: %v", err)
	}
	in := inBlocks(1, 1, []float64{2, 2, 2, 2})
	whole, staged := solvedGears(t, in, 1), solvedGears(t, in, 2)
	if err := staged.Options.Set("max-partitions", 1); err != nil {
		t.Fatal(err)
	}
	if w, s := *whole.Objective.Bound, *staged.Objective.Bound; w > s || w < whole.Objective.Value {
		t.Errorf("%.5f, bound of whole models %.5f, with stages allowed %.5f", whole.Objective.Value, w, s)
	}
	value := staged.Objective.Value
	staged.Objective, staged.StoppedBy = whole.Objective, whole.StoppedBy
	if g := formats.GearOf(staged); g.TriedBound != 0 {
		t.Errorf("trials of whole models are said to bound plans in stages: %v", g.TriedBound)
	}
	formats.GearOf(staged).TriedBound = formats.GearOf(whole).TriedBound
	if value != whole.Objective.Value || !bytes.Equal(planBytes(t, whole), planBytes(t, staged)) {
		t.Errorf("whole %.5f, with stages allowed %.5f, %v", whole.Objective.Value, value, stagesOf(staged))
	}
}
