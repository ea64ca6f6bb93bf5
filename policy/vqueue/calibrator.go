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
// A Follower learns a correction from observations, as a mean that forgets old ones. The pace is the time between two starts relative to the
// time that the work of a request is expected to take by throughput and lengths.
type calibrator struct {
	fleet               *instanceFleet
	requests            *requestTable
	groups              *groupTable
	enabled             bool            // Options.FollowInstances
	planEstimators      []RCT           // the estimators of the plan, indexed like Tables.RCT, which has the corrected ones
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

// newCalibrator returns a calibrator, which corrects the estimators of completion times by what the instances do. Followers learn the
// corrections: running means of the throughput, of the pace (the time between starts over the expected time) and of the lengths.
// Without Options.FollowInstances it does nothing. Otherwise the fleet's Tables.RCT must be a copy for this policy alone, because the
// calibrator changes it. There are two kinds of requests for each served model: regular requests and mega prompts, which are many
// times longer.
func newCalibrator(groups *groupTable) calibrator {
	calibrator := calibrator{fleet: groups.fleet, requests: groups.requests, groups: groups, enabled: groups.options.FollowInstances}
	if !calibrator.enabled {
		return calibrator
	}

	// The plan's estimators hold at first. Throughput and pace are followed for each network on each kind of device.
	tables := groups.fleet.tables
	requestKinds := 2 * len(tables.Models)
	calibrator.planEstimators = slices.Clone(groups.fleet.queueTables.RCT)
	calibrator.throughputFollowers = make([]Follower, len(tables.Networks)*len(tables.Kinds))
	calibrator.paceFollowers = make([]Follower, len(tables.Networks)*len(tables.Kinds))
	calibrator.lengthFollowers = make([]Follower, len(tables.Models))
	calibrator.saturatedSpans = make([]saturatedSpan, len(groups.fleet.instances))

	// Forecasts share the quantile of waits. observeStarts sets the follower of the pace (nil here), because it depends on the
	// network that the instance holds then.
	calibrator.waitQuantile = &WaitQuantile{}
	for range groups.fleet.instances {
		calibrator.startForecasts = append(calibrator.startForecasts, NewForecast(requestKinds, calibrator.waitQuantile, nil))
	}

	// No pace has been observed, so the expected work is the same before it is corrected by the pace and after.
	for range tables.Kinds {
		calibrator.workBeforePace = append(calibrator.workBeforePace, make([]RequestWork, requestKinds))
		calibrator.workWithPace = append(calibrator.workWithPace, make([]RequestWork, requestKinds))
	}
	calibrator.updateRequestWork() // sets workWithPace
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
// Starts on a saturated instance (requests wait for it, and it has no capacity for them) show how well waits are forecast, and the pace: the
// time between starts relative to the expected work of the requests. It is called after every event.
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
			// The instance may have changed its network since the last start, so its forecast is given the pace of the present one.
			kind := requestKind(request.Model, c.fleet.isMegaPrompt(request))
			instance := &c.fleet.instances[queueIndex]
			deviceKind, forecast := c.fleet.kindOf(instance), &c.startForecasts[queueIndex]
			forecast.Pace = &c.paceFollowers[c.followerIndex(c.saturatedSpans[queueIndex].network, deviceKind)]

			// The pace is measured against the work of this request before the pace corrects it. A forecast of later starts uses the corrected work of
			// all kinds of requests on this kind of device.
			workBeforePace, correctedWorks := c.workBeforePace[deviceKind][kind], c.workWithPace[deviceKind]
			forecast.ObserveStart(toSeconds(now), len(instance.RunningBatches), kind, float64(request.promptTokens), workBeforePace, correctedWorks, c.groups.options.Objective.CommonSD)
		}
	}
}

