package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"inferplan/cputime"
	"inferplan/planner/kind"
)

// The nearest problem that has a plan is found by solving problems that ask for less. So it has
// a plan with whole devices, and a problem that asks for a little more has none.
const (
	nearPrecision = 1.005                  // the last feasible value and the first infeasible one are this near
	raggedStep    = 1.01                   // step of further values that are tried if simulation decides
	nearDigits    = 6                      // significant digits of the values that are tried
	nearTrials    = 80                     // most problems that are solved
	nearTime      = 10 * time.Second       // least CPU time of the search; what is not found by then is left out
	nearTimes     = 2                      // CPU time in multiples of the time that the first solve took
	mostNearTime  = 2 * time.Minute        // most CPU time of the search
	nearGap       = 0.95                   // gap of a trial: a plan of any quality shows that there is one
	jointSteps    = 12                     // most causes that are followed
	watchEvery    = 100 * time.Millisecond // how often the CPU time is checked
	mostLonger    = 1e6                    // largest factor on an SLO that is tried
	mostDevices   = 256                    // most devices of one kind that are added
	mostSimulated = 16                     // the same if simulation decides: with hundreds of devices it takes minutes
)

// nearestSearch searches for the nearest relaxation of a problem that has a plan.
type nearby struct {
	ctx     context.Context
	method  *kind.Method
	problem *kind.Problem
	// solve returns an error if a problem has no plan.
	solve func(context.Context, *kind.Problem) error
	left  int           // number of problems that may still be solved
	begun time.Duration // CPU time at the start
	most  time.Duration // CPU time of the search
	cut   *string       // what ended the search early, or empty
}

// errExhausted ends the search.
var errEnough = errors.New("no more trials")

// nearestFeasible replaces what a method says to be nearest by what was found by solving.
// solveTime is the CPU time that the method took to find that there is no plan.
func nearest(ctx context.Context, m *kind.Method, p *kind.Problem, inf *InfeasibleError, took time.Duration, solve func(context.Context, *kind.Problem) error) *InfeasibleError {
	if m.Loosened == nil || p.Trial {
		return inf
	}

	// Trials need a plan of any quality.
	most := min(max(nearTime, nearTimes*took), mostNearTime)
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	q := *p
	if q.Trial = true; q.Values.Has("gap") && q.Values.Number("gap") < nearGap {
		if err := q.Values.Set("gap", nearGap); err != nil {
			return inf
		}
	}

	// Search within a CPU time.
	out := *inf
	out.Or = nil
	n := &nearby{ctx: within, method: m, problem: &q, solve: solve, left: nearTrials, begun: cputime.Used(), most: most, cut: &out.CutShort}
	go n.watch(cancel)
	defer func() {
		if out.CutShort != "" && ctx.Err() != nil {
			out.CutShort = "by an interrupt"
		}
	}()

	// Follow the causes together, then look for single changes that alone have a plan.
	joint, err := n.joint(&out)
	if err != nil && errors.Is(err, errEnough) {
		out.Nearest = n.needed(inf)
		return &out
	}
	list := n.alternatives(joint)
	if joint == nil && len(list) == 0 {
		joint = n.both()
	}
	if joint == nil {
		out.Nearest = n.needed(inf)
	} else {
		list = append([]*kind.Looser{joint}, list...)
	}

	// The first relaxation is the nearest, the others are alternatives.
	for i, l := range list {
		near := n.written(l, inf)
		if i == 0 {
			out.Nearest = near
			continue
		}
		out.Or = append(out.Or, near)
	}
	return &out
}

// knownNeeds returns what is needed at least, if no relaxation with a plan was found. Only
// methods whose plans are simulated have such a bound.
func (n *nearby) needed(inf *InfeasibleError) kind.Nearest {
	if !n.method.Simulated {
		return kind.Nearest{}
	}
	near := kind.Nearest{SLOUS: inf.Nearest.SLOUS, LoadFactor: inf.Nearest.LoadFactor}
	near.NotSolved = near.SLOUS > 0 || near.LoadFactor > 0
	return near
}

