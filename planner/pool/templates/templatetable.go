package templates

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/lists"
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

// Add appends a template to the table, which keeps a short record of each stage only: its last block, pool, share, and
// the devices that one request/s takes. Templates of one batch size must come one after another, because the table
// notes only where each size starts. NewTable calls it for every template of the model.
func (s *Table) Add(t *stages.Template) {
	if n := len(s.batchStarts); n == 0 || s.batchStarts[n-1].batch != t.Batch {
		s.batchStarts = append(s.batchStarts, batchStart{t.Batch, s.Len()})
	}

	// MaxStages rows for each template, so that its rows are found by its index.
	for i := range s.MaxStages {
		// Rows beyond the template's stages stay zero: a share of 0, which no stage has, marks them.
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

// StagesOf returns the short records of the stages of template i, without the zero rows that fill its places in the
// table up to MaxStages.
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

// batchOf returns the batch size of template i: that of the last start at or before it.
func (s *Table) batchOf(i int) int {
	size := 0
	for _, start := range s.batchStarts {
		if start.firstTemplate <= i {
			size = start.batch
		}
	}
	return size
}

// CheapestByBatch returns, for each batch size in the order of the table, the index in the table of the template whose
// devices cost least per request/s, and that cost. devicePrices has, by pool, the price of one device. Column
// generation calls it with each round's prices, to find templates that would improve its program.
func (s *Table) CheapestByBatch(devicePrices []float64) (indexes []int, costs []float64) {
	for sizeIndex, start := range s.batchStarts {
		end := s.Len() // the templates of the size are those from start.firstTemplate up to end
		if sizeIndex+1 < len(s.batchStarts) {
			end = s.batchStarts[sizeIndex+1].firstTemplate
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

// CostPerRPS returns the price of the devices that template i of the table takes for one request/s, with replicas in
// fractions. devicePrices has, by pool, the price of one device.
func (s *Table) CostPerRPS(i int, devicePrices []float64) (sum float64) {
	for _, stage := range s.stageRows[i*s.MaxStages : (i+1)*s.MaxStages] { // absent stages cost nothing
		sum += devicePrices[stage.Pool] * stage.DevicesPerRPS
	}
	return sum
}

// CheapestTemplates returns the indexes in the table of the n templates whose devices cost least per request/s, the
// cheapest first (all of them, if there are fewer). devicePrices has, by pool, the price of one device.
func (s *Table) CheapestTemplates(devicePrices []float64, n int) []int {
	type pricedTemplate struct {
		unitCost float64
		index    int
	}

	// Keep at most 2n candidates: when the list is full, sort it and cut it to the n cheapest. From then on only a
	// template that costs less than the dearest of them (limit) may still be among the n.
	var candidates []pricedTemplate
	limit := math.Inf(1)
	keepCheapest := func() {
		slices.SortFunc(candidates, func(a, b pricedTemplate) int { return cmp.Or(cmp.Compare(a.unitCost, b.unitCost), a.index-b.index) })
		if len(candidates) > n {
			candidates = candidates[:n]
			limit = candidates[n-1].unitCost
		}
	}
	for i := range s.Len() {
		if cost := s.CostPerRPS(i, devicePrices); cost < limit {
			candidates = append(candidates, pricedTemplate{cost, i})
			if len(candidates) == 2*n {
				keepCheapest()
			}
		}
	}
	keepCheapest()
	return lists.Filled(len(candidates), func(k int) int { return candidates[k].index })
}

// Build returns template i of the table in full: its stages from their short records, and their times, rates and memory
// from the measurements of the problem. An error means that the table is not of this problem.
func (s *Table) Build(p *problem.Problem, i int) (*stages.Template, error) {
	t := &stages.Template{Model: s.Model, Batch: s.batchOf(i)}
	firstBlock := 0 // a record has only the end of a stage, at which the next one begins
	for _, stage := range s.StagesOf(i) {
		t.Stages = append(t.Stages, stages.Stage{FirstBlock: firstBlock, EndBlock: int(stage.lastBlock), Pool: int(stage.Pool), Share: int(stage.Share)})
		firstBlock = int(stage.lastBlock)
	}
	if err := Complete(p, t); err != nil {
		return nil, fmt.Errorf("a pipeline that was listed: %w", err)
	}
	return t, nil
}
