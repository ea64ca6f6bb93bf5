package pool

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// With many models the program over replica counts is too large, and nearly all
// of its loss is rounding inside a model. Bundles take that out of the program:
// a bundle is one or two templates of a model with whole replicas that carry
// the model's rate at a given objective, and one bundle per model is chosen so
// that the devices suffice. That program has a row per model and per pool, so
// a basic solution of its relaxation splits at most as many models as there are
// pools. The largest objective that works is found by bisection.

// bundle is a choice for one model.
type bundle struct {
	list []count
	use  []float64 // devices per pool
	cost float64   // at the prices of the relaxation
	move float64   // devices that have to load something, where a plan runs
}

// Work limits of bundles.
const (
	manyModels      = 8  // from here on bundles are tried
	bundleTemplates = 14 // per model in pairs
	bundleSingles   = 60 // per model alone
	bundleSteps     = 10 // replica counts of the first of a pair
	bundlesKept     = 80 // per model
	bundleNodes     = 60
	bundleRounds    = 7
	bundleLooks     = 8  // programs per objective
	bundleOpen      = 12 // models that each of them chooses anew
	bundlePacks     = 4  // choices until one packs into whole devices
	stayLooks       = 3
	stayKept        = 40
	stayStep        = 0.012 // by which a re-plan lowers its sights, more each time
	packStep        = 0.25  // devices left idle for that
	bundleTop       = 0.04  // whole replicas rarely cost more: no lower objective is tried first
)

// bundles looks for a better plan by bundles.
func (x *search) bundles(ctx context.Context) error {
	var work milp.Stats
	n := 0
	rounds := bundleRounds
	if x.goal.cost() != nil {
		rounds = 1 // the rates are given
	}
	lo, hi := x.value(), x.inner
	staying := x.stay != nil && x.goal.cost() == nil
	refined := false
	for round := range rounds {
		if ctx.Err() != nil || x.gap() <= x.o.Gap || rounds > 1 && hi-lo <= x.o.Gap/8*hi {
			break
		}
		mid := max((lo+hi)/2, hi*(1-bundleTop))
		w := wish{}
		if x.stay != nil {
			w.most = x.stay.most
		}
		if staying {
			// First what is good enough, with as few moves as can be; then less
			// and less, and once between what was found and what was not.
			w.moves = true
			if mid = x.inner * (1 - x.o.Gap - stayStep*float64(round*round)); refined {
				mid = (lo + hi) / 2
			} else if mid <= lo {
				break
			}
		}
		plan, choices, st, err := x.bundlesAt(ctx, mid, w)
		if err != nil {
			return err
		}
		n = choices
		work.Nodes, work.Iterations = work.Nodes+st.Nodes, work.Iterations+st.Iterations
		if plan == nil {
			hi = mid
			if refined {
				break
			}
			continue
		}
		lo = mid
		if x.keep(plan); staying {
			if refined || round < 2 {
				break
			}
			refined = true
		}
	}
	x.phase("bundles", n, work)
	return nil
}

// wish says what a choice of bundles is to keep and to save.
type wish struct {
	idle  []float64 // devices of each pool that stay idle
	most  float64   // devices that may move, where a plan runs
	moves bool      // as few of them as can be
}

// bundlesAt looks for a plan of a throughput, in units. It tells how many
// bundles it chose from.
func (x *search) bundlesAt(ctx context.Context, value float64, w wish) (plan *counts, n int, work milp.Stats, err error) {
	byModel := make([][]int, len(x.p.Models))
	for _, i := range x.ranked() {
		byModel[x.templates[i].Model] = append(byModel[x.templates[i].Model], i)
	}
	var choices []bundle
	var of []int
	for d := range byModel {
		slices.SortStableFunc(byModel[d], func(a, b int) int {
			return cmp.Compare(x.p.cost(x.u, &x.templates[a], x.lp.price), x.p.cost(x.u, &x.templates[b], x.lp.price))
		})
		for _, b := range x.modelBundles(d, byModel[d], max(x.theta(value)*x.p.Models[d].Weight, x.p.Models[d].MinRPS)) {
			choices, of = append(choices, b), append(of, d)
		}
	}
	// Shares that fit by their sum need not fit one by one: then a little of
	// the pool stays idle.
	w.idle = make([]float64, len(x.p.Pools))
	for range bundlePacks {
		var st milp.Stats
		if plan, st, err = x.choose(ctx, choices, of, w); err != nil {
			return nil, len(choices), work, err
		}
		work.Nodes, work.Iterations = work.Nodes+st.Nodes, work.Iterations+st.Iterations
		if plan == nil {
			break
		}
		_, stuck := x.p.tryPlace(x.templates, plan, nil)
		if stuck < 0 {
			return plan, len(choices), work, nil
		}
		w.idle[stuck] += packStep
		x.keep(plan)
	}
	return nil, len(choices), work, nil
}

