package gear

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"inferplan/policy"
)

const ms = time.Millisecond

// tables are two devices with two models on both, and two gears: up to 100 rps
// the small model asks the large one below level 2, above that below level 1.
func tables() *policy.Tables {
	t := &policy.Tables{
		Models:    []policy.Model{{Name: "cascade", SLO: 400 * ms, Percentile: .95, RPS: 200, NumPipelines: 2}},
		Pipelines: []policy.Pipeline{{Batch: 4, FirstStage: 0, NumStages: 1}, {Batch: 2, FirstStage: 1, NumStages: 1}},
		Stages: []policy.Stage{
			{Pipeline: 0, FirstDevice: 0, NumDevices: 2, LastBlock: 1, Infer: []time.Duration{2 * ms, 3 * ms, 4 * ms, 5 * ms}},
			{Pipeline: 1, FirstDevice: 2, NumDevices: 2, LastBlock: 1, Infer: []time.Duration{10 * ms, 15 * ms}},
		},
		Devices:      []policy.Device{{Share: 1, Uplink: -1, Downlink: -1}, {Share: 1, GPU: 1, Uplink: -1, Downlink: -1}},
		StageDevices: []int32{0, 1, 0, 1}, Kinds: []string{"device"}, KindCounts: []int32{2},
	}
	stages := func(below int32) []Stage {
		return []Stage{{Pipeline: 0, ForwardBelow: below, MinQueue: 1, ReplicaShares: []float64{.75, .25}}, {Pipeline: 1, MinQueue: 1, ReplicaShares: []float64{.5, .5}}}
	}
	g := &Tables{PipelineModels: []string{"small", "large"}, Thresholds: [][]float64{{.3, .6}, {.3, .6}}, MaxQPS: 200,
		Gears: []Gear{{ToQPS: 100, Stages: stages(2)}, {ToQPS: 200, Stages: stages(1)}}}
	rng := rand.New(rand.NewPCG(1, 2))
	g.Records.Samples = 1000
	for range 2 {
		var levels []uint8
		var correct []bool
		for range g.Records.Samples {
			levels = append(levels, uint8(rng.IntN(3)))
			correct = append(correct, rng.IntN(10) > 2)
		}
		g.Records.Levels, g.Records.Correct = append(g.Records.Levels, levels), append(g.Records.Correct, correct)
	}
	t.KindTables = g
	return t
}

// TwoModels are for tests outside of the package, which may import the simulator.
var TwoModels = tables

// script drives a policy by hand.
type script struct {
	t   *testing.T
	p   *Policy
	out policy.Actions
	now time.Duration
}

func newScript(t *testing.T, change func(*policy.Tables, *Options)) *script {
	tab := tables()
	opt := DefaultOptions(tab)
	opt.Window, opt.Hysteresis, opt.RefuseLate = 100*ms, 2, false
	if change != nil {
		change(tab, &opt)
	}
	p, err := New(tab, opt)
	if err != nil {
		t.Fatal(err)
	}
	return &script{t: t, p: p}
}

// handleAt feeds an event and returns what was done.
func (s *script) handleAt(now time.Duration, ev policy.Event) []policy.Action {
	s.now = now
	s.out.Reset()
	s.p.Handle(now, &ev, &s.out)
	return s.out.List
}

func kinds(list []policy.Action) (out []policy.ActionKind) {
	for _, a := range list {
		out = append(out, a.Kind)
	}
	return out
}

// A request goes on while its answer is below the level, then it is complete.
func TestAnswersBelowTheLevelAreForwarded(t *testing.T) {
	s := newScript(t, nil)
	got := s.handleAt(0, policy.Event{Kind: policy.Arrival, Req: 0})
	if !slices.Equal(kinds(got), []policy.ActionKind{policy.Wake, policy.Dispatch}) || got[1].Pipeline != 0 || got[1].Device != 0 {
		t.Fatalf("first arrival: %+v", got)
	}
	if got = s.handleAt(2*ms, policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1}); len(got) != 0 {
		t.Fatalf("an answer below the level: %+v, expected to wait for the end of the batch", got)
	}
	got = s.handleAt(2*ms, policy.Event{Kind: policy.BatchFinished, Batch: 0, Device: 0})
	if len(got) != 1 || got[0].Kind != policy.Dispatch || got[0].Pipeline != 1 {
		t.Fatalf("after the batch: %+v, expected the large model", got)
	}
	d := got[0].Device
	if got = s.handleAt(12*ms, policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 0}); len(got) != 1 || got[0].Kind != policy.Complete {
		t.Fatalf("the last answer: %+v", got)
	}
	s.handleAt(12*ms, policy.Event{Kind: policy.BatchFinished, Batch: d, Device: d})

	s.handleAt(20*ms, policy.Event{Kind: policy.Arrival, Req: 1})
	if got = s.handleAt(22*ms, policy.Event{Kind: policy.ControlRevealed, Req: 1, Value: 2}); len(got) != 1 || got[0].Kind != policy.Complete {
		t.Errorf("a certain answer: %+v", got)
	}
}

