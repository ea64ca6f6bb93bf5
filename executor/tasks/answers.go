package tasks

import (
	"fmt"
	"slices"
	"strconv"

	"inferplan/executor/oip"
	"inferplan/executor/turn"
)

// application is an application as clients see it.
type application struct {
	name        string
	parameters  map[string]string        // parameters of its requests, with their types
	services    []int32                  // services that its requests may need
	values      map[string]declaredValue // outputs that conditions use, by MODULE.OUTPUT
	answerParts []answerPart
	equalParts  bool // all parts have the same tensors, so that each is the whole answer
}

// answerPart is a module that requests may end with. Its outputs are part of the answer: `count` tensors from `first`
// on.
type answerPart struct {
	service       int32
	module        string
	first, count  int
	maxItems      int32 // items that the answer has space for; 1 if the module runs once
	segment, name int32 // of a workflow
}

// bindAnswer sets the outputs that clients get from application a (an index in s.apps), a graph of modules or a
// workflow. An answer part is a module with which requests may end. If all parts of a workflow have the same tensors,
// and no segment (modules that run in a row) has two of them, the answer is that of the part that a request ends with.
// Otherwise it has the outputs of all parts; if there are several, their names begin with the module's. Parts are bits
// of a 64-bit number, so there are at most 64.
func (s *applications) bindAnswer(a int) error {
	app, m := &s.apps[a], s.core.ServedModels.Models[a]
	if len(app.answerParts) > 64 {
		return fmt.Errorf("%d modules at its ends, expected at most 64", len(app.answerParts))
	}
	outputsOf := func(part *answerPart) []turn.Tensor {
		return withItems(s.core.Services[part.service].Outputs, part.maxItems)
	}

	// Do all ends have the same tensors?
	app.equalParts = s.workflows != nil
	for i := range app.answerParts {
		part := &app.answerParts[i]
		sameNames := slices.EqualFunc(outputsOf(part), outputsOf(&app.answerParts[0]), func(a, b turn.Tensor) bool { return a.Name == b.Name })
		app.equalParts = app.equalParts && sameNames && sameShapes(outputsOf(part), outputsOf(&app.answerParts[0])) && (i == 0 || part.segment != app.answerParts[i-1].segment)
	}

	// Append the outputs of each part.
	m.Outputs = nil
	for i := range app.answerParts {
		part := &app.answerParts[i]
		list := outputsOf(part)
		if part.count = len(list); app.equalParts && i > 0 {
			continue
		}
		part.first = len(m.Outputs)
		for _, o := range list {
			if !app.equalParts && len(app.answerParts) > 1 {
				o.Name = part.module + "." + o.Name
			}
			m.Outputs = append(m.Outputs, o)
		}
	}
	return nil
}

// applicationAnswerer is the part of the answerer that handles what clients see of applications: what they send, what
// they get, and the steps between models.
type applicationAnswerer struct {
	turn.NoExtras
	core    *turn.Core
	store   *TaskStore
	Modules moduleMetrics
}

// ServicesNeeded returns the services (deployed models) that an application's requests may need, or nil if
// requests have only one.
func (f *applicationAnswerer) ServicesNeeded(model int32) []int32 {
	if list := f.store.Apps.apps; list != nil {
		return list[model].services
	}
	return nil
}

// PreStepOf returns the name of the step before a service's model in an application, which converts tensors, and
// the bytes of each tensor that it reads. Without such a step the name is empty.
func (f *applicationAnswerer) PreStepOf(service, app int32) (name string, reads []int) {
	if preStep := f.store.Apps.preStepAt(service, app); preStep != nil {
		return preStep.name, preStep.readBytes
	}
	return "", nil
}

// HasWorkflows returns true if the plan has workflows.
func (f *applicationAnswerer) HasWorkflows() bool { return f.store.Apps.workflows != nil }

// Final returns true if a task of a language model produces the whole answer of its request, so that its text can be
// sent as it comes: no segment of the workflow follows, and no other part belongs to the answer. task is the task's
// slot.
func (f *applicationAnswerer) Final(task int32) bool {
	generationStep, s := f.store.facts[task].generationStep, &f.store.Apps
	if generationStep == 0 || s.workflows == nil {
		return false
	}
	step := &s.workflows.GenerationSteps[generationStep-1]
	segment := &s.workflows.Apps[step.App].Segments[step.Segment]
	if slices.ContainsFunc(segment.BranchTargets, func(to int32) bool { return to >= 0 }) {
		return false
	}
	parts := s.apps[f.core.Ledger.RequestIn(f.store.Tasks.List[task].Req).Job.Model.Index].answerParts
	i := slices.IndexFunc(parts, func(part answerPart) bool { return s.workflows.LanguageModelOf(part.service) != nil })
	return i >= 0 && parts[i].segment == step.Segment && parts[i].name == segment.Steps[step.Step].Name && parts[i].maxItems == 1
}

// takePart copies the outputs of task t, which has finished, into the answer of its request, and marks the part as
// answered in r, if the task's module is at an end of the graph. Workflows copy theirs when the request is complete.
func (f *applicationAnswerer) takePart(t int32, r *taskRequest) {
	task, s := &f.store.Tasks.List[t], &f.store.Apps
	q := f.core.Ledger.RequestIn(task.Req)
	if s.graphs == nil || q.Job.Answered {
		return
	}
	parts := s.apps[q.Job.Model.Index].answerParts
	for i := range parts {
		if part := &parts[i]; part.service == task.Service {
			for k := range part.count {
				f.writeOutput(q, part.first+k, f.store.outputOf(t, k))
			}
			r.answeredParts |= 1 << i
		}
	}
}

