package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// Margins that all models have at first: the search starts at the first and goes to
// both sides as far as it gets better. PPipe fixes 0.4 (0.1 in its ablation).
var (
	startMargin   = 0.2
	largerMargins = []float64{0.3, 0.4, 0.5}
	lessMargins   = []float64{0.1, 0.05, 0.02}
)

const (
	mostAttempts = 9    // about, for the fraction that is done
	balances     = 2    // plans for what the models showed
	loadStep     = 0.01 // of what a model promises
	mostLoad     = 1.5
	worthwhile   = 0.005 // gain for which the search goes on
	inReach      = 0.97  // of the best, which a plan must sustain to be looked at further
	close        = 0.02  // below the best, a plan that long runs look at as well
	coarsePart   = 3     // part of a run's length while plans are compared
	coarseLeast  = 10 * time.Second
	leastUse     = 0.3 // of what replicas carry
	leastPromise = 0.1 // of what was planned; a plan that sustains less keeps its promise
)

// attempt is a plan with what simulation showed of it.
type attempt struct {
	kept  []formats.Headroom // by model
	batch int                // largest that was allowed
	res   *kind.Result
	loads []float64 // that each model sustained, of what is promised
	rate  float64   // sustained rps per weight, the least over models
	// hope is what a plan may sustain that has devices where these loads want them.
	hope float64
	// short tells that it came nowhere near the best then, and was looked at no further.
	short bool
	// floors tells that every model's sustained rate is at least its floor.
	floors bool
}

// tuning is a search for what to keep back of every model.
type tuning struct {
	p      *kind.Problem
	models formats.WorkloadModels
	cert   kind.Asked
	solve  kind.Solver
	best   *attempt
	plain  *attempt // best with one margin for all
	all    []*attempt
	wall   float64
	first  error // why there is no plan at the least margin
}

