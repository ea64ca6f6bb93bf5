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
type watch struct {
	on     bool
	stride int32           // number of services
	one    []time.Duration // by service: planned time of a batch of one
	rest   []time.Duration // by application and service: least time downstream
	alarms depq            // tasks by the time at which to check them
	stands []standing      // by task slot
	set    time.Duration   // time of the timer that is set; farFuture if none
}

// taskState is the state of a watched task.
type standing uint8

const (
	over    standing = iota // it has ended, or was never revealed
	queued                  // it waits for its batch
	running                 // its batch runs
)

// newHopelessWatch returns a watch over the applications of a planner. Without `on` it does nothing.
func newWatch(on bool, plan *planner) watch {
	w := watch{on: on, stride: plan.stride, one: slices.Clone(plan.one), set: never}
	if !on {
		return w
	}
	apps := plan.fleet.own.Apps
	w.rest = make([]time.Duration, len(apps)*int(plan.stride))
	for a := range apps {
		behind := leastBehind(&apps[a], w.one)
		for i := range apps[a].Nodes {
			at := plan.cell(a, apps[a].Nodes[i].Service)
			w.rest[at] = behind[i]
			for k := range i { // the least over the nodes with the same module
				if o := &apps[a].Nodes[k]; o.Service == apps[a].Nodes[i].Service {
					w.rest[at] = min(w.rest[at], behind[k])
				}
			}
		}
	}
	return w
}

// minDownstreamTimes returns, by node, the least time that a request still needs behind it: the longest path over the
// nodes that it certainly reaches; of the outcomes of a branch, the shortest.
func leastBehind(app *flow.App, one []time.Duration) []time.Duration {
	out := make([]time.Duration, len(app.Nodes))
	for _, i := range slices.Backward(app.Order) {
		n := &app.Nodes[i]
		ways := make([]time.Duration, len(n.Ways))
		for _, e := range n.Out {
			to := one[app.Nodes[e.To].Service] + out[e.To]
			if e.Way < 0 {
				out[i] = max(out[i], to)
			} else {
				ways[e.Way] = max(ways[e.Way], to)
			}
		}
		if len(ways) > 0 {
			out[i] = max(out[i], slices.Min(ways))
		}
	}
	return out
}

// watchTask watches a task that waits.
func (w *watch) reveal(e flow.Entry, r *flow.Request, service int32, out *policy.Actions) {
	if !w.on {
		return
	}
	for int(e.Task) >= len(w.stands) {
		w.stands = append(w.stands, over)
	}
	w.stands[e.Task] = queued
	e.Key = w.hopeless(r, service, queued)
	w.alarms.push(e)
	w.ask(out)
}

// hopelessAt returns the first instant at which a request is hopeless because of a task of a service. For a running task
// only the time behind it counts.
func (w *watch) hopeless(r *flow.Request, service int32, where standing) time.Duration {
	left := w.rest[r.Model*w.stride+service]
	if where == queued {
		left += w.one[service]
	}
	return r.Deadline - left + 1
}

// setStates sets the state of the tasks of a batch.
func (w *watch) note(list []flow.Entry, where standing) {
	if w.on {
		for i := range list {
			w.stands[list[i].Task] = where
		}
	}
}

// handleTimer drops the requests of those tasks that are hopeless by now.
func (w *watch) due(now time.Duration, b *broker, out *policy.Actions) {
	w.set = never
	for w.alarms.len() > 0 && w.alarms.min().Key <= now {
		e := w.alarms.popMin()
		t, where := &b.book.Tasks[e.Task], w.stands[e.Task]
		if where == over || t.Req != e.Req || !b.book.Wanted(&e) {
			continue
		}
		if e.Key = w.hopeless(&b.book.Requests[e.Req], t.Service, where); e.Key > now {
			w.alarms.push(e)
			continue
		}
		b.drop(now, e.Req, e.Task, policy.ReasonDeadline, out)
	}
	w.ask(out)
}

// setTimer sets a timer for the first alarm, if none is set for it.
func (w *watch) ask(out *policy.Actions) {
	if w.alarms.len() > 0 && w.alarms.min().Key < w.set {
		w.set = w.alarms.min().Key
		out.List = append(out.List, policy.Action{Kind: policy.Wake, Tag: watchTag, At: w.set})
	}
}