// A free device serves its longest queue; batches stop at the planned size.
func TestLongestQueue(t *testing.T) {
	s := newScript(t, func(tab *policy.Tables, _ *Options) {
		for g := range TablesOf(tab).Gears {
			for k := range TablesOf(tab).Gears[g].Stages {
				TablesOf(tab).Gears[g].Stages[k].ReplicaShares = []float64{1, 0}
			}
		}
	})
	s.handleAt(0, policy.Event{Kind: policy.Arrival, Req: 0})
	for r := range int32(3) {
		s.handleAt(ms, policy.Event{Kind: policy.Arrival, Req: r + 1})
	}
	s.handleAt(2*ms, policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 0})
	got := s.handleAt(2*ms, policy.Event{Kind: policy.BatchFinished, Device: 0})
	if len(got) != 1 || got[0].Pipeline != 0 || got[0].Size != 3 {
		t.Fatalf("one at the large model, three at the small one: %+v", got)
	}
	for r := range int32(3) {
		s.handleAt(6*ms, policy.Event{Kind: policy.ControlRevealed, Req: r + 1, Value: 0})
	}
	s.handleAt(6*ms, policy.Event{Kind: policy.Arrival, Req: 4})
	got = s.handleAt(6*ms, policy.Event{Kind: policy.BatchFinished, Device: 0})
	if len(got) != 1 || got[0].Pipeline != 1 || got[0].Size != 2 || s.out.Tasks[0] != 0 {
		t.Fatalf("four at the large model: %+v %v, expected its two oldest", got, s.out.Tasks)
	}
}

// While requests are refused, of two queues that fill a batch the one goes first whose head arrived first, not the longer one.
func TestFullBatchesUnderOverload(t *testing.T) {
	for _, c := range []struct {
		missing  float64 // share of the last arrivals that would miss their deadline
		pipeline int32
	}{{0, 0}, {1, 1}} {
		s := newScript(t, func(tab *policy.Tables, o *Options) {
			o.RefuseLate = true
			for g := range TablesOf(tab).Gears {
				for k := range TablesOf(tab).Gears[g].Stages {
					TablesOf(tab).Gears[g].Stages[k].ReplicaShares = []float64{1, 0}
				}
			}
		})
		for r := range int32(2) {
			s.handleAt(0, policy.Event{Kind: policy.Arrival, Req: r, Deadline: time.Second})
		}
		s.handleAt(2*ms, policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 0})
		s.handleAt(2*ms, policy.Event{Kind: policy.BatchFinished, Device: 0}) // the second request runs
		for r := range int32(6) {
			s.handleAt(3*ms, policy.Event{Kind: policy.Arrival, Req: r + 2, Deadline: time.Second})
		}
		s.handleAt(4*ms, policy.Event{Kind: policy.ControlRevealed, Req: 1, Value: 0})
		s.p.refusals.missShare = c.missing
		got := s.handleAt(4*ms, policy.Event{Kind: policy.BatchFinished, Device: 0})
		if len(got) != 1 || got[0].Kind != policy.Dispatch || got[0].Pipeline != c.pipeline {
			t.Errorf("%v would miss their deadline: %+v, expected a batch of pipeline %d", c.missing, got, c.pipeline)
		}
	}
}

// A short queue waits for the least length, but not longer than the flush time.
func TestShortQueueWaitsUntilFlushed(t *testing.T) {
	s := newScript(t, func(tab *policy.Tables, _ *Options) { TablesOf(tab).Gears[0].Stages[0].MinQueue = 3 })
	got := s.handleAt(5*ms, policy.Event{Kind: policy.Arrival, Req: 0})
	if len(got) != 2 || got[1].Kind != policy.Wake || got[1].Tag != flushTag || got[1].At != 105*ms {
		t.Fatalf("%+v, expected a wake at 105 ms", got)
	}
	got = s.handleAt(105*ms, policy.Event{Kind: policy.Timer, Value: flushTag})
	if len(got) != 1 || got[0].Kind != policy.Dispatch || got[0].Size != 1 {
		t.Errorf("%+v, expected the flushed request", got)
	}
}

