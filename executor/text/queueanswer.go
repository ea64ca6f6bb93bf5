package text

import (
	"time"

	"inferplan/executor/turn"
	"inferplan/formats"
)

// TextAnswers is the turn.Answerer of plans of queues. Each request is one task, which an instance answers piece by
// piece. The pieces go directly into the requestText; TextAnswers handles the end of the request.
type TextAnswers struct {
	turn.DirectAnswerer
	series  *queueMetrics
	Monitor *planMonitor
}

// TextAnswersOf returns the answerer for a plan of queues: what ends requests for text and counts them. If the plan
// is of another kind, it returns nil.
func TextAnswersOf(c *turn.Core, plan *formats.Plan) (turn.Answerer, error) {
	if formats.QueueOf(plan) == nil || c.Control != nil {
		return nil, nil
	}
	return &TextAnswers{DirectAnswerer: turn.DirectAnswerer{OneTaskPerRequest: turn.OneTaskPerRequest{Core: c}}, series: newQueueMetrics(c), Monitor: newPlanMonitor(c)}, nil
}

// TakeOutputs is called when the answer of a batch, which has one request here, is complete. It counts the request as
// served, records its times and its tokens, and hands the answer to the client. If it is answered already, nothing is
// done. The outputs are not tensors but a text, which is in the job; so the second argument is not used.
func (k *TextAnswers) TakeOutputs(b *turn.Batch, _ turn.BatchOutputs) {
	now := k.Core.Loop.Now()
	for _, req := range b.Tasks {
		q := k.Core.Ledger.RequestIn(req)
		if q == nil || q.Job.Answered || q.Job.Text == nil {
			continue
		}
		j := q.Job
		j.RemainingSamples, j.Outcome = 0, turn.OutcomeServed
		j.IsLate = k.isLate(j, now)
		k.Core.Stats.RecordServed(j, b, now, 0)
		k.series.recordServed(j, now)
		k.Monitor.recordLengths(j)
		b.Tokens = int32(JobText(j).result.OutputTokens)
		k.Core.Ledger.AnswerJob(j)
	}
}

// isLate returns true if a request that is answered at `now` has missed its SLO: on the time to the first token, per
// token or to the end, whichever figure the model's SLO is for, or on the waiting time. A request that was begun before
// this process started is judged by the part that came here.
func (k *TextAnswers) isLate(j *turn.Job, now time.Duration) bool {
	m, t := &k.Core.Tables.Models[j.Model.Index], JobText(j)
	t.mu.Lock()
	firstTokenAt, lastTokenAt, newTokens, firstRunAt := t.firstTokenAt, t.lastTokenAt, t.newTokens, t.firstRunAt
	t.mu.Unlock()
	a := formats.Answer{E2E: now - j.ArrivedAt, TTFT: firstTokenAt - j.ArrivedAt, TPOT: formats.TimePerToken(firstTokenAt, lastTokenAt, int(newTokens)), WaitTime: firstRunAt - j.ArrivedAt}
	slo := max(j.Deadline-j.ArrivedAt, 1) // the client's deadline may have passed at arrival
	if m.SLOFigure == formats.FigureTPOT {
		slo = m.SLO
	}
	return a.IsLate(m.SLOFigure, slo, m.WaitSLO)
}

// EverySecond compares what is served with the plan.
func (k *TextAnswers) EverySecond(now time.Duration) { k.Monitor.update(now) }

// Report adds the figures of requests for text to the report.
func (k *TextAnswers) Report(r *formats.Report) {
	k.series.fillReport(r)
	r.Work = k.Monitor.workReport()
}
