package turn

import (
	"time"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// Answerer turns what batches produce into the answers of requests. Its methods are called by the goroutine that has the
// core's turn, except Admit and ResponseParameters, which the job's own goroutine calls.
type Answer interface {
	// IsOneFamily returns true if all models together answer the plan's requests.
	OneFamily() bool
	// CheckOutputs returns an error if the outputs of a model cannot be answers.
	Check(m *Model) error
	// Admit prepares a job with the parameters of its request.
	Admit(j *Job, params map[string]oip.Param) *oip.Error
	// JobArrived is called when the samples of a job have their request slots.
	Arrive(j *Job)
	// RequestArrived is called after the policy was told of a request, unless the policy dropped it.
	Begin(slot int32)
	// EnterBatch is called when tasks have been put into a batch.
	Enter(b *Batch)
	// RequeueBatch is called when the tasks of a batch wait with the policy again.
	Again(b *Batch)
	// BatchFailed is called for a batch that cannot run. If it returns true, the policy is told that the batch has ended;
	// otherwise the policy gets the tasks back.
	Failed(b *Batch, reason policy.Reason, err error) (hide bool)
	// DropRequest ends a request that the policy has dropped.
	Drop(slot int32)
	// RequestOf returns the request of a task.
	RequestOf(task int32) int32
	// TaskInput returns the i-th input of a task. If nobody waits for the task any more, it returns nil.
	Input(task int32, i int) []byte
	// FillInput writes the i-th input of a task into dst. If it returns false, the caller copies TaskInput.
	Fill(task int32, i int, dst []byte) bool
	// BlameTask records the task because of which a request is dropped; -1 if there is none.
	Blame(task int32)
	// ServicesNeeded returns the services that a model's requests may need. For requests with one task it returns nil.
	Needs(model int32) []int32
	// PlaceInputs has the inputs of a task brought to a device, as soon as they exist.
	Place(task, device int32)
	// InputsPlaced completes the event that a task's inputs are at a device. If the task no longer waits for that, it
	// returns false.
	Placed(ev *policy.Event, ticket int32) bool
	// TakeOutputs copies those outputs of a batch that are needed, because their memory is used again.
	Ran(b *Batch, out Outputs)
	// BatchEnded is called after the last stage of a batch, before the policy is told.
	Ended(b *Batch, device int32)
	// PolicyTold is called after the policy was told of the end of a batch.
	Told(b *Batch)
	// CompleteRequest makes the latest answer of a request its final one.
	Complete(slot int32)
	// SwitchMode puts a mode into force. If there is none with this number, it returns false.
	Mode(to int32) bool
	// ResponseParameters returns the parameters of a response, besides its outputs.
	Parameters(j *Job) map[string]oip.Param
	// HoldsDevice returns true if batches of a pipeline keep their device busy until the policy has been told of their end.
	Holds(pipeline int32) bool
	// EverySecond is called about once per second.
	Tick(now time.Duration)
	Report(r *formats.Report)
}

// AnswerDraft is the text that language models have produced so far for a task's answer.
type Draft struct {
	Text     []byte
	Tokens   int
	Failures int8 // servers that broke off since the text last grew
}

// newAnswerer returns the answerer of a core's plan: the first of Factories.Answerers that takes the plan, otherwise a
// DirectAnswerer.
func newAnswer(c *Core) (Answer, error) {
	for _, of := range c.Kinds.Answers {
		if a, err := of(c, c.Plan); a != nil || err != nil {
			return a, err
		}
	}
	return Direct{Single: Single{c}}, nil
}

// OneTaskAtATime is embedded by answerers whose requests have one task at a time.
type OneTask struct{}

func (OneTask) Fill(int32, int, []byte) bool { return false }
func (OneTask) Blame(int32)                  {}
func (OneTask) Needs(int32) []int32          { return nil }

// NoExtras is embedded by answerers whose responses have nothing but outputs.
type Plain struct{}

func (Plain) OneFamily() bool                             { return false }
func (Plain) Check(*Model) error                          { return nil }
func (Plain) Admit(*Job, map[string]oip.Param) *oip.Error { return nil }
func (Plain) Mode(int32) bool                             { return false }
func (Plain) Parameters(*Job) map[string]oip.Param        { return nil }
func (Plain) Holds(int32) bool                            { return false }
func (Plain) Tick(time.Duration)                          {}
func (Plain) Report(*formats.Report)                      {}

// DirectAnswerer answers each request with the outputs of the batch that it ran in.
type Direct struct {
	Single
	OneTask
	Plain
}

func (Direct) Arrive(*Job)         {}
func (Direct) Ended(*Batch, int32) {}

// TakeOutputs implements Answerer: it answers the jobs whose last sample has run.
func (d Direct) Ran(b *Batch, out Outputs) {
	c := d.Core
	d.Scatter(b, out)
	now := c.Now()
	for _, req := range b.Tasks {
		j := c.ledger.requests[req].Job
		if j == nil || j.Answered {
			continue
		}
		if j.Left--; j.Left == 0 {
			j.Outcome, j.Late = Served, now > j.Deadline
			c.Stats.Served(j, b, now, b.Answer)
			c.ledger.Answer(j)
		}
	}
}

// PolicyTold implements Answerer: the policy no longer names the requests of the batch.
func (d Direct) Told(b *Batch) {
	for _, req := range b.Tasks {
		d.Core.ledger.Settle(req)
	}
}

// CompleteRequest implements Answerer. No policy of such plans completes requests.
func (d Direct) Complete(slot int32) {
	d.Core.Options.Log.Error("the policy completed a request that the end of its batch answers", "request", slot)
}
