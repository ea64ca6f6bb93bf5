package executor

import (
	"time"

	"inferplan/executor/oip"
	"inferplan/formats"
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
	// ran takes what a batch gave from the memory of its worker, before that is
	// used again; taken is how long copying the outputs took.
	ran(b *batch, r *run, taken time.Duration)
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

// answers is the only list of what answers there are beside the direct one. Each
// gives nil for plans of another kind.
var answers = []func(c *core, plan *formats.Plan) (answer, error){cascadeOf}

// newAnswer makes the answer of a core's plan.
func newAnswer(c *core, plan *formats.Plan) (answer, error) {
	for _, of := range answers {
		if a, err := of(c, plan); a != nil || err != nil {
			return a, err
		}
	}
	return direct{c}, nil
}

// direct answers requests with the batch that they ran in.
type direct struct{ c *core }

func (direct) oneFamily() bool                      { return false }
func (direct) check(*model) error                   { return nil }
func (direct) admit(*job)                           {}
func (direct) arrive(*job)                          {}
func (direct) ended(*batch, int32)                  {}
func (direct) mode(int32) bool                      { return false }
func (direct) parameters(*job) map[string]oip.Param { return nil }
func (direct) holds(int32) bool                     { return false }
func (direct) tick(time.Duration)                   {}
func (direct) report(*formats.Report)               {}

func (d direct) ran(b *batch, _ *run, taken time.Duration) {
	c := d.c
	now := c.now()
	for _, req := range b.reqs {
		j := c.reqs[req].job
		if j == nil || j.answered {
			continue
		}
		if j.left--; j.left == 0 {
			j.outcome, j.late = served, now > j.deadline
			c.stats.served(j, b, now, taken)
			c.answer(j)
		}
	}
}

func (d direct) told(b *batch) {
	for _, req := range b.reqs {
		d.c.settle(req)
	}
}

func (d direct) complete(slot int32) {
	d.c.opt.Log.Error("the policy completed a request that the end of its batch answers", "request", slot)
}
