package queuetest

import (
	"math"

	"inferplan/policy/vqueue"
)

// SplitMix is the generator splitmix64.
type SplitMix uint64

// Uint64 is the next value.
func (s *SplitMix) Uint64() uint64 {
	*s += 0x9E3779B97F4A7C15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// Float64 is the next value from 0 to less than 1.
func (s *SplitMix) Float64() float64 { return float64(s.Uint64()>>11) / (1 << 53) }

// N is the next value below n.
func (s *SplitMix) N(n int) int { return int(s.Uint64() % uint64(n)) }

const (
	a100 = iota
	a10
)

// seconds per request by kind and by parity of the model; residence and change of
// model in seconds.
var (
	perRequest = [2][2]float64{{0.169, 0.43}, {0.335, math.Inf(1)}}
	residence  = [2][2]float64{{22, 24}, {12, 0}}
	setup      = [2]float64{16, 20}
)

// Instance is a problem of groups on queues for a fleet of A100 and A10 that serves
// a number of models: even ones are Mistral-7B, odd ones Vicuna-13B, which does not
// fit an A10. Load is the work that the groups ask for relative to 450 s of the
// fleet. The problem counts late requests at the means.
func Instance(groups, queues, models int, load float64, seed uint64) *vqueue.Problem {
	rng := SplitMix(seed)
	p := &vqueue.Problem{Kinds: 2, Models: models, Objective: vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4}}
	setups := make([]float64, models)
	for m := range setups {
		setups[m] = setup[m%2]
	}
	fleet := 0.0
	for q := range queues {
		def := vqueue.Queue{Kind: a100, Model: int32(q % models), Setup: setups}
		if q%3 == 2 {
			def.Kind, def.Model = a10, int32(2*(q/3)%models)
			def.Model -= def.Model % 2
			fleet += 0.3
		} else {
			fleet++
		}
		p.Queues = append(p.Queues, def)
	}
	total := 0.0
	for range groups {
		g := vqueue.Group{}
		if rng.Float64() < 0.6 {
			g.Model = int32(rng.N(2))
		} else {
			g.Model = int32(2 + rng.N(models-2))
		}
		g.Size = 16 + 240*rng.Float64()
		deadline := 0.0
		switch u := rng.Float64(); {
		case u < 0.2:
			deadline = 40 + 40*rng.Float64()
		case u < 0.6:
			deadline = 80 + 220*rng.Float64()
		default:
			deadline = 300 + 600*rng.Float64()
		}
		for u := range g.Deadline {
			g.Deadline[u] = deadline
		}
		p.Groups = append(p.Groups, g)
		total += g.Size * perRequest[a100][g.Model%2]
	}
	k := load * 450 * fleet / total
	for i := range p.Groups {
		g := &p.Groups[i]
		g.Size = math.Round(max(1, g.Size*k))
		for kind := range 2 {
			p.Costs = append(p.Costs, vqueue.Cost{Work: g.Size * perRequest[kind][g.Model%2], Residence: residence[kind][g.Model%2]})
		}
	}
	return p
}

// Requests is the number of requests in all groups.
func Requests(p *vqueue.Problem) float64 {
	sum := 0.0
	for i := range p.Groups {
		sum += p.Groups[i].Size
	}
	return sum
}

// Vary gives every group work that varies like the sum of its requests, of which
// each varies by cv relative to its mean.
func Vary(p *vqueue.Problem, cv float64) {
	for i := range p.Groups {
		for k := range p.Kinds {
			if c := p.Cost(int32(i), int32(k)); !math.IsInf(c.Work, 1) {
				c.Variance = cv * cv * c.Work * c.Work / p.Groups[i].Size
			}
		}
	}
}