// observeTokens records that a request, given by its number, has produced this many tokens in all on the instance of a queue.
// If the instance is saturated (requests wait for it, and it has no capacity for them), the time that the plan's estimator predicts for the
// new tokens is added to the work of its open saturatedSpan: Beta seconds for each and, with the first, Alpha for each prompt token.
func (c *calibrator) observeTokens(queueIndex, requestNumber, tokens int32) {
	request := &c.requests.byNumber[requestNumber]
	if c.enabled && c.saturatedSpans[queueIndex].isOpen && tokens > request.producedTokens {
		// The work is predicted by the plan's estimator, not by the corrected one, because the throughput's follower learns how much longer than
		// that the instance takes.
		estimator := &c.planEstimators[c.fleet.estimatorIndex(request.Model, c.fleet.isMegaPrompt(request), c.fleet.kindOf(&c.fleet.instances[queueIndex]))]
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
		c.lengthFollowers[request.Model].AddAnswer(float64(request.promptTokens), float64(tokens))
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
	if span.isOpen && (!saturated || span.network != instance.LoadedNetwork) {
		// Give what was measured to the followers. Forecasts of starts are dropped, because they hold for a saturated instance only.
		c.countWork(now, queueIndex)
		c.startForecasts[queueIndex].Reset()
		span.isOpen = false
	}
	if saturated && !span.isOpen {
		*span = saturatedSpan{isOpen: true, countedSince: now, network: instance.LoadedNetwork}
	}
}

// isSaturated reports whether only its capacity keeps an instance from starting the first request of its queue: it is up, holds the network
// of that request, and takes no further request. Only then its throughput shows what it can do.
func (c *calibrator) isSaturated(instance *Instance, queueIndex int32) bool {
	groupIndex := c.groups.assignment.Head(queueIndex)
	isChanging := !instance.IsUp() || instance.LoadingNetwork >= 0 || instance.pendingEvictions > 0
	if groupIndex < 0 || isChanging || instance.LoadedNetwork != c.groups.problem.Groups[groupIndex].Model {
		return false
	}
	request := &c.requests.byNumber[c.groups.members[groupIndex].requests.First]
	return !c.fleet.AtCap(instance, request.Model) && !c.fleet.CanTakeRequest(instance, request)
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

	// Give the followers what was measured in saturated spans that have not ended, so that they need not wait for the end.
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

	// Widen or narrow the standard deviations of starts by how late starts were observed to be. A start varies by the work ahead of it
	// (startSDScale corrects that, see setCosts) and by the error of the throughput (CommonSD).
	if scale := c.waitQuantile.Scale(); math.Abs(scale-c.groups.startSDScale) > minWidthChange*c.groups.startSDScale {
		c.groups.startSDScale = scale
		c.groups.problem.CommonSD = c.groups.options.Objective.CommonSD * scale
		anyChanged = true
	}
	if !anyChanged {
		return
	}

	// Compute the costs of all groups anew. The change is counted, so that the replanner does not skip the next search as one that would see
	// nothing new.
	c.groups.instanceChanges++
	c.updateRequestWork()
	for groupIndex := range c.groups.members {
		if c.groups.members[groupIndex].inUse && c.groups.members[groupIndex].requests.Len > 0 {
			c.groups.setCosts(int32(groupIndex), c.groups.members[groupIndex].requests.Len, c.groups.members[groupIndex].promptTokens)
		}
	}
}

// updateEstimator sets the estimator (RCT, of request completion times) of a served model on a kind of device, for regular requests or mega
// prompts (many times longer), to that of the plan, corrected by the observed throughput, lengths and pace (the time between starts over
// the expected one). It reports whether the estimator in use changed; small changes are passed over. workBeforePace keeps the expected work
// without the pace, because the pace is measured against it. Only regular requests are samples of lengths, so the observed lengths do not
// correct the estimator of mega prompts.
func (c *calibrator) updateEstimator(model int32, isMegaPrompt bool, kind int32) (changed bool) {
	index, follower := c.fleet.estimatorIndex(model, isMegaPrompt, kind), c.followerIndex(c.fleet.networkOf(model), kind)
	estimator := c.throughputFollowers[follower].Adjust(c.planEstimators[index])
	if !isMegaPrompt {
		estimator = c.lengthFollowers[model].Adjust(estimator)
	}

	// The pace is measured against the work without it, so that is kept.
	c.workBeforePace[kind][requestKind(model, isMegaPrompt)] = estimator.RequestWork()
	estimator = c.paceFollowers[follower].WithPace(estimator)

	// Small changes are not worth new costs of all groups. Compare the mean work of one request.
	current := &c.fleet.queueTables.RCT[index]
	oldWork, _ := current.Work(1)
	newWork, _ := estimator.Work(1)
	if math.Abs(newWork-oldWork) <= minWorkChange*oldWork {
		return false
	}
	*current = estimator
	return true
}
