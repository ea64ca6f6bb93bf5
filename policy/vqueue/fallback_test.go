package vqueue_test

import (
	"slices"
	"testing"
	"time"

	"inferplan/bench/qlm/rules"
	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// steadyRequests is requests of a model that come at a rate for a time.
func steadyRequests(rate float64, from, to time.Duration, model, outputs int32) []testRequest {
	var out []testRequest
	for at := from; at < to; at += time.Duration(float64(time.Second) / rate) {
		out = append(out, testRequest{at, model, outputs})
	}
	return out
}

// countLate counts requests that end after their SLO.
func countLate(tab *policy.Tables, p *play, list []testRequest, model int32) (n int) {
	for i, a := range list {
		if a.model == model && (p.endTimes[i] == 0 || p.endTimes[i] > a.arrivedAt+tab.Models[a.model].SLO) {
			n++
		}
	}
	return n
}

// byTime is lists of requests as one, in order of arrival.
func byTime(lists ...[]testRequest) []testRequest {
	all := slices.Concat(lists...)
	slices.SortStableFunc(all, func(a, b testRequest) int { return int(a.arrivedAt - b.arrivedAt) })
	return all
}

// addScaler adds instances that come and go to options. It returns how long they were on up to a time.
func addScaler(opt *vqueue.Options, scale rules.Scale) (used func(until time.Duration) time.Duration) {
	var x *rules.Scaling
	opt.NewScaler = func(s *vqueue.InstanceControl) vqueue.Scaler {
		x = rules.NewScaling(s, scale)
		return x
	}
	return func(until time.Duration) time.Duration { return x.Used(until) }
}

// TestScaleUp: an instance that is off does nothing before the delay has passed, the
// fleet grows until deadlines are kept, and shrinks when it idles.
func TestScaleUp(t *testing.T) {
	list := byTime(steadyRequests(25, 0, 40*time.Second, 0, 100), steadyRequests(0.2, 60*time.Second, 200*time.Second, 0, 100))
	for _, opt := range []vqueue.Options{{}, {Rule: vqueue.EDF}, {NewDispatcher: rules.Gateway}} {
		used := addScaler(&opt, rules.Scale{From: 1, Delay: 3 * time.Second, Hold: 10 * time.Second})
		tab := instanceTables([]int32{0, 0, 0, 0}, 1, 4) // one does about 9 a second
		p := playRequests(t, tab, opt, list)
		first := time.Hour
		for i := range list {
			if p.starts[i] > 0 {
				first = min(first, p.starts[i])
			}
		}
		on := used(200*time.Second).Seconds() / 200
		missed := 0
		for i, a := range list {
			if a.arrivedAt > 30*time.Second && p.endTimes[i] > a.arrivedAt+tab.Models[0].SLO {
				missed++
			}
		}
		if p.maxRunning[[2]int32{1, 0}] == 0 || missed > 0 {
			t.Errorf("%+v: %v ran at most, %d late after half a minute", opt, p.maxRunning, missed)
		}
		if on < 1.2 || on > 2.5 {
			t.Errorf("%+v: %.2f instances were on in the mean of 200 s", opt, on)
		}
	}
}

// TestScaleDelay: until the delay has passed one instance does all.
func TestScaleDelay(t *testing.T) {
	tab := instanceTables([]int32{0, 0}, 1, 1)
	var opt vqueue.Options
	addScaler(&opt, rules.Scale{From: 1, Delay: 20 * time.Second})
	p := playRequests(t, tab, opt, sameRequests(100, 0, 0, 100))
	busy := map[time.Duration]int{}
	for i := range p.starts {
		busy[p.starts[i].Truncate(10*time.Second)]++
	}
	if early, after := busy[0]+busy[10*time.Second], busy[20*time.Second]; early > 46 || after < 35 {
		t.Errorf("%d start in the first 20 s on one instance, %d in ten seconds on two", early, after)
	}
}

// TestQueueLimit: what comes while as many wait as may is dropped at once.
func TestQueueLimit(t *testing.T) {
	for rule, opt := range []vqueue.Options{{}, {Rule: vqueue.FCFS}, {NewDispatcher: rules.Gateway}, {NewDispatcher: rules.Shepherd}} {
		opt.QueueLimit = 5
		tab := instanceTables([]int32{0}, 1, 4)
		p := playRequests(t, tab, opt, sameRequests(50, 0, 0, 100))
		batch := 4
		if rule == 3 {
			batch = 1 // it is filled once, with the first
		}
		if n := len(p.dropReasons); n != 50-batch-5 {
			t.Errorf("rule %d: %d are dropped, want %d", rule, n, 50-batch-5)
		}
		for requestNumber, why := range p.dropReasons {
			if why != policy.ReasonQueueFull || p.endTimes[requestNumber] > 0 {
				t.Errorf("rule %d: request %d is dropped for %v", rule, requestNumber, why)
			}
		}
	}
}

// TestEDFAbove: in hopeless overload queues are ordered by deadline.
func TestEDFAbove(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 1)
	tab.Models[0].SLO, tab.Models[1].SLO = 3*time.Second, 4*time.Second
	list := slices.Concat(sameRequests(30, 0, 1, 100), sameRequests(30, 100*time.Millisecond, 0, 100))
	order := func(above float64) (first int) {
		p := playRequests(t, tab, vqueue.Options{GroupBatches: 5, EDFAbove: above}, list)
		for i := 30; i < 60; i++ {
			if p.starts[i] < 15*time.Second {
				first++
			}
		}
		return first
	}
	if with, without := order(0.3), order(0); with < 28 || with <= without {
		t.Errorf("%d of the earlier deadlines are in the first half by deadline, %d without", with, without)
	}
}

