package gear

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"inferplan/formats/seeded"
)

// drawn is how many cascades SP1 draws in every round of Algorithm 1, and
// maxRounds how many rounds it takes at most once a plan holds.
const (
	drawn     = 1000
	maxRounds = 50
)

// fault is the error code that goes back from a submodule to the one before.
type fault struct {
	span  int  // range that cannot be served
	model int  // its bottleneck; negative: not known
	any   bool // models do not fit in memory: another range may give way too
}

// em is Algorithm 1 of the paper: cascade search, assignment, placement and
// queue lengths in turn, an error going one submodule back. Where the algorithm
// as written does not end or rejects what is feasible, its meaning here is:
//
//   - work is priced at the operating batch, not at batch 1;
//   - Equation 4 prefers the replica that frees most of the overallocated memory
//     and stops when nothing is overallocated;
//   - a range never goes back to a cascade that it was taken from; replicas that
//     SP4 asked for stay until the next downgrade and are forgotten then;
//   - once a plan holds, a change that breaks it is taken back.
//
// So it ends, and every plan that holds is at least as accurate as the one before.
type em struct {
	p    *Problem
	list []Cascade
	work [][]float64
	o    *Options
	rng  *rand.Rand
	full *Placement // every model everywhere, memory left out

	found    []int          // SP1: front of what was drawn, by rising cost
	known    map[int]bool   // drawn before
	at       []int          // SP2: cascade of every range
	rejected []map[int]bool // by range
	pins     []int          // SP3: least replicas of a model
	pl       *Placement

	benches map[string]*bench
	trials  map[trialKey]tuned

	best *Outcome // last plan that held
	kept []int    // its cascades
	held *Placement
}

// trialKey is a cascade on a placement at the edge of a range.
type trialKey struct {
	placement     string
	cascade, span int
}

// tuned is what SP4 found for it; minQueue 0: nothing passes.
type tuned struct {
	minQueue int
	trial    Trial
	shares   [][]float64
	loads    []float64
}

func newEM(p *Problem, list []Cascade, work [][]float64, o *Options) *em {
	n := len(p.Models)
	usable := uint32(0)
	for m, ok := range p.usable() {
		if ok {
			usable |= 1 << m
		}
	}
	e := &em{
		p: p, list: list, work: work, o: o, rng: seeded.New(o.Seed, "gear/cascades"),
		full: newPlacement(n, []uint32{usable}, []int{p.Devices}), known: map[int]bool{}, pins: make([]int, n),
		benches: map[string]*bench{}, trials: map[trialKey]tuned{},
	}
	e.pl = e.full
	for range p.Edges {
		e.rejected = append(e.rejected, map[int]bool{})
	}
	return e
}

// solve plans by Algorithm 1.
func (e *em) solve(ctx context.Context) (*Outcome, error) {
	var wrong *fault
	for module, rounds := 0, 0; ; {
		var err error
		switch module {
		case 0:
			if wrong != nil {
				return nil, e.infeasible(wrong)
			}
			if rounds++; rounds > maxRounds {
				return e.best, nil
			}
			e.search()
		case 1:
			converged := false
			if wrong, converged = e.assign(wrong); converged {
				return e.best, nil
			}
		case 2:
			wrong = e.place(wrong)
		case 3:
			if wrong, err = e.tune(ctx); err != nil {
				return nil, err
			}
			if wrong == nil {
				e.keep()
			}
		}
		if wrong == nil {
			module = (module + 1) % 4
		} else {
			module--
		}
	}
}

// search (SP1) draws cascades and keeps the front of all that were drawn; the
// cheapest and the most accurate are always there.
func (e *em) search() {
	cost := totals(e.work)
	if len(e.known) == 0 {
		front := pareto(cost, e.list)
		e.known[front[0]], e.known[front[len(front)-1]] = true, true
	}
	for range drawn {
		e.known[e.rng.IntN(len(e.list))] = true
	}
	for i := range cost {
		if !e.known[i] {
			cost[i] = math.Inf(1)
		}
	}
	e.found = pareto(cost, e.list)
}

// load is u* of a cascade on the placement at hand; where that lacks a model,
// with every model everywhere.
func (e *em) load(i int) float64 {
	if u := e.pl.Load(e.work[i]); !math.IsInf(u, 1) {
		return u
	}
	return e.full.Load(e.work[i])
}

