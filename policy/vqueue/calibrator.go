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
	fleet               *instanceFleet
	requests            *requestTable
	groups              *groupTable
	enabled             bool
	calibrated          []RCT            // the estimators of the calibration
	throughputFollowers []Follower       // by network and kind of device: time per token
	paceFollowers       []Follower       // by network and kind of device: time between starts, relative to that of throughputFollowers and lengths
	lengthFollowers     []Follower       // by served model
	saturatedSpans      []saturatedSpan  // by instance
	startForecasts      []Forecast       // by instance
	workBeforePace      [][]RequestPrice // by kind of device and kind of request, without the paces
	workWithPace        [][]RequestPrice // the same with the paces, as in queueTables.RCT
	waitQuantile        *WaitQuantile    // of the starts
}

// saturatedSpan is a time in which an instance is saturated, since its work was last counted.
type saturatedSpan struct {
	isOpen       bool
	countedSince time.Duration
	network      int32
	work         float64 // seconds of finished work, as predicted
}

// newCalibrator returns a calibrator, which adapts the estimators of completion times to what the instances do.
// Without FollowInstances it does nothing. Else the group table must have estimators of its own, because the
// calibrator changes them. Arrays of 2*len(Models) have two entries for each served model: regular requests and
// mega prompts, which are many times longer.
func newCalibrator(groups *groupTable) calibrator {
	c := calibrator{fleet: groups.fleet, requests: groups.requests, groups: groups, enabled: groups.options.FollowInstances}
	if !c.enabled {
		return c
	}

	// Everything is as calibrated at first.
	tables := groups.fleet.tables
	c.calibrated, c.waitQuantile = slices.Clone(groups.fleet.queueTables.RCT), &WaitQuantile{}
	c.throughputFollowers, c.paceFollowers = make([]Follower, len(tables.Networks)*len(tables.Kinds)), make([]Follower, len(tables.Networks)*len(tables.Kinds))
	c.lengthFollowers, c.saturatedSpans = make([]Follower, len(tables.Models)), make([]saturatedSpan, len(groups.fleet.instances))
	for range groups.fleet.instances {
		c.startForecasts = append(c.startForecasts, NewForecast(2*len(tables.Models), c.waitQuantile, nil))
	}
	for range tables.Kinds {
		c.workBeforePace, c.workWithPace = append(c.workBeforePace, make([]RequestPrice, 2*len(tables.Models))), append(c.workWithPace, make([]RequestPrice, 2*len(tables.Models)))
	}
	c.updateRequestWork()
	for k := range c.workBeforePace {
		copy(c.workBeforePace[k], c.workWithPace[k])
	}
	return c
}

// followerIndex returns the index of a network's followers on a kind of device.
func (c *calibrator) followerIndex(network, kind int32) int {
	return int(network)*len(c.fleet.tables.Kinds) + int(kind)
}

// updateRequestWork recomputes the prices (work per request and per prompt token) from the estimators, after these have
// changed.
func (c *calibrator) updateRequestWork() {
	for k := range c.workWithPace {
		for i := range c.workWithPace[k] {
			c.workWithPace[k][i] = c.fleet.queueTables.RCT[i*len(c.workWithPace)+k].Price()
		}
	}
}

// observeStarts observes the requests that were dispatched by the actions from firstAction on. Starts on a
// saturated instance show how well waits are forecast, and how much time passes between them. Each request counts
// as the kind of its model, regular or mega (a much longer one).
func (c *calibrator) observeStarts(now time.Duration, actions *policy.Actions, firstAction int) {
	if !c.enabled {
		return
	}
	for i := firstAction; i < len(actions.List); i++ {
		action := &actions.List[i]
		if action.Kind != policy.Dispatch {
			continue
		}
		request := &c.requests.byNumber[actions.Tasks[action.TaskFirst]]
		if queueIndex := request.instanceIndex; c.saturatedSpans[queueIndex].isOpen {
			// Prices have two entries for each model: regular, then mega.
			kind := 2 * int(request.model)
			if c.fleet.isMega(request) {
				kind++
			}
			instance := &c.fleet.instances[queueIndex]
			k, forecast := c.fleet.kindOf(instance), &c.startForecasts[queueIndex]
			forecast.Pace = &c.paceFollowers[c.followerIndex(c.saturatedSpans[queueIndex].network, k)]
			forecast.ObserveStart(toSeconds(now), len(instance.runningBatches), kind, float64(request.promptTokens), c.workBeforePace[k][kind], c.workWithPace[k], c.groups.options.Objective.CommonSD)
		}
	}
}

// observeTokens records that a request on an instance has produced this many tokens in all. On a saturated
// instance, it adds the work that the calibrated estimator predicts for the new ones: Beta seconds for each token
// and, with the first, Alpha for each prompt token.
func (c *calibrator) observeTokens(queueIndex, requestNumber, tokens int32) {
	request := &c.requests.byNumber[requestNumber]
	if c.enabled && c.saturatedSpans[queueIndex].isOpen && tokens > request.producedTokens {
		estimator := &c.calibrated[c.fleet.estimatorIndex(request.model, c.fleet.isMega(request), c.fleet.kindOf(&c.fleet.instances[queueIndex]))]
		work := estimator.Beta * float64(tokens-request.producedTokens)
		if request.producedTokens == 0 {
			work += estimator.Alpha * float64(request.promptTokens)
		}
		c.saturatedSpans[queueIndex].work += work
	}
	request.producedTokens = max(request.producedTokens, tokens)
}

