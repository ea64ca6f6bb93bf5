package executor

import (
	"slices"
	"testing"
	"time"

	"inferplan/executor/cascade"
	"inferplan/formats"
)

// A cascade whose large model stands on two kinds of devices: each kind's replica
// answers its share, in that kind's batches, and report and metrics know the
// model by its name.
func TestCascadeOnTwoKinds(t *testing.T) {
	p := gearPlan(1, time.Millisecond, 3*time.Millisecond)
	p.Pools = append(p.Pools, formats.Pool{Device: "cpu-4", Count: 1, Sharing: formats.SharingTime})
	large := &p.Deployment[1]
	other := large.Pipelines[0]
	other.Batch = 4
	other.Stages = slices.Clone(other.Stages)
	other.Stages[0].Device, other.Stages[0].InferUS = "cpu-4", flat(2*time.Millisecond, 4)
	last := other.Stages[0].InferUS[3]
	other.Stages[0].RPS, other.Stages[0].GPUs = 4/last.D().Seconds(), 1
	other.RPS, other.LatencyUS = other.Stages[0].RPS, last
	large.Pipelines = append(large.Pipelines, other)
	formats.GearOf(p).Gears = formats.GearOf(p).Gears[:1] // whatever the rate
	formats.GearOf(p).Gears[0].ToQPS, formats.GearOf(p).Gears[0].Weight = formats.GearOf(p).MaxQPS, 1
	formats.GearOf(p).Gears[0].Stages[1].Split = []float64{.25, .75}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	x := open(t, p, replayOptions(true))
	const rounds = 40 // of three samples, of which two go on
	for range rounds {
		for i := range 3 {
			_, model, resp := answerOf(t, x, sample(x, 1))
			if want := []string{"large", "large", "small"}[i]; model != want {
				t.Fatalf("sample %d: answered by %s, expected %s", i, model, want)
			}
			resp.Release()
		}
	}
	r := x.Report()
	if r.Completed != 3*rounds || len(r.Gears.Models) != 2 {
		t.Fatalf("%d completed, models %+v", r.Completed, r.Gears.Models)
	}
	if m := r.Gears.Models[1]; m.Model != "large" || m.Answers != 2*rounds || m.Samples != 2*rounds {
		t.Errorf("%+v, expected %d answers of large", m, 2*rounds)
	}
	g := x.core.Load().Answerer.(*cascade.CascadeAnswerer)
	if a, b := g.Models[1].Answers, g.Models[2].Answers; a != rounds/2 || b != rounds*3/2 {
		t.Errorf("%d answers on the first kind and %d on the second, expected %d and %d", a, b, rounds/2, rounds*3/2)
	}
}
