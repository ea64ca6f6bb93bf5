package pool

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
func (p *Problem) kept(t *Template, s *Stage) (kept, bool) {
	if pool := &p.Pools[s.Pool]; !pool.Time || !pool.OneCopy {
		return kept{}, false
	}
	return kept{p.Models[t.Model].network(), s.Pool, s.First, s.Last}, true
}

// weightBytes is the bytes of the weights of a stage's blocks.
func (p *Problem) weightBytes(t *Template, s *Stage) int64 {
	var sum int64
	for _, w := range p.Models[t.Model].Weights[s.First:s.Last] {
		sum += w
	}
	return sum
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
func (r *resident) add(t *Template) {
	for i := range t.Stages {
		s := &t.Stages[i]
		if pool := &r.p.Pools[s.Pool]; !pool.Time || pool.Memory <= 0 {
			continue
		}
		r.bytes[s.Pool] += s.Need
		if key, ok := r.p.kept(t, s); ok {
			if r.once[key] {
				r.bytes[s.Pool] -= r.p.weightBytes(t, s)
			}
			r.once[key] = true
		}
	}
}
