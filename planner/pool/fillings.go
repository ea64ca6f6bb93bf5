package pool

import "math"

// sumLabel is a sum of configurations of one model.
type filling struct {
	use    use     // devices taken
	rate   float64 // in units
	loss   float64 // sum over the configurations
	parent int32   // label that was extended; -1 for the empty sum
	item   int32   // index of the configuration that was added
}

// labelSearch lists the sums of configurations of one model, by rising loss of the plans that they may be part
// of. The search is a label-setting one, as Dijkstra's.
type fillings struct {
	k     *knapsack
	model int
	items []configuration // configurations, by rising loss
	left  *leftover       // what a label leaves to lose; nil if nothing is known of it
	list  []filling       // final ones and open ones
	at    map[use]int32   // index of the label of each use
	open  queue
	done  []bool  // by label: it left the queue, and cannot get better
	first float64 // a sum that is not listed loses at least so much
	most  float64 // of the devices that the model may take
	parts []int   // by item and dimension: parts that the item takes
	base  []int   // scratch: parts that the label to extend takes, by dimension
	whole []int   // scratch: whole devices of each pool; nil without leftover
}

// queuedLabel is a label as it was when it entered the queue. If a better sum of the same use is found, the
// label enters again, and the older entry is skipped.
type waiting struct {
	ahead float64 // a plan with the label loses at least so much
	label int32
}

// precedes reports whether a leaves the queue before b.
func (a waiting) before(b waiting) bool {
	return a.ahead < b.ahead || a.ahead == b.ahead && a.label < b.label
}

// labelQueue is a binary heap of labels. It is written out because container/heap allocates with every call.
type queue []waiting

// push adds an entry to the heap.
func (q *queue) push(w waiting) {
	*q = append(*q, w)
	h, i := *q, len(*q)-1
	for i > 0 {
		parent := (i - 1) / 2
		if !w.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = w
}

// pop removes the first entry of the heap and returns it. The heap must not be empty.
func (q *queue) pop() waiting {
	h := *q
	first, last := h[0], len(h)-1
	w := h[last]
	h = h[:last]
	*q = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			if last > 0 {
				h[i] = w
			}
			return first
		}
		if child+1 < last && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(w) {
			h[i] = w
			return first
		}
		h[i] = h[child]
		i = child
	}
}

// addLabel lists a sum, unless a sum of the same use loses no more. A plan with the sum loses at least
// minPlanLoss.
func (l *fillings) push(c *filling, ahead float64) {
	i, ok := l.at[c.use]
	switch {
	case !ok:
		i = int32(len(l.list))
		l.list, l.done = append(l.list, *c), append(l.done, false)
		l.k.steps += lossLabel
		l.at[c.use] = i
	case l.done[i] || l.list[i].loss <= c.loss:
		return
	default:
		l.list[i] = *c
	}
	l.open.push(waiting{ahead, i})
}

// nextLabel takes the open label of least loss from the queue. If none is left, it returns false.
func (l *fillings) pop() (w waiting, ok bool) {
	for len(l.open) > 0 {
		if w = l.open.pop(); !l.done[w.label] {
			return w, true
		}
	}
	return w, false
}

// listSums lists the sums of model d's configurations that may be part of a better plan.
func (k *knapsack) model(d int) *fillings {
	x, p := k.x, k.x.Problem
	l := &fillings{k: k, model: d, at: map[use]int32{}, first: math.Inf(1)}
	var ok bool
	if l.items, ok = k.configurations(d); !ok {
		l.first = 0
		return l
	}
	if k.bySlot {
		l.left = k.leftover(d)
	}
	if l.left != nil {
		l.whole = make([]int, len(p.Pools))
	}

	// The parts that each configuration takes.
	l.base = make([]int, len(k.dims))
	for i := range l.items {
		for j := range k.dims {
			l.parts = append(l.parts, k.dims[j].parts(l.items[i].use))
		}
	}
	// Every other model needs devices that are worth at least the value of its rate.
	l.most = x.lp.worth[d]*(x.lp.bound-k.budget) + k.budget
	if len(p.Models) == 1 {
		l.most = math.Inf(1)
	}

	// The model may use its part of the remaining steps.
	share := k.steps + (k.limit-k.steps)/int64(len(p.Models)-d+1)
	l.push(&filling{parent: -1}, 0)

	// Settle labels by rising loss, until none is left or the work is done.
	for {
		w, ok := l.pop()
		if !ok {
			return l
		}
		if k.steps > share || len(l.list) > lossSums/len(p.Models) {
			l.first = w.ahead
			return l
		}
		l.done[w.label] = true
		l.extend(w.label)
	}
}

// extendLabel adds each configuration to a label, and lists the sums that fit.
func (l *fillings) extend(i int32) {
	k, at := l.k, l.list[i]
	var sum filling
	price := at.loss + k.x.lp.worth[l.model]*at.rate

	// What the label takes already.
	for j := range k.dims {
		l.base[j] = k.dims[j].parts(at.use)
	}
	for n := range l.items {
		c := &l.items[n]
		if at.loss+c.loss > k.budget {
			break
		}
		k.steps++
		if price+c.price > l.most || !l.fit(l.parts[n*len(k.dims):]) {
			continue
		}
		sum = filling{at.use.with(c.use), at.rate + c.rate, at.loss + c.loss, i, int32(n)}
		ahead := sum.loss
		if l.left != nil {
			ahead += l.left.after(k.dims, sum.use)
		}
		if ahead <= k.budget {
			l.push(&sum, ahead)
		}
	}
}

// fitsDevices reports whether there are devices for the label under extension and the given parts together. If
// whole devices count, each stage position rounds its parts up to them.
func (l *fillings) fit(parts []int) bool {
	k := l.k
	for i := range k.dims {
		if uint64(l.base[i]+parts[i]) >= k.dims[i].size {
			return false
		}
	}
	if l.whole == nil {
		return true
	}
	clear(l.whole)
	for i := range k.dims {
		dim := &k.dims[i]
		l.whole[dim.pool] += (l.base[i] + parts[i] + dim.unit - 1) / dim.unit
		if l.whole[dim.pool] > k.x.Pools[dim.pool].Count {
			return false
		}
	}
	return true
}
