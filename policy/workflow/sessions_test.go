package workflow

import (
	"testing"
	"time"

	"inferplan/formats/seeded"
	"inferplan/policy/flow"
)

// bestOf tries all places of all tasks under equations 1 and 2.
func bestOf(s *exactScheduler, job *job, taskIndex int) int64 {
	for taskIndex < len(job.tasks) && job.tasks[taskIndex].deviceIndex >= 0 {
		s.currentDevices[taskIndex] = job.tasks[taskIndex].deviceIndex
		taskIndex++
	}
	if taskIndex == len(job.tasks) {
		return s.evaluate(job)
	}
	best := farFuture
	for d := range s.tables.planDevice {
		s.currentDevices[taskIndex] = int32(d)
		best = min(best, bestOf(s, job, taskIndex+1))
	}
	return best
}

// The passes with branching find the best places where tasks go on with states
// that are elsewhere, moved or computed anew, with a proof.
func TestScheduleWithSessions(t *testing.T) {
	rng := seeded.New(9, "sessions")
	priced := 0
	for draw := range 1500 {
		tables := testFleet(2+rng.IntN(3), 3, 1+rng.IntN(2))
		for service := range tables.sameNodeTimes {
			tables.sameNodeTimes[service], tables.otherNodeTimes[service] = rng.Int64N(100), 100+rng.Int64N(100)
			near := time.Duration(rng.IntN(1000))
			tables.stateTransfers[service] = newStateTransfer(flow.SessionState{Bytes: 1, Recompute: 1 + time.Duration(rng.IntN(1200)), SameNode: near, OtherNode: near + time.Duration(rng.IntN(600))})
		}
		r, job, now := randomRows(rng, tables), randomJob(rng, 3+rng.IntN(2), 3), rng.Int64N(500)
		for i := range job.tasks {
			jobTask := &job.tasks[i]
			in := job.inputsOf(int32(i))
			switch rng.IntN(3) {
			case 0:
				if len(in) > 0 {
					jobTask.stateSource, jobTask.recomputeTime = in[rng.IntN(len(in))], rng.Int64N(1500)
				}
			case 1:
				jobTask.stateDevice, jobTask.stateReadyAt, jobTask.recomputeTime = rng.Int32N(int32(len(tables.planDevice)))-int32(rng.IntN(2)), rng.Int64N(800), rng.Int64N(1500)
			}
			if jobTask.recomputeTime > 0 {
				priced++
			}
		}
		s := newExactScheduler(tables, r)
		end, bound := s.schedule(now, job, 0)
		if want := bestOf(s, job, 0); end != want || bound != want {
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
	p := New(testFleet(1, 3, 1).planTables, Options{EvictByValue: true})
	p.tables.stateTransfers[0] = newStateTransfer(flow.SessionState{Bytes: 1 << 20, Recompute: time.Second})
	device := &p.cluster.devices[0]
	device.memoryBytes, device.usedBytes = 1<<40, 0
	taskID := p.registry.newTask(0, 0, 0, fixedOne)
	task := &p.registry.tasks[taskID]
	task.progress, task.deviceIndex, task.sessionState.bytes, task.sessionState.recomputeTime = taskEnded, 0, 1<<20, int64(time.Second)
	p.states.storeState(0, taskID, nil)
	device.holdsNetwork[1], p.cluster.copyCount[1] = true, 1
	device.usedBytes += p.tables.networkBytes[1]
	p.cluster.demand.updateValues(0)
	p.cluster.demand.othersBusyChance[0] = 1
	for _, c := range []struct {
		rate float64
		want bool // the state goes
	}{{0, false}, {1e9, true}} {
		p.cluster.demand.values[1] = c.rate
		if got := p.loader.stateToEvict(0, 1, unneededClass, unneededClass) == taskID; got != c.want {
			t.Errorf("with a rate of %g the state goes: %v", c.rate, got)
		}
	}
	next := p.registry.newTask(0, 1, 0, fixedOne)
	p.registry.tasks[next].progress, p.registry.tasks[next].deviceIndex = taskQueued, 0
	p.registry.tasks[taskID].sessionState.nextTask = next
	if c := p.states.stateClass(taskID); c != expectedClass {
		t.Errorf("class %d of a state that a task here waits for", c)
	}
	p.registry.tasks[next].progress = taskRunning
	if c := p.states.stateClass(taskID); c != pinnedClass {
		t.Errorf("class %d of a state that a batch here uses", c)
	}
}
