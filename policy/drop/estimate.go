package drop

import (
	"cmp"
	"slices"
	"time"

	"inferplan/policy/flow"
)

// estimateDownstream computes the time downstream of every module: the largest over the paths of queueing plus
// execution, plus the largest quantile of the sum of the waits for batches (PARD §4.2). The two may be of different
// paths. If path shares are learnt, rare paths are left out.
func (s *planner) estimateDownstream() {
	if s.pathShares != nil {
		s.pathShares.updateShares()
	}
	for a := range s.workers.graphTables.Apps {
		app := &s.workers.graphTables.Apps[a]
		for i := range app.Nodes {
			s.downstream[s.cellOf(a, app.Nodes[i].Service)] = 0
		}
		for _, i := range slices.Backward(app.Order) {
			cell := s.cellOf(a, app.Nodes[i].Service)
			s.downstream[cell] = max(s.downstream[cell], s.downstreamTime(a, app, i))
		}
	}
}

// downstreamTime returns the estimated time downstream of a node: what a request needs for the modules behind it.
// The longest of the paths counts, separately for run times and for waits.
func (s *planner) downstreamTime(a int, app *flow.Application, node int32) time.Duration {
	if s.pathShares != nil {
		return s.likelyDownstreamTime(a, app, node)
	}
	maxFixed, maxWait := time.Duration(0), time.Duration(0)
	for _, path := range app.Nodes[node].Paths {
		maxFixed, maxWait = max(maxFixed, s.queueAndRunTime(app, path)), max(maxWait, s.batchWaitQuantile(app, path))
	}
	return maxFixed + maxWait
}

// pathChance is the estimated duration of a path, with the share of the requests that take it.
type pathChance struct {
	duration     time.Duration
	requestShare float64
}

// likelyDownstreamTime returns the longest path behind a node, apart from those that only a share of MinPathShare of the
// requests take together. Branches beside each other are treated as if they excluded each other as far as they can, so
// that the estimate is never too short.
func (s *planner) likelyDownstreamTime(a int, app *flow.Application, node int32) time.Duration {
	s.pathChances = s.pathChances[:0]
	for _, path := range app.Nodes[node].Paths {
		s.pathChances = append(s.pathChances, pathChance{s.queueAndRunTime(app, path) + s.batchWaitQuantile(app, path), s.pathShares.pathShare(a, node, path)})
	}
	slices.SortFunc(s.pathChances, func(x, y pathChance) int { return cmp.Compare(y.duration, x.duration) })
	longerShare := 0.0
	for _, c := range s.pathChances {
		if longerShare += c.requestShare; longerShare > s.options.MinPathShare {
			return c.duration
		}
	}
	return s.pathChances[len(s.pathChances)-1].duration
}

// queueAndRunTime returns the estimated time along a path without the waits for batches: mean queueing and batch
// time of each module. A variant may estimate a module otherwise.
func (s *planner) queueAndRunTime(app *flow.Application, path []int32) time.Duration {
	sum := time.Duration(0)
	for _, i := range path {
		m := app.Nodes[i].Service
		queueMean, batchTime := s.queueTimes[m].mean, s.batchTimes[m]
		if s.variant.ModuleEstimate != nil {
			sum += s.variant.ModuleEstimate(queueMean, batchTime)
		} else {
			sum += queueMean + batchTime
		}
	}
	return sum
}

// batchWaitQuantile returns the quantile of the sum of the waits for batches along a path (from entering a batch
// until it starts). Variants without such an estimate have 0, others may compute it from the samples.
func (s *planner) batchWaitQuantile(app *flow.Application, path []int32) time.Duration {
	switch {
	case s.variant.ModuleEstimate != nil || s.variant.PassesTest != nil:
		return 0
	case s.variant.WaitSumQuantile == nil:
		return quantile(s.waitSumDistribution(app, path), len(path), s.options.WaitQuantile)
	}
	s.waitLists = s.waitLists[:0]
	for _, i := range path {
		s.waitLists = append(s.waitLists, s.batchWaits[app.Nodes[i].Service].latest)
	}
	return s.variant.WaitSumQuantile(s.waitLists, s.options.WaitQuantile)
}

// waitSumDistribution returns the distribution of the sum of the waits for batches along a path. Sums of the path's
// tails are kept in buffers, by length.
func (s *planner) waitSumDistribution(app *flow.Application, path []int32) []float64 {
	for len(s.buffers) < len(path)+1 {
		s.buffers = append(s.buffers, []float64{1})
	}
	distribution := s.buffers[0]
	for i, n := range slices.Backward(path) {
		k := len(path) - i
		s.buffers[k] = s.batchWaits[app.Nodes[n].Service].convolve(s.buffers[k], distribution)
		distribution = s.buffers[k]
	}
	return distribution
}
