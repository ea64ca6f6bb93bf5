package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Re-planning: a plan runs, and the cluster, the mix or the profile changed a
// little. A device that holds the blocks that the new plan wants there goes on
// as it is; one that must load something moves. The new plan is the best one
// that moves no more than asked, and of those that are good enough one that
// moves little.

// Running is the plan that runs.
type Running struct {
	Pipelines []RunningPipeline
	MaxMoved  float64 // share of the devices that may have to load something
}

// RunningPipeline is a pipeline that runs. Its model may be none of the problem's.
type RunningPipeline struct {
	Network string
	Model   int // -1: not planned for any more
	Batch   int
	Stages  []RunningStage
}

// RunningStage is a stage that runs.
type RunningStage struct {
	First, Last, Share int
	Pool               int   // -1: not in the cluster any more
	Placed             []Run // devices beyond the pool's count are gone
}

// content is what a replica holds in a device.
type content struct {
	network     string
	first, last int
	pool, share int
}

// held is what devices hold: [pool][device][content] replicas.
type held [][]map[content]int

// content of a stage.
func (p *Problem) content(t *stages.Template, si int) content {
	s := &t.Stages[si]
	return content{p.Models[t.Model].NetworkName(), s.First, s.Last, s.Pool, s.Share}
}

// staying is what a search knows of the plan that runs.
type staying struct {
	held  held
	total map[content]int // replicas on all devices that are still there
	most  float64         // devices that may move
	list  []count         // the pipelines that may stay, with the replicas left of them

	ids    []content // numbered
	number map[content]int
	of     [][]int // per template and stage

	running *Running
	tries   int // programs for plans that move no more than asked
}

// devices is what they hold; nil without a plan that runs.
func (s *staying) devices() held {
	if s == nil {
		return nil
	}
	return s.held
}

// stay reads the plan that runs; templates are added to the list where they
// still keep the SLO.
func (p *Problem) stay(r *Running, add func(*stages.Template) int) *staying {
	s := &staying{total: map[content]int{}, number: map[content]int{}, running: r}
	devices := 0
	for k := range p.Pools {
		s.held = append(s.held, make([]map[content]int, p.Pools[k].Count))
		devices += p.Pools[k].Count
	}
	s.most = r.MaxMoved * float64(devices)
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
				for j := range run.Replicas {
					if at := run.First + j/run.PerDevice; at < p.Pools[st.Pool].Count {
						if s.held[st.Pool][at] == nil {
							s.held[st.Pool][at] = map[content]int{}
						}
						s.held[st.Pool][at][key]++
						n++
					}
				}
			}
			s.total[key] += n
			left = append(left, n)
			given.Stages = append(given.Stages, GivenStage{First: st.First, Last: st.Last, Pool: st.Pool, Share: st.Share, Replicas: max(n, 1)})
		}
		if !here || slices.Contains(left, 0) {
			continue
		}
		// What others planned, or under another SLO, may not hold any more.
		if t, err := p.template(&given); err == nil && p.fitsMemory(t) {
			s.list = append(s.list, count{template: add(t), model: t.Model, replicas: left})
		}
	}
	return s
}

// fitsMemory works out what the replicas of t need, and tells whether they fit.
func (p *Problem) fitsMemory(t *stages.Template) bool {
	m := &p.Models[t.Model]
	for i := range t.Stages {
		s := &t.Stages[i]
		var whole int64
		s.Need = 0
		for b, w := range m.Weights {
			whole += w
			if b >= s.First && b < s.Last {
				s.Need += w
			}
		}
		s.Need += max(m.Costs[s.Pool][s.Share-1].At(t.Batch).Memory-whole, 0)
		if most := p.Pools[s.Pool].Memory; most > 0 && s.Need > most/int64(s.Share) {
			return false
		}
	}
	return true
}

