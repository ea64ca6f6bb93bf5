package pool

import (
	"context"
)

// rate is the requests/s that a model needs at a throughput in units.
func (x *bundling) rate(d int, value float64) float64 {
	return max(x.theta(value)*x.Models[d].Weight, x.Models[d].MinRPS)
}

// prepare lists the templates, and works out covers at the prices of the relaxation.
func (x *bundling) prepare(ctx context.Context) error {
	x.named = make(map[string]int, len(x.templates))
	for i := range x.templates {
		x.named[x.templates[i].Key()] = i
	}
	for d := range x.Models {
		x.list(d)
	}
	x.covers = make([][]*covers, len(x.Models))
	x.cover(ctx, x.lp.price)
	return nil
}

// cover adds the covers of all models at prices of all devices of each pool, and lowers
// the bound by them where every template is known.
func (x *bundling) cover(ctx context.Context, price []float64) {
	x.worth = price
	w := &covering{slot: x.Rounding == Slot}
	for k, v := range price {
		w.perDevice = append(w.perDevice, v/float64(max(x.Pools[k].Count, 1)))
		w.counts = append(w.counts, x.Pools[k].Count)
	}
	fine := boundSteps
	if x.stay != nil {
		fine = coverSteps // a re-plan is wanted soon
	}
	var bound []*covers
	for d := range x.Models {
		if ctx.Err() != nil {
			return
		}
		most := x.rate(d, x.inner)
		list := w.configurations(x.lists[d], most)
		x.covers[d] = append(x.covers[d], coversOf(list, most, coverSteps, false))
		if w.slot {
			// Two pipelines may fill a device together: the bound takes parts.
			parts := *w
			parts.slot = false
			list = parts.configurations(x.lists[d], most)
		}
		bound = append(bound, coversOf(list, most, fine, true))
	}
	x.bounding = bound
	if x.sieves != nil || !x.partial {
		x.inner = max(min(x.inner, x.reach(bound)*(1+1e-9)), x.score())
	}
}

// reprice adds covers at other prices where not even parts of the bundles fit: half way
// to what those show devices to be worth. It is false where parts do fit, and where that
// was done often enough.
func (x *bundling) reprice(ctx context.Context) bool {
	total, scarce := sum(x.lp.price), sum(x.scarce)
	if x.repriced == bundlePrices*x.o.Effort || scarce <= 0 || ctx.Err() != nil {
		return false
	}
	x.repriced++
	price := make([]float64, len(x.Pools))
	for k, v := range x.lp.price {
		price[k] = (v + x.scarce[k]*total/scarce) / 2
	}
	x.cover(ctx, price)
	return ctx.Err() == nil
}

// sum adds up.
func sum(list []float64) (total float64) {
	for _, v := range list {
		total += v
	}
	return total
}

// reach is the largest throughput, in units, at which the cheapest covers of all
// models take no more than all devices are worth.
func (x *bundling) reach(list []*covers) float64 {
	total := sum(x.worth)
	fits := func(value float64) bool {
		sum := 0.0
		for d, c := range list {
			sum += c.cost[c.at(x.rate(d, value))]
		}
		return sum <= total*(1+1e-9)
	}
	lo, hi := 0.0, x.inner
	for range 40 {
		if mid := (lo + hi) / 2; fits(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// list makes the list of a model's templates: all of them, or those that are known.
func (x *bundling) list(d int) {
	index := map[int32]int{}
	if x.sieves != nil {
		x.lists, x.index = append(x.lists, x.sieves[d]), append(x.index, index)
		return
	}
	s := &sieve{model: d, width: x.MaxPartitions}
	for _, i := range x.allowed {
		if x.templates[i].Model == d {
			index[int32(s.len())] = i
			s.add(&x.templates[i])
		}
	}
	x.lists, x.index = append(x.lists, s), append(x.index, index)
}

// template is the index of a template of the list of a model; it joins those that
// are known.
func (x *bundling) template(d int, at int32) (int, error) {
	if i, ok := x.index[d][at]; ok {
		return i, nil
	}
	t, err := x.lists[d].template(x.Problem, int(at))
	if err != nil {
		return 0, err
	}
	i, ok := x.named[t.Key()]
	if !ok {
		i = len(x.templates)
		x.templates, x.named[t.Key()] = append(x.templates, *t), i
	}
	x.index[d][at] = i
	return i, nil
}

// known takes the templates that joined into the choice that is looked at.
func (x *bundling) known() {
	for i := len(x.loss); i < len(x.templates); i++ {
		x.allowed = append(x.allowed, i)
		x.loss = append(x.loss, x.candidate.of.loss(&x.templates[i], x.lp))
	}
	x.out.Templates = max(x.out.Templates, len(x.templates))
}
