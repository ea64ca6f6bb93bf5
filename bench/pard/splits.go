package main

import (
	"fmt"
	"slices"
	"time"

	"inferplan/planner"
)

// Planners that split the deadline in advance, as others do; every module then is planned alone.
// What a split leaves of it bounds a module's batch, and the planner finds the fewest devices for
// these batches.

// splits are, by name, the batch of every module that a split of the SLO, less the margin, chooses: no
// larger one is planned. If a module is too slow for its part, they return nil.
var splits = map[string]func(p *pipeline, budget time.Duration) []int{
	// Equal parts along the longest path.
	"even": func(p *pipeline, budget time.Duration) []int {
		return p.within(budget, func(*stage) float64 { return 1 })
	},
	// Parts by execution alone (Clipper++ of PARD, section 5.1).
	"proportional": func(p *pipeline, budget time.Duration) []int {
		return p.within(budget, func(s *stage) float64 { return s.ms[0] })
	},
	// The split of the least fractions of devices (Nexus, section 6.2).
	"nexus": func(p *pipeline, budget time.Duration) []int { return p.cheapestBatches(millis(budget)) },
	// Batches grow greedily while the sum fits (InferLine, section 5.2).
	"inferline": (*pipeline).doubled,
}

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// split is the pipeline with no batches beyond those of a split. If the split allows none, it
// returns an InfeasibleError. Without a split it is the pipeline itself.
func (p *pipeline) split(name string, margin float64) (*pipeline, error) {
	if splits[name] == nil {
		return p, nil
	}
	batches := splits[name](p, time.Duration((1-margin)*float64(p.slo)))
	if batches == nil {
		return nil, &planner.InfeasibleError{Constraint: "slo", Reason: fmt.Sprintf("the SLO of %s is too short for the split %s", p.name, name)}
	}
	out := *p
	out.stages = slices.Clone(p.stages)
	for i, b := range batches {
		out.stages[i].ms = p.stages[i].ms[:b]
	}
	return &out, nil
}

// within splits a budget along the longest path through every module by weights.
func (p *pipeline) within(budget time.Duration, weight func(*stage) float64) []int {
	n := len(p.stages)
	before, behind := make([]float64, n), make([]float64, n) // the longest ways to a module and from it on, itself included
	for i := range p.stages {
		s := &p.stages[i]
		for k := range i {
			if slices.Contains(s.after, p.stages[k].name) {
				before[i] = max(before[i], before[k])
			}
		}
		before[i] += weight(s)
	}
	var out []int
	for i := n - 1; i >= 0; i-- {
		s := &p.stages[i]
		for k := i + 1; k < n; k++ {
			if slices.Contains(p.stages[k].after, s.name) {
				behind[i] = max(behind[i], behind[k])
			}
		}
		behind[i] += weight(s)
		part := millis(budget) * weight(s) / (before[i] + behind[i] - weight(s))
		cheapest := 0
		for _, b := range s.batches() {
			if 2*s.ms[b-1] <= part && (cheapest == 0 || s.perRequest(b) < s.perRequest(cheapest)) {
				cheapest = b
			}
		}
		if cheapest == 0 {
			return nil
		}
		out = append(out, cheapest)
	}
	slices.Reverse(out)
	return out
}

// batches are those that a stage was measured with.
func (s *stage) batches() []int {
	return slices.DeleteFunc(slices.Clone(batches), func(b int) bool { return b > len(s.ms) })
}

// perRequest is the device time of a request in a batch, in milliseconds.
func (s *stage) perRequest(batch int) float64 { return s.ms[batch-1] / float64(batch) }

// doubled doubles the batch that saves most, again and again, while the longest way fits.
func (p *pipeline) doubled(budget time.Duration) []int {
	choice := slices.Repeat([]int{1}, len(p.stages))
	fits := func() bool { return 2*p.way(choice) <= millis(budget) }
	if !fits() {
		return nil
	}
	for {
		best, to, saves := -1, 0, 1e-12
		for i := range p.stages {
			s, now := &p.stages[i], choice[i]
			for _, b := range s.batches() {
				if b < 2*now || s.perRequest(b) >= s.perRequest(now) {
					continue
				}
				choice[i] = b
				if saved := s.perRequest(now) - s.perRequest(b); fits() && saved > saves {
					best, to, saves = i, b, saved
				}
				break
			}
			choice[i] = now
		}
		if best < 0 {
			return choice
		}
		choice[best] = to
	}
}
