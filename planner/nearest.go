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
	nearPrecision     = 1.005                  // the last feasible value and the first infeasible one differ at most by this factor
	simulatedStep     = 1.01                   // step of further values that are tried if simulation decides
	nearDigits        = 6                      // significant digits of the values that are tried
	nearTrials        = 80                     // most problems that are solved
	nearTime          = 10 * time.Second       // least CPU time of the search; what is not found by then is left out
	nearTimeFactor    = 2                      // CPU time in multiples of the time that the first solve took
	maxNearTime       = 2 * time.Minute        // most CPU time of the search
	nearGap           = 0.95                   // gap of a trial: a plan of any quality shows that there is one
	jointSteps        = 12                     // most causes that are followed
	watchEvery        = 100 * time.Millisecond // how often the CPU time is checked
	maxSLOFactor      = 1e6                    // largest factor on an SLO that is tried
	maxAddedDevices   = 256                    // most devices of one kind that are added
	maxAddedSimulated = 16                     // the same if simulation decides: with hundreds of devices it takes minutes
)

// nearestSearch searches for the nearest relaxation of a problem that has a plan.
type nearestSearch struct {
	ctx     context.Context
	method  *kind.Method
	problem *kind.Problem
	// solve returns an error if a problem has no plan.
	solve           func(context.Context, *kind.Problem) error
	remainingTrials int           // number of problems that may still be solved
	startCPU        time.Duration // CPU time at the start
	maxCPU          time.Duration // CPU time of the search
	stopReason      *string       // what ended the search early, or empty
}

// errExhausted ends the search.
var errExhausted = errors.New("no more trials")

// nearestFeasible returns a copy of infeasible, the error of a method that found no plan. The copy states the nearest
// feasible problem, and alternatives to it, as solving relaxations of problem p (with longer SLOs, more devices or
// less load) confirmed them. The driver calls it after every failed solve. If the method cannot relax a workload, or p
// only asks whether there is a plan, it returns infeasible as it is. solveTime is the CPU time that the failed solve
// took: the search may take a multiple of it. solve returns an error if a problem has no plan.
func nearestFeasible(ctx context.Context, m *kind.Method, p *kind.Problem, infeasible *InfeasibleError, solveTime time.Duration, solve func(context.Context, *kind.Problem) error) *InfeasibleError {
	if m.RelaxWorkload == nil || p.FeasibilityOnly {
		return infeasible
	}

	// Trials need a plan of any quality: a wide gap to the bound lets them end early.
	maxCPU := min(max(nearTime, nearTimeFactor*solveTime), maxNearTime)
	searchContext, cancel := context.WithCancel(ctx)
	defer cancel()
	trial := *p
	trial.FeasibilityOnly = true
	if trial.Values.Has("gap") && trial.Values.Number("gap") < nearGap {
		if err := trial.Values.Set("gap", nearGap); err != nil {
			return infeasible
		}
	}

	// Search within a CPU time: a goroutine cancels the search when it is used up. This goroutine, which searches, then notes in
	// result.CutShort (stopReason) why it ended early.
	result := *infeasible
	result.Alternatives = nil
	search := &nearestSearch{
		ctx: searchContext, method: m, problem: &trial, solve: solve, remainingTrials: nearTrials,
		startCPU: cputime.Used(), maxCPU: maxCPU, stopReason: &result.CutShort,
	}
	go search.watchCPU(cancel)
	defer func() { // the search takes an interrupt by the caller for the end of its CPU time. The result is a pointer, so this still counts.
		if result.CutShort != "" && ctx.Err() != nil {
			result.CutShort = "by an interrupt"
		}
	}()

	// Relax the causes of the failure together, one after the other. Then look for changes of one sort (load, SLOs or
	// devices) that alone are enough. If neither gives a plan, less load and longer SLOs together may. An error of followCauses
	// other than errExhausted is not returned: single changes may still give a plan.
	combined, err := search.followCauses(&result)
	if errors.Is(err, errExhausted) {
		result.Nearest = search.knownNeeds(infeasible)
		return &result
	}
	relaxations := search.alternatives(combined)
	if combined == nil && len(relaxations) == 0 {
		combined = search.lessLoadAndLongerSLOs()
	}
	if combined != nil {
		relaxations = append([]*kind.Relaxation{combined}, relaxations...)
	}
	if len(relaxations) == 0 {
		result.Nearest = search.knownNeeds(infeasible)
	}

	// The first relaxation is the nearest, the others are alternatives.
	for i, relaxation := range relaxations {
		nearest := search.asNearest(relaxation, infeasible)
		if i == 0 {
			result.Nearest = nearest
			continue
		}
		result.Alternatives = append(result.Alternatives, nearest)
	}
	return &result
}

