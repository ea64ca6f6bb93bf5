package executor

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/executor/turn"
	"inferplan/executor/workers"
	"inferplan/formats"
	"inferplan/formats/document"
)

// pooledPlan is two models on two kinds of CPU devices with different
// profiles. m is cut in two: its first stage on two slow devices, its second
// on two fast ones, any first with any second; a second pipeline runs it whole
// on a fast device. n runs whole on a slow device.
func pooledPlan(unit time.Duration, batch int, slo time.Duration) *formats.Plan {
	p := twoStagePlan(4*unit, batch, slo)
	p.Pools = []formats.Pool{
		{Device: "cpu-a", Count: 3, PerNode: 3, Sharing: formats.SharingTime}, {Device: "cpu-b", Count: 3, PerNode: 3, Sharing: formats.SharingTime},
	}
	m := &p.Deployment[0]
	formats.PoolOf(p).Models[0].SLOUS = us(slo)
	first, second := &m.Pipelines[0].Stages[0], &m.Pipelines[0].Stages[1]
	first.Device, first.Replicas, first.GPUs, first.Placement = "cpu-a", 2, 2, []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 2}}
	second.Device, second.Replicas, second.GPUs, second.Placement = "cpu-b", 2, 2, []formats.Placement{{FirstDevice: 0, PerDevice: 1, Replicas: 2}}
	second.InferUS = flat(3*unit, batch)
	whole := *second
	whole.Blocks, whole.Replicas, whole.GPUs, whole.InferUS = [2]int{0, 2}, 1, 1, flat(5*unit, batch)
	whole.Placement = []formats.Placement{{FirstDevice: 2, PerDevice: 1, Replicas: 1}}
	m.Pipelines = append(m.Pipelines, formats.Pipeline{Batch: batch, RPS: 100, Stages: []formats.Stage{whole}})
	n := *m
	n.Model = "n"
	alone := whole
	alone.Device, alone.InferUS = "cpu-a", flat(8*unit, batch)
	alone.Placement = []formats.Placement{{FirstDevice: 2, PerDevice: 1, Replicas: 1}}
	n.Pipelines = []formats.Pipeline{{Batch: batch, RPS: 50, Stages: []formats.Stage{alone}}}
	p.Deployment = append(p.Deployment, n)
	complete(p)
	for i := range p.Deployment {
		formats.PoolOf(p).Models[i].RPS = 100
	}
	return p
}

// busyTimes is how long each device has run so far.
func busyTimes(x *Executor) (out []time.Duration) {
	c := x.core.Load()
	c.Loop.CallInRound(func() {
		for _, d := range workersOf(c).Devices {
			out = append(out, d.BusyTime)
		}
	})
	return out
}

// workersOf is the first backend of a core.
func workersOf(c *turn.Core) *workers.WorkerBackend {
	return c.Backends.BackendOf(0).(*workers.WorkerBackend)
}

// slotsOf counts the request slots that are in use.
func slotsOf(c *turn.Core) (n int) {
	for _, m := range c.ServedModels.Models {
		n += int(m.Waiting.Load() + m.Running.Load())
	}
	return n
}

// held counts request and memory slots that nobody should hold any more.
func held(x *Executor) (requests, slots int) {
	c := x.core.Load()
	c.Loop.CallInRound(func() {
		requests = slotsOf(c)
		for _, d := range workersOf(c).Devices {
			for _, s := range d.Slots {
				if s != nil {
					slots += s.Pool.InUse()
				}
			}
		}
	})
	return requests, slots
}

// Several stages, several workers per stage, two kinds of devices: all of them
// work, and every request is answered once.
func TestPooledPipelinesAnswerEveryRequestOnce(t *testing.T) {
	x := open(t, pooledPlan(3*time.Millisecond, 2, patient), replayOptions(false))
	if got := len(workersOf(x.core.Load()).Devices); got != 6 {
		t.Fatalf("%d devices, want 6", got)
	}
	ended := make(chan map[string]int)
	go func() { ended <- burst(x, 1, 10, 2) }()
	got := burst(x, 0, 200, 2)
	other := <-ended
	if got["served"] != 400 || other["served"] != 20 {
		t.Errorf("m ended as %v, n as %v", got, other)
	}
	for i, busy := range busyTimes(x) {
		if busy == 0 {
			t.Errorf("device %d (%s) did nothing", i, workersOf(x.core.Load()).Devices[i].Kind)
		}
	}
	r := x.Report()
	if int(r.Requests) != total(got)+total(other) || r.Completed+r.Dropped != r.Requests || len(r.Devices) != 2 || r.Devices[0].Count != 3 {
		t.Errorf("report %+v, devices %+v", r.Counts, r.Devices)
	}
	if q, s := held(x); q != 0 || s != 0 {
		t.Errorf("%d request slots and %d memory slots are still held", q, s)
	}
}