// assign (SP2) starts with the most accurate cascade everywhere. An error takes
// the range to the next cheaper one. Once a plan holds, ranges take new cascades
// that are better in accuracy or load and worse in neither.
func (e *em) assign(wrong *fault) (still *fault, converged bool) {
	switch {
	case wrong != nil && e.best == nil:
		clear(e.pins)
		if e.downgrade(wrong.span) {
			return nil, false
		}
		if wrong.any {
			for r := range e.at {
				if e.downgrade(r) {
					return nil, false
				}
			}
		}
		return wrong, false
	case wrong != nil:
		e.takeBack(wrong.span)
		return nil, slices.Equal(e.at, e.kept)
	case e.best == nil:
		for range e.p.Edges {
			e.at = append(e.at, e.found[len(e.found)-1])
		}
		return nil, false
	}
	clear(e.pins)
	for r := range e.at {
		if better := e.better(r); better >= 0 {
			e.at[r] = better
		}
	}
	return nil, slices.Equal(e.at, e.kept)
}

// downgrade moves a range to the next cheaper cascade.
func (e *em) downgrade(r int) bool {
	now := e.load(e.at[r])
	e.rejected[r][e.at[r]] = true
	next, most := -1, 0.0
	for _, i := range e.found {
		if u := e.load(i); u < now && !e.rejected[r][i] && (next < 0 || u > most || u == most && e.list[i].Correct > e.list[next].Correct) {
			next, most = i, u
		}
	}
	if next < 0 {
		return false
	}
	e.at[r] = next
	return true
}

// better is a cascade that a range should take instead of its own; -1: none.
func (e *em) better(r int) int {
	best, load := e.at[r], e.load(e.at[r])
	for _, i := range e.found {
		if u := e.load(i); !e.rejected[r][i] && u <= load && e.list[i].Correct >= e.list[best].Correct && (u < load || e.list[i].Correct > e.list[best].Correct) {
			best, load = i, u
		}
	}
	if best == e.at[r] {
		return -1
	}
	return best
}

// takeBack undoes the change of a range, or of all where it had none.
func (e *em) takeBack(r int) {
	undo := []int{r}
	if e.at[r] == e.kept[r] {
		undo = undo[:0]
		for r := range e.at {
			undo = append(undo, r)
		}
	}
	for _, r := range undo {
		if e.at[r] != e.kept[r] {
			e.rejected[r][e.at[r]] = true
			e.at[r] = e.kept[r]
		}
	}
	clear(e.pins)
	e.pl = e.held
}

// place (SP3) prunes replicas until everything fits in memory, and checks the
// load. An error of SP4 asks for one more replica of its bottleneck.
func (e *em) place(wrong *fault) *fault {
	p := e.p
	if wrong != nil {
		have := 0
		if wrong.model >= 0 {
			have = len(e.pl.DevicesOf(wrong.model))
		}
		if wrong.model < 0 || have >= p.Devices {
			return &fault{span: wrong.span, model: -1}
		}
		e.pins[wrong.model] = have + 1
	}
	pl, ok := e.prune()
	if !ok {
		if wrong == nil {
			r := e.busiest(e.full)
			return &fault{span: r, model: -1, any: true}
		}
		return &fault{span: wrong.span, model: -1}
	}
	e.pl = pl
	if r := e.busiest(pl); pl.Load(e.work[e.at[r]])*p.Edges[r] > 1 {
		return &fault{span: r, model: -1}
	}
	return nil
}

// busiest is the range with the highest load on a placement.
func (e *em) busiest(pl *Placement) int {
	at, most := 0, -1.0
	for r, i := range e.at {
		if u := pl.Load(e.work[i]) * e.p.Edges[r]; u > most {
			at, most = r, u
		}
	}
	return at
}

// prune takes the replica of the highest utility (Equation 4, corrected) from a
// device that holds too much, until none does.
func (e *em) prune() (*Placement, bool) {
	p := e.p
	n := len(p.Models)
	sets := make([]uint32, p.Devices)
	replicas := make([]int, n)
	for d := range sets {
		sets[d] = e.full.Sets[0]
	}
	needed := uint32(0)
	for _, i := range e.at {
		for _, m := range e.list[i].Models {
			needed |= 1 << m
		}
	}
	for m := range n {
		if e.full.Sets[0]&(1<<m) != 0 {
			replicas[m] = p.Devices
		}
	}
	for {
		device, model, most := -1, -1, 0.0
		tried := map[uint32]bool{} // devices that hold the same are the same
		for d, set := range sets {
			over := e.memoryOf(set) - p.Memory
			if p.Memory == 0 || over <= 0 || tried[set] {
				continue
			}
			tried[set] = true
			for m := range n {
				one := uint32(1) << m
				least := e.pins[m]
				if needed&one != 0 {
					least = max(least, 1)
				}
				if set&one == 0 || replicas[m] <= least {
					continue
				}
				sets[d] = set &^ one
				u := e.highest(grouped(n, sets), m)
				sets[d] = set
				if utility := float64(min(over, p.Models[m].Memory)) / max(u, 1e-6); utility > most {
					device, model, most = d, m, utility
				}
			}
		}
		if device < 0 {
			break
		}
		sets[device] &^= 1 << model
		replicas[model]--
	}
	for _, set := range sets {
		if p.Memory > 0 && e.memoryOf(set) > p.Memory {
			return nil, false
		}
	}
	return grouped(n, sets), true
}

