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
var ErrTooManyTemplates = errors.New("too many possible pipelines to list")

// errFoundFaster ends a walk at the first template.
var errFoundFaster = errors.New("a faster pipeline")

// DeviceOption is a device kind and share on which stages of a model can run, with the times there at
// one batch size.
type DeviceOption struct {
	Pool, Share int
	MaxTimes    RangeTimes    // most that a batch takes
	Expected    ExpectedTimes // median and mean; empty if they equal MaxTimes
	Memory      int64         // bytes beyond the weights
}

// HasOneTime reports whether the largest time of a batch is also its mean.
func (c *DeviceOption) HasOneTime() bool { return c.Expected.nextAbove == nil }

// MeanTime returns the mean time of a batch through blocks firstBlock to endBlock-1, which rates are computed
// with.
func (c *DeviceOption) MeanTime(firstBlock, endBlock int) time.Duration {
	if c.HasOneTime() {
		return c.MaxTimes.Time(firstBlock, endBlock)
	}
	return c.Expected.Mean(firstBlock, endBlock)
}

// IsMonotone reports whether no range takes longer than a range that contains it, at most and on average.
func (c *DeviceOption) IsMonotone() bool { return c.HasOneTime() && c.MaxTimes.IsMonotone() }

// CostTable holds the costs of a model at one batch size.
type CostTable struct {
	Problem       *Problem
	ModelIndex    int // index of the model
	Model         *Model
	Batch         int
	Budget        time.Duration // time for execution and transfers
	Choices       []DeviceOption
	MinTimeToEnd  []time.Duration // least time from a block to the end, by block
	WeightsBefore []int64         // bytes of the blocks before a block, by block
}

// templateWalker enumerates the templates of one model at one batch size.
type templateWalker struct {
	costs    CostTable
	stages   []Stage  // stages of the template so far
	tooBig   int      // number of stages left out because they do not fit in memory
	template Template // the template that is passed to visit
	visit    func(*Template) error
}

// NewCostTable returns what a model costs at a batch size, on each kind of devices and share of a device where it
// was measured. A template (a way to cut the model into stages on devices) may take at most budget.
func (p *Problem) NewCostTable(model, batch int, budget time.Duration) CostTable {
	m := &p.Models[model]
	n := m.NumBlocks()
	s := CostTable{Problem: p, ModelIndex: model, Model: m, Batch: batch, Budget: budget}

	// Prefix sums of the weights.
	s.WeightsBefore = make([]int64, n+1)
	for i := range n {
		s.WeightsBefore[i+1] = s.WeightsBefore[i] + m.Weights[i]
	}

	// The kinds and shares that have a cost at this size. What a run takes beyond the weights of the whole model is
	// counted in every stage.
	for k := range p.Pools {
		if p.Pools[k].Count <= 0 {
			continue
		}
		for v := 1; v <= p.Pools[k].MaxShares && v <= len(m.ShareCosts[k]); v++ {
			c := m.ShareCosts[k][v-1].CostAt(batch)
			if c == nil {
				continue
			}
			option := DeviceOption{Pool: k, Share: v, MaxTimes: c.rangeTimes(), Memory: max(c.Memory-s.WeightsBefore[n], 0)}
			// Median and mean differ from the largest time if the size lies between measured ones, or means are known.
			if e := m.ShareCosts[k][v-1].ExpectedTimes(batch); e.nextBelow != nil || c.MeanFactor > 0 {
				option.Expected = e
			}
			s.Choices = append(s.Choices, option)
		}
	}
	s.MinTimeToEnd = s.minTimesToEnd()
	return s
}

