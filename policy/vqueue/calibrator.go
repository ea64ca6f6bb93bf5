package vqueue

import (
	"math"
	"slices"
	"time"

	"inferplan/policy"
)

// calibrator corrects the policy's estimators by what the instances do: throughput by network and kind of device, lengths of answers by
// served model. An instance's throughput is measured only while it is saturated: requests wait and it has no capacity for them.
// A kind of request is a served model and whether the request is a mega prompt (many times longer than others); kind 2*model is regular,
// 2*model+1 mega.
type calibrator struct {
	fleet               *instanceFleet
	requests            *requestTable
	groups              *groupTable
	enabled             bool            // Options.FollowInstances
	calibrated          []RCT           // the estimators of the plan, indexed like Tables.RCT
	throughputFollowers []Follower      // by network and kind of device (followerIndex): time per token
	paceFollowers       []Follower      // by network and kind of device: time between starts, relative to what throughput and lengths say
	lengthFollowers     []Follower      // by served model: tokens of prompts and answers
	saturatedSpans      []saturatedSpan // by instance
	startForecasts      []Forecast      // by instance
	workBeforePace      [][]RequestWork // by kind of device and kind of request: expected work of a request, not corrected by the pace
	workWithPace        [][]RequestWork // the same corrected by the pace, as in Tables.RCT
	waitQuantile        *WaitQuantile   // quantile of how late starts are
}

// saturatedSpan is a time in which an instance is saturated: requests wait for it, and it has no capacity for them.
type saturatedSpan struct {
	isOpen       bool          // the instance is saturated now
	countedSince time.Duration // when its work was last given to a follower, or the span began
	network      int32         // network that is loaded meanwhile
	work         float64       // work finished since countedSince, in seconds as predicted
}

// newCalibrator returns a calibrator, which corrects the estimators of completion times by what the instances do.
// Without Options.FollowInstances it does nothing. Otherwise the fleet's Tables.RCT must be a copy for this policy alone, because the
// calibrator changes it. Lists of 2*len(Models) have two entries for each served model: regular requests and mega prompts, which are many
// times longer.
func newCalibrator(groups *groupTable) calibrator {
	calibrator := calibrator{fleet: groups.fleet, requests: groups.requests, groups: groups, enabled: groups.options.FollowInstances}
	if !calibrator.enabled {
		return calibrator
	}

	// Everything is as calibrated at first. There are followers for each network on each kind of device, and two kinds of requests for each model.
	tables := groups.fleet.tables
	calibrator.calibrated, calibrator.waitQuantile = slices.Clone(groups.fleet.queueTables.RCT), &WaitQuantile{}
	calibrator.throughputFollowers, calibrator.paceFollowers = make([]Follower, len(tables.Networks)*len(tables.Kinds)), make([]Follower, len(tables.Networks)*len(tables.Kinds))
	calibrator.lengthFollowers, calibrator.saturatedSpans = make([]Follower, len(tables.Models)), make([]saturatedSpan, len(groups.fleet.instances))
	for range groups.fleet.instances {
		calibrator.startForecasts = append(calibrator.startForecasts, NewForecast(2*len(tables.Models), calibrator.waitQuantile, nil))
	}
	for range tables.Kinds {
		calibrator.workBeforePace, calibrator.workWithPace = append(calibrator.workBeforePace, make([]RequestWork, 2*len(tables.Models))), append(calibrator.workWithPace, make([]RequestWork, 2*len(tables.Models)))
	}
	calibrator.updateRequestWork()
	for kind := range calibrator.workBeforePace {
		copy(calibrator.workBeforePace[kind], calibrator.workWithPace[kind])
	}
	return calibrator
}

// followerIndex returns the index in throughputFollowers and paceFollowers of a network on a kind of device.
func (c *calibrator) followerIndex(network, kind int32) int {
	return int(network)*len(c.fleet.tables.Kinds) + int(kind)
}

