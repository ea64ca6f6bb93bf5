package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// A templateTable lists every template of one model in little memory, so that pricing is one look at each. It
// also serves covers, which price whole replicas of every template. Column generation alone does not.

// templateTable holds all templates of one model in compact form, ordered by batch size.
type templateTable struct {
	model, maxStages int // maxStages: rows of each template in stageRows
	stageRows        []compactStage
	batchStarts      []batchStart
}

// compactStage is a stage of a template. Templates of fewer stages than maxStages end with zero values.
type compactStage struct {
	devicesPerRPS float64 // devices of the pool that one request/s takes
	lastBlock     uint32
	pool, share   uint16
}

// batchStart says that templates from index firstTemplate on have the given batch size.
type batchStart struct{ batch, firstTemplate int }

// newTemplateTable lists the templates of a model. tooBig counts stages left out for lack of memory.
func newTemplateTable(p *problem.Problem, model int) (s *templateTable, tooBig int, err error) {
	s = &templateTable{model: model, maxStages: p.MaxPartitions}
	tooBig, err = p.VisitTemplates(model, func(t *stages.Template) error { s.add(t); return nil })
	return s, tooBig, err
}

// add appends a template to the table, which keeps a short record of each stage only. Templates of one batch
// size must come one after another, because the table notes where each size starts.
func (s *templateTable) add(t *stages.Template) {
	if n := len(s.batchStarts); n == 0 || s.batchStarts[n-1].batch != t.Batch {
		s.batchStarts = append(s.batchStarts, batchStart{t.Batch, s.len()})
	}
	for i := range s.maxStages {
		// Stages that the template lacks stay zero: their share of 0 ends it.
		var compact compactStage
		if i < len(t.Stages) {
			stage := &t.Stages[i]
			compact = compactStage{1 / (float64(stage.Share) * stage.Rate), uint32(stage.EndBlock), uint16(stage.Pool), uint16(stage.Share)}
		}
		s.stageRows = append(s.stageRows, compact)
	}
}

// len returns the number of templates in the table.
func (s *templateTable) len() int { return len(s.stageRows) / s.maxStages }

// stagesOf returns the stages of template i, maxStages of them.
func (s *templateTable) stagesOf(i int) []compactStage {
	return s.stageRows[i*s.maxStages : (i+1)*s.maxStages]
}

// batchOf returns the batch size of template i.
func (s *templateTable) batchOf(i int) int {
	size := 0
	for _, start := range s.batchStarts {
		if start.firstTemplate <= i {
			size = start.batch
		}
	}
	return size
}

// cheapestByBatch returns, for each batch size, the index of the template that costs least per request/s, and
// that cost, at given prices of a device of each pool.
func (s *templateTable) cheapestByBatch(devicePrices []float64) (indexes []int, costs []float64) {
	for batch, start := range s.batchStarts {
		end := s.len()
		if batch+1 < len(s.batchStarts) {
			end = s.batchStarts[batch+1].firstTemplate
		}
		cheapest, minCost := -1, math.Inf(1)
		for i := start.firstTemplate; i < end; i++ {
			if cost := s.costPerRPS(i, devicePrices); cost < minCost {
				cheapest, minCost = i, cost
			}
		}
		indexes, costs = append(indexes, cheapest), append(costs, minCost)
	}
	return indexes, costs
}

// costPerRPS returns what template i costs for one request/s at given prices of a device of each pool.
func (s *templateTable) costPerRPS(i int, devicePrices []float64) (sum float64) {
	for _, stage := range s.stagesOf(i) {
		sum += devicePrices[stage.pool] * stage.devicesPerRPS
	}
	return sum
}

// cheapestTemplates returns the n templates that cost least per request/s at given prices of a device of each
// pool, the cheapest first.
func (s *templateTable) cheapestTemplates(devicePrices []float64, n int) []int {
	type priced struct {
		unitCost float64
		index    int
	}

	// Keep at most 2n candidates: when the list is full, sort it and cut it to the n cheapest.
	var candidates []priced
	limit := math.Inf(1)
	keepCheapest := func() {
		slices.SortFunc(candidates, func(a, b priced) int { return cmp.Or(cmp.Compare(a.unitCost, b.unitCost), a.index-b.index) })
		if len(candidates) > n {
			candidates = candidates[:n]
			limit = candidates[n-1].unitCost
		}
	}
	for i := range s.len() {
		if cost := s.costPerRPS(i, devicePrices); cost < limit {
			if candidates = append(candidates, priced{cost, i}); len(candidates) == 2*n {
				keepCheapest()
			}
		}
	}
	keepCheapest()
	indexes := make([]int, len(candidates))
	for k := range candidates {
		indexes[k] = candidates[k].index
	}
	return indexes
}

// buildTemplate returns template i in full, with times, rates and memory computed from its short record.
func (s *templateTable) buildTemplate(p *problem.Problem, i int) (*stages.Template, error) {
	t := &stages.Template{Model: s.model, Batch: s.batchOf(i)}
	firstBlock := 0
	for _, stage := range s.stagesOf(i) {
		if stage.share == 0 {
			break
		}
		t.Stages = append(t.Stages, stages.Stage{FirstBlock: firstBlock, EndBlock: int(stage.lastBlock), Pool: int(stage.pool), Share: int(stage.share)})
		firstBlock = int(stage.lastBlock)
	}
	if err := completeTemplate(p, t); err != nil {
		return nil, fmt.Errorf("a pipeline that was listed: %w", err)
	}
	return t, nil
}
