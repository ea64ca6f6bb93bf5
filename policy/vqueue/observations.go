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

// Observations returns what was observed of each served model. If the policy does not follow its instances, it returns nil.
// Of the kinds of devices that run a model, the slowdown is that of the kind with the most observed work.
func (p *Policy) Observations() []ModelObservation {
	calibrator := &p.calibrator
	if !calibrator.enabled {
		return nil
	}
	observations := make([]ModelObservation, len(calibrator.fleet.tables.Models))
	for model := range observations {
		observation := &observations[model]
		outputs := &calibrator.lengthFollowers[model].outputMoments
		*observation = ModelObservation{Model: int32(model), Answers: outputs.weight, MeanOutput: outputs.mean, Slowdown: 1}
		for kind := range calibrator.fleet.tables.Kinds {
			// totalPredicted is the work, in seconds as planned, that the follower has observed.
			if follower := &calibrator.throughputFollowers[calibrator.followerIndex(calibrator.fleet.networkOf(int32(model)), int32(kind))]; follower.totalPredicted > observation.ObservedWork {
				observation.Slowdown, observation.ObservedWork, observation.Kind = follower.Slowdown(), follower.totalPredicted, int32(kind)
			}
		}
	}
	return observations
}

// ExpectedLateness returns how many requests are expected to be late in the present order of the queues, how many wait, and
// when the last of those that wait is expected to start. All requests of a group count as late if its last member is
// expected to be late. Requests that no instance can serve (unplaced) count as late.
func (p *Policy) ExpectedLateness() (lateRequests, waitingRequests int, lastStart time.Duration) {
	refreshStaleQueues(p.groups.assignment)
	for queueIndex := range p.groups.assignment.queues {
		kind := p.groups.problem.Queues[queueIndex].Kind
		for _, entry := range p.groups.assignment.queues[queueIndex].entries {
			group := &p.groups.problem.Groups[entry.group]
			waitingRequests += int(group.Size)
			lastStart = max(lastStart, fromSeconds(entry.end)) // the last member starts when the group's work ends
			if p.groups.problem.lastMemberLateness(&entry, kind) > lateTolerance {
				lateRequests += int(group.Size)
			}
		}
	}
	return lateRequests + len(p.requests.unplaced), waitingRequests + len(p.requests.unplaced), lastStart
}