// moved is the devices, in parts, that a plan has to load at least.
func (x *search) moved(c *counts) float64 {
	var buf [16]struct{ id, n int }
	sums := buf[:0]
	for _, n := range c.list {
		for si, id := range x.contents(n.template) {
			i := slices.IndexFunc(sums, func(s struct{ id, n int }) bool { return s.id == id })
			if i < 0 {
				i = len(sums)
				sums = append(sums, struct{ id, n int }{id: id})
			}
			sums[i].n += n.replicas[si]
		}
	}
	sum := 0.0
	for _, s := range sums {
		key := x.stay.ids[s.id]
		sum += float64(max(s.n-x.stay.total[key], 0)) / float64(key.share)
	}
	return sum
}

// contents numbers what the stages of a template hold.
func (x *search) contents(template int) []int {
	s := x.stay
	for len(s.of) <= template {
		s.of = append(s.of, nil)
	}
	if s.of[template] == nil {
		t := &x.templates[template]
		for si := range t.Stages {
			key := x.p.content(t, si)
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

// newContent is a count of replicas beyond those that run.
type newContent struct {
	v     milp.Var
	parts []milp.Var
	held  int
}

// limitMoves adds what moves to a program: at most so many devices.
func (x *search) limitMoves(q *mipModel, most float64) {
	sum := map[content][]milp.Var{}
	var order []content
	for i, ti := range q.set {
		t := &x.templates[ti]
		for si, v := range q.g[i] {
			key := x.p.content(t, si)
			if _, ok := sum[key]; !ok {
				order = append(order, key)
			}
			sum[key] = append(sum[key], v)
		}
	}
	q.moved = q.m.AddVar("moved", 0, most, 0)
	total := q.m.AddLE("moves", 0, milp.Term{Var: q.moved, Coef: -1})
	for _, key := range order {
		part := 1 / float64(key.share)
		held := x.stay.total[key]
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

// start is a plan as a point of a program.
func (x *search) start(q *mipModel, plan *counts) []float64 {
	at := q.start(x.p, x.u, x.templates, plan)
	if at == nil || x.stay == nil {
		return at
	}
	for _, n := range q.news {
		sum := -float64(n.held)
		for _, v := range n.parts {
			sum += at[v]
		}
		at[n.v] = max(sum, 0)
	}
	at[q.moved] = x.moved(plan)
	return at
}

// remember reads the plan that runs. Templates of it that were listed under
// another name, or not at all, join.
func (x *search) remember() {
	if x.o.Running == nil || x.timed() {
		return
	}
	known := make(map[string]int, len(x.templates))
	for i := range x.templates {
		known[x.templates[i].Key()] = i
	}
	x.stay = x.p.stay(x.o.Running, func(t *stages.Template) int {
		i, ok := known[t.Key()]
		if !ok {
			i = len(x.templates)
			x.templates, known[t.Key()] = append(x.templates, *t), i
		}
		return i
	})
}

// movesLittle tells whether a plan moves no more than asked.
func (x *search) movesLittle(c *counts) bool {
	return x.stay == nil || x.moved(c) <= x.stay.most+1e-9
}

// moveNodes bounds the program for the fewest moves.
const moveNodes = 100

// moveTries bounds the searches for a plan that keeps the limit in whole
// devices, which shares of them may not.
const moveTries = 3

// movedTooMuch tells, of a finished plan, whether another search for one that
// moves less is worth it, and prepares it.
func (x *search) movedTooMuch(ctx context.Context, moved int) bool {
	if x.stay == nil || ctx.Err() != nil {
		return false
	}
	devices := 0
	for k := range x.p.Pools {
		devices += x.p.Pools[k].Count
	}
	over := float64(moved) - x.o.Running.MaxMoved*float64(devices)
	if x.stay.tries++; over <= 1e-9 || x.stay.tries == moveTries || x.stay.most == 0 {
		return false
	}
	x.stay.most = max(x.stay.most-over, 0)
	x.best = nil
	return true
}

// fewestMoves looks, among the plans that are good enough, for one that moves
// few devices.
func (x *search) fewestMoves(ctx context.Context) error {
	if x.stay == nil || x.many() || ctx.Err() != nil || x.moved(x.best) == 0 {
		return nil
	}
	now := x.moved(x.best)
	enough := min(x.value(), x.bound()*(1-x.o.Gap)) * (1 - 1e-9)
	var best *counts
	set := x.pick(x.ranked(), x.lp.used, x.perModel())
	for _, list := range [][]count{x.best.list, x.stay.list} {
		for _, c := range list {
			set = append(set, c.template)
		}
	}
	slices.Sort(set)
	set = slices.Compact(set)
	q := x.p.mip(x.u, x.templates, set, max(x.inner, enough), enough)
	x.limitMoves(q, now)
	q.m.SetSense(milp.Minimize)
	q.m.SetObj(q.theta, 0)
	q.m.SetObj(q.moved, 1)
	sol, err := x.s.Solve(ctx, q.m, milp.Options{
		AbsGap: 0.5, MaxNodes: moveNodes * int64(x.o.Effort), MaxIterations: moveNodes * iterationsPer * int64(x.o.Effort),
		Seed: x.o.Seed, Start: x.start(q, x.best),
	})
	if err != nil {
		return fmt.Errorf("solving for the fewest devices that move: %w", err)
	}
	if sol.Feasible() {
		best = q.read(x.p, x.u, x.templates, sol)
	}
	if best != nil && best.value >= x.theta(enough)*(1-1e-9) && x.moved(best) < now && x.placeable(best) {
		x.best = best
	}
	x.phase("fewest moves", len(set), sol.Stats)
	return nil
}

// sticky packs a pool so that devices go on with what they hold: first every
// device takes what it holds and is still wanted, then the rest fills empty
// devices and what is free of others. It returns nil where that needs more
// devices than there are, and without a plan that runs.
func (p *Problem) sticky(templates []stages.Template, plan *counts, have held, pool int, keys []slotKey, groups map[slotKey][]piece) []bin {
	if have == nil {
		return nil
	}
	unit := 1
	type want struct {
		piece
		key slotKey
		id  content
	}
	var wants []want
	of := map[content][]int{}
	for _, key := range keys {
		for _, q := range groups[key] {
			id := p.content(&templates[plan.list[q.count].template], q.stage)
			of[id] = append(of[id], len(wants))
			wants = append(wants, want{q, key, id})
			unit = lcm(unit, q.share)
		}
	}
	n := p.Pools[pool].Count
	bins, owner := make([]bin, n), make([]slotKey, n)
	for d := range bins {
		bins[d].free = unit
	}
	put := func(d int, w *want, m int) {
		one := w.piece
		one.n = m
		bins[d].parts = append(bins[d].parts, one)
		bins[d].free -= m * unit / w.share
		owner[d] = w.key
		w.n -= m
	}
	// Devices of which most is still wanted come first.
	left := map[content]int{}
	for i := range wants {
		left[wants[i].id] += wants[i].n
	}
	ids := make([][]content, n)
	order := all(n)
	useful := make([]int, n)
	for d, c := range have[pool] {
		for id := range c {
			ids[d] = append(ids[d], id)
			useful[d] += min(c[id], left[id]) * unit / id.share
		}
		slices.SortFunc(ids[d], func(a, b content) int {
			return cmp.Or(cmp.Compare(a.network, b.network), cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last), cmp.Compare(a.share, b.share))
		})
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(useful[b], useful[a]) })
	for _, d := range order {
		for _, id := range ids[d] {
			room := have[pool][d][id]
			for _, i := range of[id] {
				w := &wants[i]
				if p.Rounding == Slot && len(bins[d].parts) > 0 && owner[d] != w.key {
					continue
				}
				if m := min(room, w.n); m > 0 {
					put(d, w, m)
					room -= m
				}
			}
		}
	}
	// The rest: whole devices of one kind, then the largest first where there is
	// room, on devices that load something anyway before others.
	var empty []int
	for d := range bins {
		if len(bins[d].parts) == 0 {
			empty = append(empty, d)
		}
	}
	for i := range wants {
		w := &wants[i]
		for ; w.n >= w.share; empty = empty[1:] {
			if len(empty) == 0 {
				return nil
			}
			put(empty[0], w, w.share)
		}
	}
	slices.SortStableFunc(wants, func(a, b want) int { return cmp.Compare(a.share, b.share) })
	loads := make([]bool, n)
	for i := range wants {
		w := &wants[i]
		for w.n > 0 {
			at := -1
			for d := range bins {
				if len(bins[d].parts) > 0 && bins[d].free >= unit/w.share && (p.Rounding != Slot || owner[d] == w.key) &&
					(at < 0 || loads[d] && !loads[at]) {
					at = d
				}
			}
			if at < 0 {
				if len(empty) == 0 {
					return nil
				}
				at, empty = empty[0], empty[1:]
			}
			put(at, w, 1)
			loads[at] = true
		}
	}
	for d := range bins {
		bins[d].parts = merge(bins[d].parts)
	}
	return bins
}

// settle gives the bins of a pool, whatever they hold, to devices: first to
// those that hold just that, then to those that hold it among other things,
// and the rest to what is left, which has to load something.
func (h held) settle(pool int, bins []map[content]int) (at []int) {
	at = slices.Repeat([]int{-1}, len(bins))
	groups := map[string][]int{} // devices by what they hold
	var order []string
	for d, c := range h[pool] {
		k := name(c)
		if _, ok := groups[k]; !ok {
			order = append(order, k)
		}
		groups[k] = append(groups[k], d)
	}
	take := func(i int, k string) {
		at[i] = groups[k][0]
		groups[k] = groups[k][1:]
	}
	for i, b := range bins {
		if k := name(b); len(groups[k]) > 0 {
			take(i, k)
		}
	}
	within := func(b, c map[content]int) bool {
		for k, n := range b {
			if c[k] < n {
				return false
			}
		}
		return true
	}
	for i, b := range bins {
		if at[i] >= 0 {
			continue
		}
		for _, k := range order {
			if len(groups[k]) > 0 && within(b, h[pool][groups[k][0]]) {
				take(i, k)
				break
			}
		}
	}
	var left []int
	for _, k := range order {
		left = append(left, groups[k]...)
	}
	// Idle devices first: what runs on the others may run until they switch.
	slices.SortFunc(left, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(h[pool][a]), len(h[pool][b])), cmp.Compare(a, b))
	})
	for i := range bins {
		if at[i] < 0 {
			at[i], left = left[0], left[1:]
		}
	}
	return at
}

