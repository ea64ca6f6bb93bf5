package text

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
)

// TextAnswers is the turn.Answer of plans of queues. Each request is one task, which an instance answers piece by
// piece. The pieces go directly into the requestText; TextAnswers handles the end of the request.
type Tokens struct {
	turn.Direct
	series   *queueMetrics
	Learning *learning
}

// TextAnswersOf returns the answer of a core's plan. If the plan is not one of queues, it returns nil.
func TokensOf(c *turn.Core, plan *formats.Plan) (turn.Answer, error) {
	if formats.QueueOf(plan) == nil || c.Control != nil {
		return nil, nil
	}
	return &Tokens{Direct: turn.Direct{Single: turn.Single{Core: c}}, series: newQueueMetrics(c), Learning: newLearning(c)}, nil
}

// Ran ends the requests of a batch whose answer is complete.
func (k *Tokens) Ran(b *turn.Batch, _ turn.Outputs) {
	now := k.Core.Now()
	for _, req := range b.Tasks {
		q := k.Core.Request(req)
		if q == nil || q.Job.Answered || q.Job.Text == nil {
			continue
		}
		j := q.Job
		j.Left, j.Outcome = 0, turn.Served
		j.Late = k.late(j, now)
		k.Core.Stats.Served(j, b, now, 0)
		k.series.served(j, now)
		k.Learning.answered(j)
		b.Tokens = int32(JobText(j).result.OutputTokens)
		k.Core.Answer(j)
	}
}

// isLate reports whether a request has missed its SLO. A request that was begun before this process started is judged
// by the part that came here.
func (k *Tokens) late(j *turn.Job, now time.Duration) bool {
	m, t := &k.Core.Tables.Models[j.Model.Index], JobText(j)
	t.mu.Lock()
	first, last, fresh, began := t.first, t.last, t.fresh, t.began
	t.mu.Unlock()
	a := formats.Answer{E2E: now - j.Arrived, TTFT: first - j.Arrived, TPOT: formats.TimePerToken(first, last, int(fresh)), Waited: began - j.Arrived}
	slo := max(j.Deadline-j.Arrived, 1) // the client's deadline may have passed at arrival
	if m.Of == formats.OfTPOT {
		slo = m.SLO
	}
	return a.Late(m.Of, slo, m.Waiting)
}

// Tick compares what is served with the plan.
func (k *Tokens) Tick(now time.Duration) { k.Learning.tick(now) }

// Report adds the figures of requests for text to the report.
func (k *Tokens) Report(r *formats.Report) { k.series.report(r) }