// tune chooses, by simulation, how much of every model's SLO and of what its replicas
// carry is kept back. It plans, simulates the plan on the workload's arrivals, and
// looks for the load that every model sustains beside the others. All runs have the
// same random numbers. First all models have the same margin. Then each promises what
// it sustained, so that the next plan gives devices to those that need them. Short runs
// compare plans, as far as one comes near the best. Long runs certify the best. Where a
// plan runs, the search starts from what is kept back there.
//
// With an objective that shrinks, the best plan is the least one that sustains the
// floors, and the largest batch is halved in the end. When ctx ends, the best plan so
// far is returned.
func tune(ctx context.Context, p *kind.Problem, cert kind.Asked, solve kind.Solver) (*kind.Result, error) {
	a := &tuning{p: p, models: formats.ModelsOf(p.Workload), cert: cert, solve: solve}
	for _, step := range []func(context.Context) error{a.uniform, a.balance, a.smallerBatches} {
		if err := step(ctx); err != nil && (a.best == nil || ctx.Err() == nil) {
			return nil, err
		}
		if a.best == nil {
			return nil, a.first
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := a.certify(ctx); err != nil && ctx.Err() == nil {
		return nil, err
	}
	said, res := a.tried(), a.best.res
	if ctx.Err() != nil {
		res.StoppedBy, res.Status = string(milp.StoppedByInterrupt), kind.Status(milp.StoppedByInterrupt)
		res.Plan.StoppedBy = res.StoppedBy
	}
	res.WallMS = a.wall
	res.Plan.Assumptions = append(res.Plan.Assumptions, said)
	return res, nil
}

// uniform tries the same margin for all models, the better way first.
func (a *tuning) uniform(ctx context.Context) error {
	if kept := a.running(); kept != nil {
		if _, err := a.try(ctx, kept, a.p.Values.Whole("max-batch")); err != nil || a.best != nil {
			return err
		}
	}
	try := func(margin float64) (*attempt, error) {
		kept := make([]formats.Headroom, len(a.models))
		for i := range kept {
			kept[i] = a.fixed(i, formats.Headroom{Margin: margin, Utilisation: 1})
		}
		return a.try(ctx, kept, a.p.Values.Whole("max-batch"))
	}
	start, err := try(startMargin)
	if err != nil {
		return err
	}
	for _, way := range [][]float64{largerMargins, lessMargins} {
		last := start
		for _, m := range way {
			next, err := try(m)
			if err != nil {
				return err
			}
			if next == nil && m > startMargin || next != nil && last != nil && !a.promises(next, last) {
				break // more margin leaves less, and so on
			}
			last = next
		}
	}
	a.plain = a.best
	return nil
}

// grows tells whether more of the objective is better.
func (a *tuning) grows() bool {
	c := choicesOf(a.p.Values)
	return c.sense() == milp.Maximize
}

// promises tells whether a plan is the better one to go on from.
func (a *tuning) promises(s, t *attempt) bool {
	if a.grows() {
		return s.hope > t.hope
	}
	return a.compare(s, t) > 0
}

// running is what a plan that runs keeps back; nil where that is not known.
func (a *tuning) running() []formats.Headroom {
	if a.p.Running == nil {
		return nil
	}
	was := formats.PoolOf(a.p.Running)
	if was == nil || len(was.Headroom) == 0 {
		return nil
	}
	kept := make([]formats.Headroom, len(a.models))
	for i := range kept {
		h := formats.Headroom{Margin: startMargin, Utilisation: 1}
		if at := slices.IndexFunc(was.Models, func(m formats.Served) bool { return m.Key() == a.models[i].Key() }); at >= 0 {
			h = was.Headroom[at]
		}
		kept[i] = a.fixed(i, h)
	}
	return kept
}

// fixed is what is kept back of a model, with what the workload says itself.
func (a *tuning) fixed(i int, h formats.Headroom) formats.Headroom {
	m := &a.models[i]
	if m.Margin != nil {
		h.Margin = *m.Margin
	}
	h.Utilisation = cmp.Or(m.Utilisation, h.Utilisation)
	return h
}

// balance plans for what the models sustained.
func (a *tuning) balance(ctx context.Context) error {
	from := a.best
	for _, t := range a.all {
		if t.batch == from.batch && a.promises(t, from) {
			from = t
		}
	}
	for range balances {
		kept := a.balanced(from)
		if a.grows() && alike(kept, from.kept) {
			return nil // the same plan, at smaller promises
		}
		next, err := a.try(ctx, kept, from.batch)
		if err != nil || next == nil || a.best != next || next.rate < from.rate*(1+worthwhile) {
			return err
		}
		from = next
	}
	return nil
}

// alike tells whether all models may use the same part of what they may under was: their
// shares of the devices stay as they are.
func alike(kept, was []formats.Headroom) bool {
	part := func(i int) float64 { return kept[i].Utilisation / was[i].Utilisation }
	for i := range kept {
		if math.Abs(part(i)-part(0)) > tolerance {
			return false
		}
	}
	return true
}

// balanced is what to keep back where the models sustain what they do in a plan.
func (a *tuning) balanced(t *attempt) []formats.Headroom {
	out := slices.Clone(t.kept)
	for i := range out {
		part := t.loads[i]
		if floor := a.floor(i); !a.grows() && floor > 0 {
			part *= t.res.Plan.Promised(i).RPS / floor
		}
		out[i].Utilisation = min(1, max(leastUse, t.kept[i].Utilisation*part))
		out[i] = a.fixed(i, out[i])
	}
	return out
}

// smallerBatches halves the largest batch of the best plan as long as that helps to
// sustain floors. Where more is better it gained nothing.
func (a *tuning) smallerBatches(ctx context.Context) error {
	for ctx.Err() == nil && !a.grows() {
		largest := 0
		for _, m := range a.best.res.Plan.Deployment {
			for _, p := range m.Pipelines {
				largest = max(largest, p.Batch)
			}
		}
		if largest < 2 {
			break
		}
		next, err := a.try(ctx, a.best.kept, largest/2)
		if err != nil || next == nil || a.best != next {
			return err
		}
		if err := a.balance(ctx); err != nil {
			return err
		}
	}
	return nil
}

// try plans and simulates; nil where there is no such plan, or one that was tried.
func (a *tuning) try(ctx context.Context, kept []formats.Headroom, batch int) (*attempt, error) {
	if slices.ContainsFunc(a.all, func(t *attempt) bool { return t.batch == batch && slices.Equal(t.kept, kept) }) {
		return nil, nil
	}
	q, err := a.problem(kept, batch)
	if err != nil {
		return nil, err
	}
	what := keptBack(kept)
	progress := func(u kind.Progress, from float64) {
		if a.p.Progress != nil {
			u.Phase = what + ": " + u.Phase
			u.Fraction = (min(float64(len(a.all)), mostAttempts-1) + from + u.Fraction/2) / mostAttempts
			a.p.Progress(u)
		}
	}
	res, err := a.solve(ctx, q, func(u kind.Progress) { progress(u, 0) })
	if inf, ok := errors.AsType[*kind.InfeasibleError](err); ok {
		// A smaller margin leaves more of the SLO: the last word is the least one's.
		a.first = inf
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a.wall += res.WallMS
	t := &attempt{kept: kept, batch: batch, res: res}
	progress(kind.Progress{Phase: "simulating", Value: math.NaN(), Bound: math.NaN()}, 0.5)
	if o := res.Plan.Objective; o.Bound != nil && *o.Bound < q.Least {
		t.short, t.loads = true, make([]float64, len(kept))
	} else if err := a.simulate(ctx, t); err != nil {
		if a.best == nil && ctx.Err() != nil { // better an uncertified plan than none
			a.best = t
			return t, nil
		}
		return nil, err
	}
	a.all = append(a.all, t)
	if a.best == nil || a.compare(t, a.best) > 0 {
		a.best = t
	}
	return t, nil
}

// problem is the problem with so much kept back.
func (a *tuning) problem(kept []formats.Headroom, batch int) (*kind.Problem, error) {
	q := *a.p
	q.Hurry = true
	if a.best != nil && a.grows() {
		// Hardly a plan sustains more than its replicas carry.
		q.Least = a.best.rate * slices.MinFunc(kept, byUtilisation).Utilisation
	}
	if err := q.Values.Set("margin", usual(kept)); err != nil {
		return nil, err
	}
	if err := q.Values.Set("max-batch", batch); err != nil {
		return nil, err
	}
	w := *a.p.Workload
	models := slices.Clone(a.models)
	for i := range models {
		models[i].Margin, models[i].Utilisation = &kept[i].Margin, kept[i].Utilisation
	}
	w.Section = models
	q.Workload = &w
	return &q, nil
}

func byUtilisation(g, h formats.Headroom) int { return cmp.Compare(g.Utilisation, h.Utilisation) }

// usual is the margin of most models.
func usual(kept []formats.Headroom) float64 {
	count := func(m float64) (n int) {
		for _, h := range kept {
			if h.Margin == m {
				n++
			}
		}
		return n
	}
	return slices.MaxFunc(kept, func(g, h formats.Headroom) int {
		return cmp.Or(cmp.Compare(count(g.Margin), count(h.Margin)), cmp.Compare(g.Margin, h.Margin))
	}).Margin
}

// floor is the rate that a model is to have at least.
func (a *tuning) floor(i int) float64 {
	return max(a.models[i].MinRPS, a.p.Values.Number("min-load")*cmp.Or(a.models[i].Weight, 1))
}

// compare is above 0 where s is the better one.
func (a *tuning) compare(s, t *attempt) int {
	if a.grows() {
		return cmp.Compare(s.rate, t.rate)
	}
	// First to carry the floors, then the least of what is paid.
	switch {
	case s.floors != t.floors && s.floors:
		return 1
	case s.floors != t.floors:
		return -1
	case s.floors:
		return cmp.Or(cmp.Compare(t.res.Plan.Objective.Value, s.res.Plan.Objective.Value), cmp.Compare(s.rate, t.rate))
	}
	return cmp.Compare(s.rate, t.rate)
}

// tried says what was tried and what came of it.
func (a *tuning) tried() string {
	var parts []string
	for _, t := range a.all {
		batches := ""
		if t.batch != a.p.Values.Whole("max-batch") {
			batches = fmt.Sprintf(" with batches up to %d", t.batch)
		}
		sustains := fmt.Sprintf("%.6g", t.rate)
		if t.short {
			sustains = "less"
		}
		parts = append(parts, keptBack(t.kept)+batches+" sustains "+sustains)
	}
	return keptBack(a.best.kept) + " chosen by simulation (rps per weight, short runs): " + strings.Join(parts, ", ")
}

// keptBack says what is kept back: one margin, or those of the models in order, and where
// less is promised than replicas carry, how much.
func keptBack(kept []formats.Headroom) string {
	list := func(of func(h formats.Headroom) float64) (text string, first float64) {
		var parts []string
		for _, h := range kept {
			parts = append(parts, fmt.Sprintf("%.2g", of(h)))
		}
		if len(slices.Compact(slices.Clone(parts))) == 1 {
			parts = parts[:1]
		}
		return strings.Join(parts, "/"), of(kept[0])
	}
	margins, _ := list(func(h formats.Headroom) float64 { return h.Margin })
	use, first := list(func(h formats.Headroom) float64 { return h.Utilisation })
	if !strings.Contains(use, "/") && first == 1 {
		return "margin " + margins
	}
	return "margin " + margins + " at utilisation " + use
}
