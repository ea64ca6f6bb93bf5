package vqueue

import (
	"math"
	"slices"
	"sort"
	"time"

	"inferplan/policy"
)

// shepherd has the instances take batches from one list.
type shepherd struct {
	*serving
	pool [][]int32 // requests that wait by network, the earliest deadline first
}

func newShepherd(s *serving) shepherd { return shepherd{s, make([][]int32, len(s.t.Networks))} }

func (p *shepherd) position(list []int32, req int32) int {
	d := p.requests[req].deadline
	return sort.Search(len(list), func(i int) bool {
		other := p.requests[list[i]].deadline
		return other > d || other == d && list[i] >= req
	})
}

// await puts a request into the pool.
func (p *shepherd) await(req int32) {
	n := p.network(p.requests[req].model)
	p.pool[n] = slices.Insert(p.pool[n], p.position(p.pool[n], req), req)
	p.requests[req].pooled = true
}

// unpool takes a request out of the pool.
func (p *shepherd) unpool(req int32) {
	r := &p.requests[req]
	if !r.pooled {
		return
	}
	r.pooled = false
	n := p.network(r.model)
	at := p.position(p.pool[n], req)
	p.pool[n] = slices.Delete(p.pool[n], at, at+1)
}

// stuck is a request in the pool past its deadline that no instance which is up can
// serve; -1: none.
func (p *shepherd) stuck(now time.Duration) int32 {
	for n := range p.pool {
		if len(p.pool[n]) == 0 || p.requests[p.pool[n][0]].deadline > now {
			continue
		}
		if !slices.ContainsFunc(p.instances, func(in instance) bool { return !in.down && p.can(&in, int32(n)) }) {
			return p.pool[n][0]
		}
	}
	return -1
}

// assign gives every idle instance a batch. It is filled once and runs to its end.
func (p *shepherd) assign(now time.Duration, out *policy.Actions) {
	for q := range p.instances {
		in := &p.instances[q]
		if in.down || in.coming >= 0 || len(in.running) > 0 || in.failed {
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
func (p *shepherd) static(in *instance, network int32) int {
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
func (p *shepherd) chosenFor(now time.Duration, in *instance) int32 {
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
			took += p.loadTime(in, network)
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
