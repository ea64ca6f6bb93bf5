package flow

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"inferplan/solver/milp"
)

// Modules may take turns on the devices of a time-shared pool. The modules that do so are on all devices of
// the pool but those that a model has to itself, and each has a share of the time there. A device runs one
// batch at a time, so a task may find it busy with the longest run of any of these modules. If B is that
// run, a module that takes turns takes
//
//	max(D, B) + D
//
// of the deadline, where one with devices of its own takes 2 D. B depends on the levels that are chosen, so
// the program is solved for every value that B can have, and each program leaves out levels with longer
// runs. Values with the highest bounds come first.

// maxRunLimits limits how many values of B are tried. Of more values, some evenly spread ones are tried.
const mostRuns = 24

// hasTimeSharedPool returns whether modules may take turns on some pool.
func (p *problem) shares() bool {
	return slices.ContainsFunc(p.pools, func(k pool) bool { return k.time && k.count > 0 })
}

// sharedRunTimes returns the values that the longest run B can have. complete is false if only some of them
// are returned.
func (p *problem) runs() (list []time.Duration, all bool) {
	for u := range p.models {
		for _, l := range p.models[u].levels {
			for k, t := range l.best {
				if p.pools[k].time && t.rate > 0 {
					list = append(list, t.worst)
				}
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) <= mostRuns {
		return list, true
	}
	some := make([]time.Duration, mostRuns)
	for i := range some {
		some[i] = list[i*(len(list)-1)/(mostRuns-1)]
	}
	return some, false
}

// limitSharedRuns returns the problem in which every model has, beside its levels, levels at which it takes
// turns, with runs of at most maxRun on time-shared devices. withoutWaits leaves out the wait for other
// modules, which makes the problem a relaxation: no plan is better than its optimum.
func (p *problem) within(longest time.Duration, free bool) *problem {
	q := *p
	q.models, q.longest = slices.Clone(p.models), longest
	if free {
		q.longest = 0
	}
	for u := range q.models {
		levels := slices.Clone(p.models[u].levels)
		for _, l := range p.models[u].levels {
			in := level{most: l.most, best: slices.Clone(l.best), turns: true}
			some := false
			for k := range in.best {
				if p.pools[k].time && in.best[k].worst > longest {
					in.best[k] = template{}
				}
				some = some || p.pools[k].time && in.best[k].rate > 0
			}
			if some {
				levels = append(levels, in)
			}
		}
		q.models[u].levels = levels
	}
	return &q
}

// sharedRunProblem is the problem for one value of the longest run.
type variant struct {
	p   *problem
	top float64 // bound of the factor
}

// sharedRunProblems returns the problems for all values of B, by falling bound. unlistedBound is a bound of
// the rate factor for the values that are left out.
func (s *search) variants(ctx context.Context) (list []variant, rest float64, err error) {
	runs, all := s.p.runs()
	for _, longest := range runs {
		p := s.p.within(longest, false)
		top, err := s.over(p).top(ctx)
		if err != nil && !errors.Is(err, errNone) {
			return nil, 0, err
		}
		if err == nil {
			list = append(list, variant{p, top})
		}
	}
	if !all {
		if rest, err = s.over(s.p.within(runs[len(runs)-1], true)).top(ctx); err != nil {
			return nil, 0, err
		}
	}
	slices.SortStableFunc(list, func(a, b variant) int { return cmp.Compare(b.top, a.top) })
	return list, rest, nil
}

// withProblem returns a search like s for another problem. It reports no progress.
func (s *search) over(p *problem) *search {
	quiet := *s
	quiet.p, quiet.improved = p, nil
	return &quiet
}

// throughputWithSharing finds the largest rate factor where modules may take turns.
func (s *search) inTurns(ctx context.Context) (*found, error) {
	list, bound, err := s.variants(ctx)
	if err != nil {
		return nil, err
	}
	var best *found
	nodes, iterations := int64(0), int64(0)

	// Solve the problems by falling bound, until no other can be better than the best result.
	for _, v := range list {
		if best != nil && v.top <= best.value*(1+1e-9) {
			bound = max(bound, v.top)
			break // those that follow are no better
		}
		out, err := s.over(v.p).one(ctx, ask{goal: most, top: v.top}, milp.Options{})
		switch {
		case errors.Is(err, errNone):
			continue
		case err != nil && best != nil && ctx.Err() != nil:
			best.bound, best.stopped = max(bound, v.top), milp.StoppedByInterrupt
			return best, nil
		case err != nil:
			return nil, err
		}
		nodes, iterations, bound = nodes+out.nodes, iterations+out.iterations, max(bound, out.bound*v.top)
		if out.p, out.value = v.p, v.p.factor(out.picked); best == nil || out.value > best.value {
			best = out
			if s.improved != nil {
				s.improved(best.value, list[0].top)
			}
		}
	}
	if best == nil {
		return nil, errNone
	}

	// Add up the effort, and say why the search ended.
	best.nodes, best.iterations, best.bound = nodes, iterations, max(bound, best.value)
	switch gap := (best.bound - best.value) / best.bound; {
	case gap <= 1e-6:
		best.stopped = milp.StoppedByProof
	case gap <= s.gap:
		best.stopped = milp.StoppedByGap
	default:
		best.stopped = milp.StoppedByWork
	}
	return best, nil
}

// minStretchPlan finds the plan that needs the least factor on all SLOs.
func (s *search) soonest(ctx context.Context) (*found, error) {
	if !s.p.shares() {
		return s.one(ctx, ask{goal: soonest, top: 1}, milp.Options{})
	}
	best, runs := (*found)(nil), []time.Duration(nil)
	runs, _ = s.p.runs()
	for _, longest := range runs {
		p := s.p.within(longest, false)
		out, err := s.over(p).one(ctx, ask{goal: soonest, top: 1}, milp.Options{})
		if err != nil && !errors.Is(err, errNone) {
			return nil, err
		}
		if err == nil && (best == nil || out.value < best.value) {
			best, out.p = out, p
		}
	}
	if best == nil {
		return nil, errNone
	}
	return best, nil
}

// sharedDevices returns how many devices of pool k are left for the modules that take turns there.
func (s *picked) group(p *problem, k int) int {
	n := p.pools[k].count
	for u := range s.devices {
		n -= s.devices[u][k]
	}
	return n
}

// fillSharedTime scales the time shares of every pool so that they use all of the time that its shared
// devices have.
func (s *picked) settle(p *problem) {
	for k := range p.pools {
		sum := 0.0
		for u := range s.time {
			sum += s.time[u][k]
		}
		if sum > 0 {
			by := float64(s.group(p, k)) / sum
			for u := range s.time {
				s.time[u][k] *= by
			}
		}
	}
}

// addTimeShare adds the time share of model u at level l on pool k. Each device must hold all models that
// have a share there:
//
//	Σ_ul y_ulk ≤ G_k;   Σ over models with y_ulk > 0 of their memory ≤ that of a device
func (x *program) share(u, l, k int, name string) milp.Var {
	pool, t := &x.p.pools[k], &x.p.models[u].levels[l].best[k]
	n := x.m.AddVar("time "+name+" "+pool.kind, 0, float64(pool.count), 0)
	x.m.AddTerm(x.busy[k], n, 1)
	if pool.memory > 0 {
		on := x.whole("on "+name+" "+pool.kind, 1, 0)
		x.m.AddLE("", 0, milp.Term{Var: n, Coef: 1}, milp.Term{Var: on, Coef: -float64(pool.count)})
		x.m.AddTerm(x.held[k], on, float64(t.memory)/float64(pool.memory))
	}
	return n
}

// addSharedDevices adds, for every time-shared pool, the number G of devices on which modules take turns,
// with rows for their time and memory.
func (x *program) together(taken []milp.Row) {
	for k := range x.p.pools {
		pool := &x.p.pools[k]
		g, busy, held := milp.Var(-1), milp.Row(-1), milp.Row(-1)
		if pool.time && pool.count > 0 && x.ask.goal != lacking {
			g = x.whole("in turns "+pool.kind, float64(pool.count), 0)
			x.m.AddTerm(taken[k], g, 1)
			busy = x.m.AddLE("time "+pool.kind, 0, milp.Term{Var: g, Coef: -1})
			held = x.m.AddLE("memory "+pool.kind, 1)
		}
		x.group, x.busy, x.held = append(x.group, g), append(x.busy, busy), append(x.held, held)
	}
}

// minTimeShare is the least part of a device that counts as a time share. Smaller values come from the
// solver's tolerance.
const leastPart = 1e-7

// readTimeShares reads the time shares of a solution of the program.
func (x *program) times(sol *milp.Solution, s *picked) {
	s.time = nil
	for u, l := range s.level {
		row := make([]float64, len(x.p.pools))
		for k := range row {
			if l < 0 || !x.p.inTurns(u, l, k) || x.devices[u][l][k] < 0 {
				continue
			}
			if n := sol.At(x.devices[u][l][k]); n > leastPart {
				row[k] = n
			}
		}
		s.time = append(s.time, row)
	}
	s.settle(x.p)
}

// isTimeShared returns whether model u at level l takes turns on the devices of pool k. Otherwise it has
// devices of its own.
func (p *problem) inTurns(u, l, k int) bool {
	return p.models[u].levels[l].turns && p.pools[k].time
}

// moduleTime returns what a module takes of the deadline at a level: the wait for its device, and a batch
// of its own.
func (p *problem) step(l *level) time.Duration {
	if l.turns {
		return max(l.most, p.longest) + l.most
	}
	return waiting * l.most
}

// timeSharedRate returns the rate that the time shares of model u carry, in requests per second.
func (s *picked) carriedInTurns(p *problem, u int) float64 {
	sum := 0.0
	if s.time != nil && s.level[u] >= 0 {
		for k, n := range s.time[u] {
			sum += n * p.models[u].levels[s.level[u]].best[k].rate
		}
	}
	return sum
}
