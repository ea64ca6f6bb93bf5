package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxTemplates bounds what is listed: beyond, fewer blocks, partitions or
// device kinds are needed.
const maxTemplates = 2_000_000

// ErrTooMany means that the templates are too many to list.
var ErrTooMany = errors.New("too many possible pipelines to list")

// option is a device kind and share with the cost of one batch size.
type option struct {
	pool, share int
	prefix      []time.Duration // prefix sums over blocks, each at least minBlock
	memory      int64           // beyond weights
}

// walker enumerates the templates of one model at one batch size.
type walker struct {
	p       *Problem
	model   int
	m       *Model
	batch   int
	budget  time.Duration
	opts    []option
	rest    []time.Duration // least time from a block to the end
	weights []int64         // prefix sums
	stages  []Stage
	tooBig  int // stages left out because they do not fit in memory
	found   []Template
	limit   int
}

// batchSizes lists the sizes worth looking at.
func (p *Problem) batchSizes(m *Model) []int {
	seen := map[int]bool{}
	largest := 0
	for k := range m.Costs {
		for v := range m.Costs[k] {
			for i := range m.Costs[k][v].Batches {
				b := m.Costs[k][v].Batches[i].Batch
				seen[b] = true
				largest = max(largest, b)
			}
		}
	}
	if m.EveryBatch {
		for b := 1; b < largest; b++ {
			seen[b] = true
		}
	}
	out := make([]int, 0, len(seen))
	for b := range seen {
		out = append(out, b)
	}
	slices.Sort(out)
	return out
}

func (p *Problem) walker(model, batch int, budget time.Duration) *walker {
	m := &p.Models[model]
	n := m.NumBlocks()
	w := &walker{p: p, model: model, m: m, batch: batch, budget: budget, limit: maxTemplates}
	w.weights = make([]int64, n+1)
	for i := range n {
		w.weights[i+1] = w.weights[i] + m.Weights[i]
	}
	for k := range p.Pools {
		if p.Pools[k].Count <= 0 {
			continue
		}
		for v := 1; v <= p.Pools[k].MaxShares && v <= len(m.Costs[k]); v++ {
			c := m.Costs[k][v-1].At(batch)
			if c == nil {
				continue
			}
			o := option{pool: k, share: v, prefix: make([]time.Duration, n+1)}
			for i, d := range c.Blocks {
				o.prefix[i+1] = o.prefix[i] + max(d, minBlock)
			}
			o.memory = max(c.Memory-w.weights[n], 0)
			w.opts = append(w.opts, o)
		}
	}
	w.rest = make([]time.Duration, n+1)
	for i := n - 1; i >= 0; i-- {
		least := time.Duration(-1)
		for _, o := range w.opts {
			if d := o.prefix[i+1] - o.prefix[i]; least < 0 || d < least {
				least = d
			}
		}
		w.rest[i] = w.rest[i+1] + least
	}
	return w
}

// from extends the pipeline by every stage that can start at block first.
func (w *walker) from(first int, spent time.Duration) error {
	n := w.m.NumBlocks()
	for i := range w.opts {
		o := &w.opts[i]
		pool := &w.p.Pools[o.pool]
		at := spent
		if pool.OffWire && first > 0 {
			continue
		}
		if len(w.stages) > 0 {
			prev := &w.stages[len(w.stages)-1]
			if pool.Time && prev.Pool == o.pool {
				// One stage does the same in fewer hops.
				continue
			}
			prev.Xfer = w.p.XferTime(prev.Pool, o.pool, w.m.CutBytes[first-1], w.batch)
			at += prev.Xfer
		}
		// The last allowed stage must reach the end.
		last := first + 1
		if len(w.stages) == w.p.MaxPartitions-1 || pool.OffWire {
			last = n
		}
		for ; last <= n; last++ {
			infer := o.prefix[last] - o.prefix[first]
			if at+infer+w.rest[last] > w.budget {
				if at+infer > w.budget {
					break
				}
				continue
			}
			if last < n && w.m.CutBytes[last-1] < 0 {
				continue
			}
			need := w.weights[last] - w.weights[first] + o.memory
			if pool.Memory > 0 && need+w.resident(o.pool) > pool.Memory/int64(o.share) {
				w.tooBig++
				continue
			}
			w.stages = append(w.stages, Stage{First: first, Last: last, Pool: o.pool, Share: o.share, Infer: infer, Need: need})
			if last == n {
				if err := w.keep(at + infer); err != nil {
					return err
				}
			} else if err := w.from(last, at+infer); err != nil {
				return err
			}
			w.stages = w.stages[:len(w.stages)-1]
		}
	}
	return nil
}

// resident is what the stages so far need on every device of a time-shared pool.
func (w *walker) resident(pool int) int64 {
	if !w.p.Pools[pool].Time {
		return 0
	}
	var sum int64
	for i := range w.stages {
		if w.stages[i].Pool == pool {
			sum += w.stages[i].Need
		}
	}
	return sum
}