// TestGatewayCapsTheSecondBand: batch requests fill instances while nobody else is
// there, and leave room once the first band is late.
func TestGatewayCapsTheSecondBand(t *testing.T) {
	tab := instanceTables([]int32{0}, 1, 16)
	list := byTime(sameRequests(400, 0, 1, 400), steadyRequests(3, 20*time.Second, 60*time.Second, 0, 350))
	gate := playRequests(t, tab, vqueue.Options{NewDispatcher: rules.Gateway}, list)
	if n := gate.maxRunning[[2]int32{0, 1}]; n < 14 {
		t.Errorf("alone, %d batch requests run at once", n)
	}
	first := playRequests(t, tab, vqueue.Options{Rule: vqueue.FCFS}, list)
	if g, f := countLate(tab, gate, list, 0), countLate(tab, first, list, 0); g*4 > f {
		t.Errorf("%d requests of the first band are late, first come, first served %d", g, f)
	}
}

// TestDealtRequestsAreEvenAndSeeded: dealt in turn, instances have the same number; at random they have
// not, and a seed has one course.
func TestDealtRequestsAreEvenAndSeeded(t *testing.T) {
	tab := instanceTables([]int32{0, 0, 0, 0}, 1, 4)
	list := sameRequests(200, 0, 0, 50)
	counts := func(opt vqueue.Options) []int {
		opt.NoReplan = true
		pol, err := vqueue.New(tab, opt)
		if err != nil {
			t.Fatal(err)
		}
		var out policy.Actions
		for i := range list {
			pol.Handle(0, &policy.Event{Kind: policy.Arrival, Req: int32(i), Tokens: 200, Deadline: time.Minute}, &out)
		}
		return pol.WaitingPerQueue()
	}
	dealt := vqueue.Options{DisabledLSOs: [5]bool{vqueue.Balancing: true}}
	turn := counts(dealt)
	if slices.Max(turn)-slices.Min(turn) > 1 {
		t.Errorf("in turn: %v wait", turn)
	}
	dealt.NewDealer, dealt.Seed = rules.Random, 1
	random := counts(dealt)
	if slices.Max(random)-slices.Min(random) < 2 || !slices.Equal(random, counts(dealt)) {
		t.Errorf("at random: %v wait, and again %v", random, counts(dealt))
	}
}

// TestBusiestNetworksGetMoreInstances: with as many instances as networks each has one, with more the
// busiest have them, with fewer the rest share one.
func TestBusiestNetworksGetMoreInstances(t *testing.T) {
	for _, c := range []struct {
		instances int
		rates     []float64 // of networks
		want      []int     // devices of each
	}{
		{3, []float64{1, 1, 1}, []int{1, 1, 1}},
		{6, []float64{8, 1, 1}, []int{4, 1, 1}},
		{2, []float64{8, 1, 1}, []int{1, 1, 1}},
		{1, []float64{8, 1, 1}, []int{1, 1, 1}},
	} {
		tab := instanceTables(make([]int32, c.instances), len(c.rates), 4)
		for m := range tab.Models {
			tab.Models[m].RPS = c.rates[m/2]
		}
		only := rules.Partition(tab)
		for n, devices := range only {
			if len(devices) != c.want[n] {
				t.Errorf("%d instances, rates %v: network %d has %v", c.instances, c.rates, n, devices)
			}
		}
		if c.instances == 2 && (slices.Contains(only[1], only[0][0]) || only[1][0] != only[2][0]) {
			t.Errorf("two instances: %v", only)
		}
		p := playRequests(t, tab, vqueue.Options{Rule: vqueue.EDF, AllowedDevices: only}, slices.Concat(sameRequests(20, 0, 0, 50), sameRequests(20, 0, 2, 50), sameRequests(20, 0, 4, 50)))
		for k := range p.maxRunning {
			if !slices.Contains(only[k[1]/2], k[0]) {
				t.Errorf("%d instances: model %d ran on device %d", c.instances, k[1], k[0])
			}
		}
	}
}
