package workflow

import (
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy/flow"
)

// bestOf tries all places of all tasks under equations 1 and 2.
func bestOf(s *exact, j *job, t int) int64 {
	for t < len(j.tasks) && j.tasks[t].place >= 0 {
		s.at[t] = j.tasks[t].place
		t++
	}
	if t == len(j.tasks) {
		return s.evaluate(j)
	}
	best := never
	for d := range s.f.ids {
		s.at[t] = int32(d)
		best = min(best, bestOf(s, j, t+1))
	}
	return best
}

// The passes with branching find the best places where tasks go on with states
// that are elsewhere, moved or computed anew, with a proof.
func TestScheduleWithSessions(t *testing.T) {
	rng := seeded.New(9, "sessions")
	priced := 0
	for draw := range 1500 {
		f := testFleet(2+rng.IntN(3), 3, 1+rng.IntN(2))
		for s := range f.near {
			f.near[s], f.far[s] = rng.Int64N(100), 100+rng.Int64N(100)
			near := time.Duration(rng.IntN(1000))
			f.tolls[s] = newTolls(flow.Session{Bytes: 1, Recompute: 1 + time.Duration(rng.IntN(1200)), Near: near, Far: near + time.Duration(rng.IntN(600))})
		}
		r, j, now := randomRows(rng, f), randomJob(rng, 3+rng.IntN(2), 3), rng.Int64N(500)
		for i := range j.tasks {
			k := &j.tasks[i]
			in := j.inputsOf(int32(i))
			switch rng.IntN(3) {
			case 0:
				if len(in) > 0 {
					k.from, k.price = in[rng.IntN(len(in))], rng.Int64N(1500)
				}
			case 1:
				k.home, k.homeAt, k.price = rng.Int32N(int32(len(f.ids)))-int32(rng.IntN(2)), rng.Int64N(800), rng.Int64N(1500)
			}
			if k.price > 0 {
				priced++
			}
		}
		s := newExact(f, r)
		end, bound := s.schedule(now, j, 0)
		if want := bestOf(s, j, 0); end != want || bound != want {
			t.Fatalf("draw %d: ends at %d with bound %d, best %d", draw, end, bound, want)
		}
	}
	if priced == 0 {
		t.Error("no task pays for a state")
	}
}

// A state goes before a network where its bytes save less, and after it where they
// save more; one that a task waits for here goes only for a revealed one.
func TestStatesMakeRoomByWorth(t *testing.T) {
	p := New(testFleet(1, 3, 1).t, Options{Worth: true})
	p.fleet.tolls[0] = newTolls(flow.Session{Bytes: 1 << 20, Recompute: time.Second})
	d := &p.devices[0]
	d.memory, d.taken = 1<<40, 0
	id := p.take(0, 0, 0, unit)
	k := &p.tasks[id]
	k.state, k.place, k.memo.bytes, k.memo.price = ended, 0, 1<<20, int64(time.Second)
	p.cluster.memos().keep(0, id, nil)
	d.loaded[1], p.copies[1] = true, 1
	d.taken += p.fleet.bytes[1]
	p.value(0)
	p.demand.others[0] = 1
	for _, c := range []struct {
		rate float64
		want bool // the state goes
	}{{0, false}, {1e9, true}} {
		p.demand.values[1] = c.rate
		if got := p.loads.lesser(0, 1, spareClass, spareClass) == id; got != c.want {
			t.Errorf("with a rate of %g the state goes: %v", c.rate, got)
		}
	}
	next := p.take(0, 1, 0, unit)
	p.tasks[next].state, p.tasks[next].place = queued, 0
	p.tasks[id].memo.next = next
	if c := p.cluster.memos().classOfState(id); c != aheadClass {
		t.Errorf("class %d of a state that a task here waits for", c)
	}
	p.tasks[next].state = running
	if c := p.cluster.memos().classOfState(id); c != kept {
		t.Errorf("class %d of a state that a batch here uses", c)
	}
}
