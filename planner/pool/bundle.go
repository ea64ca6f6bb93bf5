package pool

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/solver/milp"
)

// With many models the integer program over replica counts is too large, and nearly all of its loss is the
// rounding inside each model. Bundles take that out of the program. A bundle is a set of pipelines of one model,
// with whole replicas, that carries the model's rate at a given throughput. One bundle per model is chosen so
// that the devices suffice. That program has a row per model and per pool, so a basic solution of its relaxation
// splits at most as many models as there are pools. The search starts at the throughput that the cheapest sums
// of replicas (covers) allow.

// bundle is a choice for one model: pipelines that carry its rate.
type bundle struct {
	model int
	list  []count
	use   []float64 // by pool
	cost  float64   // of the devices, at the last prices
	move  float64   // devices that have to load something, if a plan runs
}

// Limits of the work on bundles.
const (
	manyModels   = 8     // number of models from which on bundles are tried
	coverSteps   = 3000  // grid steps of a model's rate
	boundSteps   = 30000 // the same for the bound
	bundlesMade  = 1000  // per model; most of their bundles take the same devices as others
	bundlesKept  = 80
	bundleExtras = 14    // templates that may join the running pipelines of a model
	bundleRounds = 7     // throughputs that are tried
	bundlePrices = 2     // prices that are tried beside those of the relaxation
	pickNodes    = 100   // branch-and-bound nodes for choosing whole bundles if swaps find no choice
	pickLeast    = 10    // nodes that each such program counts for at least
	bundlePacks  = 8     // choices that are tried until one packs into whole devices
	stayKept     = 40    // bundles per model of a re-plan
	stayStep     = 0.012 // part by which a re-plan lowers the throughput it asks for, more each round
	staySum      = 1.5   // factor on the limit of moves: SLO classes together may move less than the sum of their moves
	packStep     = 0.25  // devices left idle more after each failed packing
	bundleTop    = 0.02  // part below the bound at which the first throughput is tried at least
)

// bundleSearch looks for plans made of bundles.
type bundling struct {
	*search
	spent  milp.Stats
	n      int             // bundles in the last choice
	lists  []*sieve        // by model
	index  []map[int32]int // by model: catalogue index of each template of its table that is in the catalogue
	named  map[string]int  // catalogue index of each template
	covers [][]*covers     // by model: a table for each set of prices that was tried
	worth  []float64       // the last of these prices: of all devices of each pool

	bounding []*covers // at the last prices: they cost no more than any plan does

	scarce   []float64 // what the devices are worth to bundles of which not even parts fit; nil if parts fit
	repriced int
	nodes    int64 // for choosing whole bundles
}

// planByBundles looks for a better plan made of bundles, and lowers the bound by covers and allotments.
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

// bisectThroughput looks for the largest throughput that bundles reach. A re-plan instead asks for less and
// less, and takes the first plan that moves few enough devices.
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

		// The throughput to try: halfway, but not far below the bound.
		if round == 0 {
			mid = max(mid, hi*(1-x.o.Gap)*(1+1e-4)) // the gap that the user accepts, if that asks for more
		}
		w := wish{}
		if x.stay != nil {
			w.most = x.stay.most
		}
		if staying {
			// A re-plan first asks for what is good enough, with the fewest moves, then for less and less, and
			// at last once between the throughput that was found and the one that was not.
			w.moves = true
			if mid = x.inner * (1 - x.o.Gap - stayStep*float64(round*round)); refined {
				mid = (lo + hi) / 2
			} else if mid <= lo {
				break
			}
		}

		// Look for a plan. If not even parts of bundles fit, add covers at other prices and look again.
		plan, err := x.at(ctx, mid, w)
		for plan == nil && err == nil && x.reprice(ctx) {
			mid = min(mid, x.inner*(1-x.o.Gap)*(1+1e-4))
			plan, err = x.at(ctx, mid, w)
		}
		if err != nil {
			return err
		}

		// No plan: the throughput is too high. Else it is a lower limit.
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

// bundleLimits says what a choice of bundles must keep, and what it saves.
type wish struct {
	idle  []float64 // by pool: devices that have to stay idle
	most  float64   // devices that may move, if a plan runs
	moves bool      // whether the fewest moves are wanted
}