// knownNeeds returns the SLO and the load factor that are needed at least, marked as not solved, for an error after
// whose search no relaxation with a plan is known. Only methods whose plans are simulated state such bounds: for
// others it returns an empty value.
func (n *nearestSearch) knownNeeds(infeasible *InfeasibleError) kind.NearestFeasible {
	if !n.method.SimulationDecides {
		return kind.NearestFeasible{}
	}
	nearest := kind.NearestFeasible{SLOUS: infeasible.Nearest.SLOUS, LoadFactor: infeasible.Nearest.LoadFactor}
	nearest.NotSolved = nearest.SLOUS > 0 || nearest.LoadFactor > 0
	return nearest
}

// whyInfeasible solves a problem with a relaxation applied, and counts that as a trial. If there is a plan, both
// results are nil; if there is none, the first is the method's error with the reason. When no trials or CPU time are
// left, the second is errExhausted. It returns any other error of the solve as the second result.
func (n *nearestSearch) whyInfeasible(problem *kind.Problem, relaxation *kind.Relaxation) (*InfeasibleError, error) {
	if n.isExhausted() {
		return nil, errExhausted
	}
	n.remainingTrials--
	p, err := relaxation.RelaxProblem(n.method, problem)
	if err == nil {
		err = n.solve(n.ctx, p)
	}
	if n.ctx.Err() != nil && err != nil {
		n.isExhausted() // called because it notes the reason in stopReason
		return nil, errExhausted
	}
	infeasible, _ := errors.AsType[*InfeasibleError](err)
	if infeasible != nil {
		return infeasible, nil
	}
	return nil, err
}

// watchCPU runs as a goroutine beside the search and calls cancel when the search has used up its CPU time, so that a
// running trial ends too. It returns when the context of the search ends.
func (n *nearestSearch) watchCPU(cancel context.CancelFunc) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
			if cputime.Used()-n.startCPU > n.maxCPU {
				cancel()
			}
		}
	}
}

// isExhausted reports whether the search must end, because its CPU time or its trials are used up or the caller
// cancelled it. The first reason is noted in stopReason, as the end of a sentence.
func (n *nearestSearch) isExhausted() bool {
	reason := ""
	switch {
	case n.ctx.Err() != nil || cputime.Used()-n.startCPU > n.maxCPU:
		reason = fmt.Sprintf("after %v of CPU time", n.maxCPU.Round(time.Second))
	case n.remainingTrials <= 0:
		reason = fmt.Sprintf("after %d trials", nearTrials)
	}
	if *n.stopReason == "" {
		*n.stopReason = reason
	}
	return reason != ""
}

// isFeasible reports whether a relaxation has a plan. A relaxation that cannot be expressed has none.
func (n *nearestSearch) isFeasible(l kind.Relaxation) bool {
	inf, err := n.whyInfeasible(n.problem, &l)
	return inf == nil && err == nil
}

