package losses

// leftoverLoss holds, for a problem with one model, what a plan loses at least on the devices that a label
// leaves: the price of those that stay idle, and the losses of the configurations that fill the others. Stage
// positions are counted together here, so that there are few sums of configurations.
type leftoverLoss struct {
	dimensions []useDimension // one per pool
	allDevices uint64         // the use that takes all devices
	minLoss    []float64      // by remaining use
}

// newLeftoverLoss computes, for a single model, the least loss on each amount of devices that a partial sum of
// its configurations may leave. A loss is how far a plan stays below the bound. The table tells a search by
// stage positions early that a sum cannot become a good plan. If there are other models, which may take the
// rest, or too many amounts, it returns nil.
func (k *lossKnapsack) newLeftoverLoss(d int) *leftoverLoss {
	if len(k.problem.Models) > 1 {
		return nil
	}

	// List the sums with the parts of all stage positions of a pool counted together. A use of devices is then one number
	// below size; size-1 takes all devices.
	byPool := newLossKnapsack(k.choice, k.incumbent, k.gap, k.maxSteps)
	byPool.lossBudget, byPool.workSteps = k.lossBudget, k.workSteps
	if !byPool.setDimensions() {
		return nil
	}
	size := uint64(1)
	for i := range byPool.dimensions {
		if size *= byPool.dimensions[i].numValues; size > maxLabels {
			return nil
		}
	}
	labels := byPool.listSums(d)
	k.workSteps = byPool.workSteps
	leftovers := &leftoverLoss{dimensions: byPool.dimensions, allDevices: size - 1, minLoss: make([]float64, size)}
	prices := byPool.usePrices(size)
	// minLoss is indexed by the use of devices as a number. First, the least loss of a sum that takes exactly these
	// devices, less their price. A sum that is not listed loses at least as much as the first one that was left out.
	for taken, price := range prices {
		leftovers.minLoss[taken] = min(labels.unlistedLoss, k.lossBudget) - price
	}
	for i, label := range labels.labels {
		if taken := label.devices[0]; labels.isFinal[i] {
			leftovers.minLoss[taken] = min(leftovers.minLoss[taken], label.loss-prices[taken])
		}
	}
	// Then the least over all smaller uses, one dimension after the other: the rest stays idle.
	for i := range leftovers.dimensions {
		dimension := &leftovers.dimensions[i]
		for taken := range leftovers.minLoss {
			if dimension.partsOf(deviceUse{uint64(taken)}) > 0 {
				leftovers.minLoss[taken] = min(leftovers.minLoss[taken], leftovers.minLoss[uint64(taken)-dimension.radix])
			}
		}
	}

	// Idle devices cost their price.
	for taken, price := range prices {
		leftovers.minLoss[taken] += price
	}
	return leftovers
}

// usePrices returns the price of every use of devices below size. A use is the number of taken parts of each dimension (here
// one for each pool), written as the digits of one number, which is its index in the result. Prices are those of the
// relaxation, in units of the objective.
func (k *lossKnapsack) usePrices(size uint64) []float64 {
	prices := make([]float64, size)
	for i := range k.dimensions {
		dimension := &k.dimensions[i]
		for taken := range prices {
			if n := dimension.partsOf(deviceUse{uint64(taken)}); n > 0 {
				prices[taken] += k.partsPrice(dimension, n)
			}
		}
	}
	return prices
}

// minLossAfter returns the least that a plan loses, against the bound, on the devices that a partial sum of
// configurations leaves. taken is the sum's use of devices, as digits of the given dimensions (pools, and stage positions
// on them). The table has one digit for each pool, so the parts of all its positions are added up.
func (l *leftoverLoss) minLossAfter(dimensions []useDimension, taken deviceUse) float64 {
	remaining := l.allDevices
	for i := range dimensions {
		dimension := &dimensions[i]
		poolDimension := &l.dimensions[dimension.pool]
		poolParts := dimension.partsOf(taken) * (poolDimension.partsPerDevice / dimension.partsPerDevice)
		remaining -= uint64(poolParts) * poolDimension.radix
	}
	return l.minLoss[remaining]
}