// minTimesToEnd returns, by block, the least time that stages from that block to the end of the model take, over all
// cuts and devices, without transfers. The enumeration of templates prunes with it. A choice has times for all ranges of
// blocks, so every block has such a time; without any choice, the times are -1.
func (s *CostTable) minTimesToEnd() []time.Duration {
	n := s.Model.NumBlocks()
	toEnd := slices.Repeat([]time.Duration{-1}, n+1) // -1 stands for a time that is not known yet
	toEnd[n] = 0

	// Go from the last block to the first: the times behind block i are known then. The best stage from i ends at the
	// block j with the least time(i, j) + toEnd[j]. If the times of a choice have ends, time(i, j) = ends[j] - starts[i]
	// (see RangeTimes), so the best j depends on i only by which blocks are behind it. bestEnd[k] keeps the least
	// ends[j] + toEnd[j] of those. For other choices every end is tried.
	bestEnd := make([]time.Duration, len(s.Choices))
	for i := n - 1; i >= 0; i-- {
		for k := range s.Choices {
			t := &s.Choices[k].MaxTimes
			var shortest time.Duration // over the ways that begin with this choice
			if t.ends == nil {
				shortest = t.minTimeToEnd(i, toEnd)
			} else {
				if d := t.ends[i+1] + toEnd[i+1]; i == n-1 || d < bestEnd[k] {
					bestEnd[k] = d
				}
				shortest = bestEnd[k] - t.starts[i]
			}
			if toEnd[i] < 0 || shortest < toEnd[i] {
				toEnd[i] = shortest
			}
		}
	}
	return toEnd
}

// minTimeToEnd returns the least time from firstBlock to the end of the model if the next stage runs where ranges have
// the times t. toEnd[j] is the least time from block j to the end, for the blocks behind firstBlock.
func (t *RangeTimes) minTimeToEnd(firstBlock int, toEnd []time.Duration) time.Duration {
	shortest := t.Time(firstBlock, firstBlock+1) + toEnd[firstBlock+1]
	for endBlock := firstBlock + 2; endBlock < len(toEnd); endBlock++ {
		shortest = min(shortest, t.Time(firstBlock, endBlock)+toEnd[endBlock])
	}
	return shortest
}

// extend adds to the stages so far, in turn, every stage that can start at firstBlock on any device kind and share, and
// goes on to complete templates behind each. elapsed is the time of the stages so far with their transfers. It returns
// the first error of visit, which ends the walk.
func (w *templateWalker) extend(firstBlock int, elapsed time.Duration) error {
	for i := range w.costs.Choices {
		if err := w.extendOn(&w.costs.Choices[i], firstBlock, elapsed); err != nil {
			return err
		}
	}
	return nil
}

