package deploy

import (
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy/vqueue"
)

// FirstRequests returns the requests of the first arrivals, in the form from which request groups are
// formed: the model is the index of an item, and the length of an answer is its class's mean.
func (p *Trials) FirstRequests(l *Layout, duration time.Duration) ([]vqueue.RequestFeatures, error) {
	sc, err := p.scenario(l, p.problem.AllItems())
	if err != nil {
		return nil, err
	}
	sc.Duration = duration
	src, err := sc.Source(sc.Seed)
	if err != nil {
		return nil, err
	}
	list, err := arrivals.Collect(src, 0)
	if err != nil {
		return nil, err
	}
	outputs := make([]float64, len(p.problem.Classes)) // mean tokens of an answer, by class
	for i := range outputs {
		_, outputs[i], _ = lengthMoments(p.problem.Classes[i].Sample)
	}

	// A time per token becomes a time for the whole answer.
	requests := make([]vqueue.RequestFeatures, len(list))
	for i, r := range list {
		class := p.problem.Items[r.Model].Class
		c, output := &p.problem.Classes[class], outputs[class]
		slo := c.SLO.Seconds()
		if c.Figure == "tpot" {
			slo *= output
		}
		requests[i] = vqueue.RequestFeatures{Model: r.Model, Priority: int32(c.Priority), SLO: slo, Prompt: float64(r.PromptTokens), Output: output, ArrivedAt: r.ArrivedAt.Seconds(), Deadline: r.ArrivedAt.Seconds() + slo}
	}
	return requests, nil
}

// Estimator returns the estimator of a model on a kind with a number of concurrent sequences. With mega, it
// is that of mega prompts, if there is one.
func (p *Estimators) Estimator(model, kind, sequences int, mega bool) (*vqueue.RCT, error) {
	e, err := p.estimateFor(model, kind, sequences)
	if err != nil {
		return nil, err
	}
	if mega && e.mega != nil {
		return e.mega, nil
	}
	return e.rct, nil
}
