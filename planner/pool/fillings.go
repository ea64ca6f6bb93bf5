package pool

import "math"

// filling is a sum of configurations of one model.
type filling struct {
	use    use
	rate   float64
	loss   float64
	parent int32 // label; -1 for none
	item   int32
}

// fillings are the sums of configurations of one model, by rising loss of the plans
// that they may be part of.
type fillings struct {
	k     *knapsack
	model int
	items []configuration
	left  *leftover // nil: nothing is known of what sums leave
	list  []filling // popped, or open
	at    map[use]int32
	open  queue
	done  []bool
	first float64 // what is not listed loses at least so much
	most  float64 // price of the devices that the model may take
	parts []int   // per item and dimension: what it takes
	base  []int   // scratch: what the sum at hand takes, by dimension
	whole []int   // scratch: whole devices of each pool; nil without left
}

// waiting is a label as it was when it was put in the queue. A better sum of the
// same use comes in a second time, and leaves the first where it is.
type waiting struct {
	ahead float64 // what a plan with it loses at least
	label int32
}

func (a waiting) before(b waiting) bool {
	return a.ahead < b.ahead || a.ahead == b.ahead && a.label < b.label
}

// queue is a heap of labels. It is written out, because container/heap allocates with
// every call.
type queue []waiting

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

// push lists a sum, unless one of the same use loses no more. A plan with it loses
// ahead at least.
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

// pop takes the label of least loss that was not taken; false where none is left.
func (l *fillings) pop() (w waiting, ok bool) {
	for len(l.open) > 0 {
		if w = l.open.pop(); !l.done[w.label] {
			return w, true
		}
	}
	return w, false
}

// model lists the sums of a model's configurations that may be part of a better plan.
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
	l.base = make([]int, len(k.dims))
	for i := range l.items {
		for j := range k.dims {
			l.parts = append(l.parts, k.dims[j].parts(l.items[i].use))
		}
	}
	// Every other model needs devices of the worth of its rate at least.
	l.most = x.lp.worth[d]*(x.lp.bound-k.budget) + k.budget
	if len(p.Models) == 1 {
		l.most = math.Inf(1)
	}
	share := k.steps + (k.limit-k.steps)/int64(len(p.Models)-d+1)
	l.push(&filling{parent: -1}, 0)
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

// extend adds one configuration to a sum.
func (l *fillings) extend(i int32) {
	k, at := l.k, l.list[i]
	var sum filling
	price := at.loss + k.x.lp.worth[l.model]*at.rate
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

// fit tells whether there are devices for the sum at hand and parts beside it. Where
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
