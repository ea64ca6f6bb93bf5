package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"inferplan/formats"
)

// LoadStep is the step of the grid of load factors.
const LoadStep = 0.05

// maxLoadPoint is the last point of the grid: five times the planned rate.
const maxLoadPoint = 100

// MaxSearchLoad is the highest load factor that a search simulates.
const MaxSearchLoad = maxLoadPoint * LoadStep

// MaxLoad is the result of FindMaxLoad.
type MaxLoad struct {
	// Overall is the highest load at which every model attains its share of requests in time.
	// Models holds the highest load of each model. 0 means that not even the lowest point of
	// the grid passes.
	Overall float64
	Models  []float64
	// Points are the loads that were simulated, in order of load.
	Points []LoadPoint
	// Interrupted says that the search was cancelled. Overall is then the highest load so
	// far, and Models is nil.
	Interrupted bool
}

// LoadPoint is one simulated load factor (a multiple of the planned rates) with its report.
type LoadPoint struct {
	Load   float64
	Report *formats.Report
	Events int64
}

// PointAt returns the simulated point of a load factor. If that load was not simulated, it returns nil.
func (m *MaxLoad) PointAt(load float64) *LoadPoint {
	for i := range m.Points {
		if gridIndex(m.Points[i].Load) == gridIndex(load) {
			return &m.Points[i]
		}
	}
	return nil
}

// gridLoad returns the load factor of a point (a number from 0) of the grid, the float nearest to point * LoadStep.
func gridLoad(point int) float64 { return float64(point) / math.Round(1/LoadStep) }

// gridIndex returns the point of the grid that is nearest to a load factor.
func gridIndex(load float64) int { return int(math.Round(load / LoadStep)) }

// FindMaxLoad searches a grid of load factors with step 0.05, up to maxLoad, for the highest
// point at which a model attains its share of requests in time, for each model and for all of
// them. shares[model] is the share of the model's requests that must be in time. Every point is
// simulated in numRuns runs, with the same random numbers at every point.
//
// The search starts at load 1, or at maxLoad if that is less. It goes up while a model
// passes, else down until it does, in steps that double, and then bisects. It is done with a
// model that passes at maxLoad, or passes at a point and fails at the next. Attainment is
// assumed to fall with load.
//
// If ctx is cancelled, FindMaxLoad returns the error together with the results of the complete points, or nil if there
// are none.
func FindMaxLoad(ctx context.Context, scenario *Scenario, shares []float64, numRuns int, maxLoad float64) (*MaxLoad, error) {
	search, err := newLoadSearch(ctx, scenario, shares, numRuns, maxLoad)
	if err != nil {
		return nil, err
	}
	models := make([]float64, len(scenario.Tables.Models))
	for model := range models {
		if models[model], err = search.highestLoad(func(r *formats.Report) bool { return r.Models[model].Attainment >= shares[model] }); err != nil {
			return search.interruptedResult(err), err
		}
	}
	return search.overallLoad(models)
}

// FindOverallLoad finds the highest load at which all models attain their shares together. Unlike FindMaxLoad it
// does not find the highest load of each model, which takes more simulated points.
func FindOverallLoad(ctx context.Context, scenario *Scenario, shares []float64, numRuns int) (*MaxLoad, error) {
	search, err := newLoadSearch(ctx, scenario, shares, numRuns, MaxSearchLoad)
	if err != nil {
		return nil, err
	}
	return search.overallLoad(nil)
}

// loadSearch simulates points of the grid of load factors (numbers, see gridLoad), each once.
type loadSearch struct {
	ctx          context.Context
	base         *Scenario // scenario at load 1
	shares       []float64 // share of requests in time that is asked, by model
	runsPerPoint int
	maxPoint     int               // last point of the grid that is searched
	points       map[int]LoadPoint // the simulated points, by their numbers
}

