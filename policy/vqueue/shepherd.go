package vqueue

import (
	"math"
	"time"

	"inferplan/policy"
)

// shepherd has the instances take batches from the pool, each filled once.
type shepherd struct{ *pooling }

// assign gives every idle instance a batch. It is filled once and runs to its end.
func (p shepherd) assign(now time.Duration, out *policy.Actions) {
	for q := range p.instances {
		in := &p.instances[q]
		if !in.up() || in.coming >= 0 || len(in.running) > 0 || in.failed {
			continue
		}
		network := p.chosenFor(now, in)
		if network < 0 {
			continue
		}
		if in.loaded != network {
			in.chosen = network
			p.change(now, in, network, out)
			continue
		}
		in.chosen = -1
		for n := p.static(in, network); n > 0 && len(p.pool[network]) > 0; n-- {
			req := p.pool[network][0]
			p.unpool(req)
			p.dispatch(in, req, out)
		}
	}
}

// static is the size of a batch: the sequences that run at once, each with room for
// the longest that the iteration's budget admits.
func (p shepherd) static(in *instance, network int32) int {
	n := p.most(in, p.someModel(network))
	if budget := int64(p.t.Instances[p.t.InstanceOf(in.device)].Budget); budget > 0 {
		if _, kv := p.holds(in, network); kv > 0 {
			n = min(n, kv/budget)
		}
	}
	return int(max(n, 1))
}

// chosenFor is the network with the most requests in time per second; -1: none
// waits that the instance can serve.
func (p shepherd) chosenFor(now time.Duration, in *instance) int32 {
	if n := in.chosen; n >= 0 && in.loaded == n && len(p.pool[n]) > 0 {
		return n
	}
	best, most := int32(-1), math.Inf(-1)
	for n := range p.pool {
		network := int32(n)
		if len(p.pool[n]) == 0 || !p.can(in, network) {
			continue
		}
		est := p.estimator(in, p.someModel(network), false)
		took := time.Duration((est.Prefill + est.Decode*(est.OutputMean+longBatch*math.Sqrt(est.OutputVar))) * float64(time.Second))
		if in.loaded != network {
			took += p.changeTime(in, network)
		}
		list := p.pool[n][:min(len(p.pool[n]), p.static(in, network))]
		value := 0.0
		for _, req := range list {
			if p.requests[req].deadline >= now+took {
				value++
			}
		}
		// Where nothing is in time any more, larger batches come first.
		value = value/seconds(took+1) + 1e-6*float64(len(list))
		if value > most {
			best, most = network, value
		}
	}
	return best
}

// longBatch is how many standard deviations above the mean the longest answer of a
// batch is estimated.
const longBatch = 1.6
