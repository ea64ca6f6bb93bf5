package rules

import (
	"cmp"
	"slices"
	"time"

	"inferplan/policy"
	"inferplan/policy/vqueue"
)

// sharedList is one list from which all instances take, for rules that bind a request to
// an instance as late as they can.
type sharedList struct {
	*vqueue.InstanceControl
	pool   [][]int32 // requests that wait by network: by band, then the earliest deadline first
	pooled []bool    // by request: it waits in the pool
	bands  []bool    // by served model: it is in the first band; nil if there is one band
}

func newSharedList(s *vqueue.InstanceControl) *sharedList {
	return &sharedList{InstanceControl: s, pool: make([][]int32, len(s.Tables().Networks))}
}

// network is the network of a served model.
func (p *sharedList) network(model int32) int32 {
	t := p.Tables()
	return t.Pipelines[t.Models[model].FirstPipeline].Network
}

// model is a served model of a network.
func (p *sharedList) model(network int32) int32 {
	for m := range p.Tables().Models {
		if p.network(int32(m)) == network {
			return int32(m)
		}
	}
	return 0
}

// before orders requests that wait: by band, deadline and slot.
func (p *sharedList) before(a, b int32) int {
	x, y := p.Request(a), p.Request(b)
	if p.bands != nil && p.bands[x.Model] != p.bands[y.Model] {
		if p.bands[x.Model] {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(x.Deadline, y.Deadline), cmp.Compare(a, b))
}

// AddWaiting puts a request into the pool.
func (p *sharedList) AddWaiting(req int32) {
	for int(req) >= len(p.pooled) {
		p.pooled = append(p.pooled, false)
	}
	n := p.network(p.Request(req).Model)
	at, _ := slices.BinarySearchFunc(p.pool[n], req, p.before)
	p.pool[n] = slices.Insert(p.pool[n], at, req)
	p.pooled[req] = true
}

// Has returns whether a request waits in the pool.
func (p *sharedList) Has(req int32) bool { return int(req) < len(p.pooled) && p.pooled[req] }

// RemoveWaiting takes a request out of the pool.
func (p *sharedList) RemoveWaiting(req int32) {
	if !p.Has(req) {
		return
	}
	p.pooled[req] = false
	n := p.network(p.Request(req).Model)
	at, _ := slices.BinarySearchFunc(p.pool[n], req, p.before)
	p.pool[n] = slices.Delete(p.pool[n], at, at+1)
}

// send takes a request out of the pool and has an instance serve it.
func (p *sharedList) send(q, req int32, out *policy.Actions) {
	p.RemoveWaiting(req)
	p.DispatchRequest(p.Instance(q), req, out)
}

// RequestEnded implements vqueue.Dispatcher.
func (*sharedList) RequestEnded(time.Duration, int32) {}

// Tick implements vqueue.Dispatcher.
func (*sharedList) Tick(time.Duration) {}

// ViolationExpected returns whether a request waits that is late if it starts later than now.
func (p *sharedList) ViolationExpected(now time.Duration) bool {
	for n := range p.pool {
		for _, req := range p.pool[n] {
			if r := p.Request(req); r.Deadline < now+p.LeadTime(p.Instance(0), r.Model) {
				return true
			}
		}
	}
	return false
}

// StuckRequest is a request in the pool past its deadline that no instance which is up can
// serve; -1: none.
func (p *sharedList) StuckRequest(now time.Duration) int32 {
	for n := range p.pool {
		for _, req := range p.pool[n] {
			if r := p.Request(req); r.Deadline <= now && !r.AnswerPromised && !p.served(r.Model) {
				return req
			}
		}
	}
	return -1
}

// served returns whether an instance that is up serves a model.
func (p *sharedList) served(model int32) bool {
	for q := range p.Len() {
		if in := p.Instance(q); in.IsUp() && p.ServesModel(in, model) {
			return true
		}
	}
	return false
}

// urgent returns which served models go first where bands are asked for: those of the
// lowest priority, or, where all have the same, those of the shortest SLO.
func urgent(t *policy.Tables) []bool {
	out := make([]bool, len(t.Models))
	same := !slices.ContainsFunc(t.Models, func(m policy.Model) bool { return m.Priority != t.Models[0].Priority })
	first := func(a, b *policy.Model) bool {
		if same {
			return a.SLO < b.SLO
		}
		return a.Priority < b.Priority
	}
	for i := range out {
		out[i] = !slices.ContainsFunc(t.Models, func(m policy.Model) bool { return first(&m, &t.Models[i]) })
	}
	return out
}