// newLoadSearch returns a search over the loads of a grid up to maxLoad, after it has checked the shares (requests
// in time, by model) and that load.
func newLoadSearch(ctx context.Context, scenario *Scenario, shares []float64, numRuns int, maxLoad float64) (*loadSearch, error) {
	if len(shares) != len(scenario.Tables.Models) {
		return nil, fmt.Errorf("simulating: %d shares of requests in time, expected one for each of %d models", len(shares), len(scenario.Tables.Models))
	}
	if i := slices.IndexFunc(shares, func(share float64) bool { return !(share > 0 && share <= 1) }); i >= 0 {
		return nil, fmt.Errorf("simulating: attainment %v, expected more than 0 and at most 1", shares[i])
	}
	if !(maxLoad >= LoadStep && maxLoad <= MaxSearchLoad) {
		return nil, fmt.Errorf("simulating: loads up to %v, expected from %v to %v", maxLoad, LoadStep, MaxSearchLoad)
	}
	maxPoint := int(math.Floor(maxLoad/LoadStep + 1e-9)) // the small term makes up for errors of rounding
	return &loadSearch{ctx, scenario, shares, numRuns, maxPoint, map[int]LoadPoint{}}, nil
}

// reportAt returns the report of a point of the grid of load factors. It simulates the point if that was not done before.
func (s *loadSearch) reportAt(point int) (*formats.Report, error) {
	if knownPoint, ok := s.points[point]; ok {
		return knownPoint.Report, nil
	}
	scenario := *s.base
	scenario.Load = gridLoad(point)
	result, err := Replicate(s.ctx, &scenario, s.runsPerPoint)
	if err != nil {
		return nil, fmt.Errorf("load %.2f: %w", scenario.Load, err)
	}
	s.points[point] = LoadPoint{Load: scenario.Load, Report: result.Report, Events: result.Events}
	return result.Report, nil
}

// highestLoad returns the highest load factor of the grid whose report passes, found by doubling steps from load 1 (or
// the last point of the grid, if that is less) and bisection. Points are numbered from 1; if none passes, it returns 0.
func (s *loadSearch) highestLoad(passes func(*formats.Report) bool) (float64, error) {
	search := gridBracket{candidate: min(gridIndex(1), s.maxPoint), lowestFail: s.maxPoint + 1}
	for !search.isClosed() {
		report, err := s.reportAt(search.candidate)
		if err != nil {
			return 0, err
		}
		search.observe(passes(report))
	}
	return gridLoad(search.highestPass), nil
}

// gridBracket searches for the highest point of a grid that passes a test, between the highest point that has passed
// and the lowest that has failed. Point 0 passes by definition.
type gridBracket struct {
	candidate            int  // the point to test next
	highestPass          int  // the highest point that passed
	lowestFail           int  // the lowest point that failed
	step                 int  // the latest step, in points; it doubles until a point has passed and one has failed
	anyPassed, anyFailed bool // whether a point has passed, and whether one has failed
}

// isClosed reports whether the search is done: the lowest point that fails is next to the highest that passes.
func (b *gridBracket) isClosed() bool { return b.lowestFail-b.highestPass <= 1 }

// observe enters whether the candidate (a point of the grid) has passed, and chooses the next candidate: while only
// passes or only failures were seen, a step further up or down, which doubles each time; then the middle between the
// highest point that passed and the lowest that failed.
func (b *gridBracket) observe(pass bool) {
	if pass {
		b.highestPass, b.anyPassed = max(b.highestPass, b.candidate), true
	} else {
		b.lowestFail, b.anyFailed = min(b.lowestFail, b.candidate), true
	}
	b.step = max(1, 2*b.step)
	switch {
	case b.anyPassed && b.anyFailed:
		b.candidate = (b.highestPass + b.lowestFail) / 2
	case pass:
		b.candidate = min(b.highestPass+b.step, b.lowestFail-1)
	default:
		b.candidate = max(b.lowestFail-b.step, b.highestPass+1)
	}
}

// overallLoad returns the highest load factor at which all models attain their shares together, with `models`, the
// highest loads of each (nil if they are not wanted). If it is interrupted, it returns what was found so far with the
// error.
func (s *loadSearch) overallLoad(models []float64) (*MaxLoad, error) {
	highest, err := s.highestLoad(s.allAttain)
	if err != nil {
		return s.interruptedResult(err), err
	}
	return &MaxLoad{Overall: highest, Models: models, Points: s.pointsInOrder()}, nil
}

// allAttain returns whether every model of a report attains its share of requests in time.
func (s *loadSearch) allAttain(report *formats.Report) bool {
	for i := range report.Models {
		if report.Models[i].Attainment < s.shares[i] {
			return false
		}
	}
	return true
}

