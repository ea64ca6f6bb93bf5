package gear_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy"
	"inferplan/policy/gear"
	"inferplan/policy/policies"
	"inferplan/sim"
)

const ms = time.Millisecond

// deployment is a pipeline of a model in a hand-written plan.
type deployment struct {
	batch  int
	stages []formats.Stage
}

// oneBlockStage is a stage of one block on count devices of a kind from first on; a batch of b
// takes b times each.
func oneBlockStage(block int, kind string, first, count int, each time.Duration, batch int) formats.Stage {
	s := formats.Stage{Blocks: [2]int{block, block + 1}, Device: kind, Share: 1, Replicas: count, GPUs: .01,
		Placement: []formats.Placement{{FirstDevice: first, PerDevice: 1, Replicas: count}}}
	for b := range batch {
		s.InferUS = append(s.InferUS, document.Micros(time.Duration(b+1)*each))
	}
	return s
}

// pipelineOf is a pipeline of stages, with cuts of a megabyte per sample between them.
func pipelineOf(stages ...formats.Stage) deployment {
	for i := range len(stages) - 1 {
		stages[i].Cut = &formats.Cut{DType: "FP32", Bytes: 1e6}
		for range stages[i].InferUS {
			n := len(stages[i].Cut.TransferUS) + 1
			stages[i].Cut.TransferUS = append(stages[i].Cut.TransferUS, document.Micros(time.Duration(n)*ms))
		}
	}
	return deployment{len(stages[0].InferUS), stages}
}

// cascade is a plan of one gear per share of forwarded samples (of ten): the models
// in their order, each with its pipelines.
func cascade(pools []formats.Pool, levels []int, models ...[]deployment) *formats.Plan {
	const most = 1000.0
	p := &formats.Plan{Format: formats.FormatPlan, Kind: formats.PlanGear, Tool: formats.Tool{Version: "test"}, Algorithm: "hand",
		Objective: formats.Objective{Name: "accuracy", Value: 1}, StoppedBy: "proved", Inputs: []formats.Input{}, Pools: pools,
		Policy: formats.PolicySpec{Name: gear.Name}, Arrivals: &formats.Arrivals{Process: "poisson"},
		Options: document.NewValues(formats.PlanOptions(formats.PlanGear)),
		Section: &formats.GearPlan{SLOUS: document.Micros(time.Second), Percentile: "p95", MaxQPS: most, Weights: "uniform", Samples: 10}}
	for m, pipelines := range models {
		name := fmt.Sprintf("m%d", m)
		pm := formats.Deployed{Model: name, NumBlocks: len(pipelines[0].stages)}
		for _, d := range pipelines {
			pl := formats.Pipeline{Batch: d.batch, RPS: .01, Stages: d.stages}
			for i := range d.stages {
				s := &d.stages[i]
				s.RPS = .01
				pl.LatencyUS += s.InferUS[d.batch-1]
				if s.Cut != nil {
					pl.LatencyUS += s.Cut.TransferUS[d.batch-1]
				}
			}
			pm.Pipelines = append(pm.Pipelines, pl)
			pm.NumBlocks = len(d.stages)
		}
		p.Deployment = append(p.Deployment, pm)
		g := formats.GearOf(p)
		g.Models = append(g.Models, formats.GearModel{Model: name, Thresholds: []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9}, Levels: "0123456789", Correct: strings.Repeat("1", 10)})
	}
	for i, level := range levels {
		g := formats.Gear{FromQPS: most * float64(i) / float64(len(levels)), ToQPS: most * float64(i+1) / float64(len(levels)), Weight: 1 / float64(len(levels)), Accuracy: 1, Bound: 1}
		for m := range p.Deployment {
			replicas := 0
			for k := range p.Deployment[m].Pipelines {
				replicas += p.Deployment[m].Pipelines[k].ChainCount()
			}
			s := formats.GearStage{Model: p.Deployment[m].Model, Fraction: 1, MinQueue: 1}
			if m < len(models)-1 {
				s.Level, s.Threshold = level, float64(level)/10
			}
			for range replicas {
				s.Split = append(s.Split, 1/float64(replicas))
			}
			g.Stages = append(g.Stages, s)
		}
		formats.GearOf(p).Gears = append(formats.GearOf(p).Gears, g)
	}
	return p
}

// compile makes the policy of a plan, which has to be valid.
func compile(t interface{ Fatal(...any) }, p *formats.Plan) (*policy.Tables, *gear.Policy) {
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	tab, err := policies.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	pol, err := gear.New(tab, gear.OptionsWithoutRefusals(tab))
	if err != nil {
		t.Fatal(err)
	}
	return tab, pol
}

