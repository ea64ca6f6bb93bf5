package vqueue_test

import (
	"slices"
	"testing"
	"time"

	"inferplan/bench/qlm/rules"
	"inferplan/formats"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// testRequest is a request of a play.
type testRequest struct {
	arrivedAt time.Duration
	model     int32
	outputs   int32
}

// playRequests plays requests over tables, and notes starts, drops and how many run.
func playRequests(t *testing.T, tab *policy.Tables, opt vqueue.Options, list []testRequest) *play {
	t.Helper()
	pol, err := vqueue.New(tab, opt)
	if err != nil {
		t.Fatal(err)
	}
	return playPolicy(t, tab, pol, list)
}

// checkedPolicy is a policy that play can check.
type checkedPolicy interface {
	policy.Policy
	Check() error
	OpenRequests() int
}

// playPolicy plays requests with a policy.
func playPolicy(t *testing.T, tab *policy.Tables, pol checkedPolicy, list []testRequest) *play {
	t.Helper()
	n := len(list)
	p := &play{t: tab, pol: pol, starts: make([]time.Duration, n), endTimes: make([]time.Duration, n), dropReasons: map[int32]policy.DropReason{}, runningCounts: map[[2]int32]int{}, maxRunning: map[[2]int32]int{}}
	for i, a := range list {
		p.outputs, p.models = append(p.outputs, a.outputs), append(p.models, a.model)
		p.schedule(a.arrivedAt, policy.Event{Kind: policy.Arrival, Req: int32(i), Task: int32(i), Model: a.model, Service: a.model, Tokens: 200, Limit: 400, ArrivedAt: a.arrivedAt, Deadline: a.arrivedAt + tab.Models[a.model].SLO}, nil)
	}
	p.run(t)
	if err := pol.Check(); err != nil || pol.OpenRequests() > 0 {
		t.Fatalf("%d requests are left over: %v", pol.OpenRequests(), err)
	}
	return p
}

// sameRequests is n requests of a model at a time.
func sameRequests(n int, at time.Duration, model, outputs int32) []testRequest {
	return slices.Repeat([]testRequest{{at, model, outputs}}, n)
}

// TestDueTimes: when a request has to be where follows from what its SLO is of.
func TestDueTimes(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 8) // a request stays .45 s, its first token comes after .054 s
	ev := policy.Event{ArrivedAt: time.Second, Deadline: 3 * time.Second}
	for _, c := range []struct {
		of      string
		waiting time.Duration
		due     time.Duration
		lead    time.Duration
	}{
		{formats.FigureE2E, 0, 3 * time.Second, 450 * time.Millisecond},
		{"", 0, 3 * time.Second, 450 * time.Millisecond},
		{formats.FigureTTFT, 0, 3 * time.Second, 54 * time.Millisecond},
		{formats.FigureTPOT, 0, time.Second + 10*time.Minute, 0},
		{formats.FigureE2E, 500 * time.Millisecond, 1500 * time.Millisecond, 0},
		{formats.FigureE2E, 1900 * time.Millisecond, 3 * time.Second, 450 * time.Millisecond}, // the answer asks for an earlier start
		{formats.FigureTTFT, 1900 * time.Millisecond, 2900 * time.Millisecond, 0},
		{formats.FigureTPOT, 500 * time.Millisecond, 1500 * time.Millisecond, 0},
	} {
		tab.Models[0].SLOFigure, tab.Models[0].WaitSLO = c.of, c.waiting
		pol, err := vqueue.New(tab, vqueue.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if due, lead := pol.DueAndLead(&ev); due != c.due || lead.Round(time.Millisecond) != c.lead {
			t.Errorf("SLO of %q, waiting %v: due at %v with a lead of %v, want %v and %v", c.of, c.waiting, due, lead, c.due, c.lead)
		}
	}
}

// TestTTFTStartsLater: of two classes with the same SLO the one that asks for the
// whole answer goes first where both wait.
func TestTTFTStartsLater(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 1)
	tab.Models[0].SLO, tab.Models[1].SLO = 10*time.Second, 10*time.Second
	tab.Models[0].SLOFigure = formats.FigureTTFT
	// Ten of each take 9 s on their own: the last of those that ask for an answer is late
	// if the others go first.
	p := playRequests(t, tab, vqueue.Options{}, slices.Concat(sameRequests(10, 0, 0, 100), sameRequests(10, 0, 1, 100)))
	late := 0
	for i := 10; i < 20; i++ {
		if p.endTimes[i] > 10*time.Second {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d answers are late", late)
	}
	for i := range 10 {
		if p.starts[i]+54*time.Millisecond > 10*time.Second {
			t.Errorf("first token %d comes at %v", i, p.starts[i])
		}
	}
}

// TestPrioritiesAreStrict: what is more urgent starts before all that wait with a
// higher number, whatever the deadlines.
func TestPrioritiesAreStrict(t *testing.T) {
	for _, opt := range []vqueue.Options{{}, {AppendGroups: true}, {OneOpenGroup: true, GroupBatches: 1}, {Rule: vqueue.FCFS}, {Rule: vqueue.EDF}, {NewDispatcher: rules.Gateway}} {
		tab := instanceTables([]int32{0}, 1, 2)
		tab.Models[0].Priority, tab.Models[1].Priority = 1, 0 // the one with the long SLO is the more urgent
		p := playRequests(t, tab, opt, slices.Concat(sameRequests(30, 0, 0, 100), sameRequests(10, 500*time.Millisecond, 1, 100)))
		last := slices.Max(p.starts[30:])
		for i := range 30 {
			if p.starts[i] > 500*time.Millisecond && p.starts[i] < last {
				t.Errorf("%+v: a request of the lower priority starts at %v, one of the higher at %v", opt, p.starts[i], last)
				break
			}
		}
	}
}

// TestCapsHold: no more of a class than its cap run at once on an instance, and what
// is behind them passes.
func TestCapsHold(t *testing.T) {
	for _, opt := range []vqueue.Options{{}, {Rule: vqueue.FCFS}, {Rule: vqueue.EDF}, {NewDispatcher: rules.Gateway}, {DisabledLSOs: [5]bool{vqueue.Balancing: true}}} {
		tab := instanceTables([]int32{0, 0}, 1, 8)
		vqueue.TablesOf(tab).Caps = []int32{-1, 2, -1, 3}
		p := playRequests(t, tab, opt, slices.Concat(sameRequests(40, 0, 1, 200), sameRequests(10, time.Second, 0, 50)))
		if p.maxRunning[[2]int32{0, 1}] > 2 || p.maxRunning[[2]int32{1, 1}] > 3 {
			t.Errorf("%+v: %v run at once, capped at 2 and 3", opt, p.maxRunning)
		}
		if opt.Rule == vqueue.FCFS || opt.NewDispatcher != nil {
			continue // the order may have the others wait
		}
		if first := slices.Min(p.starts[40:]); first > 1100*time.Millisecond {
			t.Errorf("%+v: behind a class at its cap a request waits until %v", opt, first)
		}
	}
}

// TestFleetIsSplitByClass: a cap of 0 keeps a class away.
func TestFleetIsSplitByClass(t *testing.T) {
	for _, opt := range []vqueue.Options{{}, {Rule: vqueue.EDF}, {NewDispatcher: rules.Gateway}, {AppendGroups: true, NoReplan: true}} {
		tab := instanceTables([]int32{0, 0, 0}, 1, 4)
		vqueue.TablesOf(tab).Caps = []int32{-1, 0, 0, -1, 0, -1}
		p := playRequests(t, tab, opt, slices.Concat(sameRequests(60, 0, 0, 50), sameRequests(60, 0, 1, 100)))
		for k, n := range p.maxRunning {
			if (k[0] == 0) != (k[1] == 0) {
				t.Errorf("%+v: %d of class %d ran on instance %d", opt, n, k[1], k[0])
			}
		}
	}
}

// TestTimePerTokenLimitsTheBatch: while a class with an SLO on the time per token
// runs, no more run beside it than keep it, and all where none does.
func TestTimePerTokenLimitsTheBatch(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 8)
	vqueue.TablesOf(tab).MaxSequences = []int32{3, 3, 0, 0}
	p := playRequests(t, tab, vqueue.Options{}, slices.Concat(sameRequests(20, 0, 1, 100), sameRequests(10, 5*time.Second, 0, 100), sameRequests(20, 5*time.Second, 1, 100)))
	if n := p.maxRunning[[2]int32{0, 1}]; n != 8 {
		t.Errorf("alone %d of the second class run at once, want 8", n)
	}
	if n := p.maxRunning[[2]int32{0, 0}]; n > 3 {
		t.Errorf("%d of the first class run at once, want at most 3", n)
	}
}

