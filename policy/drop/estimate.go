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
func (s *planner) estimate() {
	if s.ways != nil {
		s.ways.shares()
	}
	for a := range s.fleet.own.Apps {
		app := &s.fleet.own.Apps[a]
		for i := range app.Nodes {
			s.behind[s.cell(a, app.Nodes[i].Service)] = 0
		}
		for _, i := range slices.Backward(app.Order) {
			at := s.cell(a, app.Nodes[i].Service)
			s.behind[at] = max(s.behind[at], s.left(a, app, i))
		}
	}
}

// downstreamTime returns the estimated time downstream of a node.
func (s *planner) left(a int, app *flow.App, node int32) time.Duration {
	if s.ways != nil {
		return s.likely(a, app, node)
	}
	most, waits := time.Duration(0), time.Duration(0)
	for _, path := range app.Nodes[node].Paths {
		most, waits = max(most, s.fixed(app, path)), max(waits, s.waiting(app, path))
	}
	return most + waits
}

// pathChance is the estimated duration of a path, with the share of the requests that take it.
type chance struct {
	took  time.Duration
	share float64
}

// likelyDownstreamTime returns the longest path behind a node, apart from those that only a share of MinPathShare of the
// requests take together. Branches beside each other are treated as if they excluded each other as far as they can, so
// that the estimate is never too short.
func (s *planner) likely(a int, app *flow.App, node int32) time.Duration {
	s.chances = s.chances[:0]
	for _, path := range app.Nodes[node].Paths {
		s.chances = append(s.chances, chance{s.fixed(app, path) + s.waiting(app, path), s.ways.along(a, node, path)})
	}
	slices.SortFunc(s.chances, func(x, y chance) int { return cmp.Compare(y.took, x.took) })
	longer := 0.0
	for _, c := range s.chances {
		if longer += c.share; longer > s.opt.Paths {
			return c.took
		}
	}
	return s.chances[len(s.chances)-1].took
}

// queueAndRunTime returns the time along a path without the waits for batches.
func (s *planner) fixed(app *flow.App, path []int32) time.Duration {
	sum := time.Duration(0)
	for _, i := range path {
		m := app.Nodes[i].Service
		q, d := s.queues[m].mean, s.runs[m]
		if s.Rest != nil {
			sum += s.Rest(q, d)
		} else {
			sum += q + d
		}
	}
	return sum
}

// batchWaitQuantile returns the quantile of the sum of the waits for batches along a path.
func (s *planner) waiting(app *flow.App, path []int32) time.Duration {
	switch {
	case s.Rest != nil || s.Keep != nil:
		return 0
	case s.Waits == nil:
		return quantile(s.sum(app, path), len(path), s.opt.Lambda)
	}
	s.lists = s.lists[:0]
	for _, i := range path {
		s.lists = append(s.lists, s.waits[app.Nodes[i].Service].last)
	}
	return s.Waits(s.lists, s.opt.Lambda)
}

// waitSumDistribution returns the distribution of the sum of the waits for batches along a path. Sums of the path's
// tails are kept in buffers, by length.
func (s *planner) sum(app *flow.App, path []int32) []float64 {
	for len(s.buffers) < len(path)+1 {
		s.buffers = append(s.buffers, []float64{1})
	}
	dist := s.buffers[0]
	for i, n := range slices.Backward(path) {
		k := len(path) - i
		s.buffers[k] = s.waits[app.Nodes[n].Service].convolve(s.buffers[k], dist)
		dist = s.buffers[k]
	}
	return dist
}
