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
	name       string
	parameters map[string]string   // parameters of its requests, with their types
	services   []int32             // services that its requests may need
	values     map[string]declared // outputs that conditions use, by MODULE.OUTPUT
	ends       []end
	alike      bool // all parts have the same tensors, so that each is the whole answer
}

// answerPart is a module that requests may end with. Its outputs are part of the answer: `count` tensors from `first`
// on.
type end struct {
	service       int32
	module        string
	first, count  int
	items         int32 // items that the answer has space for; 1 if the module runs once
	segment, name int32 // of a workflow
}

// bindAnswer sets the outputs of an application. If all ends of a workflow have the same tensors, and no segment has two
// of them, the end that a request comes to is the answer. Otherwise the answer has a part for each end; if there are
// several, the names of the outputs begin with the module's.
func (s *applications) bindAnswer(a int) error {
	app, m := &s.list[a], s.c.Served.Models[a]
	if len(app.ends) > 64 {
		return fmt.Errorf("%d modules at its ends, expected at most 64", len(app.ends))
	}
	gives := func(e *end) []turn.Tensor { return several(s.c.Services[e.service].Outputs, e.items) }

	// Do all ends have the same tensors?
	app.alike = s.workflows != nil
	for i := range app.ends {
		e := &app.ends[i]
		same := slices.EqualFunc(gives(e), gives(&app.ends[0]), func(a, b turn.Tensor) bool { return a.Name == b.Name })
		app.alike = app.alike && same && sameShapes(gives(e), gives(&app.ends[0])) && (i == 0 || e.segment != app.ends[i-1].segment)
	}

	// Append the outputs of each part.
	m.Outputs = nil
	for i := range app.ends {
		e := &app.ends[i]
		list := gives(e)
		if e.count = len(list); app.alike && i > 0 {
			continue
		}
		e.first = len(m.Outputs)
		for _, o := range list {
			if !app.alike && len(app.ends) > 1 {
				o.Name = e.module + "." + o.Name
			}
			m.Outputs = append(m.Outputs, o)
		}
	}
	return nil
}

// applicationAnswerer is the part of the answerer that handles what clients see of applications: what they send, what
// they get, and the steps between models.
type ensemble struct {
	turn.Plain
	c       *turn.Core
	made    *Tasks
	Modules moduleMetrics
}

// ServicesNeeded returns the services that an application's requests may need.
func (f *ensemble) Needs(model int32) []int32 {
	if list := f.made.Apps.list; list != nil {
		return list[model].services
	}
	return nil
}

// PreStepOf returns the step before a service's model in an application, and the bytes of the tensors that it reads. If
// there is none, the name is empty.
func (f *ensemble) Before(service, app int32) (name string, reads []int) {
	if own := f.made.Apps.preOf(service, app); own != nil {
		return own.pre, own.reads
	}
	return "", nil
}

// HasWorkflows returns true if the plan has workflows.
func (f *ensemble) Workflows() bool { return f.made.Apps.workflows != nil }

// Final returns true if the output of a task of a language model is the whole text of its request's answer: no segment
// follows, and no other part belongs to the answer.
func (f *ensemble) Final(task int32) bool {
	ask, s := f.made.facts[task].ask, &f.made.Apps
	if ask == 0 || s.workflows == nil {
		return false
	}
	at := &s.workflows.Asks[ask-1]
	segment := &s.workflows.Apps[at.App].Segments[at.Segment]
	if slices.ContainsFunc(segment.To, func(to int32) bool { return to >= 0 }) {
		return false
	}
	ends := s.list[f.c.Request(f.made.List[task].Req).Job.Model.Index].ends
	i := slices.IndexFunc(ends, func(e end) bool { return s.workflows.GenerationOf(e.service) != nil })
	return i >= 0 && ends[i].segment == at.Segment && ends[i].name == segment.Steps[at.Step].Name && ends[i].items == 1
}

// takePart copies the outputs of a task of a graph into the answer, if the task is at an end.
func (f *ensemble) answer(t int32, r *flowRequest) {
	ta, s := &f.made.List[t], &f.made.Apps
	q := f.c.Request(ta.Req)
	if s.graphs == nil || q.Job.Answered {
		return
	}
	ends := s.list[q.Job.Model.Index].ends
	for i := range ends {
		if e := &ends[i]; e.service == ta.Service {
			for k := range e.count {
				f.lay(q, e.first+k, f.made.output(t, k))
			}
			r.ends |= 1 << i
		}
	}
}

