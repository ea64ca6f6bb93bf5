package executor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/executor/oip"
	"inferplan/policy"
)

// outcome is how a job ended.
type outcome uint8

const (
	pending outcome = iota
	served
	dropped
	failed
)

// job is a client request inside the executor: n samples, each a request of
// the policy. Jobs are pooled. Two hold one: the goroutine in Infer until the
// answer was written, and the core until the last sample has left the policy; so
// does the message that the client went away.
type job struct {
	model    *model
	n        int
	arrived  time.Duration
	deadline time.Duration
	client   int32          // see policy.Event
	inputs   [][]byte       // in the model's order, n samples each
	brought  map[string]any // what conditions know of the request, by parameters.NAME
	outputs  [][]byte       // likewise
	without  []int          // by output: samples that have none

	done chan struct{} // capacity 1: the answer is there

	// Of the core until done.
	left     int // samples without result
	open     int // samples still known to the policy
	outcome  outcome
	late     bool
	reason   policy.Reason
	again    time.Duration // until asking again is worth it; 0: not known
	failure  error
	answered bool
	shared   bool    // it counts in its client's share
	refused  bool    // for its client has had its share
	slots    []int32 // request slot of each sample, -1 when free again

	answers answer
	program taskSource      // asks for its tasks; nil: the plan says them
	side    any             // what the answer keeps of it; a pooled job brings it along
	text    textRequest     // what it asks of a language model, instead of tensors; nil: tensors
	stream  *oip.TextStream // takes the answer while it is made; nil: nobody wants it before the end

	refs     atomic.Int32
	response oip.Response
	tensors  []oip.Tensor
	shapes   []int64
	store    []byte
}

// taskSource asks for the tasks of a job, in place of the plan.
type taskSource interface {
	// begun follows the arrival of the request.
	begun(slot int32)
	// ended follows the end of a task.
	ended(task int32)
	// freed adds the tasks that it holds to a list, once its request is over.
	freed(list []int32) []int32
}

// textRequest is what a job asks of a language model.
type textRequest interface {
	// lengths are the tokens of the prompt and the most to write.
	lengths() (prompt, limit int32)
	// over follows the answer of the job.
	over(j *job)
}

var jobs sync.Pool

// newJob prepares a job for a validated request.
func newJob(m *model, n int) *job {
	j, _ := jobs.Get().(*job)
	if j == nil {
		j = &job{done: make(chan struct{}, 1)}
		j.response.Release = j.release
	}
	j.model, j.n, j.left, j.open = m, n, n, n
	j.outcome, j.late, j.reason, j.again, j.failure, j.answered, j.text = pending, false, policy.ReasonNone, 0, nil, false, nil
	j.client, j.shared, j.refused = 0, false, false
	j.refs.Store(2)
	j.inputs, j.outputs, j.slots = j.inputs[:0], j.outputs[:0], j.slots[:0]
	j.without = slices.Grow(j.without[:0], len(m.outputs))[:len(m.outputs)]
	clear(j.without)
	for range n {
		j.slots = append(j.slots, -1)
	}
	need := 0
	for i := range m.outputs {
		need += n * m.outputs[i].bytes
	}
	if cap(j.store) < need {
		j.store = make([]byte, need)
	}
	store := j.store[:need]
	for i := range m.outputs {
		size := n * m.outputs[i].bytes
		j.outputs = append(j.outputs, store[:size:size])
		store = store[size:]
	}
	return j
}

// input is the i-th input of a sample.
func (j *job) input(sample, i int) []byte {
	size := j.model.inputs[i].bytes
	return j.inputs[i][sample*size:][:size]
}

// respond fills the job's own response. An output that no sample has is left out.
func (j *job) respond() *oip.Response {
	m := j.model
	j.tensors, j.shapes = j.tensors[:0], j.shapes[:0]
	for i := range m.outputs {
		j.shapes = append(j.shapes, m.outputs[i].shape...)
	}
	shapes := j.shapes
	for i := range m.outputs {
		o := &m.outputs[i]
		shape := shapes[:len(o.shape):len(o.shape)]
		shapes = shapes[len(o.shape):]
		if j.without[i] == j.n {
			continue
		}
		if !m.runsWhole() {
			shape[0] = int64(j.n)
		}
		j.tensors = append(j.tensors, oip.Tensor{Name: o.name, Datatype: o.datatype, Shape: shape, Data: j.outputs[i]})
	}
	release := j.response.Release
	j.response = oip.Response{Outputs: j.tensors, Partial: len(j.tensors) < len(m.outputs), Release: release, Params: j.answers.parameters(j)}
	return &j.response
}

// release gives up one hold; the last puts the job back into the pool.
func (j *job) release() {
	if j.refs.Add(-1) > 0 {
		return
	}
	clear(j.inputs)
	j.failure, j.answers, j.brought, j.program, j.stream = nil, nil, nil, nil, nil
	select {
	case <-j.done:
	default:
	}
	jobs.Put(j)
}