// whyInfeasible solves a relaxation. It returns nil if there is a plan, else the reason.
func (n *nearby) is(l *kind.Looser) (*InfeasibleError, error) {
	if n.enough() {
		return nil, errEnough
	}
	n.left--
	p, err := l.Problem(n.method, n.problem)
	if err == nil {
		err = n.solve(n.ctx, p)
	}
	if n.ctx.Err() != nil && err != nil {
		n.enough()
		return nil, errEnough
	}
	inf, _ := errors.AsType[*InfeasibleError](err)
	if inf != nil {
		return inf, nil
	}
	return nil, err
}

// watchCPU ends the search, also within a trial, when its CPU time is used up.
func (n *nearby) watch(cancel context.CancelFunc) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
			if cputime.Used()-n.begun > n.most {
				cancel()
			}
		}
	}
}

// isExhausted reports whether the search must end, and notes the reason.
func (n *nearby) enough() bool {
	why := ""
	switch {
	case n.ctx.Err() != nil || cputime.Used()-n.begun > n.most:
		why = fmt.Sprintf("after %v of CPU time", n.most.Round(time.Second))
	case n.left <= 0:
		why = fmt.Sprintf("after %d trials", nearTrials)
	}
	if *n.cut == "" {
		*n.cut = why
	}
	return why != ""
}

// isFeasible reports whether a relaxation has a plan. A relaxation that cannot be expressed has none.
func (n *nearby) feasible(l kind.Looser) bool {
	inf, err := n.is(&l)
	return inf == nil && err == nil
}

// followCauses relaxes what the method says to be nearest, cause by cause, until there is a plan.
// Then it tightens the relaxation. It returns nil if that leads nowhere.
func (n *nearby) joint(out *InfeasibleError) (*kind.Looser, error) {
	l, inf := kind.Looser{}, out
	causes := []string{out.Constraint + out.Model}
	trial, explained := n.problem, *n.problem
	explained.Trial = false // the method must say why there is no plan
	defer func() { n.problem = trial }()
	for range jointSteps {
		// Only a bound on the load is known: try loads below it.
		if inf.Nearest.NotSolved && inf.Nearest.LoadFactor > 0 {
			n.problem = trial
			if l = n.lessLoad(l, inf.Nearest.LoadFactor); l.Load == 0 {
				return nil, nil
			}
			n.tighten(&l)
			return &l, nil
		}

		// Relax further as the method says, and solve.
		next, ok := n.followed(l, inf)
		if !ok {
			return nil, nil
		}
		l = next
		var err error
		n.problem = &explained
		if inf, err = n.is(&l); err != nil {
			return nil, err
		}
		if inf == nil {
			n.problem = trial
			n.tighten(&l)
			return &l, nil
		}

		// Note the next cause.
		if cause := inf.Constraint + inf.Model; !slices.Contains(causes, cause) {
			causes = append(causes, cause)
			out.Further = append(out.Further, kind.Cause{Model: inf.Model, Constraint: inf.Constraint, Reason: inf.Reason})
		}
	}
	return nil, nil
}

// lessLoad returns the relaxation with a load below a bound at which there is a plan. If none of
// the tried loads has one, its load is 0.
func (n *nearby) lessLoad(l kind.Looser, most float64) kind.Looser {
	bound := l.Rate(1) * min(most, 1)
	for _, part := range []float64{0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01} {
		if l.Load = kind.RoundedDown(bound*part, nearDigits); n.feasible(l) {
			return l
		}
	}
	l.Load = 0
	return l
}

// sloOf returns the name of the model, application or class whose SLO limits a model. It is empty
// if all have the same SLO.
func (n *nearby) sloOf(model string) string {
	if v := n.problem.Values; n.method.OneSLO || v.Has("slo") && !v.SLO("slo").IsZero() {
		return ""
	}
	return model
}

