package sim

import (
	"fmt"

	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/policy/gear"
)

// GearResult holds the figures of a run of a gear plan beside its report. Only requests that
// the report counts count here.
type GearResult struct {
	Answered       int64
	Correct        int64   // answers that are correct, by the plan's records
	Switches       int64   // changes of the gear, in the whole run
	RequestsByGear []int64 // requests by the gear at their arrival, in the whole run
}

// Accuracy returns the share of correct answers among all counted ones, or 0 if there are none.
func (g *GearResult) Accuracy() float64 {
	if g.Answered == 0 {
		return 0
	}
	return float64(g.Correct) / float64(g.Answered)
}

// ExpectedAccuracy returns the mean accuracy of the plan's gears (a gear is a cascade of models for a range of rates) on
// all recorded samples, each weighted by the requests that arrived while it was in force. It does not depend on which
// samples a run drew. Without requests it returns 0.
func (g *GearResult) ExpectedAccuracy(tables *gear.Tables) float64 {
	total, correct := 0.0, 0.0
	for gearIndex, accuracy := range tables.GearAccuracies() {
		requests := float64(g.RequestsByGear[gearIndex])
		total += requests
		correct += requests * accuracy
	}
	return correct / max(1, total)
}

// GearShares returns, by gear (a cascade for a range of rates), the share of the requests that arrived while it was in force.
func (g *GearResult) GearShares() []float64 {
	total, shares := 0.0, make([]float64, len(g.RequestsByGear))
	for _, requests := range g.RequestsByGear {
		total += float64(requests)
	}
	for gearIndex, requests := range g.RequestsByGear {
		shares[gearIndex] = float64(requests) / max(1, total)
	}
	return shares
}

// reportGears puts the accuracy of cascades into the report.
func (r *Result) reportGears() {
	if r.Gears != nil && r.Gears.Answered > 0 {
		accuracy := r.Gears.Accuracy()
		r.Report.Accuracy = &accuracy
	}
}

// cascadeEnding is the ending of gear plans. A gear is a cascade of models for a range of rates. The end of a batch
// answers no request: the policy is told the level of each answer (how certain the model is), and completes the
// request or sends it on.
type cascadeEnding struct {
	loop    *loop
	records *gear.SampleRecords // request i of the run carries sample i modulo their number
	samples []requestSample     // by request
	count   int64               // requests so far
	gear    int32               // the gear that is in force
	totals  GearResult
}

// requestSample is the sample that a request carries.
type requestSample struct {
	index      int32
	answeredBy int32 // pipeline that answered last, or -1
}

// newCascadeEnding returns the ending rule of a gear plan (cascades of models), which says what happens to a request
// when its batch has ended. For plans of other kinds it returns nil. The rule is also put into the run as its truth:
// each request stands for one of the plan's recorded samples, which says how each model answers it.
func newCascadeEnding(loop *loop) endingRule {
	tables := gear.TablesOf(loop.tables)
	if tables == nil {
		return nil
	}
	ending := &cascadeEnding{loop: loop, records: &tables.Records, samples: make([]requestSample, 0, typicalOpenRequests), totals: GearResult{RequestsByGear: make([]int64, len(tables.Gears))}}
	loop.truth = ending
	return ending
}

// batchRan is called when a model of a cascade has answered a batch. It tells the policy the level (how certain the
// model is) of each answer, which the plan has recorded by pipeline and sample; the policy then completes the request or
// sends it on. Requests that were dropped meanwhile are left out. One event is reused for all, because no action of a
// gear's policy begins another event.
func (c *cascadeEnding) batchRan(batchSlot, device int32) {
	loop := c.loop
	pipeline := loop.batches.at(batchSlot).pipeline
	levels := c.records.Levels[pipeline]
	ev := loop.beginBatchEvent(policy.ControlRevealed, batchSlot, device)
	for _, requestSlot := range loop.batches.members(batchSlot) {
		if !loop.ledger.leaveBatch(requestSlot, policy.TaskWaiting) {
			continue
		}
		sample := &c.samples[requestSlot]
		sample.answeredBy = pipeline
		ev.Req, ev.Task, ev.Value = requestSlot, requestSlot, int64(levels[sample.index])
		loop.tellPolicy()
	}
}

// completeRequest answers a request with the answer that it got last, as the policy orders, and counts whether that
// is right by the recorded sample. It returns an error if the request runs, has ended, or has no answer. It
// implements endingRule.
func (c *cascadeEnding) completeRequest(req int32) error {
	loop := c.loop
	isKnown := uint(req) < uint(len(loop.ledger.requests))
	if !isKnown || loop.ledger.requests[req].batchedTasks > 0 || loop.ledger.requests[req].state != requestOpen || c.samples[req].answeredBy < 0 {
		return fmt.Errorf("the policy completes request slot %d, which has no answer", req)
	}
	if loop.ledger.requests[req].arrivedAt >= loop.cfg.Warmup {
		c.totals.Answered++
		if sample := &c.samples[req]; c.records.Correct[sample.answeredBy][sample.index] {
			c.totals.Correct++
		}
	}
	loop.answerRequest(req)
	return nil
}

// switchMode carries out the policy's switch to a gear (a cascade for a range of rates): requests that arrive from
// now on count for it. It returns an error if the plan does not have the gear. It implements endingRule.
func (c *cascadeEnding) switchMode(gearIndex int32) error {
	if gearIndex < 0 || int(gearIndex) >= len(c.totals.RequestsByGear) {
		return fmt.Errorf("the policy switches to gear %d, which the plan does not have", gearIndex)
	}
	c.gear = gearIndex
	c.loop.trace.writeCounter(c.loop.agenda.now, gearCounter, gearIndex)
	c.totals.Switches++
	return nil
}

// Arrive counts a request that arrives for the gear in force, and gives it the next recorded sample, in a ring. Its level
// and correctness at each model are known from then on. It implements Truth.
func (c *cascadeEnding) Arrive(req int32, _ *arrivals.Request) {
	c.totals.RequestsByGear[c.gear]++
	for int(req) >= len(c.samples) {
		c.samples = append(c.samples, requestSample{})
	}
	c.samples[req] = requestSample{int32(c.count % int64(c.records.Samples)), -1}
	c.count++
}

// Outcome returns no branch, and the level (how certain the model is) that was recorded for the request's sample at a
// pipeline. It implements Truth.
func (c *cascadeEnding) Outcome(req, _, pipeline int32) (policy.Outcome, int64) {
	return policy.Outcome{}, int64(c.records.Levels[pipeline][c.samples[req].index])
}

// Tokens returns 0: cascades have no tokens. It implements Truth.
func (c *cascadeEnding) Tokens(int32) int32 { return 0 }

// addResult puts the answers, switches and requests by gear into the result, at the end of the run. It implements endingRule.
func (c *cascadeEnding) addResult(r *Result) {
	totals := c.totals // a copy, so that the result does not keep the run in memory
	r.Gears = &totals
}
