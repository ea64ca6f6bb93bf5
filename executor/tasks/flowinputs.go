package tasks

import (
	"fmt"
	"slices"

	"inferplan/executor/turn"
)

// Input is the i-th of what a task reads: the outputs of the tasks in its list,
// one after the other, and where that says so the client's inputs. A task of a
// fan-out reads its item of an output that has several.
func (f *Flow) Input(task int32, i int) []byte {
	ta := &f.Tasks.List[task]
	q := f.c.Ledger.At(ta.Request)
	if q == nil || q.Job.Answered {
		return nil
	}
	size, from := f.c.Services[ta.Service].Inputs[i].Bytes, i
	if own, ok := f.Tasks.Given[task]; ok {
		if own.tensors[i] != nil {
			return own.tensors[i]
		}
		for _, given := range own.tensors[:i] {
			if given != nil {
				from--
			}
		}
	}
	made := f.source(ta, q, from)
	if made == nil && f.Tasks.Steps.Flows.evaluates() {
		s := f.c.Services[ta.Service]
		f.c.Ledger.Fail(q.Job, fmt.Errorf("service %s: nothing gives the input %q: no module that it reads has run", s.Label, s.Inputs[i].Name))
	}
	if made == nil || len(made) == size || f.c.Services[ta.Service].Inputs[i].Text {
		return made
	}
	item := itemOf(made, size, ta.item)
	if item == nil && !(f.c.Options.MadeUp() && f.readsText(ta)) {
		s := f.c.Services[ta.Service]
		f.c.Ledger.Fail(q.Job, fmt.Errorf("item %d of service %s: input %q takes %d bytes of the %d that were made", ta.item, s.Label, s.Inputs[i].Name, size, len(made)))
	}
	return item
}

// readsText returns true if one of the tasks that a task reads made a text.
func (f *Flow) readsText(ta *flowTask) bool {
	return slices.ContainsFunc(ta.Inputs, func(in int32) bool {
		return in >= 0 && slices.ContainsFunc(f.c.Services[f.Tasks.List[in].Service].Outputs, func(t turn.Tensor) bool { return t.Text })
	})
}

// itemOf is an item of an output that is cut into items of a size; nil: it has
// no such item.
func itemOf(made []byte, size int, item int64) []byte {
	if size <= 0 || len(made)%size != 0 || item < 0 || item >= int64(len(made)/size) {
		return nil
	}
	return made[int(item)*size:][:size]
}

// source is the output, or the client's input, that is the i-th of what a task
// reads; nil: there is none.
func (f *Flow) source(ta *flowTask, q *turn.Request, i int) []byte {
	for _, in := range ta.Inputs {
		n := len(q.Job.Inputs)
		if in >= 0 {
			n = len(f.c.Services[f.Tasks.List[in].Service].Outputs)
		}
		switch {
		case i >= n:
			i -= n
		case in < 0:
			return q.Job.Input(int(q.Sample), i)
		default:
			return f.Tasks.output(in, i)
		}
	}
	return nil
}
