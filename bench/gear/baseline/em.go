package baseline

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/placement"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/gear/trials"
)

// drawn is how many cascades SP1 draws in every round of Algorithm 1, and
// maxRounds how many rounds it takes at most once a plan holds.
const (
	drawn     = 1000
	maxRounds = 50
)

// minQueues are the least queue lengths that SP4 tries, in order.
var minQueues = []int{1, 4, 16}

// fault is the error code that goes back from a submodule to the one before.
type fault struct {
	span  int  // range that cannot be served
	model int  // its bottleneck; negative: not known
	any   bool // models do not fit in memory: another range may give way too
}

// em is Algorithm 1 of the paper: cascade search, assignment, placement and
// queue lengths in turn, an error going one submodule back. Where the algorithm
// as written does not end or rejects what is feasible, its meaning here is:
//
//   - work is priced at the operating batch, not at batch 1;
//   - Equation 4 prefers the replica that frees most of the overallocated memory
//     and stops when nothing is overallocated;
//   - a range never goes back to a cascade that it was taken from; replicas that
//     SP4 asked for stay until the next downgrade and are forgotten then;
//   - once a plan holds, a change that breaks it is taken back.
//
// So it ends, and every plan that holds is at least as accurate as the one before.
type em struct {
	p    *cascades.Problem
	list []cascades.Cascade
	work [][]float64
	seed uint64
	rng  *rand.Rand
	full *Placement // every model everywhere, memory left out

	found    []int          // SP1: front of what was drawn, by rising cost
	known    map[int]bool   // drawn before
	at       []int          // SP2: cascade of every range
	rejected []map[int]bool // by range
	pins     []int          // SP3: least replicas of a model
	pl       *Placement

	benches map[string]*trials.Simulator // by placement
	trials  map[trialKey]tuned
	runs    int

	best *trials.Plan // last plan that held
	kept []int        // its cascades
	held *Placement
}

// trialKey is a cascade on a placement at the edge of a range.
type trialKey struct {
	placement     string
	cascade, span int
}

// tuned is the result of SP4 for it. If minQueue is 0, nothing passes.
type tuned struct {
	minQueue int
	trial    trials.Trial
	shares   [][]float64
	loads    []float64
}

// Alternation plans by Algorithm 1. If it finds no plan, it returns nil.
func Alternation(ctx context.Context, p *cascades.Problem, seed uint64) (*trials.Plan, error) {
	list := planspace.WholeCascades(p)
	work := works(p, list)
	if len(list) == 0 {
		return nil, nil
	}
	n, usable := len(p.Models), uint32(0)
	for i := range list {
		for _, m := range list[i].Models {
			usable |= 1 << m
		}
	}
	e := &em{
		p: p, list: list, work: work, seed: seed, rng: seeded.New(seed, "gear/cascades"),
		full: newPlacement(n, []uint32{usable}, []int{p.Kinds[0].Devices}), known: map[int]bool{}, pins: make([]int, n),
		benches: map[string]*trials.Simulator{}, trials: map[trialKey]tuned{},
	}
	e.pl = e.full
	for range p.RangeEdges {
		e.rejected = append(e.rejected, map[int]bool{})
	}
	return e.solve(ctx)
}

// solve plans by Algorithm 1.
func (e *em) solve(ctx context.Context) (*trials.Plan, error) {
	var wrong *fault
	for module, rounds := 0, 0; ; {
		var err error
		switch module {
		case 0:
			if wrong != nil {
				return nil, nil
			}
			if rounds++; rounds > maxRounds {
				return e.best, nil
			}
			e.search()
		case 1:
			converged := false
			if wrong, converged = e.assign(wrong); converged {
				return e.best, nil
			}
		case 2:
			wrong = e.place(wrong)
		case 3:
			if wrong, err = e.tune(ctx); err != nil {
				return nil, err
			}
			if wrong == nil {
				e.keep()
			}
		}
		if wrong == nil {
			module = (module + 1) % 4
		} else {
			module--
		}
	}
}

// search (SP1) draws cascades and keeps the front of all that were drawn; the
// cheapest and the most accurate are always there.
func (e *em) search() {
	cost := make([]float64, len(e.work))
	for i := range cost {
		cost[i] = floats.Sum(e.work[i])
	}
	if len(e.known) == 0 {
		front := cascades.ParetoFront(cost, e.list)
		e.known[front[0]], e.known[front[len(front)-1]] = true, true
	}
	for range drawn {
		e.known[e.rng.IntN(len(e.list))] = true
	}
	for i := range cost {
		if !e.known[i] {
			cost[i] = math.Inf(1)
		}
	}
	e.found = cascades.ParetoFront(cost, e.list)
}

// load is u* of a cascade on the placement at hand; where that lacks a model,
// with every model everywhere.
func (e *em) load(i int) float64 {
	if u := e.pl.Load(e.work[i]); !math.IsInf(u, 1) {
		return u
	}
	return e.full.Load(e.work[i])
}

