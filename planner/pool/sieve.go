package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
)

// A templateTable lists every template of one model in little memory, so that pricing is one look at each. It
// also serves covers, which price whole replicas of every template. Column generation alone does not.

// maxSequences is the largest number of stage sequences of a problem.
const siftable = 4_000_000

// templateTable holds all templates of one model in compact form, ordered by batch size.
type sieve struct {
	model, width int // maxStages: rows of each template in stageRows
	parts        []part
	batches      []batchFrom
}

// compactStage is a stage of a template. Templates of fewer stages than maxStages end with zero values.
type part struct {
	per         float64 // devices of the pool that one request/s takes
	last        uint32
	pool, share uint16
}

// batchStart says that templates from index firstTemplate on have the given batch size.
type batchFrom struct{ batch, from int }

// newTemplateTable lists the templates of a model. tooBig counts stages left out for lack of memory.
func sieveOf(p *Problem, model int) (s *sieve, tooBig int, err error) {
	s = &sieve{model: model, width: p.MaxPartitions}
	tooBig, err = p.Visit(model, func(t *stages.Template) error { s.add(t); return nil })
	return s, tooBig, err
}

// add appends a template. Templates of one batch size come one after another.
func (s *sieve) add(t *stages.Template) {
	if n := len(s.batches); n == 0 || s.batches[n-1].batch != t.Batch {
		s.batches = append(s.batches, batchFrom{t.Batch, s.len()})
	}
	for i := range s.width {
		var x part
		if i < len(t.Stages) {
			at := &t.Stages[i]
			x = part{1 / (float64(at.Share) * at.Rate), uint32(at.Last), uint16(at.Pool), uint16(at.Share)}
		}
		s.parts = append(s.parts, x)
	}
}

func (s *sieve) len() int { return len(s.parts) / s.width }

// stagesOf returns the stages of template i, maxStages of them.
func (s *sieve) of(i int) []part { return s.parts[i*s.width : (i+1)*s.width] }

// batchOf returns the batch size of template i.
func (s *sieve) batch(i int) int {
	b := 0
	for _, at := range s.batches {
		if at.from <= i {
			b = at.batch
		}
	}
	return b
}

// cheapestByBatch returns, for each batch size, the index of the template that costs least per request/s, and
// that cost, at given prices of a device of each pool.
func (s *sieve) cheapest(perDevice []float64) (at []int, cost []float64) {
	for b, from := range s.batches {
		end := s.len()
		if b+1 < len(s.batches) {
			end = s.batches[b+1].from
		}
		best, least := -1, math.Inf(1)
		for i := from.from; i < end; i++ {
			if v := s.cost(i, perDevice); v < least {
				best, least = i, v
			}
		}
		at, cost = append(at, best), append(cost, least)
	}
	return at, cost
}

// costPerRPS returns what template i costs for one request/s at given prices of a device of each pool.
func (s *sieve) cost(i int, perDevice []float64) (sum float64) {
	for _, x := range s.of(i) {
		sum += perDevice[x.pool] * x.per
	}
	return sum
}

// cheapestTemplates returns the n templates that cost least per request/s at given prices of a device of each
// pool, the cheapest first.
func (s *sieve) least(perDevice []float64, n int) []int {
	type priced struct {
		cost float64
		at   int
	}

	// Keep at most 2n candidates: when the list is full, sort it and cut it to the n cheapest.
	var list []priced
	limit := math.Inf(1)
	cut := func() {
		slices.SortFunc(list, func(a, b priced) int { return cmp.Or(cmp.Compare(a.cost, b.cost), a.at-b.at) })
		if len(list) > n {
			list = list[:n]
			limit = list[n-1].cost
		}
	}
	for i := range s.len() {
		if v := s.cost(i, perDevice); v < limit {
			if list = append(list, priced{v, i}); len(list) == 2*n {
				cut()
			}
		}
	}
	cut()
	at := make([]int, len(list))
	for k := range list {
		at[k] = list[k].at
	}
	return at
}

// buildTemplate returns template i in full.
func (s *sieve) template(p *Problem, i int) (*stages.Template, error) {
	g := Given{Model: s.model, Batch: s.batch(i)}
	first := 0
	for _, x := range s.of(i) {
		if x.share == 0 {
			break
		}
		g.Stages = append(g.Stages, GivenStage{First: first, Last: int(x.last), Pool: int(x.pool), Share: int(x.share), Replicas: 1})
		first = int(x.last)
	}
	t, err := p.template(&g)
	if err != nil {
		return nil, fmt.Errorf("a pipeline that was listed: %w", err)
	}
	p.fitsMemory(t) // computes the memory that its stages need
	return t, nil
}
