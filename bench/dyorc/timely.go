package main

import (
	"time"

	"inferplan/policy"
)

// timely sees the batches that devices run, and works out how much sooner they would
// have begun had their loads been begun in time, by somebody who knows all batches to
// come. Batches keep their devices and their order.
type timely struct {
	t       *policy.Tables
	batches [][]ranBatch // by device
	tasks   []seenTask   // by slot
	running [][]int32    // tasks, by device
}

// ranBatch is a batch as it ran.
type ranBatch struct {
	ready      time.Duration // all that its tasks read was at the device
	start, end time.Duration
	network    int32
	tasks      int
}

// seenTask holds the known times of a task.
type seenTask struct {
	ready, end time.Duration
	reads      []int32
}

func newTimely(t *policy.Tables) *timely {
	return &timely{t: t, batches: make([][]ranBatch, len(t.Devices)), running: make([][]int32, len(t.Devices))}
}

// hear takes an event in before the policy does.
func (s *timely) hear(now time.Duration, ev *policy.Event) {
	switch ev.Kind {
	case policy.TaskRevealed:
		for int(ev.Task) >= len(s.tasks) {
			s.tasks = append(s.tasks, seenTask{})
		}
		k := &s.tasks[ev.Task]
		k.ready, k.reads = now, append(k.reads[:0], ev.List...)
	case policy.TransferFinished:
		if ev.Batch < 0 {
			s.tasks[ev.Task].ready = now
		}
	case policy.BatchFinished:
		for _, task := range s.running[ev.Device] {
			s.tasks[task].end = now
		}
		list := s.batches[ev.Device]
		list[len(list)-1].end = now
	}
}

// started notes a batch.
func (s *timely) started(now time.Duration, a *policy.Action, tasks []int32) {
	tasks = tasks[a.TaskFirst:][:a.Size]
	b := ranBatch{start: now, network: s.t.Pipelines[a.Pipeline].Network, tasks: len(tasks)}
	for _, task := range tasks {
		k := &s.tasks[task]
		b.ready = max(b.ready, k.ready)
		for _, in := range k.reads {
			if in >= 0 {
				b.ready = max(b.ready, s.tasks[in].end)
			}
		}
	}
	s.running[a.Device] = append(s.running[a.Device][:0], tasks...)
	s.batches[a.Device] = append(s.batches[a.Device], b)
}

// saved is the time that tasks which began within a window would have begun sooner,
// summed up.
func (s *timely) saved(from, to time.Duration) (sum time.Duration) {
	for d := range s.batches {
		x := s.loader(d)
		free := time.Duration(0)
		for i := range s.batches[d] {
			b := &s.batches[d][i]
			if b.end == 0 {
				break // it ran on at the end of what was seen
			}
			start := min(max(b.ready, free, x.loaded(i)), b.start)
			free = start + b.end - b.start
			x.last[b.network] = free
			if b.start >= from && b.start < to {
				sum += time.Duration(b.tasks) * (b.start - start)
			}
		}
	}
	return sum
}

// loader loads what a device's batches need, in their order, each as soon as the
// engine is free and there is room. What is needed again last makes room (Belady).
type loader struct {
	s      *timely
	device int
	next   [][]int         // by network: its batches to come
	held   []bool          // by network
	last   []time.Duration // by network: end of its latest batch
	free   int64           // bytes
	engine time.Duration
}

func (s *timely) loader(d int) *loader {
	n := len(s.t.Networks)
	x := &loader{s: s, device: d, next: make([][]int, n), held: make([]bool, n), last: make([]time.Duration, n), free: s.t.Memory[d]}
	for i := range s.batches[d] {
		k := s.batches[d][i].network
		x.next[k] = append(x.next[k], i)
	}
	for _, k := range s.t.Resident[d] {
		x.held[k] = true
		x.free -= s.t.Networks[k].Bytes
	}
	return x
}

// loaded is when the network of the i-th batch is there. Those before it have run.
func (x *loader) loaded(i int) time.Duration {
	k := x.s.batches[x.device][i].network
	x.next[k] = x.next[k][1:]
	if x.held[k] {
		return 0
	}
	start, need := x.engine, x.s.t.Networks[k].Bytes
	for x.free < need {
		victim := -1
		for n, held := range x.held {
			if held && (victim < 0 || x.due(n) > x.due(victim)) {
				victim = n
			}
		}
		x.held[victim] = false
		x.free += x.s.t.Networks[victim].Bytes
		start = max(start, x.last[victim])
	}
	x.held[k] = true
	x.free -= need
	x.engine = start + x.s.t.Networks[k].LoadTimes[0][0]
	return x.engine
}

// due is the next batch of a network.
func (x *loader) due(n int) int {
	if len(x.next[n]) == 0 {
		return len(x.s.batches[x.device])
	}
	return x.next[n][0]
}
