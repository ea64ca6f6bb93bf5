package deploy

import (
	"time"

	"inferplan/formats/arrivals"
	"inferplan/policy/vqueue"
)

// FirstRequests returns the requests of the first arrivals, in the form from which request groups are
// formed: the model is the index of an item, and the length of an answer is its class's mean.
func (p *Trials) Arriving(l *Layout, until time.Duration) ([]vqueue.Request, error) {
	items := make([]int, len(p.Items))
	for i := range items {
		items[i] = i
	}
	sc, err := p.scenario(l, items)
	if err != nil {
		return nil, err
	}
	sc.Duration = until
	src, err := sc.Source(sc.Seed)
	if err != nil {
		return nil, err
	}
	list, err := arrivals.Collect(src, 0)
	if err != nil {
		return nil, err
	}
	outputs := make([]float64, len(p.Classes)) // mean tokens of an answer, by class
	for i := range outputs {
		_, outputs[i], _ = moments(p.Classes[i].Sample)
	}

	// A time per token becomes a time for the whole answer.
	out := make([]vqueue.Request, len(list))
	for i, r := range list {
		class := p.Items[r.Model].Class
		c, output := &p.Classes[class], outputs[class]
		slo := c.SLO.Seconds()
		if c.Of == "tpot" {
			slo *= output
		}
		out[i] = vqueue.Request{Model: r.Model, Priority: int32(c.Priority), SLO: slo, Prompt: float64(r.PromptTokens), Output: output, Arrived: r.At.Seconds(), Deadline: r.At.Seconds() + slo}
	}
	return out, nil
}

// LargestCap returns the most concurrent sequences of an item on the instances of a pool.
func (p *Problem) LargestCap(x *Pool, item int) int {
	most := 1
	for k, n := range x.Counts {
		if n > 0 {
			most = max(most, x.Caps[k][p.Items[item].Model])
		}
	}
	return most
}

// Estimator returns the estimator of a model on a kind with a number of concurrent sequences. With mega, it
// is that of mega prompts, if there is one.
func (p *Estimators) Estimator(model, kind, sequences int, mega bool) (*vqueue.RCT, error) {
	e, err := p.estimated(model, kind, sequences)
	if err != nil {
		return nil, err
	}
	if mega && e.mega != nil {
		return e.mega, nil
	}
	return e.rct, nil
}
