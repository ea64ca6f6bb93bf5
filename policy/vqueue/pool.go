package vqueue

import (
	"cmp"
	"slices"
	"time"
)

// pooling is one list from which all instances take, for rules that bind a request to
// an instance as late as they can.
type pooling struct {
	*serving
	pool  [][]int32 // requests that wait by network: by band, then the earliest deadline first
	bands []bool    // by served model: it is in the first band; nil: there is one band
}

func newPooling(s *serving) *pooling {
	return &pooling{serving: s, pool: make([][]int32, len(s.t.Networks))}
}

// before orders requests that wait: by band, deadline and slot.
func (p *pooling) before(a, b int32) int {
	x, y := &p.requests[a], &p.requests[b]
	if p.bands != nil && p.bands[x.model] != p.bands[y.model] {
		if p.bands[x.model] {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(x.deadline, y.deadline), cmp.Compare(a, b))
}

// await puts a request into the pool.
func (p *pooling) await(req int32) {
	n := p.network(p.requests[req].model)
	at, _ := slices.BinarySearchFunc(p.pool[n], req, p.before)
	p.pool[n] = slices.Insert(p.pool[n], at, req)
	p.requests[req].pooled = true
}

// unpool takes a request out of the pool.
func (p *pooling) unpool(req int32) {
	r := &p.requests[req]
	if !r.pooled {
		return
	}
	r.pooled = false
	n := p.network(r.model)
	at, _ := slices.BinarySearchFunc(p.pool[n], req, p.before)
	p.pool[n] = slices.Delete(p.pool[n], at, at+1)
}

// violation tells whether a request waits that is late if it starts later than now.
func (p *pooling) violation(now time.Duration) bool {
	for n := range p.pool {
		for _, req := range p.pool[n] {
			if r := &p.requests[req]; r.deadline < now+p.lead(&p.instances[0], r.model) {
				return true
			}
		}
	}
	return false
}

// stuck is a request in the pool past its deadline that no instance which is up can
// serve; -1: none.
func (p *pooling) stuck(now time.Duration) int32 {
	for n := range p.pool {
		for _, req := range p.pool[n] {
			r := &p.requests[req]
			if r.deadline <= now && !r.promised && !slices.ContainsFunc(p.instances, func(in instance) bool { return !in.down && p.serves(&in, r.model) }) {
				return req
			}
		}
	}
	return -1
}
