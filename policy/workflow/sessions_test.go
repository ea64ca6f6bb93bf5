package workflow

import (
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy/flow"
)

// bestOf tries all places of all tasks under equations 1 and 2.
func bestOf(s *exactScheduler, j *job, t int) int64 {
	for t < len(j.tasks) && j.tasks[t].place >= 0 {
		s.currentPlaces[t] = j.tasks[t].place
		t++
	}
	if t == len(j.tasks) {
		return s.evaluate(j)
	}
	best := farFuture
	for d := range s.tables.deviceAt {
		s.currentPlaces[t] = int32(d)
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
		for s := range f.sameNodeTime {
			f.sameNodeTime[s], f.otherNodeTime[s] = rng.Int64N(100), 100+rng.Int64N(100)
			near := time.Duration(rng.IntN(1000))
			f.stateTransfers[s] = newStateTransfer(flow.SessionState{Bytes: 1, Recompute: 1 + time.Duration(rng.IntN(1200)), SameNode: near, OtherNode: near + time.Duration(rng.IntN(600))})
		}
		r, j, now := randomRows(rng, f), randomJob(rng, 3+rng.IntN(2), 3), rng.Int64N(500)
		for i := range j.tasks {
			k := &j.tasks[i]
			in := j.inputsOf(int32(i))
			switch rng.IntN(3) {
			case 0:
				if len(in) > 0 {
					k.stateFrom, k.recomputeTime = in[rng.IntN(len(in))], rng.Int64N(1500)
				}
			case 1:
				k.stateHome, k.stateHomeAt, k.recomputeTime = rng.Int32N(int32(len(f.deviceAt)))-int32(rng.IntN(2)), rng.Int64N(800), rng.Int64N(1500)
			}
			if k.recomputeTime > 0 {
				priced++
			}
		}
		s := newExactScheduler(f, r)
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
	p := New(testFleet(1, 3, 1).source, Options{EvictByValue: true})
	p.tables.stateTransfers[0] = newStateTransfer(flow.SessionState{Bytes: 1 << 20, Recompute: time.Second})
	d := &p.cluster.devices[0]
	d.memoryBytes, d.usedBytes = 1<<40, 0
	id := p.book.newTask(0, 0, 0, usualWork)
	k := &p.book.tasks[id]
	k.state, k.place, k.session.bytes, k.session.recomputeTime = taskEnded, 0, 1<<20, int64(time.Second)
	p.states.storeState(0, id, nil)
	d.loaded[1], p.cluster.copyCount[1] = true, 1
	d.usedBytes += p.tables.bytes[1]
	p.cluster.demand.updateValues(0)
	p.cluster.demand.othersBusyChance[0] = 1
	for _, c := range []struct {
		rate float64
		want bool // the state goes
	}{{0, false}, {1e9, true}} {
		p.cluster.demand.values[1] = c.rate
		if got := p.loader.stateToEvict(0, 1, unneededClass, unneededClass) == id; got != c.want {
			t.Errorf("with a rate of %g the state goes: %v", c.rate, got)
		}
	}
	next := p.book.newTask(0, 1, 0, usualWork)
	p.book.tasks[next].state, p.book.tasks[next].place = taskQueued, 0
	p.book.tasks[id].session.nextTask = next
	if c := p.states.stateClass(id); c != expectedClass {
		t.Errorf("class %d of a state that a task here waits for", c)
	}
	p.book.tasks[next].state = taskRunning
	if c := p.states.stateClass(id); c != pinnedClass {
		t.Errorf("class %d of a state that a batch here uses", c)
	}
}
