package drop

import (
	"slices"
	"time"

	"inferplan/policy/flow"
)

// estimate works out what is left to do behind every module: the longest way
// by queueing and execution, and the largest quantile of the sum of waits for
// batches over the ways (PARD §4.2). The two may be of different ways.
func (s *planner) estimate() {
	for a := range s.fleet.own.Apps {
		app := &s.fleet.own.Apps[a]
		for i := range app.Nodes {
			s.behind[s.cell(a, app.Nodes[i].Service)] = 0
		}
		for _, i := range slices.Backward(app.Order) {
			n := &app.Nodes[i]
			at := s.cell(a, n.Service)
			s.behind[at] = max(s.behind[at], s.fixed(app, n)+s.waiting(app, n))
		}
	}
}

// fixed is the longest way behind a node without waits for batches.
func (s *planner) fixed(app *flow.App, n *flow.Node) time.Duration {
	most := time.Duration(0)
	for _, path := range n.Paths {
		sum := time.Duration(0)
		for _, i := range path {
			m := app.Nodes[i].Service
			q, d := s.queues[m].mean, s.runs[m]
			switch s.rest {
			case whole, nowait:
				sum += q + d
			case runs:
				sum += d
			case twice:
				sum += q + 2*d
			}
		}
		most = max(most, sum)
	}
	return most
}

// waiting is the largest quantile of waits for batches over the ways behind a
// node.
func (s *planner) waiting(app *flow.App, n *flow.Node) time.Duration {
	if s.rest != whole || s.test != ahead {
		return 0
	}
	most := time.Duration(0)
	for _, path := range n.Paths {
		if s.opt.Samples > 0 {
			s.along = s.along[:0]
			for _, i := range path {
				s.along = append(s.along, &s.waits[app.Nodes[i].Service])
			}
			var w time.Duration
			w, s.drawn = sampled(s.along, s.opt.Samples, s.opt.Lambda, s.rng, s.drawn)
			most = max(most, w)
			continue
		}
		most = max(most, quantile(s.sum(app, path), len(path), s.opt.Lambda))
	}
	return most
}

// sum is the distribution of the sum of waits along a path.
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
