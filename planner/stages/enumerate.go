package stages

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// MaxTemplates is the most templates that are listed. Beyond it, fewer blocks, partitions or device
// kinds are needed.
const MaxTemplates = 2_000_000

// ErrTooManyTemplates is returned when there are too many templates to list.
var ErrTooMany = errors.New("too many possible pipelines to list")

// errFoundFaster ends a walk at the first template.
var errFaster = errors.New("a faster pipeline")

// DeviceOption is a device kind and share on which stages of a model can run, with the times there at
// one batch size.
type Choice struct {
	Pool, Share int
	Times       Times    // most that a batch takes
	Expected    Expected // median and mean; empty if they equal MaxTimes
	Memory      int64    // bytes beyond the weights
}

// HasOneTime reports whether the largest time of a batch is also its mean.
func (c *Choice) Plain() bool { return c.Expected.at == nil }

// MeanTime returns the mean time of a batch through a range.
func (c *Choice) Run(first, last int) time.Duration {
	if c.Plain() {
		return c.Times.Of(first, last)
	}
	return c.Expected.Mean(first, last)
}

// IsMonotone reports whether no range takes longer than a range that contains it, at most and on average.
func (c *Choice) Rises() bool { return c.Plain() && c.Times.Rises() }

// CostTable holds the costs of a model at one batch size.
type Sums struct {
	Problem *Problem
	Index   int // index of the model
	Model   *Model
	Batch   int
	Budget  time.Duration // time for execution and transfers
	Choices []Choice
	Rest    []time.Duration // least time from a block to the end, by block
	Weights []int64         // bytes of the blocks before a block, by block
}

// templateWalker enumerates the templates of one model at one batch size.
type walker struct {
	Sums
	stages []Stage  // stages of the template so far
	tooBig int      // number of stages left out because they do not fit in memory
	at     Template // the template that is passed to visit
	visit  func(*Template) error
}

// NewCostTable collects the costs of a model at a batch size, on the kinds and shares on which the
// model was measured.
func (p *Problem) Sums(model, batch int, budget time.Duration) Sums {
	m := &p.Models[model]
	n := m.NumBlocks()
	s := Sums{Problem: p, Index: model, Model: m, Batch: batch, Budget: budget}

	// Prefix sums of the weights.
	s.Weights = make([]int64, n+1)
	for i := range n {
		s.Weights[i+1] = s.Weights[i] + m.Weights[i]
	}

	// The kinds and shares that have a cost at this size.
	for k := range p.Pools {
		if p.Pools[k].Count <= 0 {
			continue
		}
		for v := 1; v <= p.Pools[k].MaxShares && v <= len(m.Costs[k]); v++ {
			c := m.Costs[k][v-1].At(batch)
			if c == nil {
				continue
			}
			o := Choice{Pool: k, Share: v, Times: c.times(), Memory: max(c.Memory-s.Weights[n], 0)}
			if e := m.Costs[k][v-1].Expect(batch); e.below != nil || c.Mean > 0 {
				o.Expected = e
			}
			s.Choices = append(s.Choices, o)
		}
	}
	s.Rest = s.rest()
	return s
}

// minTimesToEnd returns the least time from each block to the end, over all cuts.
func (s *Sums) rest() []time.Duration {
	n := s.Model.NumBlocks()
	rest := slices.Repeat([]time.Duration{-1}, n+1) // -1 if nothing was measured
	rest[n] = 0
	if len(s.Choices) == 0 {
		return rest
	}
	// If times are differences, the best end of a stage is the same for all starts.
	end := make([]time.Duration, len(s.Choices))
	for i := n - 1; i >= 0; i-- {
		for k := range s.Choices {
			t := &s.Choices[k].Times
			if t.ends == nil {
				for j := i + 1; j <= n; j++ {
					if d := t.Of(i, j) + rest[j]; rest[i] < 0 || d < rest[i] {
						rest[i] = d
					}
				}
				continue
			}
			if d := t.ends[i+1] + rest[i+1]; i == n-1 || d < end[k] {
				end[k] = d
			}
			if d := end[k] - t.starts[i]; rest[i] < 0 || d < rest[i] {
				rest[i] = d
			}
		}
	}
	return rest
}

