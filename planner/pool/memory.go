package pool

import (
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// On a time-shared pool every device holds the stages of all pipelines that are placed there. A worker on a CPU
// loads equal blocks once for all its stages (SLO classes of a model, pipelines at several batch sizes). Their
// weights count once, and what else a stage needs counts for each. On a GPU every batch size has a session of
// its own, and each stage counts in full.

// sharedBlocks names blocks whose weights a device of a time-shared pool holds once.
type sharedBlocks struct {
	network               string
	pool                  int
	firstBlock, lastBlock int
}

// sharedBlocksOf returns the blocks of a stage whose weights are shared. It returns false if the stage has
// weights of its own.
func sharedBlocksOf(p *problem.Problem, t *stages.Template, s *stages.Stage) (sharedBlocks, bool) {
	if pool := &p.Pools[s.Pool]; !pool.TimeShared || !pool.SharedWeights {
		return sharedBlocks{}, false
	}
	return sharedBlocks{p.Models[t.Model].NetworkName(), s.Pool, s.FirstBlock, s.EndBlock}, true
}

// residentMemory adds up the bytes that every device of each time-shared pool holds.
type residentMemory struct {
	problem *problem.Problem
	bytes   []int64               // by pool
	loaded  map[sharedBlocks]bool // blocks whose weights are counted already
}

// newResidentMemory returns the memory of devices that hold nothing.
func newResidentMemory(p *problem.Problem) *residentMemory {
	return &residentMemory{problem: p, bytes: make([]int64, len(p.Pools)), loaded: map[sharedBlocks]bool{}}
}

// add counts the bytes that the stages of a template need on each device of time-shared pools, where every
// stage is loaded on all devices. Weights that are loaded already and shared do not count again.
func (r *residentMemory) add(t *stages.Template) {
	for i := range t.Stages {
		s := &t.Stages[i]
		if pool := &r.problem.Pools[s.Pool]; !pool.TimeShared || pool.Memory <= 0 {
			continue
		}
		r.bytes[s.Pool] += s.Memory
		if key, ok := sharedBlocksOf(r.problem, t, s); ok {
			if r.loaded[key] {
				r.bytes[s.Pool] -= r.problem.Models[t.Model].WeightBytes(s.FirstBlock, s.EndBlock)
			}
			r.loaded[key] = true
		}
	}
}

// tightMemory returns, by pool, whether the templates of the set, all together, need more memory than a device
// of a time-shared pool has. Where they do not, programs need no row for memory.
func (c *templateCatalogue) tightMemory(set []int) []bool {
	memory := newResidentMemory(c.problem)
	for _, ti := range set {
		memory.add(&c.templates[ti])
	}
	tight := make([]bool, len(c.problem.Pools))
	for k := range c.problem.Pools {
		tight[k] = c.problem.Pools[k].Memory > 0 && memory.bytes[k] > c.problem.Pools[k].Memory
	}
	return tight
}
