package drop

import (
	"time"

	"inferplan/policy/flow"
)

// retryEstimate estimates when a refused request is worth sending again: when one that arrives then is expected to be in
// time.
type retryEstimate struct {
	workers         *workerFleet
	planner         *planner
	downstreamTime  []time.Duration // by application: estimated time behind the entry module
	estimatedSecond int64           // the second of that estimate
}

// newRetryEstimate returns the estimate of when refused requests are worth sending again.
func newRetryEstimate(fleet *workerFleet, planner *planner) retryEstimate {
	return retryEstimate{workers: fleet, planner: planner, downstreamTime: make([]time.Duration, len(fleet.graphTables.Apps)), estimatedSecond: -1}
}

// retryAfter returns the time after which a refused request is worth sending again, which a server tells its client. A
// request that arrives now would exceed its SLO by some time. If no new task enters, queues shrink as fast as time
// passes, so a request that arrives that much later is in time. The result is at least one batch of the entry module.
func (g *retryEstimate) retryAfter(now time.Duration, request *flow.Request) time.Duration {
	app := &g.workers.graphTables.Apps[request.Model]
	if g.estimatedSecond != g.planner.second {
		g.estimate()
	}
	service := app.Nodes[0].Service
	batchTime := g.planner.batchTimes[service]
	slo, answerTime := request.Deadline-request.ArrivedAt, g.workers.batchWait(now, service)+batchTime+g.downstreamTime[request.Model]
	return max(batchTime, answerTime-slo)
}

// estimate computes, for every application, the time of the longest path behind the entry module, from the
// planner's means. It is used to say when a refused request is worth sending again.
func (g *retryEstimate) estimate() {
	g.estimatedSecond = g.planner.second
	for appIndex := range g.downstreamTime {
		app := &g.workers.graphTables.Apps[appIndex]
		g.downstreamTime[appIndex] = app.Nodes[0].LongestTime(func(node int32) time.Duration {
			service := app.Nodes[node].Service
			return g.planner.queueTimes[service].mean + g.planner.batchTimes[service]
		})
	}
}
