package vqueue_test

import (
	"slices"
	"testing"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// talk plays conversations on three instances of one network. Each turn comes seconds after the answer to the one before, in another order of
// conversations, and its prompt repeats all of it. slo is the time that a turn has. It returns the policy's play, with the instance of each turn by its
// conversation.
func talk(t *testing.T, opt vqueue.Options, sessions, turns int, slo time.Duration) (p *play, devices [][]int32) {
	t.Helper()
	opt.NoReplan = true
	tab := instanceTables([]int32{0, 0, 0}, 1, 8)
	pol, err := vqueue.New(tab, opt)
	if err != nil {
		t.Fatal(err)
	}
	count := sessions * turns
	p = &play{t: tab, pol: pol, outputs: slices.Repeat([]int32{100}, count), endTimes: make([]time.Duration, count), devices: make([]int32, count)}
	for turn := range turns {
		for s := range sessions {
			req, at := int32(turn*sessions+s), time.Duration(turn)*3*time.Second+time.Duration((7*s+5*turn)%sessions)*20*time.Millisecond
			p.schedule(at, policy.Event{Kind: policy.Arrival, Req: req, Task: req, Model: 1, Service: 1, Tokens: int32(200 + 300*turn), Limit: 400, Key: int64(s + 1), ArrivedAt: at, Deadline: at + slo}, nil)
		}
	}
	p.run(t)
	devices = make([][]int32, sessions)
	for req := range count {
		devices[req%sessions] = append(devices[req%sessions], p.devices[req])
	}
	if slices.Contains(p.endTimes, 0) {
		t.Error("a turn has no answer")
	}
	return p, devices
}

// moves counts the turns that ran elsewhere than the turn before.
func moves(devices [][]int32) (count int) {
	for _, list := range devices {
		for i, device := range list[1:] {
			if device != list[i] {
				count++
			}
		}
	}
	return count
}

// TestSessionsStay: while nobody is late, every turn of a conversation runs where the one before ran. Without regard to sessions turns run anywhere.
func TestSessionsStay(t *testing.T) {
	_, devices := talk(t, vqueue.Options{}, 15, 6, 20*time.Second)
	if n := moves(devices); n > 0 {
		t.Errorf("%d turns ran elsewhere than the turn before: %v", n, devices)
	}
	perInstance := map[int32]int{}
	for _, list := range devices {
		perInstance[list[0]]++
	}
	if len(perInstance) < 2 {
		t.Errorf("conversations by instance: %v, expected several instances", perInstance)
	}
	if _, devices := talk(t, vqueue.Options{IgnoreSessions: true}, 15, 6, 20*time.Second); moves(devices) == 0 {
		t.Error("turns stay without regard to sessions: the test shows nothing")
	}
}

// TestSessionLeavesForItsDeadline: where an instance is full of requests that came before, a turn whose deadline is near runs elsewhere, and
// one with time waits for its instance.
func TestSessionLeavesForItsDeadline(t *testing.T) {
	for _, c := range []struct {
		slo   time.Duration
		stays bool
	}{{1200 * time.Millisecond, false}, {30 * time.Second, true}} {
		tab := instanceTables([]int32{0, 0}, 1, 4)
		pol, err := vqueue.New(tab, vqueue.Options{NoReplan: true})
		if err != nil {
			t.Fatal(err)
		}
		const crowd = 4
		p := &play{t: tab, pol: pol, outputs: []int32{100, 100}, devices: make([]int32, 2+crowd), endTimes: make([]time.Duration, 2+crowd)}
		arrive := func(at time.Duration, req int32, session int64, prompt int32, slo time.Duration) {
			p.schedule(at, policy.Event{Kind: policy.Arrival, Req: req, Task: req, Model: 1, Service: 1, Tokens: prompt, Limit: 400, Key: session, ArrivedAt: at, Deadline: at + slo}, nil)
		}
		arrive(0, 0, 7, 200, 20*time.Second)
		for k := range int32(crowd) { // sessions of the same instance: they begin while the other one has more
			p.outputs = append(p.outputs, 2000)
			arrive(2*time.Second, 2+k, 0, 200, 4*time.Second)
		}
		arrive(2500*time.Millisecond, 1, 7, 600, c.slo)
		p.run(t)
		home := p.devices[0]
		full := 0
		for k := range crowd {
			if p.devices[2+k] == home {
				full++
			}
		}
		if full < crowd {
			t.Fatalf("%d of %d requests run on instance %d, expected all: the test shows nothing", full, crowd, home)
		}
		if stayed := p.devices[1] == home; stayed != c.stays {
			t.Errorf("a turn with %v: stayed %v, expected %v", c.slo, stayed, c.stays)
		}
	}
}

// TestLostInstanceHasNoSession: a turn whose instance was lost runs on another one.
func TestLostInstanceHasNoSession(t *testing.T) {
	tab := instanceTables([]int32{0, 0}, 1, 4)
	pol, err := vqueue.New(tab, vqueue.Options{NoReplan: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t: tab, pol: pol, outputs: []int32{100, 100}, devices: make([]int32, 2), endTimes: make([]time.Duration, 2)}
	for req := range int32(2) {
		at := time.Duration(req) * 5 * time.Second
		p.schedule(at, policy.Event{Kind: policy.Arrival, Req: req, Model: 1, Tokens: 200 + 400*req, Limit: 400, Key: 9, ArrivedAt: at, Deadline: at + 20*time.Second}, nil)
	}
	p.schedule(3*time.Second, policy.Event{Kind: policy.WorkerLost, Device: 0}, nil)
	p.run(t)
	if p.devices[0] != 0 || p.devices[1] != 1 {
		t.Errorf("the turns ran on %v, expected 0 and 1", p.devices)
	}
}
