package pool

import (
	"cmp"
	"context"
	"math"
	"slices"

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
	model int
	list  []count
	use   []float64 // devices per pool
	cost  float64   // at the prices of the relaxation
	move  float64   // devices that have to load something, where a plan runs
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

// bundling looks for plans by bundles.
type bundling struct {
	*search
	spent milp.Stats
	n     int // bundles that were chosen from last
}

// bundles looks for a better plan by bundles.
func (x *phases) bundles(ctx context.Context) error {
	b := &bundling{search: x.search}
	err := b.bisect(ctx)
	if err == nil {
		x.phase("bundles", b.n, b.spent)
	}
	return err
}

// bisect looks for the largest objective that bundles reach.
func (x *bundling) bisect(ctx context.Context) error {
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
		plan, err := x.at(ctx, mid, w)
		if err != nil {
			return err
		}
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
	return nil
}

// wish says what a choice of bundles is to keep and to save.
type wish struct {
	idle  []float64 // devices of each pool that stay idle
	most  float64   // devices that may move, where a plan runs
	moves bool      // as few of them as can be
}

// at looks for a plan of a throughput, in units.
func (x *bundling) at(ctx context.Context, value float64, w wish) (*counts, error) {
	byModel := make([][]int, len(x.Models))
	for _, i := range x.ranked() {
		byModel[x.templates[i].Model] = append(byModel[x.templates[i].Model], i)
	}
	var choices []bundle
	for d := range byModel {
		slices.SortStableFunc(byModel[d], func(a, b int) int {
			return cmp.Compare(x.cost(&x.templates[a], x.lp.price), x.cost(&x.templates[b], x.lp.price))
		})
		choices = append(choices, x.ofModel(d, byModel[d], max(x.theta(value)*x.Models[d].Weight, x.Models[d].MinRPS))...)
	}
	x.n = len(choices)
	// Shares that fit by their sum need not fit one by one: then a little of
	// the pool stays idle.
	w.idle = make([]float64, len(x.Pools))
	for range bundlePacks {
		plan, err := x.choose(ctx, choices, w)
		if plan == nil || err != nil {
			return nil, err
		}
		stuck := x.stuck(plan)
		if stuck < 0 {
			return plan, nil
		}
		w.idle[stuck] += packStep
		x.keep(plan)
	}
	return nil, nil
}

// ofModel lists good bundles of a model that carry a rate.
func (x *bundling) ofModel(d int, list []int, rps float64) []bundle {
	var out []bundle
	add := func(parts ...count) {
		b := bundle{model: d, list: parts, use: x.used(parts)}
		if x.stay != nil {
			b.move = x.stay.moved(parts)
		}
		for k, v := range b.use {
			b.cost += x.lp.price[k] * v / float64(max(x.Pools[k].Count, 1))
			if v > float64(x.Pools[k].Count) {
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
		x.ofRunning(d, few, rps, add)
		// As if loading a device took as much of it as running on it.
		most, worth := float64(x.devices()), 0.0
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

// ofRunning adds bundles of what runs of a model: with fewer replicas where
// it carries more than the rate, else with more of one pipeline.
func (x *bundling) ofRunning(d int, few []int, rps float64, add func(...count)) {
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
