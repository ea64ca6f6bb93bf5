package pool

import "inferplan/planner/stages"

// Memory of time-shared pools, where every device holds the stages of all
// pipelines that are placed there. A worker on a CPU loads the same blocks once
// for all its stages (SLO classes of a model, pipelines at several batch sizes):
// their weights count once, what else a stage needs counts for each. On a GPU
// every batch size has a session of its own, and each stage counts whole.

// kept is what a device of a time-shared pool holds once.
type kept struct {
	network     string
	pool        int
	first, last int
}

// kept of a stage; false where its weights are its own.
func (p *Problem) kept(t *stages.Template, s *stages.Stage) (kept, bool) {
	if pool := &p.Pools[s.Pool]; !pool.Time || !pool.OneCopy {
		return kept{}, false
	}
	return kept{p.Models[t.Model].NetworkName(), s.Pool, s.First, s.Last}, true
}

// resident adds up what every device of each time-shared pool holds.
type resident struct {
	p     *Problem
	bytes []int64 // per pool
	once  map[kept]bool
}

func (p *Problem) resident() *resident {
	return &resident{p: p, bytes: make([]int64, len(p.Pools)), once: map[kept]bool{}}
}

// add puts the stages of a template on the devices.
func (r *resident) add(t *stages.Template) {
	for i := range t.Stages {
		s := &t.Stages[i]
		if pool := &r.p.Pools[s.Pool]; !pool.Time || pool.Memory <= 0 {
			continue
		}
		r.bytes[s.Pool] += s.Need
		if key, ok := r.p.kept(t, s); ok {
			if r.once[key] {
				r.bytes[s.Pool] -= r.p.Models[t.Model].WeightBytes(s.First, s.Last)
			}
			r.once[key] = true
		}
	}
}

// tightMemory tells, per time-shared pool, whether the templates of the set
// could together need more memory than a device has.
func (c *catalogue) tightMemory(set []int) []bool {
	r := c.resident()
	for _, ti := range set {
		r.add(&c.templates[ti])
	}
	out := make([]bool, len(c.Pools))
	for k := range c.Pools {
		out[k] = c.Pools[k].Memory > 0 && r.bytes[k] > c.Pools[k].Memory
	}
	return out
}
