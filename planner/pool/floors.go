package pool

import (
	"errors"
	"slices"
)

// floorTolerance is the part by which a plan may miss a floor under a rate. Every search uses this one value, so
// that all of them accept the same plans.
const floorTolerance = 1e-6

// meetsFloor reports whether a rate reaches a floor, within the tolerance.
func meetsFloor(rps, floor float64) bool { return rps >= floor*(1-floorTolerance) }

// solverTolerance is the part by which a solver may miss the rates that it is asked for.
const solverTolerance = 1e-7

// nearEdge is the part of the floors that has to fit for solveAtFloors to solve again with floors lower by the
// tolerance. The largest part that whole devices carry is known to about a thousandth.
const nearEdge = 1 - 2e-3

// solveAtFloors solves a problem. If its floors are refused although the devices nearly carry them, it solves
// again with floors lower by the tolerance. So the tolerance of the solver never decides at the edge: what
// counts is whether the rates of the plan meet the floors.
func solveAtFloors(p *Problem, solve func(*Problem) (*Outcome, error)) (*Outcome, error) {
	outcome, err := solve(p)
	var infeasible *Infeasible
	if !errors.As(err, &infeasible) || infeasible.Constraint != "min_rps" || infeasible.Load < nearEdge {
		return outcome, err
	}

	// Solve again for lower floors.
	lowered := *p
	lowered.Models = slices.Clone(p.Models)
	for d := range lowered.Models {
		lowered.Models[d].MinRPS *= 1 - floorTolerance
	}
	retried, retryErr := solve(&lowered)
	if retryErr != nil {
		return nil, err
	}

	// The rates of that plan decide.
	rateTolerance := valueTolerance
	if p.hasTimeShared() {
		rateTolerance = solverTolerance // there rates are the solver's; elsewhere they follow from whole replicas
	}
	for d := range p.Models {
		if !meetsFloor(retried.RPS[d], p.Models[d].MinRPS*(1-rateTolerance)) {
			return nil, err
		}
	}
	return retried, nil
}
