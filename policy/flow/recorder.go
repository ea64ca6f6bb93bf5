package flow

import (
	"slices"

	"inferplan/formats"
	"inferplan/policy"
)

// PathRecorder collects the paths of requests from the events of a run.
type PathRecorder struct {
	tables       *policy.Tables
	openRequests map[int32]*recordedRequest // by request slot
	// OnPath is called with the path of every request that has ended.
	OnPath func(application string, way formats.Way)
}

// recordedRequest is an open request.
type recordedRequest struct {
	model           int32
	path            formats.Way
	slots           []int32 // slots of its tasks so far
	knowsFirstTasks bool    // the number of its first tasks is known
}

// NewPathRecorder returns a recorder for runs over tables.
func NewPathRecorder(t *policy.Tables, onPath func(application string, way formats.Way)) *PathRecorder {
	return &PathRecorder{tables: t, openRequests: map[int32]*recordedRequest{}, OnPath: onPath}
}

// HandleEvent follows the requests of a run by the policy's events: it notes their tasks as they are revealed, and
// hands over the whole path when a request is answered. Cancelled requests are forgotten.
func (r *PathRecorder) HandleEvent(ev *policy.Event) {
	switch ev.Kind {
	case policy.Arrival:
		r.openRequests[ev.Req] = &recordedRequest{model: ev.Model, path: formats.Way{Count: 1}}
	case policy.Cancel:
		delete(r.openRequests, ev.Req)
	case policy.ControlRevealed:
		q := r.openRequests[ev.Req]
		if q == nil {
			return
		}
		switch {
		case ev.Value == 0:
			if len(q.path.Tasks) > 0 && int(q.model) < len(r.tables.Models) {
				r.OnPath(r.tables.Models[q.model].Name, q.path)
			}
			delete(r.openRequests, ev.Req)
		case !q.knowsFirstTasks:
			q.knowsFirstTasks, q.path.KnownTasks = true, int(min(ev.Value, formats.MaxTasks))
		}
	case policy.TaskRevealed:
		if q := r.openRequests[ev.Req]; q != nil && int(ev.Service) < len(r.tables.Services) && ev.Service >= 0 {
			q.addTask(r.tables.Services[ev.Service].Name, ev)
		}
	}
}

// addTask adds a revealed task to the recorded path of its request. Inputs are noted as offsets: how many tasks
// back they are.
func (q *recordedRequest) addTask(model string, ev *policy.Event) {
	task := formats.WayTask{Model: model}
	if ev.Value > 0 {
		task.Work = float64(ev.Value) / millionths
	}
	for _, in := range ev.List {
		for offset := 1; in >= 0 && offset <= len(q.slots); offset++ {
			if q.slots[len(q.slots)-offset] == in {
				task.Reads = append(task.Reads, offset)
				break
			}
		}
	}
	slices.Sort(task.Reads)
	q.slots, q.path.Tasks = append(q.slots, ev.Task), append(q.path.Tasks, task)
}