// followCauses relaxes the limit that the method names as the cause of the failure, solves again, and does the same
// with the next cause, until the relaxed problem has a plan. It returns that relaxation, after tighten has made its
// changes as small as they may be. If there is no plan after jointSteps steps, or nothing is left to relax, it returns
// nil without an error. When the search is exhausted it returns errExhausted, after another failure of a solve that
// error. result holds the first cause; the further ones are added to its OtherCauses.
func (n *nearestSearch) followCauses(result *InfeasibleError) (*kind.Relaxation, error) {
	relaxation, infeasible := kind.Relaxation{}, result
	knownCauses := []string{result.Constraint + result.Model}

	// Most solves of the search only ask whether there is a plan (n.problem). To learn the next cause, the method must
	// say why there is none.
	explaining := *n.problem
	explaining.FeasibilityOnly = false
	for range jointSteps {
		// If the method names a load that it has not solved, there is no plan above it. Try loads below it.
		nearest := &infeasible.Nearest
		if onlyMaxLoad := nearest.NotSolved && nearest.LoadFactor > 0; onlyMaxLoad {
			if relaxation = n.lessLoad(relaxation, nearest.LoadFactor); relaxation.LoadFactor == 0 {
				return nil, nil
			}
			n.tighten(&relaxation)
			return &relaxation, nil
		}

		// Relax by the change that the method names, and solve. A nil error of the method means that there is a plan.
		nextRelaxation, ok := n.relaxFurther(relaxation, infeasible)
		if !ok {
			return nil, nil
		}
		relaxation = nextRelaxation
		var err error
		if infeasible, err = n.whyInfeasible(&explaining, &relaxation); err != nil {
			return nil, err
		}
		if infeasible == nil {
			n.tighten(&relaxation)
			return &relaxation, nil
		}

		// Note the next cause, unless it was one before.
		if cause := infeasible.Constraint + infeasible.Model; !slices.Contains(knownCauses, cause) {
			knownCauses = append(knownCauses, cause)
			result.OtherCauses = append(result.OtherCauses, kind.Cause{Model: infeasible.Model, Constraint: infeasible.Constraint, Reason: infeasible.Reason})
		}
	}
	return nil, nil
}

// lessLoad returns the relaxation with a load factor (a part of the rates asked) at which there is a plan. It tries
// falling parts of maxFactor, a factor on the rates of the relaxation above which there is no plan. If none of them
// has a plan, LoadFactor of the result is 0.
func (n *nearestSearch) lessLoad(relaxation kind.Relaxation, maxFactor float64) kind.Relaxation {
	bound := relaxation.ScaledRate(1) * min(maxFactor, 1) // ScaledRate(1) is the present load factor, 1 if there is none
	for _, part := range []float64{0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01} {
		if relaxation.LoadFactor = kind.RoundDown(bound*part, nearDigits); n.isFeasible(relaxation) {
			return relaxation
		}
	}
	relaxation.LoadFactor = 0
	return relaxation
}

// sloKey returns the key in Relaxation.SLOs of the SLO that limits a model: its name, or an empty name if all models
// have one SLO, from the workload or the option slo.
func (n *nearestSearch) sloKey(model string) string {
	if v := n.problem.Values; n.method.SingleSLO || v.Has("slo") && !v.SLO("slo").IsZero() {
		return ""
	}
	return model
}

// relaxFurther returns a relaxation with one more change, taken from what the method's error names as the nearest
// feasible problem. It takes the first that the error names of a longer SLO and more memory per device, if these go
// beyond the relaxation, of devices to add to those of the relaxation, and of a lower load. If there is none, all SLOs
// that were lengthened before grow by a quarter. If no SLO was lengthened either, it returns false.
func (n *nearestSearch) relaxFurther(relaxation kind.Relaxation, infeasible *InfeasibleError) (kind.Relaxation, bool) {
	nearest, sloKey := &infeasible.Nearest, n.sloKey(infeasible.Model)
	if slo := time.Duration(math.Ceil(nearest.SLOUS)) * time.Microsecond; slo > relaxation.SLOs[sloKey] {
		relaxation.SLOs = maps.Clone(relaxation.SLOs)
		if relaxation.SLOs == nil {
			relaxation.SLOs = map[string]time.Duration{}
		}
		relaxation.SLOs[sloKey] = slo
		return relaxation, true
	}
	if nearest.MemoryBytes > relaxation.MinMemory {
		relaxation.MinMemory = nearest.MemoryBytes
		return relaxation, true
	}
	if len(nearest.Devices) > 0 && !slices.ContainsFunc(nearest.Devices, func(d kind.MissingCount) bool { return d.Count > maxAddedDevices }) {
		for _, d := range nearest.Devices {
			relaxation = relaxation.WithDevices(d.Device, d.Count)
		}
		return relaxation, true
	}
	if nearest.LoadFactor > 0 && !nearest.NotSolved {
		// The method solved the relaxed problem, so its factor multiplies the relaxed rates. These are ScaledRate(1) times the
		// rates that were asked. The factor is kept below 1, so that every step lowers the load.
		relaxation.LoadFactor = kind.RoundDown(relaxation.ScaledRate(1)*min(nearest.LoadFactor, 0.999999), nearDigits)
		return relaxation, true
	}
	// An SLO that a model can keep alone may be too short beside other models: lengthen all.
	longerSLOs := maps.Clone(relaxation.SLOs)
	for name := range longerSLOs {
		longerSLOs[name] += longerSLOs[name] / 4
	}
	relaxation.SLOs = longerSLOs
	return relaxation, len(longerSLOs) > 0
}

