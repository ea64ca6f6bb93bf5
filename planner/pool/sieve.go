package pool

import (
	"fmt"
	"math"

	"inferplan/planner/stages"
)

// Where every template of a model can be listed in little memory, pricing is one
// look at each: exact, and quicker than a search for paths. The list also tells what
// whole replicas of any template cost, which column generation does not.

// siftable is how many stage sequences are listed at most.
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
	last        uint16
	pool, share uint8
}

// batchFrom tells from which template on a batch size holds.
type batchFrom struct{ batch, from int }

// sifts tells whether the templates of a problem are put into sieves.
func sifts(p *Problem) bool {
	const most = math.MaxUint8
	if !p.many() || len(p.Pools) > most || p.sequences() > siftable {
		return false
	}
	for d := range p.Models {
		if p.Models[d].NumBlocks() > math.MaxUint16 {
			return false
		}
	}
	for k := range p.Pools {
		if p.Pools[k].MaxShares > most {
			return false
		}
	}
	return true
}

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
			x = part{1 / (float64(at.Share) * at.Rate), uint16(at.Last), uint8(at.Pool), uint8(at.Share)}
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
			sum := 0.0
			for _, x := range s.of(i) {
				sum += perDevice[x.pool] * x.per
			}
			if sum < least {
				best, least = i, sum
			}
		}
		at, cost = append(at, best), append(cost, least)
	}
	return at, cost
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
