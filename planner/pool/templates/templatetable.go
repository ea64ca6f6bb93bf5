package templates

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// A Table lists every template of one model in little memory, so that pricing is one look at each. It
// also serves covers, which price whole replicas of every template. Column generation alone does not.

// Table holds all templates of one model in compact form, ordered by batch size.
type Table struct {
	Model, MaxStages int // MaxStages: rows of each template in stageRows
	stageRows        []TableStage
	batchStarts      []batchStart
}

// TableStage is a stage of a template. Templates of fewer stages than MaxStages end with zero values.
type TableStage struct {
	DevicesPerRPS float64 // devices of the pool that one request/s takes
	lastBlock     uint32
	Pool, Share   uint16
}

// batchStart says that templates from index firstTemplate on have the given batch size.
type batchStart struct{ batch, firstTemplate int }

// NewTable lists the templates of a model. tooBig counts stages left out for lack of memory.
func NewTable(p *problem.Problem, model int) (s *Table, tooBig int, err error) {
	s = &Table{Model: model, MaxStages: p.MaxPartitions}
	tooBig, err = p.VisitTemplates(model, func(t *stages.Template) error { s.Add(t); return nil })
	return s, tooBig, err
}

// Add appends a template to the table, which keeps a short record of each stage only. Templates of one batch
// size must come one after another, because the table notes where each size starts.
func (s *Table) Add(t *stages.Template) {
	if n := len(s.batchStarts); n == 0 || s.batchStarts[n-1].batch != t.Batch {
		s.batchStarts = append(s.batchStarts, batchStart{t.Batch, s.Len()})
	}
	for i := range s.MaxStages {
		// Stages that the template lacks stay zero: their share of 0 ends it.
		var compact TableStage
		if i < len(t.Stages) {
			stage := &t.Stages[i]
			compact = TableStage{1 / (float64(stage.Share) * stage.Rate), uint32(stage.EndBlock), uint16(stage.Pool), uint16(stage.Share)}
		}
		s.stageRows = append(s.stageRows, compact)
	}
}

// Len returns the number of templates in the table.
func (s *Table) Len() int { return len(s.stageRows) / s.MaxStages }

// StagesOf returns the stages of template i.
func (s *Table) StagesOf(i int) []TableStage {
	rows := s.stageRows[i*s.MaxStages : (i+1)*s.MaxStages]
	for len(rows) > 0 && rows[len(rows)-1].Share == 0 {
		rows = rows[:len(rows)-1]
	}
	return rows
}

// ReplicasFor returns the fewest replicas of the stage that carry a rate in requests/s.
func (s *TableStage) ReplicasFor(rps float64) float64 {
	return math.Ceil(rps*s.DevicesPerRPS*float64(s.Share) - 1e-9)
}

// ReplicaRate returns the requests/s that one replica of the stage carries.
func (s *TableStage) ReplicaRate() float64 { return 1 / (s.DevicesPerRPS * float64(s.Share)) }

// batchOf returns the batch size of template i.
func (s *Table) batchOf(i int) int {
	size := 0
	for _, start := range s.batchStarts {
		if start.firstTemplate <= i {
			size = start.batch
		}
	}
	return size
}

// CheapestByBatch returns, for each batch size, the index of the template that costs least per request/s, and
// that cost, at given prices of a device of each pool.
func (s *Table) CheapestByBatch(devicePrices []float64) (indexes []int, costs []float64) {
	for batch, start := range s.batchStarts {
		end := s.Len()
		if batch+1 < len(s.batchStarts) {
			end = s.batchStarts[batch+1].firstTemplate
		}
		cheapest, minCost := -1, math.Inf(1)
		for i := start.firstTemplate; i < end; i++ {
			if cost := s.CostPerRPS(i, devicePrices); cost < minCost {
				cheapest, minCost = i, cost
			}
		}
		indexes, costs = append(indexes, cheapest), append(costs, minCost)
	}
	return indexes, costs
}

// CostPerRPS returns what template i costs for one request/s at given prices of a device of each pool.
func (s *Table) CostPerRPS(i int, devicePrices []float64) (sum float64) {
	for _, stage := range s.stageRows[i*s.MaxStages : (i+1)*s.MaxStages] { // absent stages cost nothing
		sum += devicePrices[stage.Pool] * stage.DevicesPerRPS
	}
	return sum
}

// CheapestTemplates returns the n templates that cost least per request/s at given prices of a device of each
// pool, the cheapest first.
func (s *Table) CheapestTemplates(devicePrices []float64, n int) []int {
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
	for i := range s.Len() {
		if cost := s.CostPerRPS(i, devicePrices); cost < limit {
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

// Build returns template i in full, with times, rates and memory computed from its short record.
func (s *Table) Build(p *problem.Problem, i int) (*stages.Template, error) {
	t := &stages.Template{Model: s.Model, Batch: s.batchOf(i)}
	firstBlock := 0
	for _, stage := range s.StagesOf(i) {
		t.Stages = append(t.Stages, stages.Stage{FirstBlock: firstBlock, EndBlock: int(stage.lastBlock), Pool: int(stage.Pool), Share: int(stage.Share)})
		firstBlock = int(stage.lastBlock)
	}
	if err := Complete(p, t); err != nil {
		return nil, fmt.Errorf("a pipeline that was listed: %w", err)
	}
	return t, nil
}
