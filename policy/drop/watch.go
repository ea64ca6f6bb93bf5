package drop

import (
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// watchTag is the tag of the timers of hopelessWatch.
const watchTag = 1

// hopelessWatch drops a request as soon as it is hopeless: even batches of one in all remaining modules, starting now,
// would be late. It does not wait until the batch before it has ended.
type hopelessWatch struct {
	enabled       bool
	stride        int32            // number of services
	soloTimes     []time.Duration  // by service: planned time of a batch of one
	minDownstream []time.Duration  // by application and service: least time downstream
	alarms        doubleEndedQueue // tasks by the time at which to check them
	taskStates    []taskState      // by task slot
	timerAt       time.Duration    // time of the timer that is set; farFuture if none
}

// taskState is the state of a watched task.
type taskState uint8

const (
	taskOver    taskState = iota // it has ended, or was never revealed
	taskQueued                   // it waits for its batch
	taskRunning                  // its batch runs
)

// newHopelessWatch returns a watch over the applications of a planner. If it is not enabled, it does nothing.
func newHopelessWatch(enabled bool, plan *planner) hopelessWatch {
	w := hopelessWatch{enabled: enabled, stride: plan.stride, soloTimes: slices.Clone(plan.soloTimes), timerAt: farFuture}
	if !enabled {
		return w
	}
	apps := plan.workers.graphTables.Apps
	w.minDownstream = make([]time.Duration, len(apps)*int(plan.stride))
	for a := range apps {
		downstream := minDownstreamTimes(&apps[a], w.soloTimes)
		for i := range apps[a].Nodes {
			cell := plan.cellOf(a, apps[a].Nodes[i].Service)
			w.minDownstream[cell] = downstream[i]
			for k := range i { // the least over the nodes with the same module
				if earlier := &apps[a].Nodes[k]; earlier.Service == apps[a].Nodes[i].Service {
					w.minDownstream[cell] = min(w.minDownstream[cell], downstream[k])
				}
			}
		}
	}
	return w
}

// minDownstreamTimes returns, by node, the least time that a request still needs behind it: the longest path over the
// nodes that it certainly reaches; of the outcomes of a branch, the shortest.
func minDownstreamTimes(app *flow.Application, soloTimes []time.Duration) []time.Duration {
	out := make([]time.Duration, len(app.Nodes))
	for _, i := range slices.Backward(app.Order) {
		n := &app.Nodes[i]
		outcomeTimes := make([]time.Duration, len(n.OutcomeChances))
		for _, e := range n.Outputs {
			timeThrough := soloTimes[app.Nodes[e.To].Service] + out[e.To]
			if e.Outcome < 0 {
				out[i] = max(out[i], timeThrough)
			} else {
				outcomeTimes[e.Outcome] = max(outcomeTimes[e.Outcome], timeThrough)
			}
		}
		if len(outcomeTimes) > 0 {
			out[i] = max(out[i], slices.Min(outcomeTimes))
		}
	}
	return out
}

// watchTask watches a task that waits: an alarm is set for the time at which it becomes hopeless, that is, late
// even if every module ran it alone. Without the option it does nothing.
func (w *hopelessWatch) watchTask(e flow.QueueEntry, r *flow.Request, service int32, out *policy.Actions) {
	if !w.enabled {
		return
	}
	for int(e.Task) >= len(w.taskStates) {
		w.taskStates = append(w.taskStates, taskOver)
	}
	w.taskStates[e.Task] = taskQueued
	e.Key = w.hopelessAt(r, service, taskQueued)
	w.alarms.push(e)
	w.setTimer(out)
}

// hopelessAt returns the first instant at which a request is hopeless because of a task of a service. For a running task
// only the time behind it counts.
func (w *hopelessWatch) hopelessAt(r *flow.Request, service int32, state taskState) time.Duration {
	remaining := w.minDownstream[r.Model*w.stride+service]
	if state == taskQueued {
		remaining += w.soloTimes[service]
	}
	return r.Deadline - remaining + 1
}

// setStates notes that the tasks of a batch now wait, run or are over, on which it depends when they become
// hopeless.
func (w *hopelessWatch) setStates(list []flow.QueueEntry, state taskState) {
	if w.enabled {
		for i := range list {
			w.taskStates[list[i].Task] = state
		}
	}
}

// handleTimer is called at the first alarm. It drops the requests of those tasks that are hopeless by now (late
// even if every module ran them alone). A task that has started meanwhile gets a later alarm.
func (w *hopelessWatch) handleTimer(now time.Duration, b *broker, out *policy.Actions) {
	w.timerAt = farFuture
	for w.alarms.len() > 0 && w.alarms.min().Key <= now {
		e := w.alarms.popMin()
		t, state := &b.tasks.Tasks[e.Task], w.taskStates[e.Task]
		if state == taskOver || t.Req != e.Req || !b.tasks.IsWanted(&e) {
			continue
		}
		if e.Key = w.hopelessAt(&b.tasks.Requests[e.Req], t.Service, state); e.Key > now {
			w.alarms.push(e)
			continue
		}
		b.dropRequest(now, e.Req, e.Task, policy.ReasonDeadline, out)
	}
	w.setTimer(out)
}

// setTimer sets a timer for the first alarm, if none is set for it.
func (w *hopelessWatch) setTimer(out *policy.Actions) {
	if w.alarms.len() > 0 && w.alarms.min().Key < w.timerAt {
		w.timerAt = w.alarms.min().Key
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: watchTag, At: w.timerAt})
	}
}
