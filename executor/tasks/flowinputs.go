package tasks

import (
	"fmt"
	"slices"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// TaskInput returns the i-th input of a task: the outputs of the tasks in its list, one after the other, and the
// client's inputs where the list says so. A task of a fan-out reads its item of an output that has several.
func (f *Flow) Input(task int32, i int) []byte {
	ta, wanted := &f.List[task], f.facts[task].item
	q := f.c.Request(ta.Req)
	if q == nil || q.Job.Answered {
		return nil
	}

	// Values that a program gave the task come first; the others are read in order.
	size, from := f.c.Services[ta.Service].Inputs[i].Bytes, i
	if own, ok := f.given[task]; ok {
		if own.tensors[i] != nil {
			return own.tensors[i]
		}
		for _, given := range own.tensors[:i] {
			if given != nil {
				from--
			}
		}
	}

	// Find the output that it reads.
	made := f.source(ta, q, from)
	if made == nil && f.Apps.evaluates() {
		s := f.c.Services[ta.Service]
		f.c.Fail(q.Job, fmt.Errorf("service %s: nothing gives the input %q: no module that it reads has run", s.Label, s.Inputs[i].Name))
	}
	if made == nil || len(made) == size || f.c.Services[ta.Service].Inputs[i].Text {
		return made
	}

	// A task of a fan-out takes its item.
	item := itemOf(made, size, wanted)
	if item == nil && !(f.c.Options.MadeUp() && readsText(f, ta)) {
		s := f.c.Services[ta.Service]
		f.c.Fail(q.Job, fmt.Errorf("item %d of service %s: input %q takes %d bytes of the %d that were made", wanted, s.Label, s.Inputs[i].Name, size, len(made)))
	}
	return item
}

// readsText returns true if one of the inputs of a task is a text.
func readsText(f *Flow, ta *policy.Task) bool {
	return slices.ContainsFunc(ta.Inputs, func(in int32) bool {
		return in >= 0 && slices.ContainsFunc(f.c.Services[f.List[in].Service].Outputs, func(t turn.Tensor) bool { return t.Text })
	})
}

// FillInput runs the step before a task's model. If there is none, it returns false.
func (f *ensemble) Fill(task int32, i int, dst []byte) bool {
	s, ta, fa := &f.made.Apps, &f.made.List[task], &f.made.facts[task]
	if s.of == nil {
		return false
	}
	q := f.c.Request(ta.Req)
	if q == nil || q.Job.Answered {
		clear(dst)
		return true
	}
	own := s.preOf(ta.Service, s.place(q.Job.Model.Index, fa.ask))
	if own == nil {
		return false
	}

	// Collect the tensors that the step reads.
	s.client, s.read = s.client[:0], s.read[:0]
	for k := range q.Job.Inputs {
		s.client = append(s.client, q.Job.Input(int(q.Sample), k))
	}
	for _, in := range ta.Inputs {
		if in < 0 {
			continue
		}
		for k := range f.c.Services[f.made.List[in].Service].Outputs {
			s.read = append(s.read, f.made.output(in, k))
		}
	}
	if len(s.read) != len(own.reads) || slices.ContainsFunc(s.read, func(b []byte) bool { return b == nil }) {
		f.c.Fail(q.Job, fmt.Errorf("module %s reads %d tensors, of which some are not there", f.c.Services[ta.Service].Label, len(s.read)))
		clear(dst)
		return true
	}
	own.before(i, fa.item, dst, s.client, s.read)
	return true
}

// itemOf returns an item of an output that consists of items of a size. If there is no such item, it returns nil.
func itemOf(made []byte, size int, item int64) []byte {
	if size <= 0 || len(made)%size != 0 || item < 0 || item >= int64(len(made)/size) {
		return nil
	}
	return made[int(item)*size:][:size]
}

// inputSource returns the output, or the client's input, that is the i-th of what a task reads. If there is none, it
// returns nil.
func (f *Flow) source(ta *policy.Task, q *turn.Request, i int) []byte {
	for _, in := range ta.Inputs {
		n := len(q.Job.Inputs)
		if in >= 0 {
			n = len(f.c.Services[f.List[in].Service].Outputs)
		}
		switch {
		case i >= n:
			i -= n
		case in < 0:
			return q.Job.Input(int(q.Sample), i)
		default:
			return f.output(in, i)
		}
	}
	return nil
}
