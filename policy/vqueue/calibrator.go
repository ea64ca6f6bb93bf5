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
	fleet           *instanceFleet
	requests        *requestTable
	groups          *groupTable
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

// newCalibrator returns a calibrator, which adapts the estimators of completion times to what the instances do.
// Without FollowInstances it does nothing. Else the group table must have estimators of its own, because the
// calibrator changes them. Arrays of 2*len(Models) have two entries for each served model: regular requests and
// mega prompts, which are many times longer.
func newCalibrator(s *groupTable) calibrator {
	c := calibrator{fleet: s.fleet, requests: s.requests, groups: s, enabled: s.options.FollowInstances}
	if !c.enabled {
		return c
	}

	// Everything is as calibrated at first.
	tables := s.fleet.tables
	c.calibrated, c.waitQuantile = slices.Clone(s.fleet.queueTables.RCT), &WaitQuantile{}
	c.workFollowers, c.paceFollowers = make([]Follower, len(tables.Networks)*len(tables.Kinds)), make([]Follower, len(tables.Networks)*len(tables.Kinds))
	c.lengthFollowers, c.busySpans = make([]Follower, len(tables.Models)), make([]busySpan, len(s.fleet.instances))
	for range s.fleet.instances {
		c.startForecasts = append(c.startForecasts, NewForecast(2*len(tables.Models), c.waitQuantile, nil))
	}
	for range tables.Kinds {
		c.unpacedPrices, c.prices = append(c.unpacedPrices, make([]RequestPrice, 2*len(tables.Models))), append(c.prices, make([]RequestPrice, 2*len(tables.Models)))
	}
	c.updatePrices()
	for k := range c.unpacedPrices {
		copy(c.unpacedPrices[k], c.prices[k])
	}
	return c
}

// followerIndex returns the index of a network's followers on a kind of device.
func (f *calibrator) followerIndex(network, kind int32) int {
	return int(network)*len(f.fleet.tables.Kinds) + int(kind)
}

// updatePrices recomputes the prices (work per request and per prompt token) from the estimators, after these have
// changed.
func (f *calibrator) updatePrices() {
	for k := range f.prices {
		for i := range f.prices[k] {
			f.prices[k][i] = f.fleet.queueTables.RCT[i*len(f.prices)+k].Price()
		}
	}
}

// observeStarts observes the requests that were dispatched by the actions from firstAction on. Starts on a
// saturated instance show how well waits are forecast, and how much time passes between them. Each request counts
// as the kind of its model, regular or mega (a much longer one).
func (f *calibrator) observeStarts(now time.Duration, out *policy.Actions, firstAction int) {
	if !f.enabled {
		return
	}
	for i := firstAction; i < len(out.List); i++ {
		a := &out.List[i]
		if a.Kind != policy.Dispatch {
			continue
		}
		r := &f.requests.bySlot[out.Tasks[a.TaskFirst]]
		if q := r.instance; f.busySpans[q].busy {
			// Prices have two entries for each model: regular, then mega.
			kind := 2 * int(r.model)
			if f.fleet.isMega(r) {
				kind++
			}
			in := &f.fleet.instances[q]
			k, forecast := f.fleet.kindOf(in), &f.startForecasts[q]
			forecast.Pace = &f.paceFollowers[f.followerIndex(f.busySpans[q].network, k)]
			forecast.ObserveStart(toSeconds(now), len(in.runningBatches), kind, float64(r.promptTokens), f.unpacedPrices[k][kind], f.prices[k], f.groups.options.Objective.CommonSD)
		}
	}
}

// observeTokens records that a request on an instance has produced this many tokens in all. On a saturated
// instance, it adds the work that the calibrated estimator predicts for the new ones: Beta seconds for each token
// and, with the first, Alpha for each prompt token.
func (f *calibrator) observeTokens(q, req, tokens int32) {
	r := &f.requests.bySlot[req]
	if f.enabled && f.busySpans[q].busy && tokens > r.producedTokens {
		e := &f.calibrated[f.fleet.estimatorIndex(r.model, f.fleet.isMega(r), f.fleet.kindOf(&f.fleet.instances[q]))]
		work := e.Beta * float64(tokens-r.producedTokens)
		if r.producedTokens == 0 {
			work += e.Alpha * float64(r.promptTokens)
		}
		f.busySpans[q].work += work
	}
	r.producedTokens = max(r.producedTokens, tokens)
}

