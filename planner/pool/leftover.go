package pool

// leftoverLoss holds, for a problem with one model, what a plan loses at least on the devices that a label
// leaves: the price of those that stay idle, and the losses of the configurations that fill the others. Stage
// positions are counted together here, so that there are few sums of configurations.
type leftover struct {
	dims  []dimension // one per pool
	all   uint64      // the use that takes all devices
	least []float64   // by remaining use
}

// newLeftoverLoss computes the least loss of all uses of the devices. If there are other models, which may take
// the rest, or too many uses, it returns nil.
func (k *knapsack) leftover(d int) *leftover {
	if len(k.x.Models) > 1 {
		return nil
	}

	// All sums with stage positions together.
	together := &knapsack{x: k.x, budget: k.budget, steps: k.steps, limit: k.limit}
	if !together.keys() {
		return nil
	}
	size := uint64(1)
	for i := range together.dims {
		if size *= together.dims[i].size; size > lossSums {
			return nil
		}
	}
	sums := together.model(d)
	k.steps = together.steps
	left := &leftover{dims: together.dims, all: size - 1, least: make([]float64, size)}
	prices := together.prices(size)
	// First, the loss if nothing is idle, less the price. A sum that is not listed loses as much as the first
	// one that was not.
	for u, price := range prices {
		left.least[u] = min(sums.first, k.budget) - price
	}
	for i, at := range sums.list {
		if u := at.use[0]; sums.done[i] {
			left.least[u] = min(left.least[u], at.loss-prices[u])
		}
	}
	// Then the least over all smaller uses: the rest stays idle.
	for i := range left.dims {
		dim := &left.dims[i]
		for u := range left.least {
			if dim.parts(use{uint64(u)}) > 0 {
				left.least[u] = min(left.least[u], left.least[uint64(u)-dim.radix])
			}
		}
	}

	// Idle devices cost their price.
	for u, price := range prices {
		left.least[u] += price
	}
	return left
}

// usePrices returns the prices of all uses below size.
func (k *knapsack) prices(size uint64) []float64 {
	out := make([]float64, size)
	for i := range k.dims {
		dim := &k.dims[i]
		for u := range out {
			if n := dim.parts(use{uint64(u)}); n > 0 {
				out[u] += k.priceOf(dim, n)
			}
		}
	}
	return out
}

// minLossAfter returns what is lost at least on the devices that a use leaves.
func (l *leftover) after(dims []dimension, u use) float64 {
	left := l.all
	for i := range dims {
		dim := &dims[i]
		to := &l.dims[dim.pool]
		left -= uint64(dim.parts(u)*(to.unit/dim.unit)) * to.radix
	}
	return l.least[left]
}