// relaxFurther adds what a method says to be nearest. It returns false if that is nothing new.
func (n *nearby) followed(l kind.Looser, inf *InfeasibleError) (kind.Looser, bool) {
	near, name := &inf.Nearest, n.sloOf(inf.Model)
	if slo := time.Duration(math.Ceil(near.SLOUS)) * time.Microsecond; slo > l.SLOs[name] {
		l.SLOs = maps.Clone(l.SLOs)
		if l.SLOs == nil {
			l.SLOs = map[string]time.Duration{}
		}
		l.SLOs[name] = slo
		return l, true
	}
	if near.MemoryBytes > l.Memory {
		l.Memory = near.MemoryBytes
		return l, true
	}
	if len(near.Devices) > 0 && !slices.ContainsFunc(near.Devices, func(d kind.MissingCount) bool { return d.Count > mostDevices }) {
		for _, d := range near.Devices {
			l = l.With(d.Device, d.Count)
		}
		return l, true
	}
	if near.LoadFactor > 0 && !near.NotSolved {
		l.Load = kind.RoundedDown(l.Rate(1)*min(near.LoadFactor, 0.999999), nearDigits)
		return l, true
	}
	// What keeps an SLO of one model alone may not keep it beside others: lengthen all.
	longer := maps.Clone(l.SLOs)
	for name := range longer {
		longer[name] += longer[name] / 4
	}
	l.SLOs = longer
	return l, len(longer) > 0
}

// tighten reduces a relaxation as far as there is still a plan: SLOs, then devices, then the load.
func (n *nearby) tighten(l *kind.Looser) {
	// Shorten the SLOs, one by one.
	for _, name := range slices.Sorted(maps.Keys(l.SLOs)) {
		needed := l.SLOs[name]
		at := func(f float64) kind.Looser {
			q := *l
			q.SLOs = maps.Clone(l.SLOs)
			q.SLOs[name] = time.Duration(math.Ceil(float64(needed)/f/1000)) * time.Microsecond
			return q
		}
		least := max(needed.Seconds()*1e6, 1) // no SLO is shorter than a microsecond
		*l = at(n.furthest(1, least, func(f float64) bool { return n.feasible(at(f)) }))
	}

	// Take back devices, kind by kind.
	for _, device := range slices.Sorted(maps.Keys(l.Devices)) {
		for l.Devices[device] > 0 {
			fewer := l.With(device, -1)
			if !n.feasible(fewer) {
				break
			}
			*l = fewer
		}
	}

	// Raise the load.
	if l.Load > 0 {
		at := func(f float64) kind.Looser {
			q := *l
			q.Load = f
			return q
		}
		*l = at(n.furthest(l.Load, 1, func(f float64) bool { return n.feasible(at(f)) }))
	}
}

// largestFeasible returns the largest feasible value from passing, which is feasible, up to top,
// within the precision. It does not try top.
func (n *nearby) furthest(good, top float64, feasible func(float64) bool) float64 {
	for step := nearPrecision; ; step *= step {
		next := kind.RoundedDown(good*step, nearDigits)
		if next >= top {
			return n.edge(good, top, feasible)
		}
		if n.enough() {
			return good
		}
		if !feasible(next) {
			return n.edge(good, next, feasible)
		}
		good = next
	}
}

// bisectEdge returns a feasible value between a passing and a failing one, as near to the latter
// as the precision asks. If simulation decides, feasibility is not monotone, so it goes on in
// steps until the next value fails.
func (n *nearby) edge(good, bad float64, feasible func(float64) bool) float64 {
	step := raggedStep
	if bad < good {
		step = 1 / raggedStep
	}
	for max(good/bad, bad/good) > nearPrecision && !n.enough() {
		if mid := kind.RoundedDown(math.Sqrt(good*bad), nearDigits); feasible(mid) {
			good = mid
		} else {
			bad = mid
		}
	}
	for n.method.Simulated && !n.enough() {
		next := kind.RoundedDown(good*step, nearDigits)
		if next == 1 || (next < 1) != (good < 1) || !feasible(next) { // at 1 nothing is relaxed
			break
		}
		good = next
	}
	return good
}

// alternatives returns single changes that alone have a plan: less load, longer SLOs, more devices
// of one kind.
func (n *nearby) alternatives(joint *kind.Looser) (list []*kind.Looser) {
	load := func(f float64) kind.Looser { return kind.Looser{Load: f} }
	if alone := joint != nil && joint.Load > 0 && len(joint.SLOs)+len(joint.Devices) == 0; !alone && n.asksRates() {
		list = n.first(list, []float64{0.9, 0.75, 0.5, 0.25, 0.1, 0.03, 0.01}, load)
	}
	longer := func(f float64) kind.Looser { return kind.Looser{SLO: math.Ceil(f*1e4) / 1e4} }
	if joint == nil || len(joint.SLOs) == 0 {
		list = n.first(list, []float64{1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100, 1000, 1e4, mostLonger}, longer)
	}
	if joint == nil || len(joint.Devices) == 0 {
		if l := n.moreDevices(); l != nil {
			list = append(list, l)
		}
	}
	return list
}

