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

// recordedRequest is an open request whose path is being recorded.
type recordedRequest struct {
	model         int32
	path          formats.Way
	slots         []int32 // slots of its tasks so far
	hasFirstTasks bool    // the number of its first tasks is known
}

// NewPathRecorder returns a recorder for a run over a plan's tables. onPath is called with the path of every request
// that has ended.
func NewPathRecorder(tables *policy.Tables, onPath func(application string, way formats.Way)) *PathRecorder {
	return &PathRecorder{tables: tables, openRequests: map[int32]*recordedRequest{}, OnPath: onPath}
}

// HandleEvent follows the requests of a run by the policy's events: it notes their tasks as they are revealed, and calls
// OnPath with the application's name and the whole path when a request is answered. The event ControlRevealed comes
// before the tasks that are revealed together, with their number as its Value; 0 means that the request has ended. The
// tasks of the first one were known at the arrival. Cancelled requests are forgotten.
func (recorder *PathRecorder) HandleEvent(ev *policy.Event) {
	switch ev.Kind {
	case policy.Arrival:
		recorder.openRequests[ev.Req] = &recordedRequest{model: ev.Model, path: formats.Way{Count: 1}}
	case policy.Cancel:
		delete(recorder.openRequests, ev.Req)
	case policy.ControlRevealed:
		request := recorder.openRequests[ev.Req]
		if request == nil {
			return
		}
		switch {
		case ev.Value == 0:
			if len(request.path.Tasks) > 0 && int(request.model) < len(recorder.tables.Models) {
				recorder.OnPath(recorder.tables.Models[request.model].Name, request.path)
			}
			delete(recorder.openRequests, ev.Req)
		case !request.hasFirstTasks:
			request.hasFirstTasks, request.path.KnownTasks = true, int(min(ev.Value, formats.MaxTasks))
		}
	case policy.TaskRevealed:
		if request := recorder.openRequests[ev.Req]; request != nil && int(ev.Service) < len(recorder.tables.Services) && ev.Service >= 0 {
			request.addTask(recorder.tables.Services[ev.Service].Name, ev.Task, ev.Value, ev.List)
			slices.Sort(request.path.Tasks[len(request.path.Tasks)-1].Reads)
		}
	}
}

// addTask adds a revealed task of a model, in a slot, to the recorded path of its request. Its work is in millionths of
// the usual one. Its inputs, which are given as slots (below 0 for the client's), are noted as offsets: how many tasks
// back they are.
func (request *recordedRequest) addTask(model string, slot int32, work int64, inputs []int32) {
	task := formats.WayTask{Model: model}
	if work > 0 {
		task.Work = float64(work) / millionths
	}
	for _, input := range inputs {
		if input < 0 {
			continue
		}
		for offset := 1; offset <= len(request.slots); offset++ {
			if request.slots[len(request.slots)-offset] == input {
				task.Reads = append(task.Reads, offset)
				break
			}
		}
	}
	request.slots = append(request.slots, slot)
	request.path.Tasks = append(request.path.Tasks, task)
}