// pointsInOrder returns the points of the grid that were simulated so far, in order of load.
func (s *loadSearch) pointsInOrder() []LoadPoint {
	var points []LoadPoint
	for _, point := range slices.Sorted(maps.Keys(s.points)) {
		points = append(points, s.points[point])
	}
	return points
}

// interruptedResult returns what the points so far show if the search was cancelled, else nil. A point is a
// simulated load. Overall is the highest of them at which all models attained their shares.
func (s *loadSearch) interruptedResult(err error) *MaxLoad {
	if !errors.Is(err, context.Canceled) || len(s.points) == 0 {
		return nil
	}
	result := &MaxLoad{Points: s.pointsInOrder(), Interrupted: true}
	for _, point := range result.Points {
		if s.allAttain(point.Report) {
			result.Overall = point.Load
		}
	}
	return result
}

// Sweep simulates the given load factors, in order, numRuns runs each, and searches nothing. If ctx is cancelled,
// it returns the error together with the loads that are complete, or nil if there are none.
func Sweep(ctx context.Context, base *Scenario, loads []float64, numRuns int) (*MaxLoad, error) {
	sweep := &MaxLoad{}
	for _, load := range loads {
		if !(load > 0) || math.IsInf(load, 0) {
			return nil, fmt.Errorf("simulating: load %v, expected more than 0", load)
		}
		scenario := *base
		scenario.Load = load
		result, err := Replicate(ctx, &scenario, numRuns)
		if err != nil {
			err = fmt.Errorf("load %g: %w", load, err)
			sweep.Interrupted = errors.Is(err, context.Canceled)
			if !sweep.Interrupted || len(sweep.Points) == 0 {
				return nil, err
			}
			return sweep, err
		}
		sweep.Points = append(sweep.Points, LoadPoint{Load: load, Report: result.Report, Events: result.Events})
	}
	return sweep, nil
}

// loadCurve returns the part of a report that shows, for each simulated load, the share of requests in time
// (attainment) of all and of each model.
func (m *MaxLoad) loadCurve() []formats.LoadReport {
	var curve []formats.LoadReport
	for _, point := range m.Points {
		entry := formats.LoadReport{Load: point.Load, Attainment: point.Report.Attainment, AttainmentCI: point.Report.AttainmentCI}
		for i := range point.Report.Models {
			model := &point.Report.Models[i]
			entry.Models = append(entry.Models, formats.ModelPoint{
				Model: model.Model, Class: model.Class, Attainment: model.Attainment, AttainmentCI: model.AttainmentCI,
				GoodputRPS: model.GoodputRPS, P99US: model.Latency.P99US,
			})
		}
		curve = append(curve, entry)
	}
	return curve
}

// SweepReport returns the report of the last load of a sweep with the curve of all loads in it, and the number of
// events of all points.
func (m *MaxLoad) SweepReport() (*formats.Report, int64) {
	if len(m.Points) == 0 {
		return nil, 0
	}
	return m.reportOf(&m.Points[len(m.Points)-1])
}

// reportOf returns a copy of the report of a point, with the curve of all points in it, and the number of events of all
// points.
func (m *MaxLoad) reportOf(point *LoadPoint) (*formats.Report, int64) {
	report := *point.Report
	report.Models = slices.Clone(report.Models)
	report.Curve = m.loadCurve()
	report.Interrupted = m.Interrupted
	var events int64
	for _, simulated := range m.Points {
		events += simulated.Events
	}
	return &report, events
}

// Report returns the report of the highest load that every model attained, with the highest
// load of each model in it. If not even the lowest point of the grid passed, it is the report
// of the lowest point. The second result is the number of events of all points.
func (m *MaxLoad) Report() (*formats.Report, int64) {
	if len(m.Points) == 0 {
		return nil, 0
	}
	point := m.PointAt(m.Overall)
	if point == nil {
		point = &m.Points[0]
	}

	// Add the curve and the highest loads to a copy of its report.
	report, events := m.reportOf(point)
	if !m.Interrupted {
		overall := m.Overall
		report.MaxLoadFactor = &overall
	}
	for i := range m.Models {
		highestLoad := m.Models[i]
		report.Models[i].MaxLoadFactor = &highestLoad
	}
	return report, events
}
