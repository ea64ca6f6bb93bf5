package executor

import (
	"time"

	"inferplan/formats"
)

// tokens is the answer of plans of queues: requests have one task each, which an
// instance of a language model answers piece by piece. The text goes its own way
// (text); here a request ends.
type tokens struct {
	direct
	series   *queueMetrics
	learning *learning
}

// tokensOf is the answer of a core's plan, where that is one of queues.
func tokensOf(c *core, plan *formats.Plan) (answer, error) {
	if formats.QueueOf(plan) == nil || c.control != nil {
		return nil, nil
	}
	return &tokens{direct: direct{single: single{c}}, series: newQueueMetrics(c), learning: newLearning(c)}, nil
}

// ran ends the requests of a batch whose answer is whole.
func (k *tokens) ran(b *batch, _ outputs) {
	now := k.c.now()
	for _, req := range b.tasks {
		j := k.c.book.reqs[req].job
		if j == nil || j.answered || j.text == nil {
			continue
		}
		j.left, j.outcome = 0, served
		j.late = k.late(j, now)
		k.c.stats.served(j, b, now, 0)
		k.series.served(j, now)
		k.learning.answered(j)
		b.tokens = int32(jobText(j).result.OutputTokens)
		k.c.book.answer(j)
	}
}

// late judges a request by its answer. A request that was begun before this process was is
// judged by what came here.
func (k *tokens) late(j *job, now time.Duration) bool {
	m, t := &k.c.tables.Models[j.model.index], jobText(j)
	t.mu.Lock()
	first, last, fresh, began := t.first, t.last, t.fresh, t.began
	t.mu.Unlock()
	a := formats.Answer{E2E: now - j.arrived, TTFT: first - j.arrived, TPOT: formats.TimePerToken(first, last, int(fresh)), Waited: began - j.arrived}
	slo := max(j.deadline-j.arrived, 1) // a deadline that a request brings may have passed
	if m.Of == formats.OfTPOT {
		slo = m.SLO
	}
	return a.Late(m.Of, slo, m.Waiting)
}

func (k *tokens) tick(now time.Duration) { k.learning.tick(now) }

func (k *tokens) report(r *formats.Report) { k.series.report(r) }