// oldAndNewPools are two kinds of devices on nodes of one, with NICs.
func oldAndNewPools(sharing string, old, fresh int) []formats.Pool {
	return []formats.Pool{
		{Device: "old", Count: old, PerNode: 1, NICGbps: 8, Sharing: sharing},
		{Device: "new", Count: fresh, PerNode: 1, NICGbps: 8, Sharing: sharing},
	}
}

// A lone request crosses its chain stage by stage; replicas pair devices in whole
// numbers.
func TestChainOfTwoKinds(t *testing.T) {
	p := cascade(oldAndNewPools("", 5, 2), []int{9}, []deployment{pipelineOf(oneBlockStage(0, "old", 0, 1, ms, 4))},
		[]deployment{pipelineOf(oneBlockStage(0, "old", 1, 4, 3*ms, 4), oneBlockStage(1, "new", 0, 2, 2*ms, 4))})
	tab, pol := compile(t, p)
	if n := tab.ChainCount(1); n != 4 {
		t.Fatalf("%d chains, expected 4", n)
	}
	for c, want := range [][2]int32{{1, 5}, {2, 5}, {3, 6}, {4, 6}} {
		if a, b := tab.ChainDevice(1, int32(c), 0), tab.ChainDevice(1, int32(c), 1); a != want[0] || b != want[1] {
			t.Errorf("chain %d: devices %d and %d, expected %v", c, a, b, want)
		}
	}
	var out policy.Actions
	pol.Handle(0, &policy.Event{Kind: policy.Arrival}, &out)
	out.Reset()
	pol.Handle(ms, &policy.Event{Kind: policy.ControlRevealed, Value: 0}, &out)
	pol.Handle(ms, &policy.Event{Kind: policy.BatchFinished}, &out)
	if len(out.List) != 1 || out.List[0].Kind != policy.Dispatch || out.List[0].HopCount != 2 {
		t.Fatalf("after the small model: %+v, expected a batch along two stages", out.List)
	}
	a := out.List[0]
	if h := out.Hops; h[0].Device != 1 || h[1].Device != 5 || h[1].XferStart != 4*ms || h[1].Start != 5*ms || h[1].End != 7*ms || h[1].Uplink < 0 || h[1].Downlink < 0 {
		t.Errorf("hops %+v", h)
	}
	out.Reset()
	pol.Handle(4*ms, &policy.Event{Kind: policy.BatchFinished, Batch: a.Batch, Device: 1}, &out)
	pol.Handle(5*ms, &policy.Event{Kind: policy.TransferFinished, Batch: a.Batch, Hop: 1, Device: 5}, &out)
	if len(out.List) != 0 {
		t.Errorf("between the stages: %+v, expected nothing", out.List)
	}
	pol.Handle(7*ms, &policy.Event{Kind: policy.ControlRevealed, Batch: a.Batch, Value: 0}, &out)
	if len(out.List) != 1 || out.List[0].Kind != policy.Complete {
		t.Errorf("behind the last stage: %+v", out.List)
	}
}

// The slowest stage sets a chain's pace: with no stage of several batches at a time,
// what two chains answer under overload is what that stage can do.
func TestSlowestStageSetsThePace(t *testing.T) {
	for _, c := range []struct {
		first, second time.Duration
		chains, fresh int
		rate          float64
	}{
		{2 * ms, 5 * ms, 2, 2, 400}, // the second stage, a device for each chain
		{2 * ms, 5 * ms, 2, 1, 200}, // both chains share its device
		{5 * ms, 2 * ms, 2, 1, 400}, // the first stage
	} {
		p := cascade(oldAndNewPools("", c.chains, c.fresh), []int{9}, []deployment{pipelineOf(oneBlockStage(0, "old", 0, c.chains, c.first, 1), oneBlockStage(1, "new", 0, c.fresh, c.second, 1))})
		tab, pol := compile(t, p)
		w := newWatch(tab, pol)
		m := simulate(t, tab, w, 1.5*c.rate, 10*time.Second).Report.Models[0]
		end := slices.Max(w.until).Seconds()
		took := float64(m.Requests) / c.rate // nothing is dropped: the queue is worked off at the pace
		if m.Completed != m.Requests || math.Abs(end-took) > .03*took {
			t.Errorf("%v then %v on %d: %d of %d answered by %.2f s, expected %.2f s at %.0f rps", c.first, c.second, c.fresh, m.Completed, m.Requests, end, took, c.rate)
		}
	}
}

