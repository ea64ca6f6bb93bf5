package executor

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy/conform"
	"inferplan/policy/policies"
)

// chainPlan is gearPlan on two devices with the large model cut in two: its first
// stage beside the small model, its second on devices of another kind.
func chainPlan(small, first, second time.Duration, fresh int) *formats.Plan {
	p := gearPlan(2, small, first)
	p.Pools = append(p.Pools, formats.Pool{Device: "cpu-b", Count: fresh, PerNode: 1, Sharing: formats.SharingTime})
	pl := &p.Deployment[1].Pipelines[0]
	pl.RPS = 1
	last := pl.Stages[0]
	pl.Stages[0].Blocks, last.Blocks = [2]int{0, 1}, [2]int{1, 2}
	pl.Stages[0].Cut = &formats.Cut{Tensors: []string{"c"}, DType: "FP32", Bytes: 1000, TransferUS: make([]document.Micros, pl.Batch)}
	last.Device, last.Replicas, last.GPUs, last.InferUS = "cpu-b", fresh, float64(fresh), flat(second, pl.Batch)
	last.Placement = []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: fresh}}
	pl.Stages = append(pl.Stages, last)
	complete(p)
	for i := range p.Deployment {
		p.Deployment[i].Pipelines[0].Stages[0].RPS /= 2
	}
	return p
}

// A member of two stages answers behind its second; the records say which samples
// come there, and the recorded times are those of the stages.
func TestCascadeOverChains(t *testing.T) {
	var log bytes.Buffer
	o := replayOptions(true)
	o.EventLog, o.RecordService = &log, true
	p := chainPlan(time.Millisecond, 3*time.Millisecond, 2*time.Millisecond, 1)
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	x := open(t, p, o)
	for i := range 6 {
		gear, model, resp := answerOf(t, x, sample(x, 1))
		if want := []string{"large", "large", "small"}[i%3]; model != want || gear != 0 {
			t.Errorf("sample %d: answered by %s under gear %d, expected %s under 0", i, model, gear, want)
		}
		resp.Release()
	}
	got := during(x, 0, 1, 60, func() { until(func() bool { return x.Report().Completed >= 50 }) })
	r := x.Report()
	if got["served"] != total(got) || r.Completed != r.Requests || *r.Accuracy != 1 {
		t.Errorf("ended as %v; report %+v", got, r.Counts)
	}
	if requests, slots := held(x); requests != 0 || slots != 0 {
		t.Errorf("%d requests and %d slots are still held", requests, slots)
	}
	large := r.Gears.Models[1]
	s := x.Service()
	for stage, least := range []time.Duration{0, 3 * time.Millisecond, 2 * time.Millisecond} {
		runs := int64(0)
		for _, list := range s.Runs[stage] {
			runs += int64(len(list))
			if len(list) > 0 && slices.Min(list) < least {
				t.Errorf("stage %d: a run of %v, expected at least %v", stage, slices.Min(list), least)
			}
		}
		if stage > 0 && runs != large.Batches {
			t.Errorf("stage %d: %d runs recorded, expected the model's batches, %d", stage, runs, large.Batches)
		}
	}
	spec := x.PolicySpec()
	tables, err := policies.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	x.Close()
	again, err := policies.New(spec, tables)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conform.Replay(&log, again); err != nil || n == 0 {
		t.Errorf("replay of %d calls: %v", n, err)
	}
}

// The worker of a second stage dies: what was on its way there goes along the other
// chain, and no request is lost.
func TestLostWorkerOfAChain(t *testing.T) {
	x := open(t, chainPlan(2*time.Millisecond, 5*time.Millisecond, 20*time.Millisecond, 2), replayOptions(false))
	got := during(x, 0, 1, 60, func() { loseWorker(t, x, 2, 2) })
	if got["served"] != total(got) {
		t.Errorf("ended as %v", got)
	}
	if r := x.Report(); r.Requests != r.Completed {
		t.Errorf("report %+v", r.Counts)
	}
}
