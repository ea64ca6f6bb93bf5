package turn

import (
	"time"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/served"
	"inferplan/policy"
)

// Answerer turns what batches produce into the answers of requests. Its methods are called by the goroutine that has the
// core's turn, except Admit and ResponseParameters, which the job's own goroutine calls.
type Answerer interface {
	// IsOneFamily returns true if all models together answer the plan's requests.
	IsOneFamily() bool
	// CheckOutputs returns an error if the outputs of a model cannot be answers.
	CheckOutputs(m *Model) error
	// Admit prepares a job with the parameters of its request.
	Admit(j *Job, params map[string]oip.Param) *oip.Error
	// JobArrived is called when the samples of a job have their request slots.
	JobArrived(j *Job)
	// RequestArrived is called after the policy was told of a request, unless the policy dropped it.
	RequestArrived(slot int32)
	// EnterBatch is called when tasks have been put into a batch.
	EnterBatch(b *Batch)
	// RequeueBatch is called when the tasks of a batch wait with the policy again.
	RequeueBatch(b *Batch)
	// BatchFailed is called for a batch that cannot run. If it returns true, the policy is told that the batch has ended;
	// otherwise the policy gets the tasks back.
	BatchFailed(b *Batch, reason policy.DropReason, err error) (hide bool)
	// DropRequest ends a request that the policy has dropped.
	DropRequest(slot int32)
	// RequestOf returns the request of a task.
	RequestOf(task int32) int32
	// TaskInput returns the i-th input of a task. If nobody waits for the task any more, it returns nil.
	TaskInput(task int32, i int) []byte
	// FillInput writes the i-th input of a task into dst. If it returns false, the caller copies TaskInput.
	FillInput(task int32, i int, dst []byte) bool
	// BlameTask records the task because of which a request is dropped; -1 if there is none.
	BlameTask(task int32)
	// ServicesNeeded returns the services that a model's requests may need. For requests with one task it returns nil.
	ServicesNeeded(model int32) []int32
	// PlaceInputs has the inputs of a task brought to a device, as soon as they exist.
	PlaceInputs(task, device int32)
	// InputsPlaced completes the event that a task's inputs are at a device. If the task no longer waits for that, it
	// returns false.
	InputsPlaced(ev *policy.Event, ticket int32) bool
	// TakeOutputs copies those outputs of a batch that are needed, because their memory is used again.
	TakeOutputs(b *Batch, out BatchOutputs)
	// BatchEnded is called after the last stage of a batch, before the policy is told.
	BatchEnded(b *Batch, device int32)
	// PolicyTold is called after the policy was told of the end of a batch.
	PolicyTold(b *Batch)
	// CompleteRequest makes the latest answer of a request its final one.
	CompleteRequest(slot int32)
	// SwitchMode puts a mode into force. If there is none with this number, it returns false.
	SwitchMode(to int32) bool
	// ResponseParameters returns the parameters of a response, besides its outputs.
	ResponseParameters(j *Job) map[string]oip.Param
	// HoldsDevice returns true if batches of a pipeline keep their device busy until the policy has been told of their end.
	HoldsDevice(pipeline int32) bool
	// EverySecond is called about once per second.
	EverySecond(now time.Duration)
	Report(r *formats.Report)
	// Part returns what the plan's kind shows of itself while it is served.
	Part() served.Part
}

// AnswerDraft is the text that language models have produced so far for a task's answer.
type AnswerDraft struct {
	Text     []byte
	Tokens   int
	Failures int8 // servers that broke off since the text last grew
}

// newAnswerer returns the answerer of a core's plan: the first of Factories.Answerers that takes the plan, otherwise a
// DirectAnswerer.
func newAnswerer(c *Core) (Answerer, error) {
	for _, newKind := range c.Factories.Answerers {
		if answerer, err := newKind(c, c.Plan); answerer != nil || err != nil {
			return answerer, err
		}
	}
	return DirectAnswerer{OneTaskPerRequest: OneTaskPerRequest{c}}, nil
}

// OneTaskAtATime is embedded by answerers whose requests have one task at a time.
type OneTaskAtATime struct{}

func (OneTaskAtATime) FillInput(int32, int, []byte) bool { return false }
func (OneTaskAtATime) BlameTask(int32)                   {}
func (OneTaskAtATime) ServicesNeeded(int32) []int32      { return nil }

// NoExtras is embedded by answerers whose responses have nothing but outputs.
type NoExtras struct{}

func (NoExtras) IsOneFamily() bool                            { return false }
func (NoExtras) CheckOutputs(*Model) error                    { return nil }
func (NoExtras) Admit(*Job, map[string]oip.Param) *oip.Error  { return nil }
func (NoExtras) SwitchMode(int32) bool                        { return false }
func (NoExtras) ResponseParameters(*Job) map[string]oip.Param { return nil }
func (NoExtras) HoldsDevice(int32) bool                       { return false }
func (NoExtras) EverySecond(time.Duration)                    {}
func (NoExtras) Report(*formats.Report)                       {}

// DirectAnswerer answers each request with the outputs of the batch that it ran in.
type DirectAnswerer struct {
	OneTaskPerRequest
	OneTaskAtATime
	NoExtras
}

func (DirectAnswerer) JobArrived(*Job)          {}
func (DirectAnswerer) BatchEnded(*Batch, int32) {}

// TakeOutputs is called when a batch has run its last stage. It copies the outputs to the jobs and answers those
// whose last sample has run: a job is a client's request with one or more samples. It implements Answerer.
func (d DirectAnswerer) TakeOutputs(b *Batch, out BatchOutputs) {
	c := d.Core
	d.CopyOutputs(b, out)
	now := c.Loop.Now()
	for _, req := range b.Tasks {
		j := c.Ledger.requests[req].Job
		if j == nil || j.Answered {
			continue
		}
		if j.RemainingSamples--; j.RemainingSamples == 0 {
			j.Outcome, j.IsLate = OutcomeServed, now > j.Deadline
			c.Stats.RecordServed(j, b, now, b.CopyTime)
			c.Ledger.AnswerJob(j)
		}
	}
}

// PolicyTold implements Answerer: the policy no longer names the requests of the batch.
func (d DirectAnswerer) PolicyTold(b *Batch) {
	for _, req := range b.Tasks {
		d.Core.Ledger.FreeRequest(req)
	}
}

// CompleteRequest implements Answerer. No policy of such plans completes requests.
func (d DirectAnswerer) CompleteRequest(slot int32) {
	d.Core.Options.Log.Error("the policy completed a request that the end of its batch answers", "request", slot)
}
