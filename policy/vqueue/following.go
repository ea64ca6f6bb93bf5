package vqueue

import (
	"math"
	"slices"
	"time"

	"inferplan/policy"
)

// calibrator keeps the policy's estimators near the instances: throughput by network and kind of device, lengths
// by served model. Only the time in which an instance is saturated counts for its throughput.
type following struct {
	*grouping
	on      bool
	base    []RCT      // the estimators of the calibration
	works   []Follower // by network and kind of device: time per token
	paces   []Follower // by network and kind of device: time between starts, relative to that of workFollowers and lengths
	lengths []Follower // by served model
	spans   []span     // by instance
	starts  []Forecast // by instance
	bare    [][]Price  // by kind of device and kind of request, without the paces
	prices  [][]Price  // the same with the paces, as in queueTables.RCT
	cover   *Coverage  // of the starts
}

// busySpan is a time in which an instance is saturated, since its work was last counted.
type span struct {
	full    bool
	since   time.Duration
	network int32
	work    float64 // seconds of finished work, as predicted
}

// newCalibrator returns a calibrator. Without FollowInstances it does nothing. Else the group table must have
// estimators of its own, because the calibrator changes them.
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

// updatePrices recomputes the prices of requests from the estimators.
func (f *following) priced() {
	for k := range f.prices {
		for i := range f.prices[k] {
			f.prices[k][i] = f.own.RCT[i*len(f.prices)+k].Price()
		}
	}
}

// observeStarts observes the requests that were dispatched by the actions from firstAction on. Starts on a
// saturated instance show how well waits are forecast, and how much time passes between them.
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

// observeTokens records that a request on an instance has produced this many tokens.
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

// observeAnswer records that a request on an instance has its answer. If the number of its tokens is not known, it
// is 0.
func (f *following) answered(q, req, tokens int32) {
	if !f.on || tokens == 0 {
		return
	}
	f.made(q, req, tokens)
	if r := &f.requests[req]; !f.mega(r) {
		f.lengths[r.model].Answered(float64(r.prompt), float64(tokens))
	}
}

// observeLoad begins or ends the busy span of an instance.
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

// isSaturated reports whether an instance has no room for the head of its queue.
func (f *following) saturated(in *instance, q int32) bool {
	g := f.state.First(q)
	if g < 0 || !in.up() || in.coming >= 0 || in.evicting > 0 || in.loaded != f.problem.Groups[g].Model {
		return false
	}
	r := &f.requests[f.groups[g].first]
	return !f.capped(in, r.model) && !f.room(in, r)
}

// countWork gives the work since the last count to the follower of the instance's network and kind.
func (f *following) count(now time.Duration, q int32) {
	x := &f.spans[q]
	f.works[int(x.network)*len(f.t.Kinds)+int(f.kind(&f.instances[q]))].Worked(seconds(now-x.since), x.work)
	x.since, x.work = now, 0
}

const (
	// minPriceChange is the relative change of a request's time from which on groups are priced again, and
	// minWidthChange the same of the width of the starts' quantile.
	moved   = 0.01
	widened = 0.05
)

// updateEstimators brings the estimators up to date with the observations, and prices the groups again if they
// changed.
func (f *following) tick(now time.Duration) {
	if !f.on {
		return
	}
	for q := range f.spans {
		if f.spans[q].full {
			f.count(now, int32(q))
		}
	}

	// Combine throughput, lengths and pace.
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

	// Widen or narrow the starts' standard deviations.
	if wide := f.cover.Scale(); math.Abs(wide-f.wide) > widened*f.wide {
		f.wide, f.problem.Common, changed = wide, f.opt.Objective.Common*wide, true
	}
	if !changed {
		return
	}

	// Price all groups.
	f.shifts++
	f.priced()
	for g := range f.groups {
		if f.groups[g].live && f.groups[g].size > 0 {
			f.price(int32(g), f.groups[g].size, f.groups[g].prompts)
		}
	}
}