// What a chain loses with a device is answered by others, and only while a stage
// has no device left is anything dropped.
func TestChainLosesDevices(t *testing.T) {
	p := cascade(oldAndNewPools("", 2, 2), []int{9}, []deployment{pipelineOf(oneBlockStage(0, "old", 0, 2, 2*ms, 4), oneBlockStage(1, "new", 0, 2, 3*ms, 4))})
	tab, pol := compile(t, p)
	m := simulate(t, tab, pol, 200, 10*time.Second, sim.Fault{At: 2 * time.Second, Device: 2}, sim.Fault{At: 4 * time.Second, Device: 2, ComesBack: true},
		sim.Fault{At: 5 * time.Second, Device: 0}, sim.Fault{At: 7 * time.Second, Device: 0, ComesBack: true}).Report.Models[0]
	if m.Requests != m.Completed || m.Requests < 1800 {
		t.Errorf("one device at a time: %d requests, %d answered", m.Requests, m.Completed)
	}
	tab, pol = compile(t, p)
	m = simulate(t, tab, pol, 200, 10*time.Second, sim.Fault{At: 5 * time.Second, Device: 2}, sim.Fault{At: 5 * time.Second, Device: 1},
		sim.Fault{At: 5500 * ms, Device: 1, ComesBack: true}, sim.Fault{At: 6 * time.Second, Device: 2, ComesBack: true}).Report.Models[0]
	if m.Requests != m.Completed+m.Dropped || m.Dropped < 50 || m.Dropped > 160 {
		t.Errorf("half a second without a whole chain: %d requests, %d answered, %d dropped", m.Requests, m.Completed, m.Dropped)
	}
}

// checkedPolicy is a policy that checks what the interpreter tells it of devices.
type checkedPolicy struct {
	policy.Policy
	until     []time.Duration // by device: end of its last run
	hop       map[int32]int16 // by batch: the next stage
	completed map[int32]bool
	wrong     []string
}

func newWatch(tab *policy.Tables, pol policy.Policy) *checkedPolicy {
	return &checkedPolicy{Policy: pol, until: make([]time.Duration, len(tab.Devices)), hop: map[int32]int16{}, completed: map[int32]bool{}}
}

func (w *checkedPolicy) Handle(now time.Duration, ev *policy.Event, out *policy.Actions) {
	switch ev.Kind {
	case policy.Arrival:
		w.completed[ev.Req] = false
	case policy.BatchFinished:
		if ev.Start < w.until[ev.Device] {
			w.wrong = append(w.wrong, fmt.Sprintf("device %d runs from %v, before it is done at %v", ev.Device, ev.Start, w.until[ev.Device]))
		}
		w.until[ev.Device] = ev.End
		if ev.Hop != w.hop[ev.Batch] {
			w.wrong = append(w.wrong, fmt.Sprintf("batch %d at stage %d, expected %d", ev.Batch, ev.Hop, w.hop[ev.Batch]))
		}
		w.hop[ev.Batch]++
	}
	first := len(out.List)
	w.Policy.Handle(now, ev, out)
	for i := range out.List[first:] {
		switch a := &out.List[first+i]; a.Kind {
		case policy.Dispatch:
			w.hop[a.Batch] = 0
		case policy.Complete:
			if done, came := w.completed[a.Req]; done || !came {
				w.wrong = append(w.wrong, fmt.Sprintf("request slot %d is answered twice", a.Req))
			}
			w.completed[a.Req] = true
		}
	}
}

// drawCascade draws a plan of two models, the larger one in chains, on devices that
// they share or not.
func drawCascade(t *rapid.T) *formats.Plan {
	shared := rapid.Bool().Draw(t, "time-shared")
	sharing, old, fresh := "", 8, 4
	if shared {
		sharing = formats.SharingTime
	}
	each := func(name string) time.Duration { return time.Duration(rapid.IntRange(1, 9).Draw(t, name)) * ms }
	batch := rapid.IntRange(1, 4).Draw(t, "batch")
	chains := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "chains")
	part := rapid.SampledFrom([]int{1, 2, 4}).Filter(func(n int) bool { return n <= chains }).Draw(t, "devices of the second stage")
	at := 4 // the chains' first devices: apart from the small model's, or shared with it
	if shared {
		at = rapid.IntRange(0, 4).Draw(t, "first device")
	}
	small := []deployment{pipelineOf(oneBlockStage(0, "old", 0, 2, each("small"), batch))}
	large := []deployment{pipelineOf(oneBlockStage(0, "old", at, chains, each("first stage"), batch), oneBlockStage(1, "new", 0, part, each("second stage"), batch))}
	if shared && rapid.Bool().Draw(t, "three stages") {
		large = append(large, pipelineOf(oneBlockStage(0, "new", 1, 2, each("a"), batch), oneBlockStage(1, "old", 3, 1, each("b"), batch), oneBlockStage(2, "new", 1, 2, each("c"), batch)))
		large[0].stages[1].Blocks[1] = 3
	}
	return cascade(oldAndNewPools(sharing, old, fresh), []int{rapid.IntRange(1, 9).Draw(t, "level"), rapid.IntRange(1, 9).Draw(t, "level")}, small, large)
}

