package deploy

import (
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy/vqueue"
)

// FirstRequests draws the requests that arrive in the first `duration` of a plan, and returns them in the form from which the planner
// forms the plan's first request groups (requests scheduled as one). Model is there the index of an item (a class of requests for a
// model), the length of an answer is its class's mean in tokens, and times are in seconds.
func (p *Trials) FirstRequests(l *Layout, duration time.Duration) ([]vqueue.RequestFeatures, error) {
	scenario, err := p.scenario(l, p.problem.AllItems())
	if err != nil {
		return nil, err
	}
	scenario.Duration = duration
	source, err := scenario.Source(scenario.Seed)
	if err != nil {
		return nil, err
	}
	list, err := arrivals.Collect(source, 0)
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