// name of what a device holds.
func name(c map[content]int) string {
	list := make([]string, 0, len(c))
	for k, n := range c {
		list = append(list, fmt.Sprintf("%s/%d-%d/%d*%d", k.network, k.first, k.last, k.share, n))
	}
	slices.Sort(list)
	return fmt.Sprint(list)
}

// MaxMovedDefault is the share of the devices that may move by default.
const MaxMovedDefault = 0.2

// moves counts, per pool, the devices of an outcome that have to load something.
func (p *Problem) moves(r *Running, list []Pipeline) (moved int) {
	s := p.stay(r, func(*stages.Template) int { return 0 })
	want := make(held, len(p.Pools))
	for k := range want {
		want[k] = make([]map[content]int, p.Pools[k].Count)
	}
	for i := range list {
		pl := &list[i]
		for si := range pl.Stages {
			k := pl.Stages[si].Pool
			if p.Pools[k].Time {
				continue
			}
			for _, run := range pl.Placed[si] {
				for j := range run.Replicas {
					at := run.First + j/run.PerDevice
					if want[k][at] == nil {
						want[k][at] = map[content]int{}
					}
					want[k][at][p.content(&pl.Template, si)]++
				}
			}
		}
	}
	for k := range want {
		for d, c := range want[k] {
			for key, n := range c {
				if s.held[k][d][key] < n {
					moved++
					break
				}
			}
		}
	}
	return moved
}
