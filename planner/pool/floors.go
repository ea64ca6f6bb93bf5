package pool

import (
	"errors"
	"slices"
)

// tolerance is the part by which a plan may miss what is asked of it: a floor
// under a rate. It stands here alone, so that every search accepts the same plans.
const tolerance = 1e-6

// meets tells whether a rate reaches a floor.
func meets(rps, floor float64) bool { return rps >= floor*(1-tolerance) }

// solverTolerance is the part by which a solver misses the rates it is asked for.
const solverTolerance = 1e-7

// nearEdge is how near to 1 the part of the floors that fits has to be for the
// floors to be asked for again less the tolerance; whole plans are found to a
// thousandth.
const nearEdge = 1 - 2e-3

// atFloors solves a problem. Where its floors are refused that the devices nearly
// carry, it solves again with floors lower by the tolerance. A solver's own
// tolerance decides at the edge of what it is given; here it decides nothing: what
// counts is whether the rates that come out meet the floors.
func atFloors(p *Problem, solve func(*Problem) (*Outcome, error)) (*Outcome, error) {
	out, err := solve(p)
	var refused *Infeasible
	if !errors.As(err, &refused) || refused.Constraint != "min_rps" || refused.Load < nearEdge {
		return out, err
	}
	lower := *p
	lower.Models = slices.Clone(p.Models)
	for d := range lower.Models {
		lower.Models[d].MinRPS *= 1 - tolerance
	}
	again, againErr := solve(&lower)
	if againErr != nil {
		return nil, err
	}
	slack := sameValue
	if p.timed() {
		slack = solverTolerance // rates are the solver's there, elsewhere those of whole replicas
	}
	for d := range p.Models {
		if !meets(again.RPS[d], p.Models[d].MinRPS*(1-slack)) {
			return nil, err
		}
	}
	return again, nil
}
