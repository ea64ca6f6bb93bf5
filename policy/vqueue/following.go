package vqueue

import (
	"math"
	"slices"
	"time"

	"inferplan/policy"
)

// following keeps the estimators near what instances do: throughput by network and
// kind of device, lengths by served model. Only the time in which an instance had more
// to do than it could take tells of its throughput.
type following struct {
	*grouping
	on      bool
	base    []RCT      // as calibrated
	works   []Follower // by network and kind of device: tokens
	paces   []Follower // the same: starts, by what works and lengths would have them take
	lengths []Follower // by served model
	spans   []span     // by instance
	starts  []Forecast // by instance
	bare    [][]Price  // by kind of device and model: without the paces
	prices  [][]Price  // the same: as own.RCT has them
	cover   *Coverage  // of starts
}

// span is a time in which an instance had more to do than it could take, since it was
// last counted.
type span struct {
	full    bool
	since   time.Duration
	network int32
	work    float64 // done, in seconds as predicted
}

// newFollowing follows the instances, or does nothing. The estimators of the grouping
// have to be its own.
func newFollowing(s *grouping) following {
	if !s.opt.Follow {
		return following{grouping: s}
	}
	f := following{grouping: s, on: true, base: slices.Clone(s.own.RCT), works: make([]Follower, len(s.t.Networks)*len(s.t.Kinds)), paces: make([]Follower, len(s.t.Networks)*len(s.t.Kinds)), cover: &Coverage{},
		lengths: make([]Follower, len(s.t.Models)), spans: make([]span, len(s.instances))}
	for range s.instances {
		f.starts = append(f.starts, NewForecast(2*len(s.t.Models), f.cover, nil))
	}
	for range s.t.Kinds {
		f.bare, f.prices = append(f.bare, make([]Price, 2*len(s.t.Models))), append(f.prices, make([]Price, 2*len(s.t.Models)))
	}
	f.priced()
	for k := range f.bare {
		copy(f.bare[k], f.prices[k])
	}
	return f
}

// priced brings the prices of requests up to the estimators.
func (f *following) priced() {
	for k := range f.prices {
		for i := range f.prices[k] {
			f.prices[k][i] = f.own.RCT[i*len(f.prices)+k].Price()
		}
	}
}

// started hears of what was dispatched since the first of some actions. Starts on an instance that has more to do than
// it can take tell how well waits are foretold, and how much time passes between them.
func (f *following) started(now time.Duration, out *policy.Actions, first int) {
	if !f.on {
		return
	}
	for i := first; i < len(out.List); i++ {
		a := &out.List[i]
		if a.Kind != policy.Dispatch {
			continue
		}
		r := &f.requests[out.Tasks[a.TaskFirst]]
		if q := r.instance; f.spans[q].full {
			kind := 2 * int(r.model)
			if f.mega(r) {
				kind++
			}
			in := &f.instances[q]
			k, x := f.kind(in), &f.starts[q]
			x.Pace = &f.paces[int(f.spans[q].network)*len(f.t.Kinds)+int(k)]
			x.Started(seconds(now), len(in.running), kind, float64(r.prompt), f.bare[k][kind], f.prices[k], f.opt.Objective.Common)
		}
	}
}

// made hears that a request on an instance has produced so many tokens.
func (f *following) made(q, req, tokens int32) {
	r := &f.requests[req]
	if f.on && f.spans[q].full && tokens > r.made {
		e := &f.base[f.at(r.model, f.mega(r), f.kind(&f.instances[q]))]
		work := e.Beta * float64(tokens-r.made)
		if r.made == 0 {
			work += e.Alpha * float64(r.prompt)
		}
		f.spans[q].work += work
	}
	r.made = max(r.made, tokens)
}

// answered hears that a request on an instance has its answer, of so many tokens; 0:
// that is not known.
func (f *following) answered(q, req, tokens int32) {
	if !f.on || tokens == 0 {
		return
	}
	f.made(q, req, tokens)
	if r := &f.requests[req]; !f.mega(r) {
		f.lengths[r.model].Answered(float64(r.prompt), float64(tokens))
	}
}

// look notes whether an instance has more to do than it can take.
func (f *following) look(now time.Duration, q int32) {
	if !f.on {
		return
	}
	in, x := &f.instances[q], &f.spans[q]
	full := f.saturated(in, q)
	if x.full && (!full || x.network != in.loaded) {
		f.count(now, q)
		f.starts[q].Reset()
		x.full = false
	}
	if full && !x.full {
		*x = span{full: true, since: now, network: in.loaded}
	}
}

// saturated tells whether what waits for an instance has no room there.
func (f *following) saturated(in *instance, q int32) bool {
	g := f.state.First(q)
	if g < 0 || !in.up() || in.coming >= 0 || in.evicting > 0 || in.loaded != f.problem.Groups[g].Model {
		return false
	}
	r := &f.requests[f.groups[g].first]
	return !f.capped(in, r.model) && !f.room(in, r)
}

// count tells the follower of an instance's kind what was done since the last time.
func (f *following) count(now time.Duration, q int32) {
	x := &f.spans[q]
	f.works[int(x.network)*len(f.t.Kinds)+int(f.kind(&f.instances[q]))].Worked(seconds(now-x.since), x.work)
	x.since, x.work = now, 0
}

// moved is by how much the time of a request has to change until groups are priced
// anew, and widened the same of the width of the starts' quantile.
const (
	moved   = 0.01
	widened = 0.05
)

// tick brings the estimators up to what was seen, and prices the groups by them.
func (f *following) tick(now time.Duration) {
	if !f.on {
		return
	}
	for q := range f.spans {
		if f.spans[q].full {
			f.count(now, int32(q))
		}
	}
	changed := false
	for m := range f.t.Models {
		for mega := range 2 {
			for k := range f.t.Kinds {
				at := f.at(int32(m), mega == 1, int32(k))
				e := f.works[int(f.network(int32(m)))*len(f.t.Kinds)+k].Adjust(f.base[at])
				if mega == 0 {
					e = f.lengths[m].Adjust(e)
				}
				f.bare[k][at/len(f.t.Kinds)] = e.Price()
				e = f.paces[int(f.network(int32(m)))*len(f.t.Kinds)+k].Paced(e)
				was, _ := f.own.RCT[at].Work(1)
				is, _ := e.Work(1)
				if math.Abs(is-was) > moved*was {
					f.own.RCT[at], changed = e, true
				}
			}
		}
	}
	if wide := f.cover.Scale(); math.Abs(wide-f.wide) > widened*f.wide {
		f.wide, f.problem.Common, changed = wide, f.opt.Objective.Common*wide, true
	}
	if !changed {
		return
	}
	f.shifts++
	f.priced()
	for g := range f.groups {
		if f.groups[g].live && f.groups[g].size > 0 {
			f.price(int32(g), f.groups[g].size, f.groups[g].prompts)
		}
	}
}