// TestMaxConcurrencyGrowsWithTheSLO: the batch that keeps a time per token grows with the SLO, and falls
// with the share that has to keep it.
func TestMaxConcurrencyGrowsWithTheSLO(t *testing.T) {
	r := vqueue.RCT{Alpha: 7e-5, Beta: 4e-4, Decode: 0.05, DecodeAlone: 0.015, Batch: 64, PromptMean: 1155, PromptVar: 1e6, OutputMean: 200}
	if n := r.MaxConcurrency(0.001, 0.9); n != 1 {
		t.Errorf("an SLO below the time alone allows %d", n)
	}
	if n := r.MaxConcurrency(1, 0.99); n != 64 {
		t.Errorf("a long SLO allows %d of 64", n)
	}
	half, most := r.MaxConcurrency(0.035, 0.5), r.MaxConcurrency(0.035, 0.99)
	if !(1 < most && most < half && half < 64) {
		t.Errorf("35 ms for half of the requests allow %d, for 99 %% %d", half, most)
	}
	if at, past := r.TimePerToken(float64(most)).Quantile(0.99), r.TimePerToken(float64(most+1)).Quantile(0.99); at > 0.035 || past <= 0.035 {
		t.Errorf("%d take %v s per token, one more %v", most, at, past)
	}
}
