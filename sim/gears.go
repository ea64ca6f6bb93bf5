package sim

import (
	"fmt"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// GearResult holds the figures of a run of a gear plan beside its report. Only requests that
// the report counts count here.
type GearResult struct {
	Answered int64
	Correct  int64   // answers that are correct, by the plan's records
	Switches int64   // changes of the gear, in the whole run
	Under    []int64 // requests by the gear at their arrival, in the whole run
}

// Accuracy returns the share of correct answers, or 0 if there are no answers.
func (g *GearResult) Accuracy() float64 {
	if g.Answered == 0 {
		return 0
	}
	return float64(g.Correct) / float64(g.Answered)
}

// ExpectedAccuracy returns the mean accuracy of the gears on all samples, weighted by the
// requests that arrived under each. It does not depend on which samples a run drew.
func (g *GearResult) Expected(own *gear.Tables) float64 {
	all, right := 0.0, 0.0
	for k, accuracy := range own.Accuracies() {
		n := float64(g.Under[k])
		all, right = all+n, right+n*accuracy
	}
	return right / max(1, all)
}

// GearShares returns the shares of the requests that arrived under each gear.
func (g *GearResult) Shares() []float64 {
	all, out := 0.0, make([]float64, len(g.Under))
	for _, n := range g.Under {
		all += float64(n)
	}
	for k, n := range g.Under {
		out[k] = float64(n) / max(1, all)
	}
	return out
}

// setGears puts the figures into the result and its report.
func (r *Result) setGears(g GearResult) {
	r.Gears = &g
	if g.Answered > 0 && r.Report != nil {
		accuracy := g.Accuracy()
		r.Report.Accuracy = &accuracy
	}
}

// cascadeEnding is the ending of gear plans: a batch answers no request, and the policy is
// told the level of each answer.
type cascade struct {
	records
	l    *loop
	gear int32 // the gear that is in force
	sums GearResult
}

// newCascadeEnding returns nil for plans of other kinds. It is also the truth of the run.
func newCascade(l *loop) ending {
	own := gear.Of(l.t)
	if own == nil {
		return nil
	}
	c := &cascade{l: l, records: records{own: &own.Records, by: make([]sample, 0, usual)}, sums: GearResult{Under: make([]int64, len(own.Gears))}}
	l.truth = c
	return c
}

// batchRan reveals the levels of a batch's answers; its requests wait again. One event is
// reused for all of them, because no action of a gear's policy tells another event.
func (c *cascade) ran(slot, device int32) {
	l := c.l
	pipeline := l.batches[slot].pipeline
	levels := c.own.Levels[pipeline]
	ev := l.beginBatch(policy.ControlRevealed, slot, device)
	for _, r := range l.members(slot) {
		if !l.leave(r, policy.TaskWaiting) {
			continue
		}
		s := &c.by[r]
		s.answer = pipeline
		ev.Req, ev.Task, ev.Value = r, r, int64(levels[s.of])
		l.tell()
	}
}

// completeRequest answers a request with its latest answer.
func (c *cascade) complete(req int32) error {
	l := c.l
	if uint(req) >= uint(len(l.requests)) || l.requests[req].running > 0 || l.requests[req].state != waiting || c.by[req].answer < 0 {
		return fmt.Errorf("the policy completes request slot %d, which has no answer", req)
	}
	if l.requests[req].arrived >= l.cfg.Warmup {
		c.sums.Answered++
		if s := &c.by[req]; c.own.Correct[s.answer][s.of] {
			c.sums.Correct++
		}
	}
	l.answer(req)
	return nil
}

// switchMode makes a gear effective from now on.
func (c *cascade) mode(tag int32) error {
	if tag < 0 || int(tag) >= len(c.sums.Under) {
		return fmt.Errorf("the policy switches to gear %d, which the plan does not have", tag)
	}
	c.gear = tag
	c.sums.Switches++
	return nil
}

// Arrive implements Truth.
func (c *cascade) Arrive(req int32, r *arrivals.Request) {
	c.sums.Under[c.gear]++
	c.records.Arrive(req, r)
}

func (c *cascade) result(r *Result) { r.setGears(c.sums) }

// poolCascades adds up the figures of runs.
func poolCascades(out *Result, runs []*Result) {
	if runs[0].Gears == nil {
		return
	}
	all := GearResult{Under: make([]int64, len(runs[0].Gears.Under))}
	for _, r := range runs {
		all.Answered += r.Gears.Answered
		all.Correct += r.Gears.Correct
		all.Switches += r.Gears.Switches
		for k, n := range r.Gears.Under {
			all.Under[k] += n
		}
	}
	out.setGears(all)
}

// recordTruth is the truth of gear plans: request i of the run carries sample i modulo the
// number of recorded samples.
type records struct {
	own   *gear.Records
	by    []sample // by request
	count int64
}

// requestSample is the sample that a request carries.
type sample struct {
	of     int32
	answer int32 // pipeline that answered last, or -1
}

// Arrive implements Truth.
func (r *records) Arrive(req int32, _ *arrivals.Request) {
	for int(req) >= len(r.by) {
		r.by = append(r.by, sample{})
	}
	r.by[req] = sample{int32(r.count % int64(r.own.Samples)), -1}
	r.count++
}

// Outcome implements Truth.
func (r *records) Outcome(req, _, pipeline int32) (policy.Outcome, int64) {
	return policy.Outcome{}, int64(r.own.Levels[pipeline][r.by[req].of])
}

// Tokens implements Truth. Cascades have no tokens.
func (r *records) Tokens(int32) int32 { return 0 }

// CompletedFunc is called with every answered request.
type CompletedFunc func(arrived, answered time.Duration)

// JudgedFunc is called with every answer and whether it is late.
type JudgedFunc func(model int32, arrived, answered time.Duration, late bool)
