package pool

import (
	"context"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// A plan is re-planned after the cluster, the mix of models or the profile changed a little. A device that
// already holds the blocks that the new plan wants there keeps them. A device that must load something moves.
// The new plan is the best one that moves no more devices than asked, and of those that are good enough one that
// moves few.

// RunningPlan is the plan that runs.
type Running struct {
	Pipelines []RunningPipeline
	MaxMoved  float64 // part of the devices that may have to load something
}

// RunningPipeline is a pipeline that runs. Its network need not be a model of the problem.
type RunningPipeline struct {
	Network string
	Model   int // -1 if it is no longer planned for
	Batch   int
	Stages  []RunningStage
}

// RunningStage is a stage that runs.
type RunningStage struct {
	First, Last, Share int
	Pool               int   // -1 if it is no longer in the cluster
	Placed             []Run // devices beyond the pool's count are gone
}

// replanState holds what a search knows of the plan that runs.
type staying struct {
	*catalogue
	held  held
	total map[content]int   // by content, on all devices that are still there
	own   []map[content]int // by model: the replicas of its own pipelines
	most  float64           // devices that may move
	list  []count           // that may stay, with the replicas that are still there

	ids    []content
	number map[content]int
	of     [][]int // by template and stage: ids of contents, computed on demand

	tries int // searches made so far for a plan that moves no more than asked
}

// heldContents returns what the devices hold. Without a plan that runs it returns nil.
func (s *staying) holds() held {
	if s == nil {
		return nil
	}
	return s.held
}

// newReplanState reads the plan that runs. add is called with the template of each pipeline that still keeps its
// SLO, and returns its index.
func (p *Problem) whatRuns(r *Running, add func(*stages.Template) int) *staying {
	s := &staying{held: p.nothingHeld(), total: map[content]int{}, number: map[content]int{}, most: r.MaxMoved * float64(p.devices())}
	for range p.Models {
		s.own = append(s.own, map[content]int{})
	}

	// Put every pipeline on the devices, as far as they are still there.
	for i := range r.Pipelines {
		pl := &r.Pipelines[i]
		given := Given{Model: pl.Model, Batch: pl.Batch}
		here := pl.Model >= 0
		var left []int
		for _, st := range pl.Stages {
			if st.Pool < 0 || p.Pools[st.Pool].Time {
				here = false
				continue
			}
			n := 0
			key := content{pl.Network, st.First, st.Last, st.Pool, st.Share}
			for _, run := range st.Placed {
				n += s.held.put(key, run)
			}
			s.total[key] += n
			if pl.Model >= 0 {
				s.own[pl.Model][key] += n
			}
			left = append(left, n)
			given.Stages = append(given.Stages, GivenStage{First: st.First, Last: st.Last, Pool: st.Pool, Share: st.Share, Replicas: max(n, 1)})
		}
		if !here || slices.Contains(left, 0) {
			continue
		}
		// A pipeline of another planner, or made under another SLO, may not keep the limits any more.
		if t, err := p.template(&given); err == nil && p.fitsMemory(t) {
			s.list = append(s.list, count{template: add(t), model: t.Model, replicas: left})
		}
	}
	return s
}

// fitsMemory computes the memory that the replicas of t need, and reports whether it fits.
func (p *Problem) fitsMemory(t *stages.Template) bool {
	m := &p.Models[t.Model]
	whole := m.WeightBytes(0, m.NumBlocks())
	for i := range t.Stages {
		s := &t.Stages[i]
		s.Need = m.WeightBytes(s.First, s.Last) + max(m.Costs[s.Pool][s.Share-1].At(t.Batch).Memory-whole, 0)
		if most := p.Pools[s.Pool].Memory; most > 0 && s.Need > most/int64(s.Share) {
			return false
		}
	}
	return true
}

// movedDevices returns how many devices, in parts, a plan has to load at least.
func (s *staying) moved(list []count) float64 { return s.beyond(list, s.total) }

// devicesBeyond returns the devices, in parts, that replicas take beyond the given replicas that run.
func (s *staying) beyond(list []count, run map[content]int) float64 {
	var buf [16]struct{ id, n int }
	sums := buf[:0]

	// Add up the replicas of each content.
	for _, n := range list {
		for si, id := range s.contents(n.template) {
			i := slices.IndexFunc(sums, func(s struct{ id, n int }) bool { return s.id == id })
			if i < 0 {
				i = len(sums)
				sums = append(sums, struct{ id, n int }{id: id})
			}
			sums[i].n += n.replicas[si]
		}
	}
	sum := 0.0
	for _, u := range sums {
		key := s.ids[u.id]
		sum += float64(max(u.n-run[key], 0)) / float64(key.share)
	}
	return sum
}

// contentIDs returns the ids of what the stages of a template hold.
func (s *staying) contents(template int) []int {
	for len(s.of) <= template {
		s.of = append(s.of, nil)
	}
	if s.of[template] == nil {
		t := &s.templates[template]
		for si := range t.Stages {
			key := s.content(t, si)
			id, ok := s.number[key]
			if !ok {
				id = len(s.ids)
				s.number[key], s.ids = id, append(s.ids, key)
			}
			s.of[template] = append(s.of[template], id)
		}
	}
	return s.of[template]
}

// allowsMoves reports whether a plan moves no more devices than asked. Without a plan that runs it is true.
func (s *staying) allows(plan *counts) bool { return s == nil || s.moved(plan.list) <= s.most+1e-9 }

// countLoading returns how many devices have to load something for an outcome's pipelines.
func (s *staying) loads(list []Pipeline) int {
	want := s.nothingHeld()
	for i := range list {
		pl := &list[i]
		for si := range pl.Stages {
			if !s.Pools[pl.Stages[si].Pool].Time {
				for _, run := range pl.Placed[si] {
					want.put(s.content(&pl.Template, si), run)
				}
			}
		}
	}
	return s.held.short(want)
}

// newContent counts the replicas of a content beyond those that run.
type newContent struct {
	v     milp.Var // the replicas beyond
	parts []milp.Var
	held  int
}

// limitMoves adds to a program the devices that move, and limits them to maxMoved.
// The replicas of each content.
func (q *program) limitMoves(stay *staying, most float64) {
	sum := map[content][]milp.Var{}
	var order []content
	for i, ti := range q.set {
		t := &q.templates[ti]
		for si, v := range q.g[i] {
			key := q.content(t, si)
			if _, ok := sum[key]; !ok {
				order = append(order, key)
			}
			sum[key] = append(sum[key], v)
		}
	}

	// moved >= Σ max(replicas - running, 0) / share.
	q.stay, q.moved = stay, q.m.AddVar("moved", 0, most, 0)
	total := q.m.AddLE("moves", 0, milp.Term{Var: q.moved, Coef: -1})
	for _, key := range order {
		part := 1 / float64(key.share)
		held := stay.total[key]
		if held == 0 {
			for _, v := range sum[key] {
				q.m.AddTerm(total, v, part)
			}
			continue
		}
		v := q.m.AddVar("", 0, milp.Inf, 0)
		row := q.m.AddLE("", float64(held), milp.Term{Var: v, Coef: -1})
		for _, g := range sum[key] {
			q.m.AddTerm(row, g, 1)
		}
		q.m.AddTerm(total, v, part)
		q.news = append(q.news, newContent{v, sum[key], held})
	}
}

// readRunning reads the plan that runs. Templates of it that the catalogue lacks join it.
func (x *search) remember() {
	if x.o.Running == nil || x.timed() {
		return
	}
	known := make(map[string]int, len(x.templates))
	for i := range x.templates {
		known[x.templates[i].Key()] = i
	}
	x.stay = x.whatRuns(x.o.Running, func(t *stages.Template) int {
		i, ok := known[t.Key()]
		if !ok {
			i = len(x.templates)
			x.templates, known[t.Key()] = append(x.templates, *t), i
		}
		return i
	})
	x.stay.catalogue = x.catalogue
}

// moveNodes bounds the branch-and-bound nodes of the program for the fewest moves.
const moveNodes = 100

// moveTries bounds the searches for a plan that keeps the limit on moves in whole devices. Shares of devices may
// keep the limit while the whole devices that hold them do not.
const moveTries = 3

// movedTooMuch reports whether a finished plan moved more devices than asked and another search for one that
// moves less is worth it. If so, it prepares that search.
func (x *search) movedTooMuch(ctx context.Context, moved int) bool {
	if x.stay == nil || ctx.Err() != nil {
		return false
	}
	over := float64(moved) - x.o.Running.MaxMoved*float64(x.devices())
	if x.stay.tries++; over <= 1e-9 || x.stay.tries == moveTries || x.stay.most == 0 {
		return false
	}
	x.stay.most = max(x.stay.most-over, 0)
	x.best = nil
	return true
}
