package graph

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"inferplan/planner/flow/terms"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/moves"
	"inferplan/solver/milp"
)

// moveLimits limit the devices that a solution of the program may move, of those that run.
type moveLimits struct {
	classes  []runningClass
	maxMoved int
}

// addMoves limits the moves of a program. A device does not move if it holds all that it needs: m_uk devices with model u in
// so many shares, and the G_k devices on which models take turns, are matched with devices that run and hold their content
// c, of which there are N_c. What is not matched moves:
//
//	Σ_c kept_ukc ≤ m_uk;   Σ_c keptshared_kc ≤ G_k;   Σ_uk kept_ukc + keptshared_kc ≤ N_c
//	keptshared_kc ≤ N_c (1 - x_uk) for every model u that c lacks;   y_ulk ≤ N_k x_uk;   Σ_uk m_uk + Σ_k G_k - Σ kept ≤ maxMoved
//
// where x_uk says whether model u takes turns on pool k, and y_ulk is its part of the time. The models that take turns are on
// all devices that no model has to itself: Σ_u m_uk + G_k ≥ N_k x_uk.
func (x *program) addMoves(near *moveLimits) {
	moved := x.m.AddLE("moved", float64(near.maxMoved))
	classRows := lists.Filled(len(near.classes), func(c int) milp.Row { return x.m.AddLE("running", float64(near.classes[c].count)) })

	// Devices of a model's own, by the number of shares.
	for u := range x.problem.models {
		for k := range x.problem.pools {
			for _, part := range x.partsOf(u, k) {
				keptRow := x.m.AddLE("kept", 0)
				for l := range x.problem.models[u].levels {
					if x.devices[u][l][k] >= 0 && !x.problem.isTimeShared(u, l, k) && x.problem.models[u].levels[l].templates[k].sharesPerDevice == part.sharesPerDevice {
						x.m.AddTerm(keptRow, x.devices[u][l][k], -1)
						x.m.AddTerm(moved, x.devices[u][l][k], 1)
					}
				}
				for c := range near.classes {
					if class := &near.classes[c]; class.pool == k && slices.Contains(class.parts, part) {
						x.addKept(keptRow, moved, classRows[c], float64(class.count))
					}
				}
			}
		}
	}

	// Devices on which models take turns.
	for k, shared := range x.sharedDevices {
		if shared < 0 {
			continue
		}
		takesTurns := x.addTurnTakers(k)
		keptRow := x.m.AddLE("kept", 0, milp.Term{Var: shared, Coef: -1})
		x.m.AddTerm(moved, shared, 1)
		for c := range near.classes {
			class := &near.classes[c]
			if class.pool != k {
				continue
			}
			kept := x.addKept(keptRow, moved, classRows[c], float64(class.count))
			for u, isTaker := range takesTurns {
				if isTaker >= 0 && !slices.Contains(class.parts, runningPart{u, 1}) {
					x.m.AddLE("loads", float64(class.count), milp.Term{Var: kept, Coef: 1}, milp.Term{Var: isTaker, Coef: float64(class.count)})
				}
			}
		}
	}
}