// updateRequestWork recomputes the expected work of a request of each kind (workWithPace) from the estimators, after these have changed.
func (c *calibrator) updateRequestWork() {
	for kind := range c.workWithPace {
		for requestKind := range c.workWithPace[kind] { // Tables.RCT has a row for each kind of request
			c.workWithPace[kind][requestKind] = c.fleet.queueTables.RCT[requestKind*len(c.workWithPace)+kind].RequestWork()
		}
	}
}

// observeStarts observes the requests that were dispatched by the actions from firstAction on.
// Starts on a saturated instance show how well waits are forecast, and how much time passes between them. It is called after every event.
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
			// The forecast learns the pace of the network that the instance holds.
			kind := requestKind(request.model, c.fleet.isMegaPrompt(request))
			instance := &c.fleet.instances[queueIndex]
			deviceKind, forecast := c.fleet.kindOf(instance), &c.startForecasts[queueIndex]
			forecast.Pace = &c.paceFollowers[c.followerIndex(c.saturatedSpans[queueIndex].network, deviceKind)]
			forecast.ObserveStart(toSeconds(now), len(instance.runningBatches), kind, float64(request.promptTokens), c.workBeforePace[deviceKind][kind], c.workWithPace[deviceKind], c.groups.options.Objective.CommonSD)
		}
	}
}

// observeTokens records that a request, given by its number, has produced this many tokens in all on the instance of a queue.
// If that is saturated, it adds to its work what the plan's estimator predicts for the new tokens: Beta seconds for each and, with the
// first, Alpha for each prompt token.
func (c *calibrator) observeTokens(queueIndex, requestNumber, tokens int32) {
	request := &c.requests.byNumber[requestNumber]
	if c.enabled && c.saturatedSpans[queueIndex].isOpen && tokens > request.producedTokens {
		// The plan's estimator, because followers learn how much the times differ from it.
		estimator := &c.calibrated[c.fleet.estimatorIndex(request.model, c.fleet.isMegaPrompt(request), c.fleet.kindOf(&c.fleet.instances[queueIndex]))]
		work := estimator.Beta * float64(tokens-request.producedTokens)
		if request.producedTokens == 0 {
			work += estimator.Alpha * float64(request.promptTokens)
		}
		c.saturatedSpans[queueIndex].work += work
	}
	request.producedTokens = max(request.producedTokens, tokens)
}

// observeAnswer records that a request, given by its number, has its answer on the instance of a queue, with this many tokens: its last
// tokens are observed, and it is a sample of its model's lengths. If tokens is 0, which means unknown, nothing is recorded.
// Mega prompts, which are much longer than others, are no samples of lengths.
func (c *calibrator) observeAnswer(queueIndex, requestNumber, tokens int32) {
	if !c.enabled || tokens == 0 {
		return
	}
	c.observeTokens(queueIndex, requestNumber, tokens)
	if request := &c.requests.byNumber[requestNumber]; !c.fleet.isMegaPrompt(request) {
		c.lengthFollowers[request.model].AddAnswer(float64(request.promptTokens), float64(tokens))
	}
}

// observeLoad begins the saturated span of a queue's instance when it becomes saturated, and ends it when it no longer is or has another
// network. Throughput is measured over such spans alone, because an idle instance shows less than it can do.
// It is called after every change of what runs on the instance.
func (c *calibrator) observeLoad(now time.Duration, queueIndex int32) {
	if !c.enabled {
		return
	}
	instance, span := &c.fleet.instances[queueIndex], &c.saturatedSpans[queueIndex]
	saturated := c.isSaturated(instance, queueIndex)
	if span.isOpen && (!saturated || span.network != instance.loadedNetwork) {
		// Give what was measured to the followers. Forecasts of starts are dropped, because they hold for a saturated instance only.
		c.countWork(now, queueIndex)
		c.startForecasts[queueIndex].Reset()
		span.isOpen = false
	}
	if saturated && !span.isOpen {
		*span = saturatedSpan{isOpen: true, countedSince: now, network: instance.loadedNetwork}
	}
}

