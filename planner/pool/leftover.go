package pool

// leftover tells what a plan of the only model loses at least on the devices
// that a sum of configurations leaves: their price where they stay idle, and the
// losses of the configurations that fill them. Stage positions are together
// here, so that there are few sums of configurations to look at.
type leftover struct {
	dims  []dimension // one per pool
	all   uint64      // the use of all devices
	least []float64   // by the use that is left
}

// leftover adds up what all parts of the devices lose at least. It is nil where
// there are other models, which may take the rest, and where there are too many
// parts.
func (k *knapsack) leftover(d int) *leftover {
	if len(k.x.Models) > 1 {
		return nil
	}
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
	// First what is lost where nothing is idle, less the price. What is not listed
	// loses as much as the first thing that was not.
	for u, price := range prices {
		left.least[u] = min(sums.first, k.budget) - price
	}
	for i, at := range sums.list {
		if u := at.use[0]; sums.done[i] {
			left.least[u] = min(left.least[u], at.loss-prices[u])
		}
	}
	// Then the least where some of it may be idle.
	for i := range left.dims {
		dim := &left.dims[i]
		for u := range left.least {
			if dim.parts(use{uint64(u)}) > 0 {
				left.least[u] = min(left.least[u], left.least[uint64(u)-dim.radix])
			}
		}
	}
	for u, price := range prices {
		left.least[u] += price
	}
	return left
}

// prices are those of all uses of devices below size.
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

// after is what is lost at least on what a use of devices leaves.
func (l *leftover) after(dims []dimension, u use) float64 {
	left := l.all
	for i := range dims {
		dim := &dims[i]
		to := &l.dims[dim.pool]
		left -= uint64(dim.parts(u)*(to.unit/dim.unit)) * to.radix
	}
	return l.least[left]
}