// Up at once; down only after the hysteresis and not while requests queue.
func TestSlowerGearWaitsForHysteresisAndQueue(t *testing.T) {
	s := newScript(t, nil)
	window := func(now time.Duration, arrivals int64) bool {
		s.p.windowArrivals = arrivals
		return slices.Contains(kinds(s.handleAt(now, policy.Event{Kind: policy.Timer, Value: windowTag})), policy.SwitchMode)
	}
	s.handleAt(0, policy.Event{Kind: policy.Arrival, Req: 0})
	for i, c := range []struct {
		arrivals int64
		queued   int
		gear     int
	}{
		{9, 0, 0}, {10, 0, 1}, {1, 0, 1}, {1, 0, 0}, // 100 rps is the second range; two windows below to come back
		{15, 0, 1}, {1, 0, 1}, {12, 0, 1}, {1, 0, 1}, {1, 0, 0}, // a window above starts the count again
		{15, 0, 1}, {1, 9, 1}, {1, 9, 1}, {1, 9, 1}, {1, 0, 0}, // queued at the first model: 10 rps < 8 * 9
		{0, 9, 0}, {15, 9, 1}, // never in the way of a faster gear
	} {
		q := &s.p.fleet.queues[0]
		q.Len += int32(c.queued)
		before := s.p.Gear()
		switched := window(time.Duration(i+1)*100*ms, c.arrivals)
		q.Len -= int32(c.queued)
		if s.p.Gear() != c.gear || switched != (before != c.gear) {
			t.Fatalf("window %d: gear %d, expected %d", i, s.p.Gear(), c.gear)
		}
		for d := range s.p.fleet.devices { // what the phantom queue length let start
			s.p.fleet.devices[d].activeBatches = 1
		}
	}
}

// A request keeps the thresholds under which it came.
func TestRequestKeepsGear(t *testing.T) {
	s := newScript(t, nil)
	s.handleAt(0, policy.Event{Kind: policy.Arrival, Req: 0})
	s.p.setGear(1)
	s.handleAt(ms, policy.Event{Kind: policy.Arrival, Req: 1})
	if got := s.handleAt(2*ms, policy.Event{Kind: policy.ControlRevealed, Req: 0, Value: 1}); len(got) != 0 {
		t.Errorf("%+v, level 1 goes on in the gear of the request", got)
	}
	if got := s.handleAt(2*ms, policy.Event{Kind: policy.ControlRevealed, Req: 1, Value: 1}); len(got) != 1 || got[0].Kind != policy.Complete {
		t.Errorf("%+v, level 1 is enough in the gear of the request", got)
	}
}

func TestOptionsSurviveARoundTrip(t *testing.T) {
	tab := tables()
	o := DefaultOptions(tab)
	back, err := ParseOptions(tab, o.Parameters())
	if err != nil || back != o {
		t.Errorf("%+v, %v, expected %+v", back, err, o)
	}
	for _, params := range []map[string]float64{{"windw": 1}, {"window_us": 0}, {"alpha": -1}, {"hysteresis": 1.5}, {"alpha": 1e300}} {
		if _, err := ParseOptions(tab, params); err == nil {
			t.Errorf("%v: no error", params)
		}
	}
	for _, c := range []struct {
		width      float64
		window     time.Duration
		hysteresis int
	}{{760, 100 * ms, 5}, {100, 300 * ms, 2}, {6, time.Second, 1}} {
		if w, h := WindowFor(c.width); w != c.window || h != c.hysteresis {
			t.Errorf("ranges of %v rps: window %v, hysteresis %d, expected %v and %d", c.width, w, h, c.window, c.hysteresis)
		}
	}
}

// In steady state no event allocates.
func TestNoAllocation(t *testing.T) {
	s := newScript(t, nil)
	cycle := func() {
		for r := range int32(8) {
			s.handleAt(s.now+ms, policy.Event{Kind: policy.Arrival, Req: r})
		}
		for left := int32(8); left > 0; {
			for d := range int32(2) {
				if s.p.fleet.devices[d].activeBatches > 0 {
					members := s.p.fleet.requestsOf(d)
					for _, r := range members {
						for _, a := range s.handleAt(s.now, policy.Event{Kind: policy.ControlRevealed, Req: r, Value: int64(r % 3)}) {
							if a.Kind == policy.Complete {
								left--
							}
						}
					}
					s.handleAt(s.now+ms, policy.Event{Kind: policy.BatchFinished, Device: d, Batch: d})
				}
			}
		}
		s.handleAt(s.now+ms, policy.Event{Kind: policy.Timer, Value: windowTag})
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n > 0 {
		t.Errorf("%v allocations per cycle", n)
	}
}