// tighten reduces a relaxation that has a plan to one that is nearer to the problem as asked and still has a plan: it
// shortens the SLOs, then takes back additional devices, then raises the load. It changes relaxation in place.
func (n *nearestSearch) tighten(relaxation *kind.Relaxation) {
	// Shorten the SLOs, one by one. withSLO is the relaxation with the SLO of name divided by f, in whole microseconds.
	for _, name := range slices.Sorted(maps.Keys(relaxation.SLOs)) {
		neededSLO := relaxation.SLOs[name]
		withSLO := func(f float64) kind.Relaxation {
			q := *relaxation
			q.SLOs = maps.Clone(relaxation.SLOs)
			q.SLOs[name] = time.Duration(math.Ceil(float64(neededSLO)/f/1000)) * time.Microsecond
			return q
		}
		maxFactor := max(neededSLO.Seconds()*1e6, 1) // no SLO is shorter than a microsecond
		*relaxation = withSLO(n.largestFeasible(1, maxFactor, func(f float64) bool { return n.isFeasible(withSLO(f)) }))
	}

	// Take back devices, kind by kind.
	for _, device := range slices.Sorted(maps.Keys(relaxation.Devices)) {
		for relaxation.Devices[device] > 0 {
			fewer := relaxation.WithDevices(device, -1)
			if !n.isFeasible(fewer) {
				break
			}
			*relaxation = fewer
		}
	}

	// Raise the load.
	if relaxation.LoadFactor > 0 {
		withLoad := func(f float64) kind.Relaxation {
			q := *relaxation
			q.LoadFactor = f
			return q
		}
		*relaxation = withLoad(n.largestFeasible(relaxation.LoadFactor, 1, func(f float64) bool { return n.isFeasible(withLoad(f)) }))
	}
}

// largestFeasible returns the largest value between passing and top for which feasible returns true, up to a factor of
// nearPrecision. passing is known to be feasible; top counts as infeasible and is not tried. The factor from one value
// to the next is nearPrecision, so that an edge nearby is found at once, and is squared each time, until a value fails;
// then the edge is bisected. Values are rounded down to nearDigits digits, which is much finer than any step. If the
// search is exhausted, it returns the largest feasible value so far.
func (n *nearestSearch) largestFeasible(passing, top float64, feasible func(float64) bool) float64 {
	for step := nearPrecision; ; step *= step {
		candidate := kind.RoundDown(passing*step, nearDigits)
		if candidate >= top {
			return n.bisectEdge(passing, top, feasible)
		}
		if n.isExhausted() {
			return passing
		}
		if !feasible(candidate) {
			return n.bisectEdge(passing, candidate, feasible)
		}
		passing = candidate
	}
}