// extendOn does the work of extend for one device kind and share: it adds each stage from firstBlock to any later block
// that keeps the time budget and fits in memory, walks on behind it, and removes it again. Stages that do not fit in
// memory are counted in tooBig.
func (w *templateWalker) extendOn(option *DeviceOption, firstBlock int, elapsed time.Duration) error {
	n := w.costs.Model.NumBlocks()
	pool := &w.costs.Problem.Pools[option.Pool]
	if pool.WholeModelsOnly && firstBlock > 0 {
		return nil
	}

	// Add the transfer from the previous stage. It is noted there, because it belongs to the cut behind that stage.
	if len(w.stages) > 0 {
		previous := &w.stages[len(w.stages)-1]
		previous.TransferTime = w.costs.Problem.TransferTime(previous.Pool, option.Pool, w.costs.Model.CutBytes[firstBlock-1], w.costs.Batch)
		elapsed += previous.TransferTime
	}

	// The last allowed stage must reach the end of the model.
	endBlock := firstBlock + 1
	if len(w.stages) == w.costs.Problem.MaxPartitions-1 || pool.WholeModelsOnly {
		endBlock = n
	}
	for ; endBlock <= n; endBlock++ {
		// The stage and the least time of the rest must fit into the budget. If the stage alone exceeds it, and longer
		// ranges take no less time, no longer stage fits either.
		infer := option.MaxTimes.Time(firstBlock, endBlock)
		if elapsed+infer+w.costs.MinTimeToEnd[endBlock] > w.costs.Budget {
			if elapsed+infer > w.costs.Budget && option.IsMonotone() {
				break
			}
			continue
		}
		// Two stages one after the other on a time-shared pool run on the same devices, so the cut is of no use if one
		// stage in place of both is as fast.
		if pool.TimeShared && w.isExtraHop(option, firstBlock, endBlock, infer) {
			continue
		}
		// Negative bytes forbid a cut.
		if endBlock < n && w.costs.Model.CutBytes[endBlock-1] < 0 {
			continue
		}

		// The stage must fit in its part of a device's memory, 1/Share of it: its weights, what a run takes beside weights
		// (option.Memory) and, on a time-shared pool, where every device holds all stages, the stages before it there.
		memory := w.costs.WeightsBefore[endBlock] - w.costs.WeightsBefore[firstBlock] + option.Memory
		if pool.Memory > 0 && memory+w.memoryOnPool(option.Pool) > pool.Memory/int64(option.Share) {
			w.tooBig++
			continue
		}

		// Go on behind the stage.
		w.stages = append(w.stages, Stage{
			FirstBlock: firstBlock, EndBlock: endBlock, Pool: option.Pool, Share: option.Share,
			MaxTime: infer, MeanTime: option.MeanTime(firstBlock, endBlock), Memory: memory,
		})
		if endBlock == n {
			if err := w.emit(elapsed + infer); err != nil {
				return err
			}
		} else if err := w.extend(endBlock, elapsed+infer); err != nil {
			return err
		}
		w.stages = w.stages[:len(w.stages)-1]
	}
	return nil
}

// isExtraHop reports whether a stage of blocks firstBlock to endBlock-1, which takes the time infer, would follow a stage
// on the same time-shared pool, though one stage in place of both would be no slower, at most and on average. Such
// templates are left out.
func (w *templateWalker) isExtraHop(option *DeviceOption, firstBlock, endBlock int, infer time.Duration) bool {
	if len(w.stages) == 0 {
		return false
	}
	previous := &w.stages[len(w.stages)-1]
	return previous.Pool == option.Pool && option.MaxTimes.Time(previous.FirstBlock, endBlock) <= previous.MaxTime+infer &&
		option.MeanTime(previous.FirstBlock, endBlock) <= previous.MeanTime+option.MeanTime(firstBlock, endBlock)
}

// memoryOnPool returns the bytes that the stages of the template so far take on every device of a time-shared pool, each of
// which holds all of them. On other pools stages have devices or shares of their own, and it returns 0.
func (w *templateWalker) memoryOnPool(pool int) int64 {
	if !w.costs.Problem.Pools[pool].TimeShared {
		return 0
	}
	var sum int64
	for i := range w.stages {
		if w.stages[i].Pool == pool {
			sum += w.stages[i].Memory
		}
	}
	return sum
}

// emit computes the rates of the stages chosen so far, which cover the model, and passes them as a template to visit.
// latency is the time of a batch through all of them, with transfers.
func (w *templateWalker) emit(latency time.Duration) error {
	w.template = Template{Model: w.costs.ModelIndex, Batch: w.costs.Batch, Latency: latency, Stages: w.stages}
	for i := range w.stages {
		w.stages[i].Rate = w.costs.Problem.StageRate(&w.template, i)
	}
	return w.visit(&w.template)
}

// VisitTemplates calls visit with each template of a model that keeps its SLO and fits in memory, in a fixed
// order, until visit returns an error. A template is a batch size and a way to cut the model into stages on
// devices. Templates are left out in which two consecutive stages on one time-shared pool are no faster than one stage in
// place of both. visit must copy the template, because the next one overwrites it. tooBig counts the stages that do not
// fit in memory.
func (p *Problem) VisitTemplates(model int, visit func(*Template) error) (tooBig int, err error) {
	m := &p.Models[model]
	for _, b := range m.BatchSizes() {
		w := templateWalker{costs: p.NewCostTable(model, b, m.Budget(b)), visit: visit}
		if w.costs.Budget <= 0 || len(w.costs.Choices) == 0 {
			continue
		}
		if err := w.extend(0, 0); err != nil {
			return 0, err
		}
		tooBig += w.tooBig
	}
	return tooBig, nil
}

