package losses

// leftoverLoss holds, for a problem with one model, what a plan loses at least on the devices that a label
// leaves: the price of those that stay idle, and the losses of the configurations that fill the others. Stage
// positions are counted together here, so that there are few sums of configurations.
type leftoverLoss struct {
	dimensions []useDimension // one per pool
	allDevices uint64         // the use that takes all devices
	minLoss    []float64      // by remaining use
}

// newLeftoverLoss computes, for a single model, what a plan loses at least on each amount of devices: a sum of
// configurations (whole replicas) that takes them or some of them, and idle devices for the rest, which lose their
// price. A loss is how far a plan stays below the bound. A search that adds up configurations looks up the devices
// that a sum leaves, and so sees early that no good plan can have the sum. If there are other models, which may take
// the rest, or too many amounts, it returns nil.
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
	// minLoss is indexed by the use of devices as a number. The least loss on some devices is the least, over all parts of
	// them, of the loss of a sum that takes just the part, plus the price of the rest: the price of all less that of the
	// part. So first enter the loss of a sum less the price of what it takes. A sum that is not listed loses at least
	// unlistedLoss, or more than the budget. Labels that are not final count as not listed.
	for taken, price := range prices {
		leftovers.minLoss[taken] = min(labels.unlistedLoss, k.lossBudget) - price
	}
	for i, label := range labels.labels {
		if taken := label.devices[0]; labels.isFinal[i] {
			leftovers.minLoss[taken] = min(leftovers.minLoss[taken], label.loss-prices[taken])
		}
	}
	// Then take the least over all parts of these devices: one dimension after the other, each from the entry of one part
	// less.
	for i := range leftovers.dimensions {
		dimension := &leftovers.dimensions[i]
		for taken := range leftovers.minLoss {
			if dimension.partsOf(deviceUse{uint64(taken)}) > 0 {
				leftovers.minLoss[taken] = min(leftovers.minLoss[taken], leftovers.minLoss[uint64(taken)-dimension.radix])
			}
		}
	}

	// In the end add the price of all the devices.
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