// bisectEdge returns the feasible value nearest to an infeasible one, up to a factor of nearPrecision. Values are
// factors on a limit of the problem (load or SLO), or divisors of an SLO; 1 stands for a limit as it is. It halves the
// interval, on a logarithmic scale, between a feasible value (passing) and an infeasible one (failing), and returns its
// feasible end.
//
// If simulation decides whether there is a plan, feasible values need not lie together, and values beyond a failing one
// may be feasible. Then it goes on from the feasible end in steps of simulatedStep, until a value fails or the next one
// would reach or pass 1.
func (n *nearestSearch) bisectEdge(passing, failing float64, feasible func(float64) bool) float64 {
	step := simulatedStep // factor that leads towards the failing value
	if failing < passing {
		step = 1 / simulatedStep
	}
	for max(passing/failing, failing/passing) > nearPrecision && !n.isExhausted() {
		if middle := kind.RoundDown(math.Sqrt(passing*failing), nearDigits); feasible(middle) {
			passing = middle
		} else {
			failing = middle
		}
	}
	for n.method.SimulationDecides && !n.isExhausted() {
		candidate := kind.RoundDown(passing*step, nearDigits)
		reachesOne := candidate == 1 || (candidate < 1) != (passing < 1)
		if reachesOne || !feasible(candidate) {
			break
		}
		passing = candidate
	}
	return passing
}

// alternatives returns relaxations of one sort each that alone have a plan: less load, all SLOs longer by one factor,
// more devices of one kind. found is the relaxation that was found before, or nil: sorts of change that it contains
// are left out, less load only if found changes nothing else.
func (n *nearestSearch) alternatives(found *kind.Relaxation) (list []*kind.Relaxation) {
	lessLoad := func(f float64) kind.Relaxation { return kind.Relaxation{LoadFactor: f} }
	if loadAlone := found != nil && found.LoadFactor > 0 && len(found.SLOs)+len(found.Devices) == 0; !loadAlone && n.asksRates() {
		list = n.addFirstFeasible(list, []float64{0.9, 0.75, 0.5, 0.25, 0.1, 0.03, 0.01}, lessLoad)
	}
	longerSLOs := func(f float64) kind.Relaxation { return kind.Relaxation{SLOFactor: math.Ceil(f*1e4) / 1e4} }
	if found == nil || len(found.SLOs) == 0 {
		list = n.addFirstFeasible(list, []float64{1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100, 1000, 1e4, maxSLOFactor}, longerSLOs)
	}
	if found == nil || len(found.Devices) == 0 {
		if l := n.fewestMoreDevices(); l != nil {
			list = append(list, l)
		}
	}
	return list
}

// lessLoadAndLongerSLOs returns a relaxation with both less load and longer SLOs, for problems in which neither alone
// has a plan. It divides the load and multiplies the SLOs by 4 at a time until there is a plan. Then it raises the
// load, and after that shortens the SLOs, as far as there still is one. If nothing has a plan, or the problem asks
// for no rates, it returns nil.
func (n *nearestSearch) lessLoadAndLongerSLOs() *kind.Relaxation {
	if !n.asksRates() {
		return nil
	}
	relaxedBy := func(slo, load float64) kind.Relaxation {
		return kind.Relaxation{SLOFactor: math.Ceil(slo*1e4) / 1e4, LoadFactor: load}
	}
	for slo, load := 2.0, 0.5; slo <= maxSLOFactor && !n.isExhausted(); slo, load = 4*slo, load/4 {
		if !n.isFeasible(relaxedBy(slo, load)) {
			continue
		}
		load = n.largestFeasible(load, 1, func(f float64) bool { return n.isFeasible(relaxedBy(slo, f)) })
		// largestFeasible searches upwards, and SLOs get shorter: it is given the reciprocal of the factor on them.
		reciprocal := n.largestFeasible(1/slo, 1, func(f float64) bool { return n.isFeasible(relaxedBy(1/f, load)) })
		l := relaxedBy(1/reciprocal, load)
		return &l
	}
	return nil
}

// addFirstFeasible tries the values in steps, which lead ever further from 1 (nothing is relaxed), as relaxations
// relaxedBy(value). At the first that has a plan, it searches for the edge between that value and the one before, and
// appends the relaxation at the edge to list. If none has a plan, it returns list as it is.
func (n *nearestSearch) addFirstFeasible(list []*kind.Relaxation, steps []float64, relaxedBy func(float64) kind.Relaxation) []*kind.Relaxation {
	feasible := func(f float64) bool { return n.isFeasible(relaxedBy(f)) }
	previous := 1.0
	for _, f := range steps {
		if feasible(f) {
			l := relaxedBy(n.bisectEdge(f, previous, feasible))
			return append(list, &l)
		}
		previous = f
	}
	return list
}

