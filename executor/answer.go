package executor

import (
	"time"

	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/policy"
)

// answer is how the requests of a plan become answers. Its methods belong to
// whoever has the core's turn, but for admit and parameters, which the job's own
// goroutine calls.
type answer interface {
	// oneFamily tells whether all models together answer the plan's requests.
	oneFamily() bool
	// check makes sure that the outputs of a model can be answers.
	check(m *model) error
	// admit prepares a job.
	admit(j *job)
	// arrive notes a job whose samples have their request slots.
	arrive(j *job)
	// begin follows the arrival of a request, unless the policy dropped it.
	begin(slot int32)
	// enter notes the batch that tasks are in.
	enter(b *batch)
	// again: the tasks of a batch wait with the policy again.
	again(b *batch)
	// failed notes that a batch cannot run. True hides that from the policy, which
	// is told the batch's end; false gives the tasks back to it.
	failed(b *batch, reason policy.Reason, err error) (hide bool)
	// drop ends a request that the policy gave up.
	drop(slot int32)
	// requestOf is the request of a task.
	requestOf(task int32) int32
	// input is the i-th input of a task; nil where nobody waits for it any more.
	input(task int32, i int) []byte
	// fill makes the i-th input of a task in place; false: input has it.
	fill(task int32, i int, dst []byte) bool
	// blame notes because of which task a request is dropped; -1: none.
	blame(task int32)
	// needs lists the services that a model's requests may come to; nil: they have
	// one task.
	needs(model int32) []int32
	// place has what a task reads brought to a device, as soon as it is there.
	place(task, device int32)
	// placed tells whether the answer to a place is still wanted. It completes the
	// event.
	placed(ev *policy.Event, ticket int32) bool
	// ran copies what a batch gave and somebody wants: its outputs are used again.
	ran(b *batch, out outputs)
	// ended follows the last stage of a batch, before BatchFinished is told.
	ended(b *batch, device int32)
	// told follows it.
	told(b *batch)
	// complete takes the last answer of a request as its answer.
	complete(slot int32)
	// mode is in force from now on; false: there is none of this number.
	mode(to int32) bool
	// parameters are what a response tells beside its outputs.
	parameters(j *job) map[string]oip.Param
	// holds tells whether a batch holds its device until told.
	holds(pipeline int32) bool
	// tick comes about every second.
	tick(now time.Duration)
	report(r *formats.Report)
}

// newAnswer makes the answer of a core's plan: the first of its kinds that is not nil,
// else the direct one.
func newAnswer(c *core) (answer, error) {
	for _, of := range c.kinds.answers {
		if a, err := of(c, c.plan); a != nil || err != nil {
			return a, err
		}
	}
	return direct{single: single{c}}, nil
}

// oneTask is the part of answers whose requests have one task at a time, as clients
// and policies see it.
type oneTask struct{}

func (oneTask) fill(int32, int, []byte) bool { return false }
func (oneTask) blame(int32)                  {}
func (oneTask) needs(int32) []int32          { return nil }

// plain is the part of answers that tell nothing beside the outputs.
type plain struct{}

func (plain) oneFamily() bool                      { return false }
func (plain) check(*model) error                   { return nil }
func (plain) admit(*job)                           {}
func (plain) mode(int32) bool                      { return false }
func (plain) parameters(*job) map[string]oip.Param { return nil }
func (plain) holds(int32) bool                     { return false }
func (plain) tick(time.Duration)                   {}
func (plain) report(*formats.Report)               {}

// direct answers requests with the batch that they ran in.
type direct struct {
	single
	oneTask
	plain
}

func (direct) arrive(*job)         {}
func (direct) ended(*batch, int32) {}

func (d direct) ran(b *batch, out outputs) {
	c := d.c
	d.scatter(b, out)
	now := c.now()
	for _, req := range b.tasks {
		j := c.book.reqs[req].job
		if j == nil || j.answered {
			continue
		}
		if j.left--; j.left == 0 {
			j.outcome, j.late = served, now > j.deadline
			c.stats.served(j, b, now, b.answer)
			c.book.answer(j)
		}
	}
}

func (d direct) told(b *batch) {
	for _, req := range b.tasks {
		d.c.book.settle(req)
	}
}

func (d direct) complete(slot int32) {
	d.c.opt.Log.Error("the policy completed a request that the end of its batch answers", "request", slot)
}
