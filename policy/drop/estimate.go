package drop

import (
	"cmp"
	"slices"
	"time"

	"inferplan/policy/flow"
)

// estimateDownstream is called once per second. It computes the time downstream of every module, which its tasks need
// for the modules after it: the largest over the paths of queueing plus execution, plus the largest quantile of the sum
// of the waits for batches (PARD §4.2). The two may be of different paths. If the shares of requests by path are learnt
// (Options.MinPathShare), they are updated, and rare paths are left out.
func (s *planner) estimateDownstream() {
	if s.pathShares != nil {
		s.pathShares.updateShares()
	}
	s.waitQuantile = s.currentWaitQuantile()

	// The time is by application and module. A module that stands at several nodes has the largest of these.
	for appIndex := range s.workers.graphTables.Apps {
		app := &s.workers.graphTables.Apps[appIndex]
		for node := range app.Nodes {
			s.downstream[s.cellOf(appIndex, app.Nodes[node].Service)] = 0
		}
		for _, node := range slices.Backward(app.Order) {
			cell := s.cellOf(appIndex, app.Nodes[node].Service)
			downstream := s.downstreamTime(appIndex, app, node)
			if s.variant.IsFeas {
				downstream = min(downstream, s.maxDownstreamTime(appIndex, app, node))
			}
			s.downstream[cell] = max(s.downstream[cell], downstream)
		}
	}
}

// maxWaitShare is the largest part of the time that a request has for waiting, its SLO less all run times, that the
// estimated waits downstream may take up for feas.
const maxWaitShare = .9

// maxDownstreamTime returns the most that the estimated time downstream of a node of an application (an index) may be for
// feas: the run times of the path behind it, and a part (maxWaitShare) of the time that a request has for waiting.
//
// Without this limit, waits seen under overload can make every request look late at the entry. Then no request comes to
// the modules behind, none shows that their devices are idle again, and all requests are dropped for good.
func (s *planner) maxDownstreamTime(appIndex int, app *flow.Application, node int32) time.Duration {
	runTime := app.Nodes[node].LongestTime(func(node int32) time.Duration { return s.batchTimes[app.Nodes[node].Service] })
	timeToWait := s.workers.tables.Models[appIndex].SLO - s.runTimeUpTo(app, node) - runTime
	return runTime + time.Duration(maxWaitShare*float64(max(0, timeToWait)))
}

// runTimeUpTo returns the longest sum of the run times of the modules from the entry to a node, with the node's own.
func (s *planner) runTimeUpTo(app *flow.Application, node int32) time.Duration {
	longest := time.Duration(0)
	for _, input := range app.Nodes[node].Inputs {
		longest = max(longest, s.runTimeUpTo(app, input.From))
	}
	return longest + s.batchTimes[app.Nodes[node].Service]
}

// downstreamTime returns the estimated time downstream of a node of an application (an index): what a request needs
// for the modules behind it. It is the largest queueing and run time of the paths behind it plus their largest wait for
// batches, which may be those of two different paths.
func (s *planner) downstreamTime(appIndex int, app *flow.Application, node int32) time.Duration {
	if s.pathShares != nil {
		return s.likelyDownstreamTime(appIndex, app, node)
	}
	maxQueueAndRun, maxWait := time.Duration(0), time.Duration(0)
	for _, path := range app.Nodes[node].Paths {
		maxQueueAndRun = max(maxQueueAndRun, s.queueAndRunTime(app, path))
		maxWait = max(maxWait, s.batchWaitQuantile(app, path))
	}
	return maxQueueAndRun + maxWait
}

// pathChance is the estimated duration of a path through an application, with the share of the requests that take it.
type pathChance struct {
	duration     time.Duration
	requestShare float64
}

