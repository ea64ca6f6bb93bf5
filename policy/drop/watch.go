package drop

import (
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/flow"
)

// watchTag is the tag of the timers of hopelessWatch.
const watchTag = 1

// hopelessWatch drops a request as soon as it is hopeless: even batches of one in all remaining modules, starting
// now, would be late. It does not wait until the batch before it has ended.
type hopelessWatch struct {
	enabled       bool
	stride        int32            // number of services
	soloTimes     []time.Duration  // by service: planned time of a batch of one
	minDownstream []time.Duration  // by cell (see planner): least time downstream
	checks        doubleEndedQueue // tasks by the time at which to check them
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

// newHopelessWatch returns a watch over the applications of a planner, which drops requests as soon as they are hopeless
// (late even if each remaining module ran them alone). If it is not enabled (Options.PromptRefusal), it does nothing.
func newHopelessWatch(enabled bool, planner *planner) hopelessWatch {
	watch := hopelessWatch{enabled: enabled, stride: planner.stride, soloTimes: slices.Clone(planner.soloTimes), timerAt: farFuture}
	if !enabled {
		return watch
	}
	apps := planner.workers.graphTables.Apps
	watch.minDownstream = make([]time.Duration, len(apps)*int(planner.stride))

	// Find the least time downstream of each service. A service that stands at several nodes of an application has the least
	// of theirs.
	for appIndex := range apps {
		nodes := apps[appIndex].Nodes
		downstream := minDownstreamTimes(&apps[appIndex], watch.soloTimes) // by node
		for i := range nodes {
			cell := planner.cellOf(appIndex, nodes[i].Service)
			isFirstNode := !slices.ContainsFunc(nodes[:i], func(earlier flow.Node) bool { return earlier.Service == nodes[i].Service })
			if isFirstNode || downstream[i] < watch.minDownstream[cell] {
				watch.minDownstream[cell] = downstream[i]
			}
		}
	}
	return watch
}

// minDownstreamTimes returns, by node of an application, the least time that a request still needs behind it: the
// longest path over the nodes that it certainly reaches; of the outcomes of a branch, the shortest. soloTimes has the
// times of batches of one, by service.
func minDownstreamTimes(app *flow.Application, soloTimes []time.Duration) []time.Duration {
	minTimes := make([]time.Duration, len(app.Nodes))
	for _, index := range slices.Backward(app.Order) {
		node := &app.Nodes[index]
		outcomeTimes := make([]time.Duration, len(node.OutcomeChances))

		// Edges without an outcome are certain; of each outcome, the longest edge counts.
		for _, edge := range node.Outputs {
			timeThrough := soloTimes[app.Nodes[edge.To].Service] + minTimes[edge.To]
			if edge.Outcome < 0 {
				minTimes[index] = max(minTimes[index], timeThrough)
			} else {
				outcomeTimes[edge.Outcome] = max(outcomeTimes[edge.Outcome], timeThrough)
			}
		}

		// One of the outcomes happens, at best the shortest.
		if len(outcomeTimes) > 0 {
			minTimes[index] = max(minTimes[index], slices.Min(outcomeTimes))
		}
	}
	return minTimes
}

// watchTask watches a task of a service that waits: it is checked at the time at which it becomes hopeless, that is,
// late even if every module ran it alone. If the watch is not enabled, nothing happens.
func (watch *hopelessWatch) watchTask(entry flow.QueueEntry, request *flow.Request, service int32, out *policy.Actions) {
	if !watch.enabled {
		return
	}
	for int(entry.Task) >= len(watch.taskStates) {
		watch.taskStates = append(watch.taskStates, taskOver)
	}
	watch.taskStates[entry.Task] = taskQueued
	entry.Key = watch.hopelessAt(request, service, taskQueued)
	watch.checks.push(entry)
	watch.setTimer(out)
}

// hopelessAt returns the first instant at which a request is hopeless: so late that it misses its deadline even if its
// task of a service, and every task that must follow, runs alone without waiting. If the task runs already, only the
// time for what follows counts. The instant is a nanosecond after the last one at which the request can be in time.
func (watch *hopelessWatch) hopelessAt(request *flow.Request, service int32, state taskState) time.Duration {
	remaining := watch.minDownstream[request.Model*watch.stride+service]
	if state == taskQueued {
		remaining += watch.soloTimes[service]
	}
	return request.Deadline - remaining + 1
}

// setStates notes that the tasks of a batch now wait, run or are over, which decides when they become hopeless.
func (watch *hopelessWatch) setStates(tasks []flow.QueueEntry, state taskState) {
	if watch.enabled {
		for i := range tasks {
			watch.taskStates[tasks[i].Task] = state
		}
	}
}

// handleTimer is called when the first check is due. It drops the requests of those tasks that are hopeless by now
// (late even if every module ran them alone). A task that has started meanwhile is checked again later.
func (watch *hopelessWatch) handleTimer(now time.Duration, broker *broker, out *policy.Actions) {
	watch.timerAt = farFuture
	for watch.checks.len() > 0 && watch.checks.min().Key <= now {
		entry := watch.checks.popMin()
		task, state := &broker.tasks.Tasks[entry.Task], watch.taskStates[entry.Task]

		// Skip tasks that have ended, and slots that another task has taken.
		if state == taskOver || task.Req != entry.Req || !broker.tasks.IsWanted(&entry) {
			continue
		}
		entry.Key = watch.hopelessAt(&broker.tasks.Requests[entry.Req], task.Service, state)
		if entry.Key > now {
			watch.checks.push(entry)
			continue
		}
		broker.dropRequest(now, entry.Req, entry.Task, policy.ReasonDeadline, out)
	}
	watch.setTimer(out)
}

// setTimer sets a timer for the first check, if none is set for that time or an earlier one.
func (watch *hopelessWatch) setTimer(out *policy.Actions) {
	if watch.checks.len() > 0 && watch.checks.min().Key < watch.timerAt {
		watch.timerAt = watch.checks.min().Key
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: watchTag, At: watch.timerAt})
	}
}