// A stage runs ahead of a slower one only as far as there is room for its
// outputs, then it waits: nothing is dropped. Also where both stages share a
// device, so that what would free a slot stands behind what waits for one.
func TestStageWaitsForRoom(t *testing.T) {
	for _, second := range []int{1, 0} {
		t.Run(fmt.Sprintf("second stage on device %d", second), func(t *testing.T) {
			p := twoStagePlan(time.Millisecond, 2, patient)
			st := p.Deployment[0].Pipelines[0].Stages
			st[1].InferUS = flat(8*time.Millisecond, 2)
			st[1].Placement[0].FirstDevice = second
			if second == 0 {
				p.Pools[0].Count = 1
				p.Pools[0].Sharing = formats.SharingTime
				for i := range st {
					st[i].GPUs = .5
				}
			}
			o := replayOptions(false)
			o.Slots = 3
			x := open(t, complete(p), o)
			if got := burst(x, 0, 40, 2); got["served"] != 80 {
				t.Errorf("ended as %v", got)
			}
			if q, s := held(x); q != 0 || s != 0 {
				t.Errorf("%d request slots and %d memory slots are still held", q, s)
			}
		})
	}
}

// A small real graph, cut and spread over pinned thread sets of two kinds,
// answers what it answers whole, whichever workers a batch went through.
func TestPooledPipelinesOfARealModel(t *testing.T) {
	eng := withORT(t)
	dir := t.TempDir()
	g, err := graph.MLP(32, 1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "m.onnx")
	if err := g.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	read, err := graph.Open(path, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := read.Chain(context.Background(), eng.Probe, graph.ChainOptions{MaxLive: 1})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(chain.Cuts, func(c graph.Cut) bool { return c.Bytes == 4*32 })
	if at < 0 {
		t.Fatalf("no cut of 32 floats among %+v", chain.Cuts)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "n.onnx"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	p := pooledPlan(2*time.Millisecond, 2, patient)
	for i := range p.Deployment {
		p.Deployment[i].Inputs, p.Deployment[i].Outputs = nil, nil
	}
	*p.Deployment[0].Pipelines[0].Stages[0].Cut = formats.Cut{Tensors: chain.Cuts[at].Names(), DType: "FP32", Bytes: 4 * 32, TransferUS: make([]document.Micros, 2)}
	o := onnxOptions(dir)
	cpus, err := engine.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	o.CPUPlaces = map[string]workers.CPUPlace{"cpu-a": {CPUs: cpus[:1]}, "cpu-b": {CPUs: cpus[len(cpus)-1:]}}
	x := open(t, p, o)
	whole := sampleOf(x, 1, 2)
	image(whole)
	ref, err := x.Infer(context.Background(), whole)
	if err != nil {
		t.Fatal(err)
	}
	want := floats(ref.Outputs[0].Data)[:10]
	answers := make(chan []float64, 200)
	for range cap(answers) {
		go func() {
			req := sampleOf(x, 0, 1)
			image(req)
			resp, err := x.Infer(context.Background(), req)
			if err != nil {
				t.Error(err)
				answers <- nil
				return
			}
			answers <- floats(resp.Outputs[0].Data)
			resp.Release()
		}()
	}
	for range cap(answers) {
		got := <-answers
		if got == nil {
			continue
		}
		if diff, size := furthest(want, got); diff > 1e-5*math.Max(size, 1e-9) || len(got) != 10 {
			t.Fatalf("answer differs by %g of %g", diff, size)
		}
	}
	for i, busy := range busyTimes(x) {
		if busy == 0 {
			t.Errorf("device %d (%s) did nothing", i, workersOf(x.core.Load()).Devices[i].Kind)
		}
	}
}