// highest is the load of the busiest device over the ranges that use a model.
func (e *em) highest(pl *Placement, model int) float64 {
	most := 0.0
	for r, i := range e.at {
		if e.work[i][model] > 0 {
			most = max(most, pl.Load(e.work[i])*e.p.Edges[r])
		}
	}
	return most
}

// memoryOf is the memory of a set of models.
func (e *em) memoryOf(set uint32) int64 {
	total := int64(0)
	for ; set > 0; set &= set - 1 {
		total += e.p.Models[bits.TrailingZeros32(set)].Memory
	}
	return total
}

// grouped is the placement of devices that each hold a set of models.
func grouped(models int, devices []uint32) *Placement {
	sorted := slices.Clone(devices)
	slices.SortFunc(sorted, func(a, b uint32) int { return cmp.Compare(b, a) })
	var counts []int
	for i, set := range sorted {
		if i == 0 || set != sorted[i-1] {
			counts = append(counts, 0)
		}
		counts[len(counts)-1]++
	}
	return newPlacement(models, slices.Compact(sorted), counts)
}

// key names a placement.
func (pl *Placement) key() string {
	var b []byte
	for i, s := range pl.Sets {
		b = append(b, byte(s), byte(s>>8), byte(pl.Counts[i]), byte(pl.Counts[i]>>8))
	}
	return string(b)
}

// tune (SP4) looks for the least queue length that holds, range by range.
func (e *em) tune(ctx context.Context) (*fault, error) {
	for r, i := range e.at {
		t, err := e.try(ctx, r, i)
		if err != nil {
			return nil, err
		}
		if t.minQueue == 0 {
			return &fault{span: r, model: e.bottleneck(&e.list[i], &t)}, nil
		}
		if e.o.Progress != nil {
			e.o.Progress(r+1, len(e.at))
		}
	}
	return nil, nil
}

func (e *em) try(ctx context.Context, r, i int) (tuned, error) {
	place := e.pl.key()
	key := trialKey{place, i, r}
	if t, ok := e.trials[key]; ok {
		return t, nil
	}
	b := e.benches[place]
	if b == nil {
		b = newBench(e.p, e.pl, e.o.Seed)
		e.benches[place] = b
	}
	var t tuned
	var err error
	t.shares, t.loads = e.pl.Split(e.work[i])
	if t.minQueue, t.trial, err = b.passes(ctx, &e.list[i], t.shares, e.p.Edges[r], e.o.MinQueues); err != nil {
		return t, err
	}
	e.trials[key] = t
	return t, nil
}

// bottleneck is the first model of a cascade that works on the busiest device.
func (e *em) bottleneck(c *Cascade, t *tuned) int {
	busiest := slices.Index(t.loads, slices.Max(t.loads))
	for _, m := range c.Models {
		if at := slices.Index(e.pl.DevicesOf(int(m)), busiest); at >= 0 && t.shares[m][at] > 1e-9 {
			return int(m)
		}
	}
	return -1
}

// keep notes the plan at hand, which holds.
func (e *em) keep() {
	out := &Outcome{Placement: e.pl, Front: len(e.found)}
	place := e.pl.key()
	for r, i := range e.at {
		t := e.trials[trialKey{place, i, r}]
		g := Planned{Cascade: e.list[i], MinQueue: t.minQueue, Shares: t.shares, Load: e.pl.Load(e.work[i]) * e.p.Edges[r], Trial: t.trial,
			Accuracy: float64(e.list[i].Correct) / float64(e.p.Planned.N)}
		out.Gears = append(out.Gears, g)
		out.Accuracy += e.p.Weights[r] * g.Accuracy
	}
	for _, b := range e.benches {
		out.Runs += b.runs
	}
	if e.best != nil {
		out.Steps = e.best.Steps
	}
	out.Steps = append(out.Steps, out.Accuracy)
	e.best, e.kept, e.held = out, slices.Clone(e.at), e.pl
}

func (e *em) infeasible(wrong *fault) *Infeasible {
	load := make([]float64, len(e.list))
	for i := range load {
		load[i] = e.full.Load(e.work[i])
	}
	var last *Trial
	if t, ok := e.trials[trialKey{e.pl.key(), e.at[wrong.span], wrong.span}]; ok {
		last = &t.trial
	}
	x := exact{e.p, e.list, e.work, e.o}
	return x.infeasible(wrong.span, pareto(load, e.list), load, last)
}
