package vqueue

import "time"

// ModelObservation has the observations of a served model by a policy with FollowInstances.
type ModelObservation struct {
	Model      int32
	Answers    float64 // weighted number of answers
	MeanOutput float64 // mean tokens of answers
	// Slowdown is the observed time relative to the planned one, on the kind of device with the most observations.
	// ObservedWork is the amount of work there, in seconds as planned.
	Slowdown, ObservedWork float64
	Kind                   int32 // kind of device with the most observations
}

// Observations returns the observations by served model. If the policy does not follow its instances, it returns
// nil.
func (p *Policy) Observations() []ModelObservation {
	f := &p.calibrator
	if !f.enabled {
		return nil
	}
	observations := make([]ModelObservation, len(f.tables.Models))
	for m := range observations {
		l := &observations[m]
		outputs := &f.lengthFollowers[m].outputMoments
		*l = ModelObservation{Model: int32(m), Answers: outputs.weight, MeanOutput: outputs.mean, Slowdown: 1}
		for k := range f.tables.Kinds {
			if w := &f.workFollowers[int(f.networkOf(int32(m)))*len(f.tables.Kinds)+k]; w.totalPredicted > l.ObservedWork {
				l.Slowdown, l.ObservedWork, l.Kind = w.Slowdown(), w.totalPredicted, int32(k)
			}
		}
	}
	return observations
}

// ExpectedLateness returns how many requests wait, how many of them are expected to be late even in the order that
// was found, and when the last of them is expected to start.
func (p *Policy) ExpectedLateness() (lateRequests, waitingRequests int, lastStart time.Duration) {
	refreshStaleQueues(p.assignment)
	for q := range p.assignment.queues {
		kind := p.problem.Queues[q].Kind
		for _, slot := range p.assignment.queues[q].slots {
			g := &p.problem.Groups[slot.group]
			waitingRequests += int(g.Size)
			lastStart = max(lastStart, fromSeconds(slot.end))
			if slot.end+p.problem.Cost(slot.group, kind).Residence-g.Deadline[Quantiles-1] > lateTolerance {
				lateRequests += int(g.Size)
			}
		}
	}
	return lateRequests + len(p.unplaced), waitingRequests + len(p.unplaced), lastStart
}
