package turn

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/executor/oip"
	"inferplan/executor/tracing"
	"inferplan/policy"
)

// jobOutcome says how a job ended.
type jobOutcome uint8

const (
	outcomePending jobOutcome = iota
	OutcomeServed
	OutcomeDropped
	OutcomeFailed
)

// Job is a client's request inside the executor: n samples, each a request of the policy. Jobs are pooled. Each has two
// holders: the goroutine that serves the client, until the response is written, and the core, until the last sample has
// left the policy. A cancel message is a further holder.
type Job struct {
	Model           *Model
	Samples         int
	ArrivedAt       time.Duration
	Deadline        time.Duration
	Client          int32          // see policy.Event
	Session         int64          // number of the session whose tokens it repeats; 0 if it has none
	Inputs          [][]byte       // in the model's order, n samples each
	ConditionValues map[string]any // values for conditions, by parameters.NAME
	Outputs         [][]byte       // in the model's order, n samples each
	MissingOutputs  []int          // by output: number of samples that have none

	Done chan struct{} // capacity 1: receives when the job is answered

	// The next fields belong to the core until the job is done.
	RemainingSamples int // samples without a result
	openSamples      int // samples that the policy still knows
	Outcome          jobOutcome
	IsLate           bool
	Reason           policy.DropReason
	RetryAfter       time.Duration // time until the request is worth sending again; 0 if unknown
	Failure          error
	Answered         bool
	inClientShare    bool    // it counts in its client's share
	overClientShare  bool    // it was refused because its client has used up its share
	Slots            []int32 // request slot of each sample; -1 once it is freed

	Answerer    Answerer
	Program     policy.Control   // control of its tasks; nil for the plan's Control
	AnswerState any              // state that the answerer keeps with the job; a pooled job keeps it
	Text        textRequest      // request to a language model, in place of tensors; nil for tensors
	Trace       *tracing.Request // nil if it has no span
	runs        []jobRun         // with Trace: the batches that its samples were in
	Stream      *oip.TextStream  // receives the answer while it is produced; nil if only the whole answer is wanted

	Holds        atomic.Int32
	response     oip.Response
	tensors      []oip.Tensor
	shapes       []int64
	outputMemory []byte
}

// textRequest is a request to a language model, with text in place of tensors.
type textRequest interface {
	// TokenLengths returns the tokens of the prompt, and the most that may be written.
	TokenLengths() (prompt, limit int32)
	// JobAnswered is called after the job has been answered.
	JobAnswered(j *Job)
}

var jobs sync.Pool

// NewJob returns a job (what the core keeps of a client's request) for a validated request with n samples, with
// memory for its outputs. Jobs are used again from a pool. Two hold it: the client's handler and the core.
func NewJob(m *Model, n int) *Job {
	j, _ := jobs.Get().(*Job)
	if j == nil {
		j = &Job{Done: make(chan struct{}, 1)}
		j.response.Release = j.Release
	}
	j.Model, j.Samples, j.RemainingSamples, j.openSamples = m, n, n, n
	j.Outcome, j.IsLate, j.Reason, j.RetryAfter, j.Failure, j.Answered, j.Text = outcomePending, false, policy.ReasonNone, 0, nil, false, nil
	j.Client, j.Session, j.inClientShare, j.overClientShare = 0, 0, false, false
	j.Holds.Store(2)
	j.Inputs, j.Outputs, j.Slots = j.Inputs[:0], j.Outputs[:0], j.Slots[:0]
	j.MissingOutputs = slices.Grow(j.MissingOutputs[:0], len(m.Outputs))[:len(m.Outputs)]
	clear(j.MissingOutputs)
	for range n {
		j.Slots = append(j.Slots, -1)
	}

	// All outputs share one piece of memory.
	neededBytes := 0
	for i := range m.Outputs {
		neededBytes += n * m.Outputs[i].Bytes
	}
	if cap(j.outputMemory) < neededBytes {
		j.outputMemory = make([]byte, neededBytes)
	}
	memory := j.outputMemory[:neededBytes]
	for i := range m.Outputs {
		size := n * m.Outputs[i].Bytes
		j.Outputs = append(j.Outputs, memory[:size:size])
		memory = memory[size:]
	}
	return j
}

// Input returns the i-th input of a sample.
func (j *Job) Input(sample, i int) []byte {
	size := j.Model.Inputs[i].Bytes
	return j.Inputs[i][sample*size:][:size]
}

// buildResponse fills the job's own response with its outputs, after it was answered. An output that no sample has
// is left out, and the response is then partial. The memory is the job's, until the response is released.
func (j *Job) buildResponse() *oip.Response {
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
		if j.MissingOutputs[i] == j.Samples {
			continue
		}
		if !m.hasNoBatchAxis() {
			shape[0] = int64(j.Samples)
		}
		j.tensors = append(j.tensors, oip.Tensor{Name: o.Name, Datatype: o.Datatype, Shape: shape, Data: j.Outputs[i]})
	}
	release := j.response.Release
	j.response = oip.Response{Outputs: j.tensors, Partial: len(j.tensors) < len(m.Outputs), Release: release, Params: j.Answerer.ResponseParameters(j)}
	return &j.response
}

// ReleaseUntaken returns a job to the pool that no core has taken.
func (j *Job) ReleaseUntaken() {
	j.Holds.Store(1)
	j.Release()
}

// Release gives up one hold on the job (the client's handler has one, the core another). The last one clears it and
// returns it to the pool, from which another request takes it.
func (j *Job) Release() {
	if j.Holds.Add(-1) > 0 {
		return
	}
	clear(j.Inputs)
	j.Failure, j.Answerer, j.ConditionValues, j.Program, j.Stream = nil, nil, nil, nil, nil
	clear(j.runs)
	j.Trace, j.runs = nil, j.runs[:0]
	select {
	case <-j.Done:
	default:
	}
	jobs.Put(j)
}