func (w *walker) keep(latency time.Duration) error {
	if len(w.found) >= w.limit {
		return fmt.Errorf("%w: model %s has more than %d", ErrTooMany, w.m.Name, w.limit)
	}
	t := Template{Model: w.model, Batch: w.batch, Latency: latency, Stages: slices.Clone(w.stages)}
	t.Stages[len(t.Stages)-1].Xfer = 0
	for i := range t.Stages {
		w.rate(&t, i)
	}
	w.found = append(w.found, t)
	return nil
}

// rate sets what one replica of a stage sustains: its inference, and its part
// of the NIC that the replicas of a node share, in and out.
func (w *walker) rate(t *Template, i int) {
	s := &t.Stages[i]
	s.Rate = 1e9 * float64(t.Batch) / float64(s.Infer)
	pool := &w.p.Pools[s.Pool]
	if pool.Gbps <= 0 {
		return
	}
	nic := func(a, b, after int) {
		us := sampleUS(w.m.CutBytes[after-1], linkGbps(&w.p.Pools[a], &w.p.Pools[b]))
		if us > 0 {
			s.Rate = min(s.Rate, 1e6/us/float64(s.Share*pool.PerNode))
		}
	}
	if i > 0 {
		nic(t.Stages[i-1].Pool, s.Pool, s.First)
	}
	if i+1 < len(t.Stages) {
		nic(s.Pool, t.Stages[i+1].Pool, s.Last)
	}
}

// enumerate lists the templates of one model, in a fixed order, less the
// dominated ones. tooBig counts stages left out for lack of memory.
func (p *Problem) enumerate(model int) (list []Template, tooBig int, err error) {
	if list, tooBig, err = p.every(model); err != nil {
		return nil, 0, err
	}
	return p.undominated(list), tooBig, nil
}

// every is enumerate with the dominated ones.
func (p *Problem) every(model int) (list []Template, tooBig int, err error) {
	m := &p.Models[model]
	for _, b := range p.batchSizes(m) {
		w := p.walker(model, b, m.Budget(b))
		if w.budget <= 0 || len(w.opts) == 0 {
			continue
		}
		w.limit = maxTemplates - len(list)
		if err := w.from(0, 0); err != nil {
			return nil, 0, err
		}
		list = append(list, w.found...)
		tooBig += w.tooBig
	}
	return list, tooBig, nil
}

// undominated keeps the templates that no other one replaces. One replaces
// another when both take the same device kinds and shares at the same
// positions and none of its stages is slower or larger: then any plan with the
// other stays a plan, and gets no worse, with this one in its place. On
// time-shared pools its longest inference must not be longer either, because
// it holds up other pipelines.
func (p *Problem) undominated(list []Template) []Template {
	groups := map[string][]int{}
	var keys []string
	buf := make([]byte, 0, 16)
	for i := range list {
		buf = buf[:0]
		for _, s := range list[i].Stages {
			buf = append(buf, byte(s.Pool), byte(s.Pool>>8), byte(s.Share))
		}
		k := string(buf)
		if _, ok := groups[k]; !ok {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], i)
	}
	var out []Template
	for _, k := range keys {
		g := groups[k]
		// Where two are alike in all that counts, the earlier in this order stays.
		slices.SortFunc(g, func(a, b int) int { return cmp.Or(cmp.Compare(list[a].Latency, list[b].Latency), cmp.Compare(a, b)) })
		var kept []int
		for _, i := range g {
			beaten := false
			for _, j := range kept {
				if p.replaces(&list[j], &list[i]) {
					beaten = true
					break
				}
			}
			if beaten {
				continue
			}
			kept = slices.DeleteFunc(kept, func(j int) bool { return p.replaces(&list[i], &list[j]) })
			kept = append(kept, i)
		}
		slices.Sort(kept)
		for _, i := range kept {
			out = append(out, list[i])
		}
	}
	return out
}

func (p *Problem) replaces(a, b *Template) bool {
	shared := false
	for i := range a.Stages {
		x, y := &a.Stages[i], &b.Stages[i]
		pool := &p.Pools[x.Pool]
		if x.Rate < y.Rate || pool.Memory > 0 && x.Need > y.Need {
			return false
		}
		if pool.Time {
			shared = true
			if x.Infer > y.Infer {
				return false
			}
			// What is larger by itself may have its weights in memory already.
			if pool.Memory > 0 && pool.OneCopy && (x.First != y.First || x.Last != y.Last) {
				return false
			}
		}
	}
	return !shared || a.Latency+p.Models[a.Model].BuildTime(a.Batch) <= b.Latency+p.Models[b.Model].BuildTime(b.Batch)
}

// fastest is the least time in which a batch can pass through the model within
// the memory limits, whatever the SLO; false when none can.
func (p *Problem) fastest(model, batch int) (time.Duration, bool) {
	const forever = time.Duration(1) << 60
	best := forever
	w := p.walker(model, batch, forever)
	if len(w.opts) == 0 {
		return 0, false
	}
	// Each round asks for anything faster than the best so far; the bound on
	// the time to the end prunes all else.
	for {
		w.found, w.stages, w.limit = w.found[:0], w.stages[:0], 1
		w.budget = best - 1
		if err := w.from(0, 0); err != nil && !errors.Is(err, ErrTooMany) {
			return 0, false
		}
		if len(w.found) == 0 {
			return best, best < forever
		}
		best = w.found[0].Latency
	}
}
