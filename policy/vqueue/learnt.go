package vqueue

import "time"

// ModelObservation has the observations of a served model by a policy with FollowInstances.
type Learnt struct {
	Model   int32
	Answers float64 // weighted number of answers
	Output  float64 // mean tokens of answers
	// Slowdown is the observed time relative to the planned one, on the kind of device with the most observations.
	// ObservedWork is the amount of work there, in seconds as planned.
	Factor, Work float64
	Kind         int32 // kind of device with the most observations
}

// Observations returns the observations by served model. If the policy does not follow its instances, it returns
// nil.
func (p *Policy) Learnt() []Learnt {
	f := &p.learn
	if !f.on {
		return nil
	}
	out := make([]Learnt, len(f.t.Models))
	for m := range out {
		l := &out[m]
		own := &f.lengths[m].outputs
		*l = Learnt{Model: int32(m), Answers: own.weight, Output: own.mean, Factor: 1}
		for k := range f.t.Kinds {
			if w := &f.works[int(f.network(int32(m)))*len(f.t.Kinds)+k]; w.total > l.Work {
				l.Factor, l.Work, l.Kind = w.Factor(), w.total, int32(k)
			}
		}
	}
	return out
}

// ExpectedLateness returns how many requests wait, how many of them are expected to be late even in the order that
// was found, and when the last of them is expected to start.
func (p *Policy) Lateness() (late, waiting int, last time.Duration) {
	fresh(p.state)
	for q := range p.state.queues {
		kind := p.problem.Queues[q].Kind
		for _, x := range p.state.queues[q].slots {
			g := &p.problem.Groups[x.group]
			waiting += int(g.Size)
			last = max(last, inSeconds(x.end))
			if x.end+p.problem.Cost(x.group, kind).Residence-g.Deadline[Quantiles-1] > lateAfter {
				late += int(g.Size)
			}
		}
	}
	return late + len(p.homeless), waiting + len(p.homeless), last
}
