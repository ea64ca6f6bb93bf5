package turn

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
	Served
	Dropped
	Failed
)

// Job is a client request inside the executor: n samples, each a request of
// the policy. Jobs are pooled. Two hold one: the goroutine in Infer until the
// answer was written, and the core until the last sample has left the policy; so
// does the message that the client went away.
type Job struct {
	Model    *Model
	Samples  int
	Arrived  time.Duration
	Deadline time.Duration
	Client   int32          // see policy.Event
	Inputs   [][]byte       // in the model's order, n samples each
	Brought  map[string]any // what conditions know of the request, by parameters.NAME
	Outputs  [][]byte       // likewise
	Without  []int          // by output: samples that have none

	Done chan struct{} // capacity 1: the answer is there

	// Of the core until done.
	Left       int // samples without result
	open       int // samples still known to the policy
	Outcome    outcome
	Late       bool
	Reason     policy.Reason
	RetryAfter time.Duration // until asking again is worth it; 0: not known
	Failure    error
	Answered   bool
	shared     bool    // it counts in its client's share
	refused    bool    // for its client has had its share
	Slots      []int32 // request slot of each sample, -1 when free again

	Answers Answer
	Program policy.Control  // asks for its tasks; nil: the plan's Control does
	Side    any             // what the answer keeps of it; a pooled job brings it along
	Text    textRequest     // what it asks of a language model, instead of tensors; nil: tensors
	Stream  *oip.TextStream // takes the answer while it is made; nil: nobody wants it before the end

	Refs     atomic.Int32
	response oip.Response
	tensors  []oip.Tensor
	shapes   []int64
	store    []byte
}

// textRequest is what a job asks of a language model.
type textRequest interface {
	// Lengths are the tokens of the prompt and the most to write.
	Lengths() (prompt, limit int32)
	// Over follows the answer of the job.
	Over(j *Job)
}

var jobs sync.Pool

// NewJob prepares a job for a validated request.
func NewJob(m *Model, n int) *Job {
	j, _ := jobs.Get().(*Job)
	if j == nil {
		j = &Job{Done: make(chan struct{}, 1)}
		j.response.Release = j.Release
	}
	j.Model, j.Samples, j.Left, j.open = m, n, n, n
	j.Outcome, j.Late, j.Reason, j.RetryAfter, j.Failure, j.Answered, j.Text = pending, false, policy.ReasonNone, 0, nil, false, nil
	j.Client, j.shared, j.refused = 0, false, false
	j.Refs.Store(2)
	j.Inputs, j.Outputs, j.Slots = j.Inputs[:0], j.Outputs[:0], j.Slots[:0]
	j.Without = slices.Grow(j.Without[:0], len(m.Outputs))[:len(m.Outputs)]
	clear(j.Without)
	for range n {
		j.Slots = append(j.Slots, -1)
	}
	need := 0
	for i := range m.Outputs {
		need += n * m.Outputs[i].Bytes
	}
	if cap(j.store) < need {
		j.store = make([]byte, need)
	}
	store := j.store[:need]
	for i := range m.Outputs {
		size := n * m.Outputs[i].Bytes
		j.Outputs = append(j.Outputs, store[:size:size])
		store = store[size:]
	}
	return j
}

// Input is the i-th input of a sample.
func (j *Job) Input(sample, i int) []byte {
	size := j.Model.Inputs[i].Bytes
	return j.Inputs[i][sample*size:][:size]
}

// respond fills the job's own response. An output that no sample has is left out.
func (j *Job) respond() *oip.Response {
	m := j.Model
	j.tensors, j.shapes = j.tensors[:0], j.shapes[:0]
	for i := range m.Outputs {
		j.shapes = append(j.shapes, m.Outputs[i].Shape...)
	}
	shapes := j.shapes
	for i := range m.Outputs {
		o := &m.Outputs[i]
		shape := shapes[:len(o.Shape):len(o.Shape)]
		shapes = shapes[len(o.Shape):]
		if j.Without[i] == j.Samples {
			continue
		}
		if !m.runsWhole() {
			shape[0] = int64(j.Samples)
		}
		j.tensors = append(j.tensors, oip.Tensor{Name: o.Name, Datatype: o.Datatype, Shape: shape, Data: j.Outputs[i]})
	}
	release := j.response.Release
	j.response = oip.Response{Outputs: j.tensors, Partial: len(j.tensors) < len(m.Outputs), Release: release, Params: j.Answers.Parameters(j)}
	return &j.response
}

// Forget gives a job back that no core has taken.
func (j *Job) Forget() {
	j.Refs.Store(1)
	j.Release()
}

// Release gives up one hold; the last puts the job back into the pool.
func (j *Job) Release() {
	if j.Refs.Add(-1) > 0 {
		return
	}
	clear(j.Inputs)
	j.Failure, j.Answers, j.Brought, j.Program, j.Stream = nil, nil, nil, nil, nil
	select {
	case <-j.Done:
	default:
	}
	jobs.Put(j)
}