// assign (SP2) starts with the most accurate cascade everywhere. An error takes
// the range to the next cheaper one. Once a plan holds, ranges take new cascades
// that are better in accuracy or load and worse in neither.
func (e *em) assign(wrong *fault) (still *fault, converged bool) {
	switch {
	case wrong != nil && e.best == nil:
		clear(e.pins)
		if e.downgrade(wrong.span) {
			return nil, false
		}
		if wrong.any {
			for r := range e.at {
				if e.downgrade(r) {
					return nil, false
				}
			}
		}
		return wrong, false
	case wrong != nil:
		e.takeBack(wrong.span)
		return nil, slices.Equal(e.at, e.kept)
	case e.best == nil:
		for range e.p.RangeEdges {
			e.at = append(e.at, e.found[len(e.found)-1])
		}
		return nil, false
	}
	clear(e.pins)
	for r := range e.at {
		if better := e.better(r); better >= 0 {
			e.at[r] = better
		}
	}
	return nil, slices.Equal(e.at, e.kept)
}

// downgrade moves a range to the next cheaper cascade.
func (e *em) downgrade(r int) bool {
	now := e.load(e.at[r])
	e.rejected[r][e.at[r]] = true
	next, most := -1, 0.0
	for _, i := range e.found {
		if u := e.load(i); u < now && !e.rejected[r][i] && (next < 0 || u > most || u == most && e.list[i].CorrectCount > e.list[next].CorrectCount) {
			next, most = i, u
		}
	}
	if next < 0 {
		return false
	}
	e.at[r] = next
	return true
}

// better is a cascade that a range should take instead of its own; -1: none.
func (e *em) better(r int) int {
	best, load := e.at[r], e.load(e.at[r])
	for _, i := range e.found {
		if u := e.load(i); !e.rejected[r][i] && u <= load && e.list[i].CorrectCount >= e.list[best].CorrectCount && (u < load || e.list[i].CorrectCount > e.list[best].CorrectCount) {
			best, load = i, u
		}
	}
	if best == e.at[r] {
		return -1
	}
	return best
}

// takeBack undoes the change of a range, or of all where it had none.
func (e *em) takeBack(r int) {
	undo := []int{r}
	if e.at[r] == e.kept[r] {
		undo = undo[:0]
		for r := range e.at {
			undo = append(undo, r)
		}
	}
	for _, r := range undo {
		if e.at[r] != e.kept[r] {
			e.rejected[r][e.at[r]] = true
			e.at[r] = e.kept[r]
		}
	}
	clear(e.pins)
	e.pl = e.held
}

// tune (SP4) looks for the least queue length that holds, range by range.
func (e *em) tune(ctx context.Context) (*fault, error) {
	for r, i := range e.at {
		t, err := e.try(ctx, r, i)
		if err != nil {
			return nil, err
		}
		if t.minQueue == 0 {
			return &fault{span: r, model: e.bottleneck(&e.list[i], &t)}, nil
		}
	}
	return nil, nil
}

func (e *em) try(ctx context.Context, r, i int) (tuned, error) {
	place := keyOf(e.pl)
	key := trialKey{place, i, r}
	if t, ok := e.trials[key]; ok {
		return t, nil
	}
	simulator := e.benches[place]
	if simulator == nil {
		simulator = trials.NewSimulator(e.p, e.pl.Configs, nil, e.seed)
		e.benches[place] = simulator
	}
	var t tuned
	t.shares, t.loads = e.pl.Split(e.work[i])
	for _, q := range minQueues {
		if q > len(e.p.Models[e.list[i].Models[0]].FastestTimes) {
			break
		}
		var err error
		simulator.MinQueue = q
		if t.trial, err = simulator.TryCascade(ctx, &placement.LoadedCascade{Cascade: &e.list[i], Shares: t.shares, MaxLoad: e.pl.Load(e.work[i])}, e.p.RangeEdges[r]); err != nil {
			return t, err
		}
		if e.runs++; t.trial.Passed {
			t.minQueue = q
			break
		}
	}
	e.trials[key] = t
	return t, nil
}

// bottleneck is the first model of a cascade that works on the busiest device.
func (e *em) bottleneck(c *cascades.Cascade, t *tuned) int {
	busiest := slices.Index(t.loads, slices.Max(t.loads))
	for _, m := range c.Models {
		if at := slices.Index(e.pl.DevicesOf(int(m)), busiest); at >= 0 && t.shares[m][at] > 1e-9 {
			return int(m)
		}
	}
	return -1
}

// keep notes the plan at hand, which holds.
func (e *em) keep() {
	out := &trials.Plan{Problem: e.p, Configs: e.pl.Configs, Goal: e.p.Goal(), RunCount: e.runs}
	place := keyOf(e.pl)
	for r, i := range e.at {
		t := e.trials[trialKey{place, i, r}]
		g := trials.PlannedGear{Cascade: e.list[i], MinQueue: t.minQueue, Shares: t.shares, BusiestLoad: e.pl.Load(e.work[i]) * e.p.RangeEdges[r], Trial: t.trial,
			Accuracy: float64(e.list[i].CorrectCount) / float64(e.p.PlanningSamples.N)}
		out.Gears = append(out.Gears, g)
		out.Accuracy += e.p.RangeWeights[r] * g.Accuracy
	}
	e.best, e.kept, e.held = out, slices.Clone(e.at), e.pl
}
