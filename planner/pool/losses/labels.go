package losses

import "math"

// sumLabel is a sum of configurations of one model.
type sumLabel struct {
	devices  deviceUse // devices taken
	rate     float64   // in units
	loss     float64   // sum over the configurations
	parent   int32     // label that was extended; -1 for the empty sum
	lastItem int32     // index of the configuration that was added
}

// labelSearch lists the sums of configurations of one model, by rising loss of the plans that they may be part
// of. The search is a label-setting one, as Dijkstra's.
type labelSearch struct {
	knapsack     *lossKnapsack
	model        int
	items        []lossItem          // configurations, by rising loss
	leftover     *leftoverLoss       // what a label leaves to lose; nil if nothing is known of it
	labels       []sumLabel          // final ones and open ones
	labelByUse   map[deviceUse]int32 // index of the label of each use
	openLabels   labelQueue
	isFinal      []bool  // by label: it left the queue, and cannot get better
	unlistedLoss float64 // a sum that is not listed loses at least so much
	maxPrice     float64 // of the devices that the model may take
	itemParts    []int   // by item and dimension: parts that the item takes
	labelParts   []int   // scratch: parts that the label to extend takes, by dimension
	wholeDevices []int   // scratch: whole devices of each pool; nil without leftover
}

// queuedLabel is a label as it was when it entered the queue. If a better sum of the same use is found, the
// label enters again, and the older entry is skipped.
type queuedLabel struct {
	minPlanLoss float64 // a plan with the label loses at least so much
	label       int32
}

// precedes reports whether a leaves the queue before b.
func (a queuedLabel) precedes(b queuedLabel) bool {
	return a.minPlanLoss < b.minPlanLoss || a.minPlanLoss == b.minPlanLoss && a.label < b.label
}

// labelQueue is a binary heap of labels. It is written out because container/heap allocates with every call.
type labelQueue []queuedLabel