// lessLoadAndLongerSLOs returns the nearest relaxation of both, if neither alone has a plan. It
// divides the load and multiplies the SLOs until there is a plan, then takes as much load and as
// short SLOs as there is still one. It returns nil if none is found.
func (n *nearby) both() *kind.Looser {
	if !n.asksRates() {
		return nil
	}
	at := func(slo, load float64) kind.Looser { return kind.Looser{SLO: math.Ceil(slo*1e4) / 1e4, Load: load} }
	for slo, load := 2.0, 0.5; slo <= mostLonger && !n.enough(); slo, load = 4*slo, load/4 {
		if !n.feasible(at(slo, load)) {
			continue
		}
		load = n.furthest(load, 1, func(f float64) bool { return n.feasible(at(slo, f)) })
		l := at(1/n.furthest(1/slo, 1, func(f float64) bool { return n.feasible(at(1/f, load)) }), load)
		return &l
	}
	return nil
}

// addFirstFeasible adds the relaxation of the first step that is feasible, made as near as the
// precision asks.
func (n *nearby) first(list []*kind.Looser, steps []float64, at func(float64) kind.Looser) []*kind.Looser {
	feasible := func(f float64) bool { return n.feasible(at(f)) }
	last := 1.0
	for _, f := range steps {
		if feasible(f) {
			l := at(n.edge(f, last, feasible))
			return append(list, &l)
		}
		last = f
	}
	return list
}

// fewestMoreDevices returns the addition of the fewest devices of one kind that has a plan, or nil
// if there is none.
func (n *nearby) moreDevices() (best *kind.Looser) {
	most := mostDevices
	if n.method.Simulated {
		most = mostSimulated
	}
	for k := range n.problem.Cluster.Pools {
		device := n.problem.Cluster.Pools[k].Device
		at := func(more int) kind.Looser { return (kind.Looser{}).With(device, more) }

		// Double the number until there is a plan, then bisect.
		few, enough := 0, 1
		for enough <= most && !n.feasible(at(enough)) {
			few, enough = enough, 2*enough
		}
		if enough > most {
			continue
		}
		for enough-few > 1 && !n.enough() {
			if mid := (few + enough) / 2; n.feasible(at(mid)) {
				enough = mid
			} else {
				few = mid
			}
		}

		// Only fewer devices of another kind would be better.
		l := at(enough)
		if best, most = &l, enough-1; most == 0 {
			break
		}
	}
	return best
}

// asksRates reports whether the problem asks for rates.
func (n *nearby) asksRates() bool {
	half := kind.Looser{Load: 0.5}
	p, err := half.Problem(n.method, n.problem)
	return err == nil && !(reflect.DeepEqual(p.Workload, n.problem.Workload) && p.Values.Equal(n.problem.Values))
}

// asNearest returns a relaxation as the nearest problem that people read.
func (n *nearby) written(l *kind.Looser, inf *InfeasibleError) kind.Nearest {
	near := kind.Nearest{SLOFactor: l.SLO, LoadFactor: l.Load, MemoryBytes: l.Memory}
	for _, name := range slices.Sorted(maps.Keys(l.SLOs)) {
		us := float64(l.SLOs[name]) / 1000
		near.SLOUS = max(near.SLOUS, us)
		near.SLOs = append(near.SLOs, kind.ModelSLO{Model: name, SLOUS: us})
	}
	if len(near.SLOs) == 1 && near.SLOs[0].Model == n.sloOf(inf.Model) {
		near.SLOs = nil // SLOUS holds it
	}
	for k := range n.problem.Cluster.Pools {
		device := n.problem.Cluster.Pools[k].Device
		if more := l.Devices[device]; more > 0 {
			near.Devices = append(near.Devices, kind.MissingCount{Device: device, Count: more})
		}
	}
	v := n.problem.Values
	if load := v.Has("min-load") && v.Number("min-load") > 0; load && l.Load > 0 && inf.OnlyMinLoad {
		near.MinLoadRPS = kind.RoundedDown(v.Number("min-load")*l.Load, 6)
	}
	return near
}