// fewestMoreDevices returns a relaxation that only adds devices of one kind: the kind that needs the fewest of them for
// a plan. If no kind gives a plan with maxAdded more devices, it returns nil.
func (n *nearestSearch) fewestMoreDevices() (relaxation *kind.Relaxation) {
	maxAdded := maxAddedDevices
	if n.method.SimulationDecides {
		maxAdded = maxAddedSimulated
	}
	for k := range n.problem.Cluster.Pools {
		device := n.problem.Cluster.Pools[k].Device
		withDevices := func(added int) kind.Relaxation { return (kind.Relaxation{}).WithDevices(device, added) }

		// Double the number until there is a plan, then bisect.
		tooFew, sufficient := 0, 1
		for sufficient <= maxAdded && !n.isFeasible(withDevices(sufficient)) {
			tooFew, sufficient = sufficient, 2*sufficient
		}
		if sufficient > maxAdded {
			continue
		}
		for sufficient-tooFew > 1 && !n.isExhausted() {
			if mid := (tooFew + sufficient) / 2; n.isFeasible(withDevices(mid)) {
				sufficient = mid
			} else {
				tooFew = mid
			}
		}

		// The next kinds must need fewer devices than this one.
		l := withDevices(sufficient)
		relaxation, maxAdded = &l, sufficient-1
		if maxAdded == 0 {
			break
		}
	}
	return relaxation
}

// asksRates reports whether the problem asks for rates, so that less load is a relaxation: whether half of the load
// changes its workload or its options.
func (n *nearestSearch) asksRates() bool {
	halfLoad := kind.Relaxation{LoadFactor: 0.5}
	p, err := halfLoad.RelaxProblem(n.method, n.problem)
	return err == nil && !(reflect.DeepEqual(p.Workload, n.problem.Workload) && p.Values.Equal(n.problem.Values))
}

// asNearest returns a relaxation in the form in which the error states it: SLOs in microseconds, devices in the order of the
// cluster's pools, and the load factor also as a value of the option min-load, if only that option asks for rates
// (OnlyMinLoad). SLOUS is the longest SLO. The list SLOs, by model, is left out if it only repeats SLOUS: if one SLO is
// longer, and it belongs to the model that the error names, or to all. infeasible is the error of the failed solve.
func (n *nearestSearch) asNearest(relaxation *kind.Relaxation, infeasible *InfeasibleError) kind.NearestFeasible {
	nearest := kind.NearestFeasible{SLOFactor: relaxation.SLOFactor, LoadFactor: relaxation.LoadFactor, MemoryBytes: relaxation.MinMemory}
	for _, name := range slices.Sorted(maps.Keys(relaxation.SLOs)) {
		micros := float64(relaxation.SLOs[name]) / 1000
		nearest.SLOUS = max(nearest.SLOUS, micros)
		nearest.SLOs = append(nearest.SLOs, kind.ModelSLO{Model: name, SLOUS: micros})
	}
	if len(nearest.SLOs) == 1 && nearest.SLOs[0].Model == n.sloKey(infeasible.Model) {
		nearest.SLOs = nil
	}
	for k := range n.problem.Cluster.Pools {
		device := n.problem.Cluster.Pools[k].Device
		if added := relaxation.Devices[device]; added > 0 {
			nearest.Devices = append(nearest.Devices, kind.MissingCount{Device: device, Count: added})
		}
	}
	v := n.problem.Values
	asksMinLoad := v.Has("min-load") && v.Number("min-load") > 0 && infeasible.OnlyMinLoad
	if asksMinLoad && relaxation.LoadFactor > 0 {
		nearest.MinLoadRPS = kind.RoundDown(v.Number("min-load")*relaxation.LoadFactor, 6)
	}
	return nearest
}
