package flow

import (
	"slices"

	"inferplan/formats"
	"inferplan/policy"
)

// PathRecorder collects the paths of requests from the events of a run.
type Recorder struct {
	t    *policy.Tables
	open map[int32]*recorded // by request slot
	// OnPath is called with the path of every request that has ended.
	Took func(application string, way formats.Way)
}

// recordedRequest is an open request.
type recorded struct {
	model int32
	way   formats.Way
	slots []int32 // slots of its tasks so far
	first bool    // the number of its first tasks is known
}

// NewPathRecorder returns a recorder for runs over tables.
func NewRecorder(t *policy.Tables, took func(application string, way formats.Way)) *Recorder {
	return &Recorder{t: t, open: map[int32]*recorded{}, Took: took}
}

// HandleEvent records an event.
func (r *Recorder) Hear(ev *policy.Event) {
	switch ev.Kind {
	case policy.Arrival:
		r.open[ev.Req] = &recorded{model: ev.Model, way: formats.Way{Count: 1}}
	case policy.Cancel:
		delete(r.open, ev.Req)
	case policy.ControlRevealed:
		q := r.open[ev.Req]
		if q == nil {
			return
		}
		switch {
		case ev.Value == 0:
			if len(q.way.Tasks) > 0 && int(q.model) < len(r.t.Models) {
				r.Took(r.t.Models[q.model].Name, q.way)
			}
			delete(r.open, ev.Req)
		case !q.first:
			q.first, q.way.Known = true, int(min(ev.Value, formats.MaxTasks))
		}
	case policy.TaskRevealed:
		if q := r.open[ev.Req]; q != nil && int(ev.Service) < len(r.t.Services) && ev.Service >= 0 {
			q.add(r.t.Services[ev.Service].Name, ev)
		}
	}
}

// addTask adds a task to the path. Its inputs become offsets back.
func (q *recorded) add(model string, ev *policy.Event) {
	task := formats.WayTask{Model: model}
	if ev.Value > 0 {
		task.Work = float64(ev.Value) / millionths
	}
	for _, in := range ev.List {
		for back := 1; in >= 0 && back <= len(q.slots); back++ {
			if q.slots[len(q.slots)-back] == in {
				task.Reads = append(task.Reads, back)
				break
			}
		}
	}
	slices.Sort(task.Reads)
	q.slots, q.way.Tasks = append(q.slots, ev.Task), append(q.way.Tasks, task)
}