// writeOutput writes one of a request's outputs, padded with zeros.
func (f *ensemble) lay(q *turn.Request, i int, data []byte) {
	size := q.Job.Model.Outputs[i].Bytes
	to := q.Job.Outputs[i][int(q.Sample)*size:][:size]
	if copy(to, data) < size {
		clear(to[len(data):])
	}
}

// completeAnswer completes the answer of a request. For workflows it copies the outputs of the modules at the end that
// the request came to. Parts that it did not come to are zeros, and counted in Job.MissingOutputs: a part that no sample
// has is left out of the response.
func (f *ensemble) complement(slot int32, q *turn.Request, r *flowRequest) {
	s := &f.made.Apps
	switch {
	case q.Job.Program != nil: // the program has got its answers
		return
	case s.list == nil:
		for i := range q.Job.Model.Outputs {
			f.lay(q, i, f.made.output(r.last, i))
		}
		return
	}

	// Copy the parts that the request came to, and clear the others.
	app := &s.list[q.Job.Model.Index]
	for i := range app.ends {
		e := &app.ends[i]
		came := r.ends>>i&1 == 1
		if s.workflows != nil {
			came = e.segment == s.walk.Segment(slot)
		}
		switch {
		case !came && !app.alike:
			for k := range e.count {
				f.lay(q, e.first+k, nil)
				q.Job.Without[e.first+k]++
			}
			told(q).passedOver.add(q, e.module)
		case came && s.workflows != nil:
			f.gather(slot, q, e)
			if app.alike && len(app.ends) > 1 {
				told(q).answeredBy.add(q, e.module)
			}
		}
	}
}

// gatherItems copies the outputs of the tasks of a workflow's module at the end of a request, item after item.
func (f *ensemble) gather(slot int32, q *turn.Request, e *end) {
	tasks := f.made.Apps.walk.Latest(slot, e.name)
	for k := range e.count {
		size := f.c.Services[e.service].Outputs[k].Bytes
		whole := q.Job.Model.Outputs[e.first+k].Bytes
		to := q.Job.Outputs[e.first+k][int(q.Sample)*whole:][:whole]
		clear(to)
		for item, t := range tasks {
			copy(to[item*size:], f.made.output(t, k))
		}
	}
	if e.items > 1 {
		told(q).items.add(q, e.module+"="+strconv.Itoa(len(tasks)))
	}
}

// responseNotes are the parameters of a job's response: the modules at the ends that its samples did not come to, those
// that gave the answer, and the numbers of items.
type endsOf struct{ passedOver, answeredBy, items words }

// nameList is a list of names, separated by commas. With several samples the names are written as SAMPLE:NAME.
type words []byte

// notesOf returns the notes of a request's job.
func told(q *turn.Request) *endsOf {
	side, _ := q.Job.Side.(*endsOf)
	if side == nil {
		side = &endsOf{}
		q.Job.Side = side
	}
	return side
}

// addName appends a name for a request.
func (p *words) add(q *turn.Request, name string) {
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
func (f *ensemble) Parameters(j *turn.Job) map[string]oip.Param {
	side, ok := j.Side.(*endsOf)
	if !ok {
		return nil
	}
	out := map[string]oip.Param{}
	for _, p := range []struct {
		name string
		text words
	}{{"passed_over", side.passedOver}, {"answered_by", side.answeredBy}, {"items", side.items}} {
		if len(p.text) > 0 {
			out[p.name] = string(p.text)
		}
	}
	return out
}

// failCondition ends a request one of whose conditions has no value.
func (f *ensemble) astray(req int32, err error) {
	f.made.Apps.broken = true
	if q := f.c.Request(req); q != nil && !q.Job.Answered {
		f.c.Fail(q.Job, err)
	}
}

// advance calls `step`, in which the control decides the next tasks of a request. If a condition has no value, the
// decisions are undone: the request has been answered, and its policy is told of that.
func (f *ensemble) lead(say func()) {
	s, out := &f.made.Apps, &f.made.Reveals
	tasks, over := len(out.Tasks), len(out.Over)
	say()
	if s.broken {
		s.broken = false
		out.Tasks, out.Over = out.Tasks[:tasks], out.Over[:over]
	}
}