// partsOf returns model u in the numbers of shares that it may have on devices of pool k to itself.
func (x *program) partsOf(u, k int) (parts []runningPart) {
	for l := range x.problem.models[u].levels {
		part := runningPart{u, x.problem.models[u].levels[l].templates[k].sharesPerDevice}
		if x.devices[u][l][k] >= 0 && !x.problem.isTimeShared(u, l, k) && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return parts
}

// addKept adds the number of devices that go on with what they hold.
func (x *program) addKept(keptRow, moved, classRow milp.Row, maxCount float64) milp.Var {
	kept := x.m.AddVar("", 0, maxCount, 0)
	x.m.AddTerm(keptRow, kept, 1)
	x.m.AddTerm(moved, kept, -1)
	x.m.AddTerm(classRow, kept, 1)
	return kept
}

// addTurnTakers adds, for the models that may take turns on pool k, variables that say whether they do; -1 for the others.
func (x *program) addTurnTakers(k int) []milp.Var {
	count := float64(x.problem.pools[k].count)
	takesTurns := slices.Repeat([]milp.Var{-1}, len(x.problem.models))
	for u := range x.problem.models {
		for l := range x.problem.models[u].levels {
			if x.devices[u][l][k] < 0 || !x.problem.isTimeShared(u, l, k) {
				continue
			}
			if takesTurns[u] < 0 {
				takesTurns[u] = x.addInteger("takes turns "+x.problem.models[u].name, 1, 0)
				row := x.m.AddLE("devices in turns", 0, milp.Term{Var: takesTurns[u], Coef: count}, milp.Term{Var: x.sharedDevices[k], Coef: -1})
				for v := range x.problem.models {
					for o := range x.problem.models[v].levels {
						if x.devices[v][o][k] >= 0 && !x.problem.isTimeShared(v, o, k) {
							x.m.AddTerm(row, x.devices[v][o][k], -1)
						}
					}
				}
			}
			x.m.AddLE("", 0, milp.Term{Var: x.devices[u][l][k], Coef: 1}, milp.Term{Var: takesTurns[u], Coef: -count})
		}
	}
	return takesTurns
}

// nearPlanner searches a plan that starts from the one that runs.
type nearPlanner struct {
	*resolvedProblem
	search                     *planSearch
	freshResult, currentResult *solveResult // the best plan of all, and the one that runs; nil if that has no value
	chooser                    *moves.Chooser
	results                    map[*kind.Outcome]*solveResult // by candidate
}

// outcomeNear returns the outcome of a plan that starts from the one that runs, which moves at most the share of the devices
// that the option max-moved says, and is no worse. bestResult is the best plan of all. The candidates are the plan that runs; the
// best plan of all, if it moves few enough; and the best plans that move no device, at most one, two, four and so on, up to as
// many as may move. These are searched for until a candidate is within the option gap of the best plan of all. Of the
// candidates within the gap of the best one, it takes that with the fewest moves.
func (r *resolvedProblem) outcomeNear(ctx context.Context, s *planSearch, bestResult *solveResult) (*kind.Outcome, error) {
	silent := *r
	silent.run = kind.NewRun(nil) // what candidates assume is not yet that of the plan
	n := &nearPlanner{resolvedProblem: &silent, search: s, freshResult: bestResult, results: map[*kind.Outcome]*solveResult{},
		chooser: &moves.Chooser{Sense: kind.SenseOf(r.objective), Gap: r.input.Values.Number("gap"), MaxMoved: moves.MaxDevices(r.input, r.pools)}}

	// What runs, and the best plan of all.
	runningResult, reason := r.runningResult()
	if reason == nil {
		n.currentResult = runningResult
		if _, err := n.add(runningResult); err != nil {
			return nil, err
		}
	}
	bestMoved, err := n.add(r.enlarged(bestResult))
	if err != nil {
		return nil, err
	}

	// Plans that move few devices.
	classes := r.runningClasses()
	for limit := range n.chooser.Limits(ctx, bestResult.value, bestMoved) {
		near, err := n.solve(ctx, &moveLimits{classes, limit})
		if err != nil {
			if !errors.Is(err, terms.ErrNoPlan) && ctx.Err() == nil {
				return nil, err
			}
			continue
		}
		moved, err := n.add(r.enlarged(near))
		if err == nil && moved > limit {
			_, err = n.add(near) // larger batches are of other shares of devices
		}
		if err != nil {
			return nil, err
		}
	}
	chosen := n.chooser.Best()
	if chosen == nil {
		return nil, moves.TooManyError(r.pools, n.chooser.MaxMoved, bestMoved)
	}
	o := r.outcome(n.results[chosen])
	if err := moves.Renumber(r.input, o); err != nil {
		return nil, err
	}
	if reason != nil {
		r.run.Assume("the plan that runs has no value of the objective today: %s", reason.Reason)
		return o, nil
	}
	o.Replan.RunningValue = &runningResult.value
	return o, nil
}

// runningOutcome returns the outcome of the plan that runs, by today's documents.
func (r *resolvedProblem) runningOutcome() (*kind.Outcome, error) {
	runningResult, reason := r.runningResult()
	if reason != nil {
		return nil, reason
	}
	runningResult.bound, runningResult.stoppedBy = math.NaN(), milp.StoppedByWork
	o := r.outcome(runningResult)
	if err := moves.Renumber(r.input, o); err != nil {
		return nil, err
	}
	o.Replan.RunningValue = &runningResult.value
	return o, nil
}

// add adds a result to the candidates, and returns how many devices it moves. The bound of the best plan of all holds for it.
func (n *nearPlanner) add(result *solveResult) (moved int, err error) {
	if result.bound, result.stoppedBy = n.freshResult.bound, n.freshResult.stoppedBy; result.value != n.freshResult.value {
		result.bound = kind.ValidBound(n.chooser.Sense, result.value, result.bound)
		result.stoppedBy = kind.StopReason(milp.RelativeGap(n.chooser.Sense, result.value, result.bound), n.chooser.Gap)
	}
	o := n.outcome(result)
	if err := moves.Renumber(n.input, o); err != nil {
		return 0, err
	}
	n.results[o] = result
	return n.chooser.Add(o), nil
}

// enlarged returns a result with the rest of the deadlines spent on larger batches. A plan in which modules take turns (it has
// time shares) keeps its batches: a larger one would be a longer wait for all modules on its devices.
func (r *resolvedProblem) enlarged(result *solveResult) *solveResult {
	if result.solution.timeShares != nil {
		return result
	}
	p := cmp.Or(result.problem, r.problem)
	changed, solution := *result, *result.solution
	p.enlargeBatches(&solution)
	changed.solution = &solution
	return &changed
}

// solve returns the best plan that moves few enough devices, by the programs of the problems of the best plan of all and of
// the plan that runs: where modules may take turns, these have levels of their own.
func (n *nearPlanner) solve(ctx context.Context, near *moveLimits) (best *solveResult, err error) {
	problems := []*problem{n.problem}
	for _, o := range []*solveResult{n.freshResult, n.currentResult} {
		if o != nil && o.problem != nil && !slices.Contains(problems, o.problem) {
			problems = append(problems, o.problem)
		}
	}
	for _, p := range problems {
		result, solveErr := n.search.withProblem(p).solveNear(ctx, n.objective, n.freshResult, near)
		if solveErr != nil && !errors.Is(solveErr, terms.ErrNoPlan) {
			return nil, solveErr
		}
		if solveErr == nil && (best == nil || kind.IsBetter(n.chooser.Sense, result.value, best.value)) {
			best = result
		}
	}
	if best == nil {
		return nil, terms.ErrNoPlan
	}
	return best, nil
}

// solveNear returns the best plan that moves few enough devices, and of these one with few devices, by the mixed-integer
// program. bestResult is the best plan of all.
func (s *planSearch) solveNear(ctx context.Context, objective string, bestResult *solveResult, near *moveLimits) (*solveResult, error) {
	q := programQuery{goal: goalMinPrice, maxFactor: 1, moveLimits: near}
	if objective == "throughput" {
		q.goal, q.maxFactor = goalMaxRate, max(bestResult.bound, bestResult.value)*(1+1e-6)
	}
	result, err := s.solveProgram(ctx, q, milp.Options{MaxNodes: maxNearNodes})
	if err != nil {
		return nil, err
	}
	result.problem = s.problem
	if objective != "throughput" {
		result.value = s.problem.price(result.solution)
		s.fewestByProgram(ctx, programQuery{maxPrice: result.value * (1 + 1e-9), moveLimits: near}, result)
		return result, nil
	}
	if result.value = s.problem.rateFactor(result.solution); result.solution.timeShares == nil {
		s.scaledTo(result.value).fewestByProgram(ctx, programQuery{moveLimits: near}, result)
		result.value = max(result.value, s.problem.rateFactor(result.solution))
	}
	return result, nil
}

// maxNearNodes limits the branching of a program of plans that move few devices.
const maxNearNodes = 20_000
