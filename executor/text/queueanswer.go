package text

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
)

// Tokens is the answer of plans of queues: requests have one task each, which an
// instance of a language model answers piece by piece. The text goes its own way
// (text); here a request ends.
type Tokens struct {
	turn.Direct
	series   *queueMetrics
	Learning *learning
}

// TokensOf is the answer of a core's plan, where that is one of queues.
func TokensOf(c *turn.Core, plan *formats.Plan) (turn.Answer, error) {
	if formats.QueueOf(plan) == nil || c.Control != nil {
		return nil, nil
	}
	return &Tokens{Direct: turn.Direct{Single: turn.Single{Core: c}}, series: newQueueMetrics(c), Learning: newLearning(c)}, nil
}

// Ran ends the requests of a batch whose answer is whole.
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

// late judges a request by its answer. A request that was begun before this process was is
// judged by what came here.
func (k *Tokens) late(j *turn.Job, now time.Duration) bool {
	m, t := &k.Core.Tables.Models[j.Model.Index], JobText(j)
	t.mu.Lock()
	first, last, fresh, began := t.first, t.last, t.fresh, t.began
	t.mu.Unlock()
	a := formats.Answer{E2E: now - j.Arrived, TTFT: first - j.Arrived, TPOT: formats.TimePerToken(first, last, int(fresh)), Waited: began - j.Arrived}
	slo := max(j.Deadline-j.Arrived, 1) // a deadline that a request brings may have passed
	if m.Of == formats.OfTPOT {
		slo = m.SLO
	}
	return a.Late(m.Of, slo, m.Waiting)
}

func (k *Tokens) Tick(now time.Duration) { k.Learning.tick(now) }

func (k *Tokens) Report(r *formats.Report) { k.series.report(r) }
