package rules

import (
	"math"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// shepherd is like SHEPHERD: one list, the earliest deadline first. An idle instance takes the batch of one
// model with the most requests in time per second, and takes no more until it is empty.
type shepherd struct {
	*sharedList
	chosen []int32 // by instance: network that it was loaded for; -1: none
}

// Shepherd makes the rule like SHEPHERD.
func Shepherd(s *vqueue.InstanceControl) vqueue.Dispatcher {
	return shepherd{newSharedList(s), slices.Repeat([]int32{-1}, int(s.Len()))}
}

// AssignRequests gives every idle instance a batch. It is filled once and runs to its end.
func (p shepherd) AssignRequests(now time.Duration, out *policy.Actions) {
	for q := range p.Len() {
		in := p.Instance(q)
		if !in.IsUp() || in.LoadFailed {
			p.chosen[q] = -1
		}
		if !in.IsUp() || in.LoadingNetwork >= 0 || len(in.RunningBatches) > 0 || in.LoadFailed {
			continue
		}
		network := p.chosenFor(now, q, in)
		if network < 0 {
			continue
		}
		if in.LoadedNetwork != network {
			p.chosen[q] = network
			p.ChangeNetwork(now, in, network, out)
			continue
		}
		p.chosen[q] = -1
		for n := p.static(in, network); n > 0 && len(p.pool[network]) > 0; n-- {
			p.send(q, p.pool[network][0], out)
		}
	}
}

// static is the size of a batch: the sequences that run at once, each with room for
// the longest that the iteration's budget admits.
func (p shepherd) static(in *vqueue.Instance, network int32) int {
	n, t := p.MaxRunning(in, p.model(network)), p.Tables()
	if budget := int64(t.Instances[t.InstanceOf(in.Device)].TokenBudget); budget > 0 {
		if _, kv := p.Capacity(in, network); kv > 0 {
			n = min(n, kv/budget)
		}
	}
	return int(max(n, 1))
}

// chosenFor is the network with the most requests in time per second; -1: none
// waits that the instance can serve.
func (p shepherd) chosenFor(now time.Duration, q int32, in *vqueue.Instance) int32 {
	if n := p.chosen[q]; n >= 0 && in.LoadedNetwork == n && len(p.pool[n]) > 0 {
		return n
	}
	best, most := int32(-1), math.Inf(-1)
	for n := range p.pool {
		network := int32(n)
		if len(p.pool[n]) == 0 || !p.CanServe(in, network) {
			continue
		}
		est := p.EstimatorOn(in, p.model(network), false)
		took := time.Duration((est.Prefill + est.Decode*(est.OutputMean+longBatch*math.Sqrt(est.OutputVar))) * float64(time.Second))
		if in.LoadedNetwork != network {
			took += p.ChangeTime(in, network)
		}
		list := p.pool[n][:min(len(p.pool[n]), p.static(in, network))]
		value := 0.0
		for _, req := range list {
			if p.Request(req).Deadline >= now+took {
				value++
			}
		}
		// Where nothing is in time any more, larger batches come first.
		value = value/(took+1).Seconds() + 1e-6*float64(len(list))
		if value > most {
			best, most = network, value
		}
	}
	return best
}

// longBatch is how many standard deviations above the mean the longest answer of a
// batch is estimated.
const longBatch = 1.6
