package vqueue

import (
	"math"
	"slices"
	"time"

	"inferplan/policy"
)

// calibrator keeps the policy's estimators near the instances: throughput by network and kind of device, lengths
// by served model. Only the time in which an instance is saturated counts for its throughput.
type calibrator struct {
	*groupTable
	enabled         bool
	calibrated      []RCT            // the estimators of the calibration
	workFollowers   []Follower       // by network and kind of device: time per token
	paceFollowers   []Follower       // by network and kind of device: time between starts, relative to that of workFollowers and lengths
	lengthFollowers []Follower       // by served model
	busySpans       []busySpan       // by instance
	startForecasts  []Forecast       // by instance
	unpacedPrices   [][]RequestPrice // by kind of device and kind of request, without the paces
	prices          [][]RequestPrice // the same with the paces, as in queueTables.RCT
	waitQuantile    *WaitQuantile    // of the starts
}

// busySpan is a time in which an instance is saturated, since its work was last counted.
type busySpan struct {
	busy         bool
	countedSince time.Duration
	network      int32
	work         float64 // seconds of finished work, as predicted
}

// newCalibrator returns a calibrator. Without FollowInstances it does nothing. Else the group table must have
// estimators of its own, because the calibrator changes them.
func newCalibrator(s *groupTable) calibrator {
	if !s.options.FollowInstances {
		return calibrator{groupTable: s}
	}
	c := calibrator{groupTable: s, enabled: true, calibrated: slices.Clone(s.queueTables.RCT), workFollowers: make([]Follower, len(s.tables.Networks)*len(s.tables.Kinds)), paceFollowers: make([]Follower, len(s.tables.Networks)*len(s.tables.Kinds)), waitQuantile: &WaitQuantile{},
		lengthFollowers: make([]Follower, len(s.tables.Models)), busySpans: make([]busySpan, len(s.instances))}
	for range s.instances {
		c.startForecasts = append(c.startForecasts, NewForecast(2*len(s.tables.Models), c.waitQuantile, nil))
	}
	for range s.tables.Kinds {
		c.unpacedPrices, c.prices = append(c.unpacedPrices, make([]RequestPrice, 2*len(s.tables.Models))), append(c.prices, make([]RequestPrice, 2*len(s.tables.Models)))
	}
	c.updatePrices()
	for k := range c.unpacedPrices {
		copy(c.unpacedPrices[k], c.prices[k])
	}
	return c
}

// updatePrices recomputes the prices of requests from the estimators.
func (f *calibrator) updatePrices() {
	for k := range f.prices {
		for i := range f.prices[k] {
			f.prices[k][i] = f.queueTables.RCT[i*len(f.prices)+k].Price()
		}
	}
}

// observeStarts observes the requests that were dispatched by the actions from firstAction on. Starts on a
// saturated instance show how well waits are forecast, and how much time passes between them.
func (f *calibrator) observeStarts(now time.Duration, out *policy.Actions, firstAction int) {
	if !f.enabled {
		return
	}
	for i := firstAction; i < len(out.List); i++ {
		a := &out.List[i]
		if a.Kind != policy.Dispatch {
			continue
		}
		r := &f.requests[out.Tasks[a.TaskFirst]]
		if q := r.instance; f.busySpans[q].busy {
			kind := 2 * int(r.model)
			if f.isMega(r) {
				kind++
			}
			in := &f.instances[q]
			k, forecast := f.kindOf(in), &f.startForecasts[q]
			forecast.Pace = &f.paceFollowers[int(f.busySpans[q].network)*len(f.tables.Kinds)+int(k)]
			forecast.ObserveStart(toSeconds(now), len(in.runningBatches), kind, float64(r.promptTokens), f.unpacedPrices[k][kind], f.prices[k], f.options.Objective.CommonSD)
		}
	}
}

// observeTokens records that a request on an instance has produced this many tokens.
func (f *calibrator) observeTokens(q, req, tokens int32) {
	r := &f.requests[req]
	if f.enabled && f.busySpans[q].busy && tokens > r.producedTokens {
		e := &f.calibrated[f.estimatorIndex(r.model, f.isMega(r), f.kindOf(&f.instances[q]))]
		work := e.Beta * float64(tokens-r.producedTokens)
		if r.producedTokens == 0 {
			work += e.Alpha * float64(r.promptTokens)
		}
		f.busySpans[q].work += work
	}
	r.producedTokens = max(r.producedTokens, tokens)
}

