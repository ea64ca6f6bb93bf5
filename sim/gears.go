package sim

import (
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// GearResult is what a run of a gear plan showed beside its report. Only
// requests that are counted in the report count here.
type GearResult struct {
	Answered int64
	Correct  int64 // answers that are right, by the plan's records
	Switches int64 // of gears, in the whole run
}

// Accuracy is the share of right answers, 0 without any.
func (g *GearResult) Accuracy() float64 {
	if g.Answered == 0 {
		return 0
	}
	return float64(g.Correct) / float64(g.Answered)
}

func (r *Result) setGears(g GearResult) {
	r.Gears = &g
	if g.Answered > 0 && r.Report != nil {
		accuracy := g.Accuracy()
		r.Report.Accuracy = &accuracy
	}
}

// cascade is the ending of gear plans: a batch answers nobody, and the policy
// hears what level each answer has.
type cascade struct {
	records
	l       *loop
	gears   int
	answers []int32 // by request: pipeline that answered last; -1: none
	sums    GearResult
}

func newCascade(l *loop) ending {
	own := gear.Of(l.t)
	if own == nil {
		return nil
	}
	c := &cascade{l: l, gears: len(own.Gears), answers: make([]int32, 0, usual), records: records{own: &own.Records, samples: make([]int32, 0, usual)}}
	l.truth = c
	return c
}

// Arrive implements Truth.
func (c *cascade) Arrive(req int32, r *arrivals.Request) {
	c.records.Arrive(req, r)
	for int(req) >= len(c.answers) {
		c.answers = append(c.answers, -1)
	}
	c.answers[req] = -1
}

// ran reveals the levels of a batch's answers; its requests wait again.
func (c *cascade) ran(slot, device int32) {
	l := c.l
	pipeline := l.batches[slot].pipeline
	for _, r := range l.members(slot) {
		if !l.leave(r, waiting) {
			continue
		}
		c.answers[r] = pipeline
		_, level := c.Outcome(r, r, pipeline)
		ev := l.beginBatch(policy.ControlRevealed, slot, device)
		ev.Req, ev.Task, ev.Value = r, r, level
		l.tell()
	}
}

// complete answers a request with its last answer.
func (c *cascade) complete(req int32) error {
	l := c.l
	if req < 0 || int(req) >= len(l.requests) || l.requests[req].state != waiting || l.tasks[req].state != waiting || c.answers[req] < 0 {
		return fmt.Errorf("the policy completes request slot %d, which has no answer", req)
	}
	if l.requests[req].arrived >= l.cfg.Warmup {
		c.sums.Answered++
		if c.correct(req, c.answers[req]) {
			c.sums.Correct++
		}
	}
	l.answer(req)
	return nil
}

func (c *cascade) mode(tag int32) error {
	if tag < 0 || int(tag) >= c.gears {
		return fmt.Errorf("the policy switches to gear %d, which the plan does not have", tag)
	}
	c.sums.Switches++
	return nil
}

func (c *cascade) result(r *Result) { r.setGears(c.sums) }

// poolCascades adds up the runs of a gear plan.
func poolCascades(out *Result, runs []*Result) {
	if runs[0].Gears == nil {
		return
	}
	var all GearResult
	for _, r := range runs {
		all.Answered += r.Gears.Answered
		all.Correct += r.Gears.Correct
		all.Switches += r.Gears.Switches
	}
	out.setGears(all)
}

// records are the truth of gear plans: request i of the run carries sample i
// modulo their number.
type records struct {
	own     *gear.Records
	samples []int32 // by request
	count   int64
}

// Arrive implements Truth.
func (r *records) Arrive(req int32, _ *arrivals.Request) {
	for int(req) >= len(r.samples) {
		r.samples = append(r.samples, 0)
	}
	r.samples[req] = int32(r.count % int64(r.own.Samples))
	r.count++
}

// Outcome implements Truth.
func (r *records) Outcome(req, _, pipeline int32) (policy.Outcome, int64) {
	return policy.Outcome{}, int64(r.own.Levels[pipeline][r.samples[req]])
}

// Tokens implements Truth: there are none.
func (r *records) Tokens(int32) int32 { return 0 }

func (r *records) correct(req, pipeline int32) bool { return r.own.Correct[pipeline][r.samples[req]] }

// CompletedFunc hears of every answered request.
type CompletedFunc func(arrived, answered time.Duration)