// observeAnswer records that a request has its answer, which counts as its last tokens and as a sample of its
// model's lengths. Tokens is 0 if the number is not known; then nothing is recorded. Mega requests, which are much
// longer, do not count as samples of lengths.
func (f *calibrator) observeAnswer(q, req, tokens int32) {
	if !f.enabled || tokens == 0 {
		return
	}
	f.observeTokens(q, req, tokens)
	if r := &f.requests.bySlot[req]; !f.fleet.isMega(r) {
		f.lengthFollowers[r.model].AddAnswer(float64(r.promptTokens), float64(tokens))
	}
}

// observeLoad begins the busy span of an instance when it becomes saturated, and ends it when it no longer is or
// has another network. The throughput is measured over busy spans alone, because an idle instance shows less than
// it can do. It is called after every change of an instance's load.
func (f *calibrator) observeLoad(now time.Duration, q int32) {
	if !f.enabled {
		return
	}
	in, span := &f.fleet.instances[q], &f.busySpans[q]
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

// isSaturated reports whether an instance is held back by its capacity alone: it is up, has the network of its
// queue's head, and no room for that. Only then its throughput shows what it can do.
func (f *calibrator) isSaturated(in *instance, q int32) bool {
	g := f.groups.assignment.Head(q)
	if g < 0 || !in.isUp() || in.loadingNetwork >= 0 || in.pendingEvictions > 0 || in.loadedNetwork != f.groups.problem.Groups[g].Model {
		return false
	}
	r := &f.requests.bySlot[f.groups.members[g].firstRequest]
	return !f.fleet.atCap(in, r.model) && !f.fleet.canTakeRequest(in, r)
}

// countWork gives the work since the last count to the follower of the instance's network and kind.
func (f *calibrator) countWork(now time.Duration, q int32) {
	span := &f.busySpans[q]
	f.workFollowers[f.followerIndex(span.network, f.fleet.kindOf(&f.fleet.instances[q]))].AddWork(toSeconds(now-span.countedSince), span.work)
	span.countedSince, span.work = now, 0
}

const (
	// minPriceChange is the relative change of a request's time from which on groups are priced again, and
	// minWidthChange the same of the width of the starts' quantile.
	minPriceChange = 0.01
	minWidthChange = 0.05
)

// updateEstimators is called at every tick. It brings the estimators up to date with the observations (throughput,
// lengths of answers, and pace: the time between starts over the expected one). If any changed, it computes the
// costs of all groups again.
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
	for m := range f.fleet.tables.Models {
		for _, isMega := range [2]bool{false, true} {
			for k := range f.fleet.tables.Kinds {
				anyChanged = f.updateEstimator(int32(m), isMega, int32(k)) || anyChanged
			}
		}
	}

	// Widen or narrow the starts' standard deviations.
	if scale := f.waitQuantile.Scale(); math.Abs(scale-f.groups.startSDScale) > minWidthChange*f.groups.startSDScale {
		f.groups.startSDScale, f.groups.problem.CommonSD, anyChanged = scale, f.groups.options.Objective.CommonSD*scale, true
	}
	if !anyChanged {
		return
	}

	// Price all groups.
	f.groups.instanceChanges++
	f.updatePrices()
	for g := range f.groups.members {
		if f.groups.members[g].inUse && f.groups.members[g].size > 0 {
			f.groups.setCosts(int32(g), f.groups.members[g].size, f.groups.members[g].promptTokens)
		}
	}
}

// updateEstimator brings the estimator of a served model on a kind of device up to date: the calibrated one,
// corrected by the observed throughput, lengths and pace (the time between starts over the expected one). It
// reports whether the estimator in use changed. unpacedPrices keeps the work per request before the pace, because
// the pace is measured against it.
func (f *calibrator) updateEstimator(model int32, isMega bool, kind int32) (changed bool) {
	index, follower := f.fleet.estimatorIndex(model, isMega, kind), f.followerIndex(f.fleet.networkOf(model), kind)
	e := f.workFollowers[follower].Adjust(f.calibrated[index])
	if !isMega {
		e = f.lengthFollowers[model].Adjust(e)
	}
	f.unpacedPrices[kind][index/len(f.fleet.tables.Kinds)] = e.Price()
	e = f.paceFollowers[follower].WithPace(e)

	// Small changes are not worth new prices.
	current := &f.fleet.queueTables.RCT[index]
	oldWork, _ := current.Work(1)
	newWork, _ := e.Work(1)
	if math.Abs(newWork-oldWork) <= minPriceChange*oldWork {
		return false
	}
	*current = e
	return true
}
