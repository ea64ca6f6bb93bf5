package formats

import (
	"math"
	"testing"
	"time"

	"inferplan/formats/document"
)

// By hand: two models at 30 and 10 requests/s cost 4 and 8 ms at a front end of 2 CPUs, and run on CPUs of two nodes.
func TestFrontEnd(t *testing.T) {
	stage := func(batch int, took time.Duration) []Stage {
		return []Stage{{Device: "cpu-2", InferUS: append(make([]document.Micros, batch-1), document.Micros(took))}}
	}
	p := &Plan{FrontEnd: &FrontEnd{Cores: 2}, Pools: []Pool{{Device: "cpu-2", Count: 2}}, Deployment: []Deployed{
		{Model: "a", RequestUS: document.Micros(time.Millisecond), RequestCPUUS: document.Micros(4 * time.Millisecond), Pipelines: []Pipeline{{Batch: 2, RPS: 30, Stages: stage(2, 8*time.Millisecond)}}},
		{Model: "b", RequestCPUUS: document.Micros(8 * time.Millisecond), Pipelines: []Pipeline{{Batch: 1, RPS: 10, Stages: stage(1, 16*time.Millisecond)}}},
	}}
	p.Section = &PoolPlan{Models: []Served{{Model: "a", Weight: 3, RPS: 30}, {Model: "b", Weight: 2, RPS: 10}}}
	if got := p.RequestOverhead(); got != time.Millisecond {
		t.Errorf("beside runs %v, expected the one that is known", got)
	}
	if got := p.RequestCPU(); got != 5*time.Millisecond {
		t.Errorf("a request costs %v, expected (30*4 + 10*8)/40 ms", got)
	}
	// Runs: (30 * 8/2 + 10 * 16) * 2 threads / 2 nodes / 40 = 7 ms.
	if got := p.FrontEndTime(); (got - 6*time.Millisecond*4/3).Abs() > time.Nanosecond {
		t.Errorf("a request takes the front end up for %v, expected (5 + 7)/2/.75 ms", got)
	}
	if got := p.FrontEndLoad(); math.Abs(got-.24/.75) > 1e-6 {
		t.Errorf("load %v, expected 40 * 6 / .75 ms", got)
	}
	if got := p.FrontEndRate(); math.Abs(got-.75/.03) > 1e-4 {
		t.Errorf("full at %v, expected .75/(5 * 6 ms)", got)
	}
	// The CPU devices of a node have 2 threads for runs, more than is left to them.
	device := p.Pools[0].Device
	if perRun, share := p.FrontEndRuns(); math.Abs(perRun[device]-1/1.5) > 1e-9 || share != .75 {
		t.Errorf("a run takes up %v of the front end, runs at most %v of it, expected 2 threads/2 nodes/2/.75 and .75", perRun, share)
	}
	if got := p.FrontEndRequests(); (got - 2500*time.Microsecond*4/3).Abs() > time.Nanosecond {
		t.Errorf("a request takes the front end up for %v without its runs, expected 5/2/.75 ms", got)
	}
	p.FrontEnd.Cores = 16
	if _, share := p.FrontEndRuns(); math.Abs(share-2/12.) > 1e-6 {
		t.Errorf("runs take up to %v of 16 CPUs, expected two threads of 12", share)
	}
	p.FrontEnd.Cores = 2
	// Runs may be elsewhere, so the bound counts costs alone: 3*4 + 2*8 ms on 2 CPUs.
	if got := p.FrontEndBound(); math.Abs(got-2/.028) > 1e-9 {
		t.Errorf("bound %v, expected 2/(28 ms)", got)
	}
	p.FrontEnd = nil
	if p.FrontEndTime() != 0 || !math.IsInf(p.FrontEndRate(), 1) || !math.IsInf(p.FrontEndBound(), 1) {
		t.Error("a front end that is not known limits something")
	}
}