// ListTemplates returns the templates (ways to run a model in stages on devices) that VisitTemplates visits, and
// how many stages did not fit in memory. More than MaxTemplates are an error.
func (p *Problem) ListTemplates(model int) (list []Template, tooBig int, err error) {
	tooBig, err = p.VisitTemplates(model, func(t *Template) error {
		if len(list) >= MaxTemplates {
			return fmt.Errorf("%w: model %s has more than %d", ErrTooManyTemplates, p.Models[model].Name, MaxTemplates)
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

// forever is a time budget that every template keeps.
const forever = time.Duration(1) << 60

// MinLatency returns the least time in which a batch of the given size can pass through a model, with transfers, in any
// stages that fit the devices' memory, whatever the SLO. If no stages fit, it returns false. It serves to say which SLO
// would be long enough when there is no plan.
func (p *Problem) MinLatency(model, batch int) (time.Duration, bool) {
	fastest := forever
	w := templateWalker{costs: p.NewCostTable(model, batch, forever), visit: func(t *Template) error {
		fastest = t.Latency
		return errFoundFaster
	}}
	if len(w.costs.Choices) == 0 {
		return 0, false
	}
	// Each round walks to the first template that is faster than the best so far: visit notes it and ends the walk with
	// an error. A walk without an error found none.
	for {
		w.stages, w.costs.Budget = w.stages[:0], fastest-1
		if w.extend(0, 0) == nil {
			return fastest, fastest < forever
		}
	}
}

// memoryPerDevice returns the bytes of memory that each device must have for a template, at least 1. A stage on a share
// 1/v of a device needs v times its own bytes, because the device's memory is divided as the device is. On a
// time-shared pool every device holds all stages of the template there.
func (p *Problem) memoryPerDevice(t *Template) int64 {
	var maxMemory int64 = 1
	for i := range t.Stages {
		s := &t.Stages[i]
		memory := s.Memory * int64(s.Share)
		if p.Pools[s.Pool].TimeShared {
			for j := range i {
				if o := &t.Stages[j]; o.Pool == s.Pool {
					memory += o.Memory
				}
			}
		}
		maxMemory = max(maxMemory, memory)
	}
	return maxMemory
}

// MinMemory returns the least bytes of memory per device with which some template of a model (a way to run it in stages)
// fits, whatever the SLO and the present memory of the devices. It serves to say how much memory would be enough when
// there is no plan. If there is no template at all, or every batch size has too many to list, it returns 0.
func (p *Problem) MinMemory(model int) int64 {
	unlimited := *p
	unlimited.Pools = slices.Clone(p.Pools)
	for k := range unlimited.Pools {
		unlimited.Pools[k].Memory = 0 // no limit
	}
	var minMemory int64

	// The least over the batch sizes whose templates can be listed.
	for _, b := range p.Models[model].BatchSizes() {
		var minAtBatch int64
		count := 0
		w := templateWalker{costs: unlimited.NewCostTable(model, b, forever), visit: func(t *Template) error {
			if count++; count > MaxTemplates {
				return ErrTooManyTemplates
			}
			if memory := p.memoryPerDevice(t); minAtBatch == 0 || memory < minAtBatch {
				minAtBatch = memory
			}
			return nil
		}}
		// Walk through all templates, from the first block on and at time 0. A walk with an error found too many.
		if len(w.costs.Choices) == 0 || w.extend(0, 0) != nil {
			continue
		}
		if minAtBatch > 0 && (minMemory == 0 || minAtBatch < minMemory) {
			minMemory = minAtBatch
		}
	}
	return minMemory
}