// likelyDownstreamTime returns the estimated time behind a node of an application (an index) if rare long paths do not
// count: it leaves out the longest paths, as many as at most a share of MinPathShare of the requests take together, and
// returns the duration of the next one. The shares of the paths are added up as if no request took two of them, so that
// the estimate is never too short.
func (s *planner) likelyDownstreamTime(appIndex int, app *flow.Application, node int32) time.Duration {
	s.pathChances = s.pathChances[:0]
	for _, path := range app.Nodes[node].Paths {
		s.pathChances = append(s.pathChances, pathChance{s.queueAndRunTime(app, path) + s.batchWaitQuantile(app, path), s.pathShares.pathShare(appIndex, node, path)})
	}

	// From the longest path down, leave out those that few requests take together.
	slices.SortFunc(s.pathChances, func(first, second pathChance) int { return cmp.Compare(second.duration, first.duration) })
	longerShare := 0.0
	for _, chance := range s.pathChances {
		longerShare += chance.requestShare
		if longerShare > s.options.MinPathShare {
			return chance.duration
		}
	}
	return s.pathChances[len(s.pathChances)-1].duration
}

// queueAndRunTime returns the estimated time along a path (node indexes) without the waits for batches: each module's
// mean queueing time over the window and its time for a full batch. A variant may estimate a module otherwise.
func (s *planner) queueAndRunTime(app *flow.Application, path []int32) time.Duration {
	sum := time.Duration(0)
	for _, node := range path {
		module := app.Nodes[node].Service
		queueMean, batchTime := s.queueTimes[module].mean, s.batchTimes[module]
		if s.variant.ModuleEstimate != nil {
			sum += s.variant.ModuleEstimate(queueMean, batchTime)
		} else {
			sum += queueMean + batchTime
		}
	}
	return sum
}

// batchWaitQuantile returns the quantile (waitQuantile) of the sum of the waits for batches along a path
// (node indexes). A wait for a batch is the time from entering it until it starts. Variants (baselines) with an estimate
// or a test of their own for modules to come do not use it, so that it is 0 for them. A variant with WaitSumQuantile
// computes it from the latest waits of each module.
func (s *planner) batchWaitQuantile(app *flow.Application, path []int32) time.Duration {
	switch {
	case s.variant.ModuleEstimate != nil || s.variant.PassesTest != nil:
		return 0
	case s.variant.WaitSumQuantile == nil:
		return quantile(s.waitSumDistribution(app, path), len(path), s.waitQuantile)
	}

	// List the latest waits of each module on the path for the variant.
	s.waitLists = s.waitLists[:0]
	for _, node := range path {
		s.waitLists = append(s.waitLists, s.batchWaits[app.Nodes[node].Service].latest)
	}
	return s.variant.WaitSumQuantile(s.waitLists, s.options.WaitQuantile)
}

// From a load of 1 + overloadRamp on, overloadQuantile is the quantile of the sum of waits for batches that counts for feas.
// Of .3, .5, .7 and .9 it is the one with the most goodput at 1.2 and 2 times the planned rates of 30 drawn applications.
const (
	overloadQuantile = .7
	overloadRamp     = .1
)

// currentWaitQuantile returns the quantile of the sum of waits for batches that counts now. Up to a load of 1 it is the plan's, a low
// one: a request may be lucky, and takes time from none. Under overload requests are dropped in any case, and one that
// would need luck takes the time of one that would not. So the quantile of feas rises with the load, to overloadQuantile.
func (s *planner) currentWaitQuantile() float64 {
	planned := s.options.WaitQuantile
	if !s.variant.IsFeas || planned >= overloadQuantile {
		return planned
	}
	excess := max(0, min(1, (s.entryLoad.largest()-1)/overloadRamp))
	return planned + excess*(overloadQuantile-planned)
}

// waitSumDistribution returns the distribution of the sum of the waits for batches along a path (node indexes): element
// i is the chance of i milliseconds. It convolves the distributions of the modules from the last one back; waitSums[n]
// is the buffer for the sum over the last n nodes, and is overwritten by the next call.
func (s *planner) waitSumDistribution(app *flow.Application, path []int32) []float64 {
	for len(s.waitSums) < len(path)+1 {
		s.waitSums = append(s.waitSums, []float64{1})
	}
	distribution := s.waitSums[0]
	for i, node := range slices.Backward(path) {
		length := len(path) - i
		s.waitSums[length] = s.batchWaits[app.Nodes[node].Service].convolve(s.waitSums[length], distribution)
		distribution = s.waitSums[length]
	}
	return distribution
}