// extend adds every stage that can start at block first to the template. elapsedBefore is the time
// of the stages so far.
func (w *walker) from(first int, spent time.Duration) error {
	n := w.Model.NumBlocks()
	for i := range w.Choices {
		o := &w.Choices[i]
		pool := &w.Problem.Pools[o.Pool]
		at := spent
		if pool.OffWire && first > 0 {
			continue
		}

		// The transfer from the previous stage.
		if len(w.stages) > 0 {
			prev := &w.stages[len(w.stages)-1]
			prev.Xfer = w.Problem.XferTime(prev.Pool, o.Pool, w.Model.CutBytes[first-1], w.Batch)
			at += prev.Xfer
		}
		// The last allowed stage must reach the end of the model.
		last := first + 1
		if len(w.stages) == w.Problem.MaxPartitions-1 || pool.OffWire {
			last = n
		}
		for ; last <= n; last++ {
			// The rest must be possible within the budget.
			infer := o.Times.Of(first, last)
			if at+infer+w.Rest[last] > w.Budget {
				if at+infer > w.Budget && o.Rises() {
					break
				}
				continue
			}
			if pool.Time && len(w.stages) > 0 {
				// One stage would do the same with one hop less.
				prev := &w.stages[len(w.stages)-1]
				if prev.Pool == o.Pool && o.Times.Of(prev.First, last) <= prev.Infer+infer && o.Run(prev.First, last) <= prev.Run+o.Run(first, last) {
					continue
				}
			}
			if last < n && w.Model.CutBytes[last-1] < 0 {
				continue
			}

			// The stage must fit in memory.
			need := w.Weights[last] - w.Weights[first] + o.Memory
			if pool.Memory > 0 && need+w.resident(o.Pool) > pool.Memory/int64(o.Share) {
				w.tooBig++
				continue
			}

			// Go on behind the stage.
			w.stages = append(w.stages, Stage{First: first, Last: last, Pool: o.Pool, Share: o.Share, Infer: infer, Run: o.Run(first, last), Need: need})
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

// memoryOnPool returns the bytes that the stages so far take on every device of a time-shared pool.
func (w *walker) resident(pool int) int64 {
	if !w.Problem.Pools[pool].Time {
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

// emit passes a complete template to visit.
func (w *walker) keep(latency time.Duration) error {
	w.at = Template{Model: w.Index, Batch: w.Batch, Latency: latency, Stages: w.stages}
	for i := range w.stages {
		w.stages[i].Rate = w.Problem.StageRate(&w.at, i)
	}
	return w.visit(&w.at)
}

// VisitTemplates calls visit with each template of a model that keeps its SLO and fits in memory, in a
// fixed order, until visit returns an error. Only templates with two consecutive stages on one
// time-shared pool are left out, if one stage is no slower. The template is overwritten by the next
// one, so it must be copied. tooBig counts the stages that do not fit in memory.
func (p *Problem) Visit(model int, visit func(*Template) error) (tooBig int, err error) {
	m := &p.Models[model]
	for _, b := range m.BatchSizes() {
		w := walker{Sums: p.Sums(model, b, m.Budget(b)), visit: visit}
		if w.Budget <= 0 || len(w.Choices) == 0 {
			continue
		}
		if err := w.from(0, 0); err != nil {
			return 0, err
		}
		tooBig += w.tooBig
	}
	return tooBig, nil
}

// ListTemplates returns the templates that VisitTemplates visits.
func (p *Problem) Templates(model int) (list []Template, tooBig int, err error) {
	tooBig, err = p.Visit(model, func(t *Template) error {
		if len(list) >= MaxTemplates {
			return fmt.Errorf("%w: model %s has more than %d", ErrTooMany, p.Models[model].Name, MaxTemplates)
		}
		list = append(list, *t)
		list[len(list)-1].Stages = slices.Clone(t.Stages)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return list, tooBig, nil
}

// MinLatency returns the least time in which a batch can pass through a model within the memory of the
// devices, whatever the SLO. It returns false if no template fits.
func (p *Problem) Fastest(model, batch int) (time.Duration, bool) {
	const forever = time.Duration(1) << 60
	best := forever
	w := walker{Sums: p.Sums(model, batch, forever), visit: func(t *Template) error {
		best = t.Latency
		return errFaster
	}}
	if len(w.Choices) == 0 {
		return 0, false
	}
	// Each round asks for a template faster than the best so far. The bound on the time to the
	// end prunes all others.
	for {
		w.stages, w.Budget = w.stages[:0], best-1
		if w.from(0, 0) == nil {
			return best, best < forever
		}
	}
}

// memoryPerDevice returns the bytes that a template needs on each device: of one stage, or on a
// time-shared pool of all its stages there. It is at least 1.
func (p *Problem) memoryPerDevice(t *Template) int64 {
	var most int64 = 1
	for i := range t.Stages {
		s := &t.Stages[i]
		need := s.Need * int64(s.Share)
		if p.Pools[s.Pool].Time {
			for j := range i {
				if o := &t.Stages[j]; o.Pool == s.Pool {
					need += o.Need
				}
			}
		}
		most = max(most, need)
	}
	return most
}

// MinMemory returns the bytes per device with which some template of a model fits, whatever the SLO and
// the memory of the devices. It returns 0 if there is no template.
func (p *Problem) LeastMemory(model int) int64 {
	free := *p
	free.Pools = slices.Clone(p.Pools)
	for k := range free.Pools {
		free.Pools[k].Memory = 0
	}
	var best int64

	// The least over the batch sizes whose templates can be listed.
	for _, b := range p.Models[model].BatchSizes() {
		var least int64
		found := 0
		w := walker{Sums: free.Sums(model, b, 1<<60), visit: func(t *Template) error {
			if found++; found > MaxTemplates {
				return ErrTooMany
			}
			if most := p.memoryPerDevice(t); least == 0 || most < least {
				least = most
			}
			return nil
		}}
		if len(w.Choices) > 0 && w.from(0, 0) == nil && least > 0 && (best == 0 || least < best) {
			best = least
		}
	}
	return best
}