// Over random plans with chains, rates and lost devices: no request is lost or
// answered twice, no device works on two batches at a time, a batch goes through
// its stages in their order. The simulator's own checks run along.
func TestChainsConserveRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, pol := compile(t, drawCascade(t))
		w := newWatch(tab, pol)
		var faults []sim.Fault
		for range rapid.IntRange(0, 3).Draw(t, "faults") {
			d, from := int32(rapid.IntRange(0, len(tab.Devices)-1).Draw(t, "device")), time.Duration(rapid.IntRange(0, 2000).Draw(t, "from"))*ms
			faults = append(faults, sim.Fault{At: from, Device: d})
			if rapid.Bool().Draw(t, "comes back") {
				faults = append(faults, sim.Fault{At: from + time.Duration(rapid.IntRange(1, 900).Draw(t, "for"))*ms, Device: d, ComesBack: true})
			}
		}
		res := runChains(t, tab, w, float64(rapid.IntRange(5, 600).Draw(t, "rate")), 3*time.Second, faults)
		m := res.Report.Models[0]
		if m.Requests != m.Completed+m.Dropped || len(faults) == 0 && m.Dropped > 0 || len(w.wrong) > 0 {
			t.Fatalf("%d requests, %d answered, %d dropped; %v", m.Requests, m.Completed, m.Dropped, w.wrong)
		}
	})
}

// Stages whose replicas do not pair up in whole numbers make no chains, and one
// sequence of kinds is one pipeline: a document and the tables say so.
func TestNoChains(t *testing.T) {
	uneven := func() *formats.Plan {
		return cascade(oldAndNewPools("", 4, 3), []int{9}, []deployment{pipelineOf(oneBlockStage(0, "old", 0, 3, ms, 1), oneBlockStage(1, "new", 0, 2, ms, 1))})
	}
	twice := cascade(oldAndNewPools("", 4, 3), []int{9}, []deployment{pipelineOf(oneBlockStage(0, "old", 0, 1, ms, 1), oneBlockStage(1, "new", 0, 1, ms, 1)), pipelineOf(oneBlockStage(0, "old", 1, 1, ms, 1), oneBlockStage(1, "new", 1, 1, ms, 1))})
	for _, c := range []struct {
		plan *formats.Plan
		at   string
	}{{uneven(), "deployment[0].pipelines[0].stages[1].replicas"}, {twice, "deployment[0].pipelines[1].stages[0].device"}} {
		if err := c.plan.Validate(); err == nil || !strings.Contains(err.Error(), c.at) {
			t.Errorf("%v, expected an error at %s", err, c.at)
		}
	}
	if _, err := policies.Compile(uneven()); err == nil || !strings.Contains(err.Error(), "deployment[0].pipelines[0].stages[1].replicas") {
		t.Errorf("compiling: %v", err)
	}
}

// A lost device takes along what is there, comes from there or has yet to go there,
// and nothing that has left it behind.
func TestLostDeviceAndItsBatches(t *testing.T) {
	p := cascade(oldAndNewPools("", 2, 2), []int{9}, []deployment{pipelineOf(oneBlockStage(0, "old", 0, 2, 2*ms, 4), oneBlockStage(1, "new", 0, 2, 3*ms, 4))})
	for _, c := range []struct {
		events int // of the batch's way that have come
		lost   int32
		abort  bool
	}{{0, 0, true}, {0, 2, true}, {0, 1, false}, {1, 0, true}, {1, 2, true}, {2, 0, false}, {2, 2, true}} {
		_, pol := compile(t, p)
		var out policy.Actions
		pol.Handle(0, &policy.Event{Kind: policy.Arrival}, &out)
		way := []policy.Event{{Kind: policy.BatchFinished}, {Kind: policy.TransferFinished, Hop: 1, Device: 2}}
		for i := range way[:c.events] {
			pol.Handle(ms, &way[i], &out)
		}
		out.Reset()
		pol.Handle(2*ms, &policy.Event{Kind: policy.WorkerLost, Device: c.lost}, &out)
		if got := len(out.List) > 0 && out.List[0].Kind == policy.Abort; got != c.abort {
			t.Errorf("after %d events device %d is lost: %+v, expected an abort: %v", c.events, c.lost, out.List, c.abort)
		}
	}
}