// isSaturated reports whether only its capacity keeps an instance from starting the first request of its queue: it is up, holds the network
// of that request, and takes no further request. Only then its throughput shows what it can do.
func (c *calibrator) isSaturated(instance *instance, queueIndex int32) bool {
	groupIndex := c.groups.assignment.Head(queueIndex)
	if groupIndex < 0 || !instance.isUp() || instance.loadingNetwork >= 0 || instance.pendingEvictions > 0 || instance.loadedNetwork != c.groups.problem.Groups[groupIndex].Model {
		return false
	}
	request := &c.requests.byNumber[c.groups.members[groupIndex].firstRequest]
	return !c.fleet.atCap(instance, request.model) && !c.fleet.canTakeRequest(instance, request)
}

// countWork gives the work that the instance of a queue has finished since the last count, and the time that passed, to the follower of its
// network and kind of device.
func (c *calibrator) countWork(now time.Duration, queueIndex int32) {
	span := &c.saturatedSpans[queueIndex]
	c.throughputFollowers[c.followerIndex(span.network, c.fleet.kindOf(&c.fleet.instances[queueIndex]))].AddWork(toSeconds(now-span.countedSince), span.work)
	span.countedSince, span.work = now, 0
}

const (
	// minWorkChange is the relative change of a request's time from which on the costs of groups are computed anew, and
	// minWidthChange the same of the width of the starts' quantile.
	minWorkChange  = 0.01
	minWidthChange = 0.05
)

// updateEstimators is called at every tick. It corrects the estimators by the observations (throughput, lengths of answers, and pace: the
// time between starts over the expected one). If any changed, it computes the costs of all groups anew.
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
	for model := range c.fleet.tables.Models {
		for _, isMegaPrompt := range [2]bool{false, true} {
			for kind := range c.fleet.tables.Kinds {
				anyChanged = c.updateEstimator(int32(model), isMegaPrompt, int32(kind)) || anyChanged
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

	// Compute the costs of all groups anew.
	c.groups.instanceChanges++
	c.updateRequestWork()
	for groupIndex := range c.groups.members {
		if c.groups.members[groupIndex].inUse && c.groups.members[groupIndex].size > 0 {
			c.groups.setCosts(int32(groupIndex), c.groups.members[groupIndex].size, c.groups.members[groupIndex].promptTokens)
		}
	}
}

// updateEstimator corrects the estimator of a served model on a kind of device, for regular requests or mega prompts (many times longer):
// it is that of the plan, corrected by the observed throughput, lengths and pace (the time between starts over the expected one).
// It reports whether the estimator in use changed; small changes are passed over. workBeforePace keeps the expected work without the pace,
// because the pace is measured against it. Mega prompts are no samples of lengths, so these do not correct their estimator.
func (c *calibrator) updateEstimator(model int32, isMegaPrompt bool, kind int32) (changed bool) {
	index, follower := c.fleet.estimatorIndex(model, isMegaPrompt, kind), c.followerIndex(c.fleet.networkOf(model), kind)
	estimator := c.throughputFollowers[follower].Adjust(c.calibrated[index])
	if !isMegaPrompt {
		estimator = c.lengthFollowers[model].Adjust(estimator)
	}

	// The pace is measured against the work without it, so that is kept.
	c.workBeforePace[kind][requestKind(model, isMegaPrompt)] = estimator.RequestWork()
	estimator = c.paceFollowers[follower].WithPace(estimator)

	// Small changes are not worth new costs of all groups.
	current := &c.fleet.queueTables.RCT[index]
	oldWork, _ := current.Work(1)
	newWork, _ := estimator.Work(1)
	if math.Abs(newWork-oldWork) <= minWorkChange*oldWork {
		return false
	}
	*current = estimator
	return true
}