// planForValue looks for a plan that reaches a throughput in units. If it finds none, it returns nil.
func (x *bundling) at(ctx context.Context, value float64, w wish) (*counts, error) {
	// The bundles of all models.
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
	// Shares that fit the devices by their sum need not fit one by one. Then a little more of the pool is left
	// idle, and the choice is made again.
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

// modelBundles lists good bundles of model d that carry a rate: for every configuration the cheapest sum that
// holds it, and, in a re-plan, variants of what runs. The cheapest come first.
func (x *bundling) ofModel(d int, rps float64) ([]bundle, error) {
	var out []bundle
	add := func(parts ...count) {
		b := bundle{model: d, list: parts, use: x.used(parts)}
		if x.stay != nil {
			// SLO classes of one model run the same blocks. A bundle counts only what its own class runs as
			// held, so all classes together move at most the sum.
			b.move = x.stay.beyond(parts, x.stay.own[d])
		}
		for k, v := range b.use {
			b.cost += x.worth[k] * v / float64(max(x.Pools[k].Count, 1))
			if v > float64(x.Pools[k].Count) {
				return
			}
		}
		// Of several bundles that take the same devices and move no more, one is enough.
		if !slices.ContainsFunc(out, func(o bundle) bool { return slices.Equal(o.use, b.use) && o.move <= b.move }) {
			out = append(out, b)
		}
	}

	// Covers at all prices that were tried.
	var few []int
	for _, c := range x.covers[d] {
		enough := len(out) + bundlesKept*x.o.Effort
		var err error
		few, err = x.sums(d, c, rps, func(parts ...count) bool { add(parts...); return len(out) < enough })
		if err != nil {
			return nil, err
		}
	}

	// Keep the cheapest.
	order := func(a, b bundle) int { return cmp.Compare(a.cost, b.cost) }
	most := bundlesKept
	if x.stay != nil {
		x.ofRunning(d, few, rps, add)
		most = stayKept
		// In a re-plan a moved device costs as much as a used one.
		devices, worth := float64(x.devices()), 0.0
		for _, v := range x.worth {
			worth += v
		}
		order = func(a, b bundle) int { return cmp.Compare(a.cost+worth*a.move/devices, b.cost+worth*b.move/devices) }
	}
	slices.SortStableFunc(out, order)
	return out[:min(len(out), most*x.o.Effort)], nil
}

// addCoverBundles adds, for each configuration, the cheapest sum for a rate that holds it: the configuration
// with the cover of the remaining steps. The cheapest sums come first, as long as add wants more. It returns the
// templates of the best ones.
func (x *bundling) sums(d int, c *covers, rps float64, add func(...count) (more bool)) (few []int, err error) {
	all := c.at(rps)
	type start struct {
		cost float64
		by   int
	}

	// Price every configuration with the cover of what it leaves.
	var starts []start
	for q := 1; q < len(c.single); q++ {
		if c.single[q].template >= 0 {
			starts = append(starts, start{c.single[q].cost + c.cost[max(all-q, 0)], q})
		}
	}
	slices.SortFunc(starts, func(a, b start) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.by, b.by)) })

	// Turn the cheapest ones into pipelines. Several configurations of one template become one pipeline.
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

// addRunningBundles adds bundles made of the pipelines that run of model d. If these carry more than the rate,
// they have fewer replicas, else more of one pipeline or a further pipeline.
func (x *bundling) ofRunning(d int, few []int, rps float64, add func(...count)) {
	// The running pipelines of the model, at the rates that their replicas carry.
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
		// All others as they are, and this one with the rate that is missing.
		rest := slices.Delete(slices.Clone(list), i, i+1)
		if need := rps - (total - c.rps); need > 0 {
			add(append(rest, carry(&x.templates[c.template], c.template, need))...)
			continue
		}
		// The others carry the rate without this one: each of them in turn with less.
		for j, o := range rest {
			less := slices.Delete(slices.Clone(rest), j, j+1)
			if need := rps - (total - c.rps - o.rps); need > 0 {
				add(append(less, carry(&x.templates[o.template], o.template, need))...)
			}
		}
	}

	// All of them as they are, and a template of a good cover with the missing rate.
	if total < rps && len(list) > 0 {
		for _, t := range few {
			if !slices.ContainsFunc(list, func(c count) bool { return c.template == t }) {
				add(append(slices.Clone(list), carry(&x.templates[t], t, rps-total))...)
			}
		}
	}
}
