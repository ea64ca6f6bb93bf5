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
// a bundle is templates of a model with whole replicas that carry the model's rate
// at a given objective, and one bundle per model is chosen so that the devices
// suffice. That program has a row per model and per pool, so a basic solution of its
// relaxation splits at most as many models as there are pools. The objectives that
// are tried start from what the cheapest sums of replicas (covers) reach.

// bundle is a choice for one model.
type bundle struct {
	model int
	list  []count
	use   []float64 // devices per pool
	cost  float64   // at the last prices
	move  float64   // devices that have to load something, where a plan runs
}

// Work limits of bundles.
const (
	manyModels   = 8     // from here on bundles are tried
	coverSteps   = 3000  // of the rate of a model
	boundSteps   = 30000 // the same for the bound
	bundlesMade  = 1000  // per model, of which most take the same devices as others
	bundlesKept  = 80    // per model
	bundleExtras = 14    // templates that join what runs
	bundleRounds = 7
	bundlePrices = 2   // that are tried beside those of the relaxation
	pickNodes    = 100 // for picking whole bundles where swaps do not get there
	pickLeast    = 10  // what each such program counts for
	bundlePacks  = 8   // choices until one packs into whole devices
	stayKept     = 40
	stayStep     = 0.012 // by which a re-plan lowers its sights, more each time
	staySum      = 1.5   // classes together may move less than their sum, by so much at most
	packStep     = 0.25  // devices left idle for that
	bundleTop    = 0.02  // no objective that lies further below the bound is tried first
)

// bundling looks for plans by bundles.
type bundling struct {
	*search
	spent  milp.Stats
	n      int // bundles that were chosen from last
	lists  []*sieve
	index  []map[int32]int // per model: from the list to the templates
	named  map[string]int  // templates by their keys
	covers [][]*covers     // per model: at each of the prices that were tried
	worth  []float64       // the last of them: of all devices of each pool

	bounding []*covers // at the last prices: less than what any plan takes

	scarce   []float64 // what they are worth where not even parts of bundles fit; nil: parts do
	repriced int
	nodes    int64 // left for picking whole bundles
}

// bundles looks for a better plan by bundles.
func (x *phases) bundles(ctx context.Context) error {
	b := &bundling{search: x.search, nodes: pickNodes * int64(x.o.Effort)}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	err := b.bisect(ctx)
	if err == nil && x.gap() > x.o.Gap {
		err = b.allotments(ctx, b.bounding)
	}
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
		if round == 0 {
			mid = max(mid, hi*(1-x.o.Gap)*(1+1e-4)) // what was asked for, if that is more
		}
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
		for plan == nil && err == nil && x.reprice(ctx) {
			mid = min(mid, x.inner*(1-x.o.Gap)*(1+1e-4))
			plan, err = x.at(ctx, mid, w)
		}
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
	var choices []bundle
	for d := range x.Models {
		list, err := x.ofModel(d, x.rate(d, value))
		if err != nil {
			return nil, err
		}
		choices = append(choices, list...)
	}
	x.known()
	x.n = len(choices)
	// Shares that fit by their sum need not fit one by one: then a little of
	// the pool stays idle.
	w.idle = make([]float64, len(x.Pools))
	for range bundlePacks {
		plan, err := x.choose(ctx, choices, w)
		if err != nil {
			return nil, err
		}
		if plan == nil {
			if x.stay == nil || w.most == 0 || w.most > x.stay.most {
				return nil, nil
			}
			w.most *= staySum
			continue
		}
		stuck := x.stuck(plan)
		switch {
		case !x.stay.allows(plan):
			return nil, nil
		case stuck < 0:
			return plan, nil
		}
		w.idle[stuck] += packStep
		x.keep(plan)
	}
	return nil, nil
}

// ofModel lists good bundles of a model that carry a rate: for every configuration
// that the cheapest sums are made of or not, the cheapest sum that holds it.
func (x *bundling) ofModel(d int, rps float64) ([]bundle, error) {
	var out []bundle
	add := func(parts ...count) {
		b := bundle{model: d, list: parts, use: x.used(parts)}
		if x.stay != nil {
			// Classes of one model run the same blocks. Each counts what is its own alone:
			// together they move at most their sum.
			b.move = x.stay.beyond(parts, x.stay.own[d])
		}
		for k, v := range b.use {
			b.cost += x.worth[k] * v / float64(max(x.Pools[k].Count, 1))
			if v > float64(x.Pools[k].Count) {
				return
			}
		}
		// Of bundles that take the same devices one is enough.
		if !slices.ContainsFunc(out, func(o bundle) bool { return slices.Equal(o.use, b.use) && o.move <= b.move }) {
			out = append(out, b)
		}
	}
	var few []int
	for _, c := range x.covers[d] {
		enough := len(out) + bundlesKept*x.o.Effort
		var err error
		few, err = x.sums(d, c, rps, func(parts ...count) bool { add(parts...); return len(out) < enough })
		if err != nil {
			return nil, err
		}
	}
	order := func(a, b bundle) int { return cmp.Compare(a.cost, b.cost) }
	most := bundlesKept
	if x.stay != nil {
		x.ofRunning(d, few, rps, add)
		most = stayKept
		// As if loading a device took as much of it as running on it.
		devices, worth := float64(x.devices()), 0.0
		for _, v := range x.worth {
			worth += v
		}
		order = func(a, b bundle) int { return cmp.Compare(a.cost+worth*a.move/devices, b.cost+worth*b.move/devices) }
	}
	slices.SortStableFunc(out, order)
	return out[:min(len(out), most*x.o.Effort)], nil
}

// sums adds the cheapest sums for a rate that hold each configuration, the cheapest
// first, as long as more are wanted. It returns the templates of the best of them.
func (x *bundling) sums(d int, c *covers, rps float64, add func(...count) (more bool)) (few []int, err error) {
	all := c.at(rps)
	type start struct {
		cost float64
		by   int
	}
	var starts []start
	for q := 1; q < len(c.single); q++ {
		if c.single[q].template >= 0 {
			starts = append(starts, start{c.single[q].cost + c.cost[max(all-q, 0)], q})
		}
	}
	slices.SortFunc(starts, func(a, b start) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.by, b.by)) })
	var list []configured
	for _, s := range starts[:min(len(starts), bundlesMade*x.o.Effort)] {
		list = c.trace(append(list[:0], c.single[s.by]), all-s.by)
		var parts []count
		for _, y := range list {
			ti, err := x.template(d, y.template)
			if err != nil {
				return nil, err
			}
			if i := slices.IndexFunc(parts, func(p count) bool { return p.template == ti }); i >= 0 {
				y.rate += parts[i].rps
				parts = slices.Delete(parts, i, i+1)
			}
			parts = append(parts, carry(&x.templates[ti], ti, y.rate))
			if len(few) < bundleExtras && !slices.Contains(few, ti) {
				few = append(few, ti)
			}
		}
		if !add(parts...) {
			break
		}
	}
	return few, nil
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