// modelBundles lists good bundles that carry a rate.
func (x *search) modelBundles(d int, list []int, rps float64) []bundle {
	var out []bundle
	add := func(parts ...count) {
		b := bundle{list: parts, use: x.p.taken(x.templates, parts)}
		if x.stay != nil {
			b.move = x.moved(&counts{list: parts})
		}
		for k, v := range b.use {
			b.cost += x.lp.price[k] * v / float64(max(x.p.Pools[k].Count, 1))
			if v > float64(x.p.Pools[k].Count) {
				return
			}
		}
		out = append(out, b)
	}
	serve := func(ti int, rate float64) count { return carry(&x.templates[ti], ti, rate) }
	for _, ti := range list[:min(len(list), bundleSingles)] {
		add(serve(ti, rps))
	}
	few := list[:min(len(list), bundleTemplates)]
	for _, a := range few {
		for _, s := range x.templates[a].Stages {
			most := int(math.Ceil(rps/s.Rate)) - 1
			step := max(1, most/bundleSteps)
			for g := most; g >= 1; g -= step {
				rate := s.Rate * float64(g)
				for _, b := range few {
					if b != a {
						add(serve(a, rate), serve(b, rps-rate))
					}
				}
			}
		}
	}
	order := func(a, b bundle) int { return cmp.Compare(a.cost, b.cost) }
	if x.stay != nil {
		x.stayBundles(d, few, rps, add)
		// As if loading a device took as much of it as running on it.
		most := 0.0
		for k := range x.p.Pools {
			most += float64(x.p.Pools[k].Count)
		}
		worth := 0.0
		for _, v := range x.lp.price {
			worth += v
		}
		order = func(a, b bundle) int { return cmp.Compare(a.cost+worth*a.move/most, b.cost+worth*b.move/most) }
	}
	slices.SortStableFunc(out, order)
	// Of bundles that take the same devices one is enough.
	kept, most := out[:0], bundlesKept
	if x.stay != nil {
		most = stayKept
	}
	for _, b := range out {
		if len(kept) == most*x.o.Effort {
			break
		}
		if !slices.ContainsFunc(kept, func(o bundle) bool { return slices.Equal(o.use, b.use) && o.move <= b.move }) {
			kept = append(kept, b)
		}
	}
	return kept
}

// stayBundles adds bundles of what runs of a model: with fewer replicas where
// it carries more than the rate, else with more of one pipeline.
func (x *search) stayBundles(d int, few []int, rps float64, add func(...count)) {
	var list []count
	total := 0.0
	for _, c := range x.stay.list {
		if c.model == d {
			c.rps = math.Inf(1)
			for si, s := range x.templates[c.template].Stages {
				c.rps = min(c.rps, s.Rate*float64(c.replicas[si]))
			}
			list = append(list, c)
			total += c.rps
		}
	}
	for i, c := range list {
		// All others as they are, and this one at what is missing.
		rest := slices.Delete(slices.Clone(list), i, i+1)
		if need := rps - (total - c.rps); need > 0 {
			add(append(rest, carry(&x.templates[c.template], c.template, need))...)
			continue
		}
		// The others carry it without this one: each of them with less.
		for j, o := range rest {
			less := slices.Delete(slices.Clone(rest), j, j+1)
			if need := rps - (total - c.rps - o.rps); need > 0 {
				add(append(less, carry(&x.templates[o.template], o.template, need))...)
			}
		}
	}
	if total < rps && len(list) > 0 {
		for _, t := range few {
			if !slices.ContainsFunc(list, func(c count) bool { return c.template == t }) {
				add(append(slices.Clone(list), carry(&x.templates[t], t, rps-total))...)
			}
		}
	}
}

// taken is the devices of exclusive pools that templates of one model take.
func (p *Problem) taken(templates []stages.Template, list []count) []float64 {
	use := make([]float64, len(p.Pools))
	if p.Rounding == Fractional {
		for _, c := range list {
			for si, s := range templates[c.template].Stages {
				use[s.Pool] += float64(c.replicas[si]) / float64(s.Share)
			}
		}
		return use
	}
	slots := make([]float64, p.MaxPartitions*len(p.Pools))
	for _, c := range list {
		for si, s := range templates[c.template].Stages {
			slots[si*len(p.Pools)+s.Pool] += float64(c.replicas[si]) / float64(s.Share)
		}
	}
	for i, v := range slots {
		use[i%len(p.Pools)] += math.Ceil(v - 1e-9)
	}
	return use
}

// overPrice is what devices beyond those there are cost where bundles have a price.
const overPrice = 100

