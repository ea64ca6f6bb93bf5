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
	Answered       int64
	Correct        int64   // answers that are correct, by the plan's records
	Switches       int64   // changes of the gear, in the whole run
	RequestsByGear []int64 // requests by the gear at their arrival, in the whole run
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
func (g *GearResult) ExpectedAccuracy(tables *gear.Tables) float64 {
	total, correct := 0.0, 0.0
	for k, accuracy := range tables.GearAccuracies() {
		n := float64(g.RequestsByGear[k])
		total, correct = total+n, correct+n*accuracy
	}
	return correct / max(1, total)
}

// GearShares returns the shares of the requests that arrived under each gear.
func (g *GearResult) GearShares() []float64 {
	total, shares := 0.0, make([]float64, len(g.RequestsByGear))
	for _, n := range g.RequestsByGear {
		total += float64(n)
	}
	for k, n := range g.RequestsByGear {
		shares[k] = float64(n) / max(1, total)
	}
	return shares
}

// setGears puts the figures of cascades into the result and, if there is one, the accuracy into its report.
func (r *Result) setGears(g GearResult) {
	r.Gears = &g
	if g.Answered > 0 && r.Report != nil {
		accuracy := g.Accuracy()
		r.Report.Accuracy = &accuracy
	}
}

// cascadeEnding is the ending of gear plans: a batch answers no request, and the policy is
// told the level of each answer.
type cascadeEnding struct {
	recordTruth
	loop   *loop
	gear   int32 // the gear that is in force
	totals GearResult
}

// newCascadeEnding returns the ending rule of a gear plan (cascades of models), and nil for plans of other kinds.
// It is also the truth of the run: the answers are the plan's recorded samples.
func newCascadeEnding(l *loop) endingRule {
	tables := gear.TablesOf(l.tables)
	if tables == nil {
		return nil
	}
	c := &cascadeEnding{loop: l, recordTruth: recordTruth{records: &tables.Records, samples: make([]requestSample, 0, typicalOpenRequests)}, totals: GearResult{RequestsByGear: make([]int64, len(tables.Gears))}}
	l.truth = c
	return c
}

// batchRan is called when a model of a cascade has answered a batch. It tells the policy the level (how certain the
// model is) of each answer, which the plan has recorded; the policy then completes the request or sends it on. One
// event is reused for all of them, because no action of a gear's policy needs another.
func (c *cascadeEnding) batchRan(slot, device int32) {
	l := c.loop
	pipeline := l.batches.at(slot).pipeline
	levels := c.records.Levels[pipeline]
	ev := l.beginBatchEvent(policy.ControlRevealed, slot, device)
	for _, r := range l.batches.members(slot) {
		if !l.ledger.leaveBatch(r, policy.TaskWaiting) {
			continue
		}
		s := &c.samples[r]
		s.answeredBy = pipeline
		ev.Req, ev.Task, ev.Value = r, r, int64(levels[s.index])
		l.tellPolicy()
	}
}

// completeRequest answers a request with the answer that it got last, as the policy orders, and counts whether that
// is right by the recorded sample. It returns an error if the request runs, has ended, or has no answer.
func (c *cascadeEnding) completeRequest(req int32) error {
	l := c.loop
	if uint(req) >= uint(len(l.ledger.requests)) || l.ledger.requests[req].batchedTasks > 0 || l.ledger.requests[req].state != requestOpen || c.samples[req].answeredBy < 0 {
		return fmt.Errorf("the policy completes request slot %d, which has no answer", req)
	}
	if l.ledger.requests[req].arrivedAt >= l.cfg.Warmup {
		c.totals.Answered++
		if s := &c.samples[req]; c.records.Correct[s.answeredBy][s.index] {
			c.totals.Correct++
		}
	}
	l.answerRequest(req)
	return nil
}

// switchMode handles the policy's switch to a gear (a cascade for a range of rates): requests that arrive from now
// on count for it. A gear that the plan lacks is an error.
func (c *cascadeEnding) switchMode(tag int32) error {
	if tag < 0 || int(tag) >= len(c.totals.RequestsByGear) {
		return fmt.Errorf("the policy switches to gear %d, which the plan does not have", tag)
	}
	c.gear = tag
	c.totals.Switches++
	return nil
}

// Arrive implements Truth.
func (c *cascadeEnding) Arrive(req int32, r *arrivals.Request) {
	c.totals.RequestsByGear[c.gear]++
	c.recordTruth.Arrive(req, r)
}

func (c *cascadeEnding) addResult(r *Result) { r.setGears(c.totals) }

// poolCascades adds up the figures of cascades (answers, right answers, switches of gears) over several runs and
// puts the sums into the pooled result. Without such figures it does nothing.
func poolCascades(pooled *Result, results []*Result) {
	if results[0].Gears == nil {
		return
	}
	total := GearResult{RequestsByGear: make([]int64, len(results[0].Gears.RequestsByGear))}
	for _, r := range results {
		total.Answered += r.Gears.Answered
		total.Correct += r.Gears.Correct
		total.Switches += r.Gears.Switches
		for k, n := range r.Gears.RequestsByGear {
			total.RequestsByGear[k] += n
		}
	}
	pooled.setGears(total)
}

// recordTruth is the truth of gear plans: request i of the run carries sample i modulo the
// number of recorded samples.
type recordTruth struct {
	records *gear.SampleRecords
	samples []requestSample // by request
	count   int64
}

// requestSample is the sample that a request carries.
type requestSample struct {
	index      int32
	answeredBy int32 // pipeline that answered last, or -1
}

// Arrive gives a request that arrives the next recorded sample, in a ring. Its level and correctness at each model
// are known from then on. It implements Truth.
func (r *recordTruth) Arrive(req int32, _ *arrivals.Request) {
	for int(req) >= len(r.samples) {
		r.samples = append(r.samples, requestSample{})
	}
	r.samples[req] = requestSample{int32(r.count % int64(r.records.Samples)), -1}
	r.count++
}

// Outcome implements Truth.
func (r *recordTruth) Outcome(req, _, pipeline int32) (policy.Outcome, int64) {
	return policy.Outcome{}, int64(r.records.Levels[pipeline][r.samples[req].index])
}

// Tokens implements Truth. Cascades have no tokens.
func (r *recordTruth) Tokens(int32) int32 { return 0 }

// CompletedFunc is called with every answered request.
type CompletedFunc func(arrivedAt, answeredAt time.Duration)

// JudgedFunc is called with every answer and whether it is late.
type JudgedFunc func(model int32, arrivedAt, answeredAt time.Duration, isLate bool)
