package turn

import (
	"time"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// Answer is how the requests of a plan become answers. Its methods belong to
// whoever has the core's turn, but for admit and parameters, which the job's own
// goroutine calls.
type Answer interface {
	// OneFamily tells whether all models together answer the plan's requests.
	OneFamily() bool
	// Check makes sure that the outputs of a model can be answers.
	Check(m *Model) error
	// Admit prepares a job, asked with parameters.
	Admit(j *Job, params map[string]oip.Param) *oip.Error
	// Arrive notes a job whose samples have their request slots.
	Arrive(j *Job)
	// Begin follows the arrival of a request, unless the policy dropped it.
	Begin(slot int32)
	// Enter notes the batch that tasks are in.
	Enter(b *Batch)
	// Again: the tasks of a batch wait with the policy again.
	Again(b *Batch)
	// Failed notes that a batch cannot run. True hides that from the policy, which
	// is told the batch's end; false gives the tasks back to it.
	Failed(b *Batch, reason policy.Reason, err error) (hide bool)
	// Drop ends a request that the policy gave up.
	Drop(slot int32)
	// RequestOf is the request of a task.
	RequestOf(task int32) int32
	// Input is the i-th input of a task; nil where nobody waits for it any more.
	Input(task int32, i int) []byte
	// Fill makes the i-th input of a task in place; false: input has it.
	Fill(task int32, i int, dst []byte) bool
	// Blame notes because of which task a request is dropped; -1: none.
	Blame(task int32)
	// Needs lists the services that a model's requests may come to; nil: they have
	// one task.
	Needs(model int32) []int32
	// Place has what a task reads brought to a device, as soon as it is there.
	Place(task, device int32)
	// Placed tells whether the answer to a place is still wanted. It completes the
	// event.
	Placed(ev *policy.Event, ticket int32) bool
	// Ran copies what a batch gave and somebody wants: its outputs are used again.
	Ran(b *Batch, out Outputs)
	// Ended follows the last stage of a batch, before BatchFinished is told.
	Ended(b *Batch, device int32)
	// Told is called after the policy has heard BatchFinished.
	Told(b *Batch)
	// Complete takes the last answer of a request as its answer.
	Complete(slot int32)
	// Mode is in force from now on; false: there is none of this number.
	Mode(to int32) bool
	// Parameters are what a response tells beside its outputs.
	Parameters(j *Job) map[string]oip.Param
	// Holds tells whether a batch holds its device until told.
	Holds(pipeline int32) bool
	// Tick comes about every second.
	Tick(now time.Duration)
	Report(r *formats.Report)
}

// Draft holds the text that language models have made so far of a task's answer.
type Draft struct {
	Text     []byte
	Tokens   int
	Failures int8 // servers that broke it off since it grew
}

// newAnswer makes the answer of a core's plan: the first of its kinds that is not nil,
// else the direct one.
func newAnswer(c *Core) (Answer, error) {
	for _, of := range c.Kinds.Answers {
		if a, err := of(c, c.Plan); a != nil || err != nil {
			return a, err
		}
	}
	return Direct{Single: Single{c}}, nil
}

// OneTask is the part of answers whose requests have one task at a time, as clients
// and policies see it.
type OneTask struct{}

func (OneTask) Fill(int32, int, []byte) bool { return false }
func (OneTask) Blame(int32)                  {}
func (OneTask) Needs(int32) []int32          { return nil }

// Plain is the part of answers that tell nothing beside the outputs.
type Plain struct{}

func (Plain) OneFamily() bool                             { return false }
func (Plain) Check(*Model) error                          { return nil }
func (Plain) Admit(*Job, map[string]oip.Param) *oip.Error { return nil }
func (Plain) Mode(int32) bool                             { return false }
func (Plain) Parameters(*Job) map[string]oip.Param        { return nil }
func (Plain) Holds(int32) bool                            { return false }
func (Plain) Tick(time.Duration)                          {}
func (Plain) Report(*formats.Report)                      {}

// Direct answers requests with the batch that they ran in.
type Direct struct {
	Single
	OneTask
	Plain
}

func (Direct) Arrive(*Job)         {}
func (Direct) Ended(*Batch, int32) {}

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

func (d Direct) Told(b *Batch) {
	for _, req := range b.Tasks {
		d.Core.ledger.Settle(req)
	}
}

func (d Direct) Complete(slot int32) {
	d.Core.Options.Log.Error("the policy completed a request that the end of its batch answers", "request", slot)
}