// bundlePrice is what a bundle costs by a wish, and whether bundles cost anything.
func (x *search) bundlePrice(b *bundle, w *wish) (price float64, any bool) {
	if w.moves {
		return b.move / max(w.most, 1), true
	}
	unit := x.goal.cost()
	for k, v := range b.use {
		if unit != nil {
			price += unit[k] * v / float64(max(x.p.Pools[k].Count, 1))
		}
	}
	return price, unit != nil
}

// choose picks one bundle per model within the devices: any choice, or where
// bundles have a price a cheap one. It returns nil where it finds none.
func (x *search) choose(ctx context.Context, choices []bundle, of []int, w wish) (*counts, milp.Stats, error) {
	_, priced := x.bundlePrice(&bundle{}, &w)
	m := milp.New("bundles")
	over := m.AddVar("over", -1, milp.Inf, 1)
	if priced {
		m.SetBounds(over, 0, milp.Inf)
		m.SetObj(over, overPrice)
	}
	one := make([]milp.Row, len(x.p.Models))
	for d := range one {
		one[d] = m.AddEQ("one "+x.p.Models[d].Name, 1)
	}
	pools := make([]milp.Row, len(x.p.Pools))
	for k := range pools {
		if x.p.Pools[k].Count > 0 {
			pools[k] = m.AddLE("devices "+x.p.Pools[k].Kind, 1-w.idle[k]/float64(x.p.Pools[k].Count), milp.Term{Var: over, Coef: -1})
		}
	}
	moves := milp.Row(-1)
	if x.stay != nil {
		moves = m.AddLE("moves", w.most, milp.Term{Var: over, Coef: -max(w.most, 1)})
	}
	z := make([]milp.Var, len(choices))
	for i := range choices {
		z[i] = m.AddBool("", 0)
		if priced {
			price, _ := x.bundlePrice(&choices[i], &w)
			m.SetObj(z[i], price)
		}
		if moves >= 0 && choices[i].move > 0 {
			m.AddTerm(moves, z[i], choices[i].move)
		}
		m.AddTerm(one[of[i]], z[i], 1)
		for k, v := range choices[i].use {
			if v > 0 {
				m.AddTerm(pools[k], z[i], v/float64(x.p.Pools[k].Count))
			}
		}
	}
	// Where even parts of bundles do not fit, whole ones do not.
	relaxed := m.Clone()
	for _, v := range z {
		relaxed.SetInteger(v, false)
	}
	sol, err := x.s.Solve(ctx, relaxed, milp.Options{Seed: x.o.Seed})
	if err != nil {
		return nil, milp.Stats{}, fmt.Errorf("solving the relaxation over %d bundles: %w", len(choices), err)
	}
	work := sol.Stats
	if !sol.Feasible() || sol.At(over) > 1e-9 {
		return nil, work, nil
	}
	// Models that the relaxation does not split keep their bundle at first; the
	// others, and in later rounds some more, are chosen anew.
	open := make([]bool, len(x.p.Models))
	for i, v := range z {
		if f := sol.At(v); f > 1e-6 && f < 1-1e-6 {
			open[of[i]] = true
		}
	}
	at := sol.X
	next := 0
	looks, close := bundleLooks, 1e-4
	if w.moves {
		looks, close = stayLooks, 0.5/max(w.most, 1) // half a device
	}
	for round := range looks {
		if ctx.Err() != nil {
			return nil, work, nil
		}
		part := m.Clone()
		for i, v := range z {
			if !open[of[i]] {
				f := math.Round(at[v])
				part.SetBounds(v, f, f)
			}
		}
		o := milp.Options{
			AbsGap: close, MaxNodes: bundleNodes * int64(x.o.Effort), MaxIterations: bundleNodes * iterationsPer * int64(x.o.Effort),
			Seed: x.o.Seed, HeuristicEffort: heuristicEffort,
		}
		if round > 0 {
			o.Start = at
		}
		if sol, err = x.s.Solve(ctx, part, o); err != nil {
			return nil, work, fmt.Errorf("choosing among %d bundles: %w", len(choices), err)
		}
		work.Nodes, work.Iterations = work.Nodes+sol.Stats.Nodes, work.Iterations+sol.Stats.Iterations
		if !sol.Feasible() {
			return nil, work, nil
		}
		if !priced && sol.At(over) <= 1e-9 {
			break
		}
		at = sol.X
		clear(open)
		for range min(bundleOpen, len(open)) {
			open[next%len(open)] = true
			next += 7 // models far apart
			if len(open)%7 == 0 && next%len(open) == 0 {
				next++
			}
		}
	}
	if sol.At(over) > 1e-9 {
		return nil, work, nil
	}
	var list []count
	for i := range choices {
		if sol.At(z[i]) > 0.5 {
			list = append(list, choices[i].list...)
		}
	}
	return x.p.recount(x.templates, list), work, nil
}
