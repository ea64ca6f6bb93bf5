package pool

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"inferplan/planner/stages"
)

// A sieve lists every template of a model in little memory, so that pricing is one look at
// each. The list also says what whole replicas of any template cost, which column generation
// does not.

// siftable is the most stage sequences that a problem may have.
const siftable = 4_000_000

// sieve holds all templates of a model.
type sieve struct {
	model, width int // width: parts of each template
	parts        []part
	batches      []batchFrom
}

// part is a stage of a template, or nothing where it has fewer.
type part struct {
	per         float64 // devices of the pool that one request/s takes
	last        uint32
	pool, share uint16
}

// batchFrom tells from which template on a batch size holds.
type batchFrom struct{ batch, from int }

// sieveOf lists the templates of a model.
func sieveOf(p *Problem, model int) (s *sieve, tooBig int, err error) {
	s = &sieve{model: model, width: p.MaxPartitions}
	tooBig, err = p.Visit(model, func(t *stages.Template) error { s.add(t); return nil })
	return s, tooBig, err
}

// add puts a template in, after those of its batch size.
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

// of is the parts of a template.
func (s *sieve) of(i int) []part { return s.parts[i*s.width : (i+1)*s.width] }

// batch is the batch size of a template.
func (s *sieve) batch(i int) int {
	b := 0
	for _, at := range s.batches {
		if at.from <= i {
			b = at.batch
		}
	}
	return b
}

// cheapest finds the template of each batch size that takes least at prices of a device
// of each pool, and what it takes.
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

// cost is what a template takes for a request/s at prices of a device of each pool.
func (s *sieve) cost(i int, perDevice []float64) (sum float64) {
	for _, x := range s.of(i) {
		sum += perDevice[x.pool] * x.per
	}
	return sum
}

// least returns the n templates that take least at prices of a device of each pool, by what they take.
func (s *sieve) least(perDevice []float64, n int) []int {
	type priced struct {
		cost float64
		at   int
	}
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

// template makes one of the templates.
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
	p.fitsMemory(t) // notes what it needs
	return t, nil
}