// writeOutput writes data as output i of a request's sample into the job's answer, padded with zeros.
func (f *applicationAnswerer) writeOutput(q *turn.Request, i int, data []byte) {
	size := q.Job.Model.Outputs[i].Bytes
	to := q.Job.Outputs[i][int(q.Sample)*size:][:size]
	if copy(to, data) < size {
		clear(to[len(data):])
	}
}

// completeAnswer completes the answer of the request q in a slot when its last task has ended. For workflows it copies
// the outputs of the modules that the request ended with. Parts that the request did not come to are zeros, and counted
// in Job.MissingOutputs: a part that no sample has is left out of the response. Which modules answered and which did not
// is noted for the response's parameters.
func (f *applicationAnswerer) completeAnswer(slot int32, q *turn.Request, r *taskRequest) {
	s := &f.store.Apps
	switch {
	case q.Job.Program != nil: // the program has got its answers
		return
	case s.apps == nil:
		for i := range q.Job.Model.Outputs {
			f.writeOutput(q, i, f.store.outputOf(r.lastTask, i))
		}
		return
	}

	// Copy the parts that the request came to, and clear the others.
	app := &s.apps[q.Job.Model.Index]
	for i := range app.answerParts {
		part := &app.answerParts[i]
		isReached := r.answeredParts>>i&1 == 1
		if s.workflows != nil {
			isReached = part.segment == s.control.SegmentOf(slot)
		}
		switch {
		case !isReached && !app.equalParts:
			for k := range part.count {
				f.writeOutput(q, part.first+k, nil)
				q.Job.MissingOutputs[part.first+k]++
			}
			notesOf(q).skippedModules.addName(q, part.module)
		case isReached && s.workflows != nil:
			f.gatherItems(slot, q, part)
			if app.equalParts && len(app.answerParts) > 1 {
				notesOf(q).answeredBy.addName(q, part.module)
			}
		}
	}
}

// gatherItems copies the outputs of all tasks of a module (part) with which a workflow's request ended into the answer.
// A module that ran for several items of a list has a task for each; their outputs stand one after the other, and zeros
// behind them. The number of items is noted for the response's parameters.
func (f *applicationAnswerer) gatherItems(slot int32, q *turn.Request, part *answerPart) {
	tasks := f.store.Apps.control.LatestTasks(slot, part.name)
	for k := range part.count {
		size := f.core.Services[part.service].Outputs[k].Bytes
		sampleBytes := q.Job.Model.Outputs[part.first+k].Bytes
		to := q.Job.Outputs[part.first+k][int(q.Sample)*sampleBytes:][:sampleBytes]
		clear(to)
		for item, t := range tasks {
			copy(to[item*size:], f.store.outputOf(t, k))
		}
	}
	if part.maxItems > 1 {
		notesOf(q).items.addName(q, part.module+"="+strconv.Itoa(len(tasks)))
	}
}

// responseNotes are the parameters of a job's response: the modules at the ends that its samples did not come to, those
// that gave the answer, and the numbers of items.
type responseNotes struct{ skippedModules, answeredBy, items nameList }

// nameList is a list of names, separated by commas. With several samples the names are written as SAMPLE:NAME.
type nameList []byte

// notesOf returns the notes for the response to a request's job, which it creates on the first call.
func notesOf(q *turn.Request) *responseNotes {
	notes, _ := q.Job.AnswerState.(*responseNotes)
	if notes == nil {
		notes = &responseNotes{}
		q.Job.AnswerState = notes
	}
	return notes
}

// addName appends a module's name to a list in the response, after a comma. In a job of several samples the number
// of the sample stands before it.
func (p *nameList) addName(q *turn.Request, name string) {
	if len(*p) > 0 {
		*p = append(*p, ',')
	}
	if q.Job.Samples > 1 {
		*p = fmt.Appendf(*p, "%d:", q.Sample)
	}
	*p = append(*p, name...)
}

// ResponseParameters returns the modules whose part of the answer is missing, because the request's path did not lead
// there ("passed_over"), the module that gave the answer if several may ("answered_by"), and the numbers of items
// ("items").
func (f *applicationAnswerer) ResponseParameters(j *turn.Job) map[string]oip.Param {
	notes, ok := j.AnswerState.(*responseNotes)
	if !ok {
		return nil
	}
	out := map[string]oip.Param{}
	for _, p := range []struct {
		name string
		text nameList
	}{{"passed_over", notes.skippedModules}, {"answered_by", notes.answeredBy}, {"items", notes.items}} {
		if len(p.text) > 0 {
			out[p.name] = string(p.text)
		}
	}
	return out
}

// failCondition fails a request because a condition of its workflow has no value, and makes advance undo what was
// decided for it.
func (f *applicationAnswerer) failCondition(req int32, err error) {
	f.store.Apps.conditionFailed = true
	if q := f.core.Ledger.RequestIn(req); q != nil && !q.Job.Answered {
		f.core.Ledger.FailJob(q.Job, err)
	}
}

// advance calls step, in which the plan's control decides the next tasks of a request. If a condition has no
// value, the decisions are undone: the request has been answered, and its policy is told of that.
func (f *applicationAnswerer) advance(step func()) {
	s, out := &f.store.Apps, &f.store.Tasks.Reveals
	tasks, over := len(out.Tasks), len(out.EndedRequests)
	step()
	if s.conditionFailed {
		s.conditionFailed = false
		out.Tasks, out.EndedRequests = out.Tasks[:tasks], out.EndedRequests[:over]
	}
}