// observeAnswer records that a request on an instance has its answer. If the number of its tokens is not known, it
// is 0.
func (f *calibrator) observeAnswer(q, req, tokens int32) {
	if !f.enabled || tokens == 0 {
		return
	}
	f.observeTokens(q, req, tokens)
	if r := &f.requests[req]; !f.isMega(r) {
		f.lengthFollowers[r.model].AddAnswer(float64(r.promptTokens), float64(tokens))
	}
}

// observeLoad begins or ends the busy span of an instance.
func (f *calibrator) observeLoad(now time.Duration, q int32) {
	if !f.enabled {
		return
	}
	in, span := &f.instances[q], &f.busySpans[q]
	saturated := f.isSaturated(in, q)
	if span.busy && (!saturated || span.network != in.loadedNetwork) {
		f.countWork(now, q)
		f.startForecasts[q].Reset()
		span.busy = false
	}
	if saturated && !span.busy {
		*span = busySpan{busy: true, countedSince: now, network: in.loadedNetwork}
	}
}

// isSaturated reports whether an instance has no room for the head of its queue.
func (f *calibrator) isSaturated(in *instance, q int32) bool {
	g := f.assignment.Head(q)
	if g < 0 || !in.isUp() || in.loadingNetwork >= 0 || in.pendingEvictions > 0 || in.loadedNetwork != f.problem.Groups[g].Model {
		return false
	}
	r := &f.requests[f.groups[g].firstRequest]
	return !f.atCap(in, r.model) && !f.canTakeRequest(in, r)
}

// countWork gives the work since the last count to the follower of the instance's network and kind.
func (f *calibrator) countWork(now time.Duration, q int32) {
	span := &f.busySpans[q]
	f.workFollowers[int(span.network)*len(f.tables.Kinds)+int(f.kindOf(&f.instances[q]))].AddWork(toSeconds(now-span.countedSince), span.work)
	span.countedSince, span.work = now, 0
}

const (
	// minPriceChange is the relative change of a request's time from which on groups are priced again, and
	// minWidthChange the same of the width of the starts' quantile.
	minPriceChange = 0.01
	minWidthChange = 0.05
)

// updateEstimators brings the estimators up to date with the observations, and prices the groups again if they
// changed.
func (f *calibrator) updateEstimators(now time.Duration) {
	if !f.enabled {
		return
	}
	for q := range f.busySpans {
		if f.busySpans[q].busy {
			f.countWork(now, int32(q))
		}
	}

	// Combine throughput, lengths and pace.
	anyChanged := false
	for m := range f.tables.Models {
		for mega := range 2 {
			for k := range f.tables.Kinds {
				index := f.estimatorIndex(int32(m), mega == 1, int32(k))
				e := f.workFollowers[int(f.networkOf(int32(m)))*len(f.tables.Kinds)+k].Adjust(f.calibrated[index])
				if mega == 0 {
					e = f.lengthFollowers[m].Adjust(e)
				}
				f.unpacedPrices[k][index/len(f.tables.Kinds)] = e.Price()
				e = f.paceFollowers[int(f.networkOf(int32(m)))*len(f.tables.Kinds)+k].WithPace(e)
				oldWork, _ := f.queueTables.RCT[index].Work(1)
				newWork, _ := e.Work(1)
				if math.Abs(newWork-oldWork) > minPriceChange*oldWork {
					f.queueTables.RCT[index], anyChanged = e, true
				}
			}
		}
	}

	// Widen or narrow the starts' standard deviations.
	if scale := f.waitQuantile.Scale(); math.Abs(scale-f.startSDScale) > minWidthChange*f.startSDScale {
		f.startSDScale, f.problem.CommonSD, anyChanged = scale, f.options.Objective.CommonSD*scale, true
	}
	if !anyChanged {
		return
	}

	// Price all groups.
	f.instanceChanges++
	f.updatePrices()
	for g := range f.groups {
		if f.groups[g].inUse && f.groups[g].size > 0 {
			f.setCosts(int32(g), f.groups[g].size, f.groups[g].promptTokens)
		}
	}
}
