package pool

import "inferplan/planner/stages"

// On a time-shared pool every device holds the stages of all pipelines that are placed there. A worker on a CPU
// loads equal blocks once for all its stages (SLO classes of a model, pipelines at several batch sizes). Their
// weights count once, and what else a stage needs counts for each. On a GPU every batch size has a session of
// its own, and each stage counts in full.

// sharedBlocks names blocks whose weights a device of a time-shared pool holds once.
type kept struct {
	network     string
	pool        int
	first, last int
}

// sharedBlocksOf returns the blocks of a stage whose weights are shared. It returns false if the stage has
// weights of its own.
func (p *Problem) kept(t *stages.Template, s *stages.Stage) (kept, bool) {
	if pool := &p.Pools[s.Pool]; !pool.Time || !pool.OneCopy {
		return kept{}, false
	}
	return kept{p.Models[t.Model].NetworkName(), s.Pool, s.First, s.Last}, true
}

// residentMemory adds up the bytes that every device of each time-shared pool holds.
type resident struct {
	p     *Problem
	bytes []int64       // by pool
	once  map[kept]bool // blocks whose weights are counted already
}

// newResidentMemory returns the memory of devices that hold nothing.
func (p *Problem) resident() *resident {
	return &resident{p: p, bytes: make([]int64, len(p.Pools)), once: map[kept]bool{}}
}

// add counts the stages of a template.
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

// tightMemory returns, by pool, whether the templates of the set could together need more memory than a device
// of a time-shared pool has.
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