// push adds an entry to the heap, whose first entry is the label with which plans lose least. The new one moves up from the
// end to its place.
func (q *labelQueue) push(entry queuedLabel) {
	*q = append(*q, entry)
	h, i := *q, len(*q)-1
	for i > 0 {
		parent := (i - 1) / 2
		if !entry.precedes(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = entry
}

// pop removes the first entry of the heap, the label of which plans lose least, and returns it. The last entry moves
// down from the top to its place. The heap must not be empty.
func (q *labelQueue) pop() queuedLabel {
	h := *q
	top, size := h[0], len(h)-1
	lastEntry := h[size]
	h = h[:size]
	*q = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= size {
			if size > 0 {
				h[i] = lastEntry
			}
			return top
		}
		if child+1 < size && h[child+1].precedes(h[child]) {
			child++
		}
		if !h[child].precedes(lastEntry) {
			h[i] = lastEntry
			return top
		}
		h[i] = h[child]
		i = child
	}
}

// addLabel lists a label: a sum of configurations (whole replicas) of the model, with the devices it takes. Of
// sums that take equal devices only the one that loses least stays. The label is queued by minPlanLoss, how
// much a plan with it loses at least.
func (l *labelSearch) addLabel(label *sumLabel, minPlanLoss float64) {
	i, ok := l.labelByUse[label.devices]
	switch {
	case !ok:
		i = int32(len(l.labels))
		l.labels, l.isFinal = append(l.labels, *label), append(l.isFinal, false)
		l.knapsack.workSteps += stepsPerLabel
		l.labelByUse[label.devices] = i
	case l.isFinal[i] || l.labels[i].loss <= label.loss:
		return
	default:
		l.labels[i] = *label
	}
	l.openLabels.push(queuedLabel{minPlanLoss, i})
}

// nextLabel takes from the queue the label (a sum of configurations) of which plans lose least, of those not
// yet extended. If none is left, it returns false.
func (l *labelSearch) nextLabel() (entry queuedLabel, ok bool) {
	for len(l.openLabels) > 0 {
		entry = l.openLabels.pop()
		if !l.isFinal[entry.label] { // else a better entry of the label left the queue before this one
			return entry, true
		}
	}
	return entry, false
}

// listSums lists the labels of model d: sums of its configurations (whole replicas of a template, the items) that may
// be part of a plan better than the best. They come by rising loss of such a plan: how far it stays below the bound of
// the relaxation at least. A plan with a sum that is not listed loses at least unlistedLoss of the result. It is 0,
// which proves nothing, if not even the configurations could be listed.
func (k *lossKnapsack) listSums(d int) *labelSearch {
	labels := &labelSearch{knapsack: k, model: d, labelByUse: map[deviceUse]int32{}, unlistedLoss: math.Inf(1)}
	var complete bool
	if labels.items, complete = k.listItems(d); !complete {
		labels.unlistedLoss = 0
		return labels
	}
	// With stage positions apart, and a single model, a table says what the devices that a label leaves lose at least. Only
	// then labels also count whole devices (fitsDevices).
	if k.bySlot {
		labels.leftover = k.newLeftoverLoss(d)
	}
	if labels.leftover != nil {
		labels.wholeDevices = make([]int, len(k.problem.Pools))
	}

	// The parts that each configuration takes.
	labels.labelParts = make([]int, len(k.dimensions))
	for i := range labels.items {
		for j := range k.dimensions {
			labels.itemParts = append(labels.itemParts, k.dimensions[j].partsOf(labels.items[i].devices))
		}
	}
	// All devices are worth Bound together. A plan within the budget has a throughput of at least Bound - lossBudget, and
	// each other model takes devices that are worth at least its RateDual times that. The RateDuals add up to 1, so this
	// model may take devices up to the price
	//
	//	maxPrice = Bound - (1 - RateDual) (Bound - lossBudget) = RateDual (Bound - lossBudget) + lossBudget
	//
	// A single model may take all.
	labels.maxPrice = k.choice.Relaxation.RateDual[d]*(k.choice.Relaxation.Bound-k.lossBudget) + k.lossBudget
	if len(k.problem.Models) == 1 {
		labels.maxPrice = math.Inf(1)
	}

	// The remaining steps are divided evenly among this model, those after it, and the joining of all models.
	numSharers := int64(len(k.problem.Models) - d + 1)
	stepLimit := k.workSteps + (k.maxSteps-k.workSteps)/numSharers

	// The search starts with the empty sum, which loses nothing.
	labels.addLabel(&sumLabel{parent: -1}, 0)

	// Settle labels by rising loss, until none is left or the work is done.
	for {
		entry, ok := labels.nextLabel()
		if !ok {
			return labels
		}
		if k.workSteps > stepLimit || len(labels.labels) > maxLabels/len(k.problem.Models) {
			labels.unlistedLoss = entry.minPlanLoss
			return labels
		}
		labels.isFinal[entry.label] = true
		labels.extendLabel(entry.label)
	}
}

// extendLabel adds each configuration (an item) in turn to label i, which is a sum of configurations, and lists the
// longer sums that fit the devices and lose no more than the budget. Configurations come by rising loss, so the first
// that loses too much ends the loop.
func (l *labelSearch) extendLabel(i int32) {
	knapsack, label := l.knapsack, l.labels[i]
	dimensions := knapsack.dimensions
	var extended sumLabel

	// A loss is a price less the worth of a rate.
	labelPrice := label.loss + knapsack.choice.Relaxation.RateDual[l.model]*label.rate

	// The parts of devices that the label takes already, by dimension (a pool, or a stage position on it), for fitsDevices.
	for j := range dimensions {
		l.labelParts[j] = dimensions[j].partsOf(label.devices)
	}
	for n := range l.items {
		item := &l.items[n]
		if label.loss+item.loss > knapsack.lossBudget {
			break
		}
		knapsack.workSteps++
		takenParts := l.itemParts[n*len(dimensions):] // the first of them, one by dimension, are the item's
		if labelPrice+item.price > l.maxPrice || !l.fitsDevices(takenParts) {
			continue
		}
		// List the longer sum, if a plan with it can still be better. It loses what the sum does and, if that is known, what
		// the devices that the sum leaves lose at least.
		extended = sumLabel{label.devices.plus(item.devices), label.rate + item.rate, label.loss + item.loss, i, int32(n)}
		minPlanLoss := extended.loss
		if l.leftover != nil {
			minPlanLoss += l.leftover.minLossAfter(dimensions, extended.devices)
		}
		if minPlanLoss <= knapsack.lossBudget {
			l.addLabel(&extended, minPlanLoss)
		}
	}
}

// fitsDevices reports whether there are devices for the label that is extended (a sum of configurations, which takes
// labelParts) and a further configuration that takes the given parts. Both hold parts of devices by dimension (a pool, or
// a stage position on it). If whole devices count, each stage position rounds its parts up to them.
func (l *labelSearch) fitsDevices(parts []int) bool {
	k := l.knapsack
	for i := range k.dimensions {
		if uint64(l.labelParts[i]+parts[i]) >= k.dimensions[i].numValues { // numValues is one more than all parts
			return false
		}
	}
	if l.wholeDevices == nil {
		return true
	}
	// Round the parts up to whole devices, by stage position, and add them up by pool.
	clear(l.wholeDevices)
	for i := range k.dimensions {
		dimension := &k.dimensions[i]
		l.wholeDevices[dimension.pool] += (l.labelParts[i] + parts[i] + dimension.partsPerDevice - 1) / dimension.partsPerDevice
		if l.wholeDevices[dimension.pool] > k.problem.Pools[dimension.pool].Count {
			return false
		}
	}
	return true
}
