package tasks

import (
	"fmt"
	"slices"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// TaskInput returns the bytes of the i-th input of the model of a task (a slot). The task reads outputs of earlier tasks
// or the client's inputs, and their tensors, one after the other, are the model's inputs. A task of a fan-out (one for
// each item of a list) reads its item of an output that has several. It returns nil if the request is over, or fails
// because the input does not exist.
func (f *TaskAnswerer) TaskInput(task int32, i int) []byte {
	ta, itemIndex := &f.Tasks.List[task], f.facts[task].item
	q := f.core.Ledger.RequestIn(ta.Req)
	if q == nil || q.Job.Answered {
		return nil
	}

	// Values that a program gave the task are its inputs as they are; the tensors that it reads are the others, in
	// order, so the given ones before i do not count.
	size, sourceIndex := f.core.Services[ta.Service].Inputs[i].Bytes, i
	if program, ok := f.programInputs[task]; ok {
		if program.tensors[i] != nil {
			return program.tensors[i]
		}
		for _, value := range program.tensors[:i] {
			if value != nil {
				sourceIndex--
			}
		}
	}

	// Find the output that it reads.
	output := f.inputSource(ta, q, sourceIndex)
	if output == nil && f.Apps.evaluatesConditions() {
		s := f.core.Services[ta.Service]
		f.core.Ledger.FailJob(q.Job, fmt.Errorf("service %s: nothing gives the input %q: no module that it reads has run", s.Label, s.Inputs[i].Name))
	}
	if output == nil || len(output) == size || f.core.Services[ta.Service].Inputs[i].Text {
		return output
	}

	// A task of a fan-out takes its item.
	item := itemOf(output, size, itemIndex)
	if item == nil && !(f.core.Options.HasRandomOutputs() && readsText(f, ta)) {
		s := f.core.Services[ta.Service]
		f.core.Ledger.FailJob(q.Job, fmt.Errorf("item %d of service %s: input %q takes %d bytes of the %d that were made", itemIndex, s.Label, s.Inputs[i].Name, size, len(output)))
	}
	return item
}

// readsText returns true if one of the inputs of a task is a text.
func readsText(f *TaskAnswerer, ta *policy.Task) bool {
	return slices.ContainsFunc(ta.Inputs, func(in int32) bool {
		return in >= 0 && slices.ContainsFunc(f.core.Services[f.Tasks.List[in].Service].Outputs, func(t turn.Tensor) bool { return t.Text })
	})
}

// FillInput computes the i-th input of a task's model into dst, by the step before the model (steps compute between
// models: cut out a box of an image, say). It is called for each task of a batch before the batch is sent. If no step
// stands before this run of the module, it returns false, and the input is copied as it is. If the request is answered
// already, or tensors are missing (the request then fails), dst is set to zeros.
func (f *applicationAnswerer) FillInput(task int32, i int, dst []byte) bool {
	s, ta, facts := &f.store.Apps, &f.store.Tasks.List[task], &f.store.facts[task]
	if s.serviceSteps == nil {
		return false
	}
	q := f.core.Ledger.RequestIn(ta.Req)
	if q == nil || q.Job.Answered {
		clear(dst)
		return true
	}
	preStep := s.preStepAt(ta.Service, s.preStepIndex(q.Job.Model.Index, facts.generationStep))
	if preStep == nil {
		return false
	}

	// Collect the tensors that the step reads: those of the client, and the outputs of the tasks that this one reads. An
	// index below 0 among these stands for the client's request.
	s.clientTensors, s.readTensors = s.clientTensors[:0], s.readTensors[:0]
	for k := range q.Job.Inputs {
		s.clientTensors = append(s.clientTensors, q.Job.Input(int(q.Sample), k))
	}
	for _, in := range ta.Inputs {
		if in < 0 {
			continue
		}
		for k := range f.core.Services[f.store.Tasks.List[in].Service].Outputs {
			s.readTensors = append(s.readTensors, f.store.outputOf(in, k))
		}
	}
	if len(s.readTensors) != len(preStep.readBytes) || slices.ContainsFunc(s.readTensors, func(b []byte) bool { return b == nil }) {
		f.core.Ledger.FailJob(q.Job, fmt.Errorf("module %s reads %d tensors, of which some are not there", f.core.Services[ta.Service].Label, len(s.readTensors)))
		clear(dst)
		return true
	}
	preStep.run(i, facts.item, dst, s.clientTensors, s.readTensors)
	return true
}

// itemOf returns item number `item` of an output that consists of items of size bytes. If there is no such item,
// it returns nil.
func itemOf(output []byte, size int, item int64) []byte {
	if size <= 0 || len(output)%size != 0 || item < 0 || item >= int64(len(output)/size) {
		return nil
	}
	return output[int(item)*size:][:size]
}

// inputSource returns the i-th tensor of all that a task reads, counted over its sources one after the other: a
// client's input or an output of an earlier task. If there are not so many, it returns nil.
func (f *TaskAnswerer) inputSource(ta *policy.Task, q *turn.Request, i int) []byte {
	for _, in := range ta.Inputs {
		n := len(q.Job.Inputs)
		if in >= 0 {
			n = len(f.core.Services[f.Tasks.List[in].Service].Outputs)
		}
		switch {
		case i >= n:
			i -= n
		case in < 0:
			return q.Job.Input(int(q.Sample), i)
		default:
			return f.outputOf(in, i)
		}
	}
	return nil
}
