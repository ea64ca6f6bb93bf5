package pool

import (
	"container/heap"
	"math"
)

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
	whole []int   // scratch: whole devices of each pool; nil without left
}

// waiting is a label as it was when it was put in the queue. A better sum of the
// same use comes in a second time, and leaves the first where it is.
type waiting struct {
	ahead float64 // what a plan with it loses at least
	label int32
}

// queue is a heap of labels.
type queue []waiting

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].ahead < q[j].ahead || q[i].ahead == q[j].ahead && q[i].label < q[j].label
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(v any)   { *q = append(*q, v.(waiting)) }
func (q *queue) Pop() any {
	n := len(*q) - 1
	v := (*q)[n]
	*q = (*q)[:n]
	return v
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
	heap.Push(&l.open, waiting{ahead, i})
}

// pop takes the label of least loss that was not taken; false where none is left.
func (l *fillings) pop() (w waiting, ok bool) {
	for len(l.open) > 0 {
		if w = heap.Pop(&l.open).(waiting); !l.done[w.label] {
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
	for n := range l.items {
		c := &l.items[n]
		if at.loss+c.loss > k.budget {
			break
		}
		k.steps++
		if price+c.price > l.most || !k.fit(at.use, c.use, l.whole) {
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

// fit tells whether there are devices for both of two uses. Where whole is given,
// each stage position rounds its parts up to whole devices: they are counted there,
// by pool.
func (k *knapsack) fit(a, b use, whole []int) bool {
	clear(whole)
	for i := range k.dims {
		dim := &k.dims[i]
		parts := dim.parts(a) + dim.parts(b)
		if uint64(parts) >= dim.size {
			return false
		}
		if whole != nil {
			whole[dim.pool] += (parts + dim.unit - 1) / dim.unit
			if whole[dim.pool] > k.x.Pools[dim.pool].Count {
				return false
			}
		}
	}
	return true
}