// observeAnswer records that a request has its answer, which counts as its last tokens and as a sample of its
// model's lengths. Tokens is 0 if the number is not known; then nothing is recorded. Mega requests, which are much
// longer, do not count as samples of lengths.
func (c *calibrator) observeAnswer(queueIndex, requestNumber, tokens int32) {
	if !c.enabled || tokens == 0 {
		return
	}
	c.observeTokens(queueIndex, requestNumber, tokens)
	if request := &c.requests.byNumber[requestNumber]; !c.fleet.isMega(request) {
		c.lengthFollowers[request.model].AddAnswer(float64(request.promptTokens), float64(tokens))
	}
}

// observeLoad begins the busy span of an instance when it becomes saturated, and ends it when it no longer is or
// has another network. The throughput is measured over busy spans alone, because an idle instance shows less than
// it can do. It is called after every change of an instance's load.
func (c *calibrator) observeLoad(now time.Duration, queueIndex int32) {
	if !c.enabled {
		return
	}
	instance, span := &c.fleet.instances[queueIndex], &c.saturatedSpans[queueIndex]
	saturated := c.isSaturated(instance, queueIndex)
	if span.isOpen && (!saturated || span.network != instance.loadedNetwork) {
		c.countWork(now, queueIndex)
		c.startForecasts[queueIndex].Reset()
		span.isOpen = false
	}
	if saturated && !span.isOpen {
		*span = saturatedSpan{isOpen: true, countedSince: now, network: instance.loadedNetwork}
	}
}

// isSaturated reports whether an instance is held back by its capacity alone: it is up, has the network of its
// queue's head, and no room for that. Only then its throughput shows what it can do.
func (c *calibrator) isSaturated(instance *instance, queueIndex int32) bool {
	groupIndex := c.groups.assignment.Head(queueIndex)
	if groupIndex < 0 || !instance.isUp() || instance.loadingNetwork >= 0 || instance.pendingEvictions > 0 || instance.loadedNetwork != c.groups.problem.Groups[groupIndex].Model {
		return false
	}
	request := &c.requests.byNumber[c.groups.members[groupIndex].firstRequest]
	return !c.fleet.atCap(instance, request.model) && !c.fleet.canTakeRequest(instance, request)
}

// countWork gives the work since the last count to the follower of the instance's network and kind.
func (c *calibrator) countWork(now time.Duration, queueIndex int32) {
	span := &c.saturatedSpans[queueIndex]
	c.throughputFollowers[c.followerIndex(span.network, c.fleet.kindOf(&c.fleet.instances[queueIndex]))].AddWork(toSeconds(now-span.countedSince), span.work)
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
func (c *calibrator) updateEstimators(now time.Duration) {
	if !c.enabled {
		return
	}
	for queueIndex := range c.saturatedSpans {
		if c.saturatedSpans[queueIndex].isOpen {
			c.countWork(now, int32(queueIndex))
		}
	}

	// Combine throughput, lengths and pace.
	anyChanged := false
	for m := range c.fleet.tables.Models {
		for _, isMega := range [2]bool{false, true} {
			for k := range c.fleet.tables.Kinds {
				anyChanged = c.updateEstimator(int32(m), isMega, int32(k)) || anyChanged
			}
		}
	}

	// Widen or narrow the starts' standard deviations.
	if scale := c.waitQuantile.Scale(); math.Abs(scale-c.groups.startSDScale) > minWidthChange*c.groups.startSDScale {
		c.groups.startSDScale, c.groups.problem.CommonSD, anyChanged = scale, c.groups.options.Objective.CommonSD*scale, true
	}
	if !anyChanged {
		return
	}

	// Price all groups.
	c.groups.instanceChanges++
	c.updateRequestWork()
	for g := range c.groups.members {
		if c.groups.members[g].inUse && c.groups.members[g].size > 0 {
			c.groups.setCosts(int32(g), c.groups.members[g].size, c.groups.members[g].promptTokens)
		}
	}
}

// updateEstimator brings the estimator of a served model on a kind of device up to date: the calibrated one,
// corrected by the observed throughput, lengths and pace (the time between starts over the expected one). It
// reports whether the estimator in use changed. workBeforePace keeps the work per request before the pace, because
// the pace is measured against it.
func (c *calibrator) updateEstimator(model int32, isMega bool, kind int32) (changed bool) {
	index, follower := c.fleet.estimatorIndex(model, isMega, kind), c.followerIndex(c.fleet.networkOf(model), kind)
	estimator := c.throughputFollowers[follower].Adjust(c.calibrated[index])
	if !isMega {
		estimator = c.lengthFollowers[model].Adjust(estimator)
	}
	c.workBeforePace[kind][index/len(c.fleet.tables.Kinds)] = estimator.Price()
	estimator = c.paceFollowers[follower].WithPace(estimator)

	// Small changes are not worth new prices.
	current := &c.fleet.queueTables.RCT[index]
	oldWork, _ := current.Work(1)
	newWork, _ := estimator.Work(1)
	if math.Abs(newWork-oldWork) <= minPriceChange*oldWork {
		return false
	}
	*current = estimator
	return true
}
