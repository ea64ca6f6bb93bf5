package pool

import (
	"context"
)

// requiredRate returns the requests/s that model d needs at a throughput in units.
func (x *bundling) rate(d int, value float64) float64 {
	return max(x.theta(value)*x.Models[d].Weight, x.Models[d].MinRPS)
}

// prepareCovers builds the template tables of all models and computes covers at the prices of the relaxation.
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

// addCovers adds a cover table of each model at given prices of all devices of each pool. If all templates are
// known, it lowers the bound by them.
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

	// Covers with rates rounded down are for bundles, those rounded up for the bound.
	for d := range x.Models {
		if ctx.Err() != nil {
			return
		}
		most := x.rate(d, x.inner)
		list := w.configurations(x.lists[d], most)
		x.covers[d] = append(x.covers[d], coversOf(list, most, coverSteps, false))
		if w.slot {
			// Two pipelines may fill a device together, so covers for the bound count parts of devices.
			parts := *w
			parts.slot = false
			list = parts.configurations(x.lists[d], most)
		}
		bound = append(bound, coversOf(list, most, fine, true))
	}

	// If all templates are known, the covers bound the throughput.
	x.bounding = bound
	if x.sieves != nil || !x.partial {
		x.inner = max(min(x.inner, x.reach(bound)*(1+1e-9)), x.score())
	}
}

// repriceCovers adds covers at other prices, if not even parts of the bundles fit the devices: half way from the
// prices of the relaxation to what the devices are worth to those bundles. It returns false, and adds none, if
// parts fit or if covers were repriced often enough.
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

// total returns the sum of some values.
func sum(list []float64) (total float64) {
	for _, v := range list {
		total += v
	}
	return total
}

// coverableThroughput returns the largest throughput, in units, at which the covers of all models cost no more
// than all devices are worth.
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

// addModelTable adds the table of a model's templates: of all of them if they were listed, else of those that
// the wait choice allows.
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

// templateIndex returns the catalogue's index of a template of model d's table. A template that the catalogue
// lacks joins it.
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

// allowNewTemplates adds the templates that joined the catalogue to the wait choice, with their losses.
func (x *bundling) known() {
	for i := len(x.loss); i < len(x.templates); i++ {
		x.allowed = append(x.allowed, i)
		x.loss = append(x.loss, x.candidate.of.loss(&x.templates[i], x.lp))
	}
	x.out.Templates = max(x.out.Templates, len(x.templates))
}
