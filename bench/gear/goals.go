package main

import (
	"errors"
	"fmt"
	"slices"

	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/planner/gear/cascades"
)

// timedPlan is a plan with its cost.
type timedPlan struct {
	CPU         float64 // seconds
	Simulations int
	Accuracy    float64
}

// planningTime measures the CPU time of plans with five seeds on four devices by the number of ranges, as figure 11 does.
func planningTime(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	t.Columns = []string{"workload", "ranges", "CPU s", "simulations", "accuracy"}
	const seeds = 5
	for _, n := range []int{5, 10, 20, 40, 80} {
		var seconds, accuracies []float64
		simulations := 0
		for seed := uint64(1); seed <= seeds; seed++ {
			v, err := instrument.Measured(r, fmt.Sprintf("%s/time/%d/%d", f.Name, n, seed), func() (*timedPlan, error) {
				q, err := baseline.Problem(f, 4, n, f.SLO)
				if err != nil {
					return nil, err
				}
				before := cputime.Used()
				found, err := solveSeeded(r.Ctx, q, seed)
				if err == nil && found == nil {
					err = errors.New("no plan on four devices")
				}
				if err != nil {
					return nil, err
				}
				return &timedPlan{(cputime.Used() - before).Seconds(), found.RunCount, found.Accuracy}, nil
			})
			if err != nil {
				return err
			}
			seconds, accuracies, simulations = append(seconds, v.CPU), append(accuracies, v.Accuracy), simulations+v.Simulations
		}
		accuracy, _ := instrument.Mean(accuracies)
		t.Add(f.Name, n, meanOf(seconds, 2), simulations/seeds, digits(accuracy))
	}
	return nil
}

// goalCases are cases of the paper's size by family: devices, and accuracies in reach on them, the first by far.
var goalCases = map[string][]struct {
	devices int
	targets [2]float64
}{
	"bert5":  {{1, [2]float64{.92, .924}}, {2, [2]float64{.93, .932}}, {3, [2]float64{.93, .934}}, {4, [2]float64{.93, .935}}, {5, [2]float64{.93, .935}}},
	"llama4": {{4, [2]float64{.62, .638}}, {6, [2]float64{.62, .645}}, {8, [2]float64{.62, .65}}},
	"imdb3":  {{2, [2]float64{.78, .805}}, {4, [2]float64{.83, .845}}, {6, [2]float64{.84, .855}}},
}

// goalRounds says how often a plan for a goal is made: the median time is shown.
const goalRounds = 3

// reachedGoal holds the results of a plan for a goal.
type reachedGoal struct {
	OK                bool
	Value, Bound, Gap float64 // of the goal; accuracy below its bound
	Tried             float64 // what trials leave; 0 if it is not known
	CPU               []float64
	Simulations       float64
}

// goal is what a plan is made for.
type goal struct {
	name, over string // over what its SLO is: ranges or requests
	set        func(*cascades.Problem)
}

// goalsOn returns the goals of a case, each with the SLO in every range and over all requests.
func goalsOn(f *published.Family, devices int, targets [2]float64) []goal {
	list := []goal{{"accuracy", "ranges", func(*cascades.Problem) {}}, {"accuracy", "requests", overRequests(f)}}
	for _, target := range targets {
		fewest := func(q *cascades.Problem) { q.TargetAccuracy, q.Kinds[0].Devices = target, devices+4 }
		list = append(list,
			goal{fmt.Sprintf("latency for %g", target), "ranges", func(q *cascades.Problem) { q.SLO, q.TargetAccuracy = 0, target }},
			goal{fmt.Sprintf("devices for %g", target), "ranges", fewest},
			goal{fmt.Sprintf("devices for %g", target), "requests", func(q *cascades.Problem) {
				fewest(q)
				overRequests(f)(q)
			}})
	}
	return list
}

// goals measures planning time and value by goal.
func goals(r *instrument.Run, f *published.Family, t *instrument.Table) error {
	t.Columns = []string{"workload", "devices", "goal", "SLO over", "value (accuracy, ms, devices)", "bound", "by trials", "gap, points", "CPU s", "simulations"}
	var medians []float64
	largestGap := 0.0
	for _, c := range goalCases[f.Name] {
		for _, g := range goalsOn(f, c.devices, c.targets) {
			v, err := instrument.Measured(r, fmt.Sprintf("%s/goal/%d/%s/%s", f.Name, c.devices, g.name, g.over), func() (*reachedGoal, error) {
				return g.plan(r, place{f, c.devices, f.SLO})
			})
			if err != nil {
				return err
			}
			slices.Sort(v.CPU)
			median := v.CPU[len(v.CPU)/2]
			medians = append(medians, median)
			cells := []any{f.Name, c.devices, g.name, g.over}
			tried := ""
			if v.Tried > 0 {
				tried = fmt.Sprintf("%.4g", v.Tried)
			}
			switch {
			case !v.OK:
				cells = append(cells, "no plan", "", "", "")
			case g.name == "accuracy":
				largestGap = max(largestGap, v.Gap)
				cells = append(cells, digits(v.Value), digits(v.Bound), tried, fmt.Sprintf("%.3f", 100*v.Gap))
			default:
				cells = append(cells, fmt.Sprintf("%.4g", v.Value), fmt.Sprintf("%.4g", v.Bound), tried, "")
			}
			t.Add(append(cells, fmt.Sprintf("%.2f", median), v.Simulations)...)
		}
	}
	if f.Name == "bert5" { // nothing is asked of the others
		r.AtMost("accuracy of plans of bert5 below the bound, most", "bounds of gear plans (docs/methods/gear.md)", .1, "points", 100*largestGap)
	}
	r.AtMost(fmt.Sprintf("CPU time of a gear plan of %s for any goal, most", f.Name), "planning time", .5, "s", slices.Max(medians)).Note = fmt.Sprintf("%d plans, median of %d each", len(medians), goalRounds)
	return nil
}

// plan makes the plan of a goal several times.
func (g *goal) plan(r *instrument.Run, p place) (*reachedGoal, error) {
	v := &reachedGoal{}
	for range goalRounds {
		q, err := p.changed(g.set)()
		if err != nil {
			return nil, err
		}
		before := cputime.Used()
		found, err := solve(r.Ctx, q)
		v.CPU = append(v.CPU, (cputime.Used() - before).Seconds())
		if err != nil || found == nil {
			return v, err
		}
		if v.OK, v.Value, v.Bound = true, found.Value, found.ValueBound; g.name == "accuracy" {
			v.Bound, v.Gap = found.Bound, found.Bound-found.Accuracy // of mixtures, whatever the SLO is over
		}
		v.Simulations, v.Tried = float64(found.RunCount), found.TrialBound
	}
	return v, nil
}
