package templates

import (
	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// On a time-shared pool every device holds the stages of all pipelines that are placed there. A worker on a CPU
// loads equal blocks once for all its stages (SLO classes of a model, pipelines at several batch sizes). Their
// weights count once, and what else a stage needs counts for each. On a GPU every batch size has a session of
// its own, and each stage counts in full.

// SharedBlocks names blocks whose weights a device of a time-shared pool holds once.
type SharedBlocks struct {
	network               string
	pool                  int
	firstBlock, lastBlock int
}

// SharedBlocksOf returns the key under which the weights of stage s of template t are shared with other stages: its
// network, pool and blocks. It returns false if the stage loads weights for itself alone: on an exclusive pool, or
// where each stage has a session of its own.
func SharedBlocksOf(p *problem.Problem, t *stages.Template, s *stages.Stage) (SharedBlocks, bool) {
	if pool := &p.Pools[s.Pool]; !pool.TimeShared || !pool.SharedWeights {
		return SharedBlocks{}, false
	}
	return SharedBlocks{p.Models[t.Model].NetworkName(), s.Pool, s.FirstBlock, s.EndBlock}, true
}

// ResidentMemory adds up the bytes that every device of each time-shared pool holds.
type ResidentMemory struct {
	problem *problem.Problem
	Bytes   []int64               // by pool
	loaded  map[SharedBlocks]bool // blocks whose weights are counted already
}

// NewResidentMemory returns the memory of devices that hold nothing.
func NewResidentMemory(p *problem.Problem) *ResidentMemory {
	return &ResidentMemory{problem: p, Bytes: make([]int64, len(p.Pools)), loaded: map[SharedBlocks]bool{}}
}

// Add counts, in Bytes, the bytes that the stages of a template need on each device of time-shared pools, where every
// stage is loaded on all devices. Stages on exclusive pools, and on pools without a limit of memory, do not count.
// Weights that an earlier stage with the same blocks has loaded, and that both share, do not count again.
func (r *ResidentMemory) Add(t *stages.Template) {
	for i := range t.Stages {
		s := &t.Stages[i]
		if pool := &r.problem.Pools[s.Pool]; !pool.TimeShared || pool.Memory <= 0 {
			continue
		}
		// The memory of a stage holds its weights and the rest that it needs. Take the weights off if they are there.
		r.Bytes[s.Pool] += s.Memory
		if key, ok := SharedBlocksOf(r.problem, t, s); ok {
			if r.loaded[key] {
				r.Bytes[s.Pool] -= r.problem.Models[t.Model].WeightBytes(s.FirstBlock, s.EndBlock)
			}
			r.loaded[key] = true
		}
	}
}

// TightMemory returns, by pool, whether the templates of a set (by their indexes in the catalogue), if all were used
// at once, need more memory than a device of a time-shared pool has. Where they do not, any plan of them fits, and
// programs need no row for memory. It is false for exclusive pools and those without a limit, because ResidentMemory
// counts no bytes there.
func (c *Catalogue) TightMemory(set []int) []bool {
	memory := NewResidentMemory(c.Problem)
	for _, ti := range set {
		memory.Add(&c.Templates[ti])
	}
	return lists.Filled(len(c.Problem.Pools), func(k int) bool { return c.Problem.Pools[k].Memory > 0 && memory.Bytes[k] > c.Problem.Pools[k].Memory })
}
