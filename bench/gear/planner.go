package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/gear/baseline"
	"inferplan/bench/gear/published"
	"inferplan/bench/table"
	"inferplan/cputime"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/search"
	"inferplan/planner/gear/trials"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/solver/highs"
)

// small is a space in which all plans can be tried: some models, few thresholds
// and ranges, batches of one, every model everywhere, and a trace of eight steps
// around the burst.
type small struct {
	models  []string
	devices int
	ranges  int
	apart   int     // seconds between the rates taken from the trace
	last    int     // seconds that each of them lasts
	peak    float64 // of the short trace
}

var smalls = map[string]small{
	"bert5":  {[]string{"tiny", "small", "base"}, 4, 3, 15, 1, 1500},
	"llama4": {[]string{"7B", "13B", "70B"}, 8, 4, 60, 10, 60},
	"imdb3":  {[]string{"GitHub(Vader)", "Amazon", "Google"}, 4, 3, 15, 1, 800},
}

// smallGrid is its grid of thresholds.
const smallGrid = 3

// searched holds the results of every plan of the space.
type searched struct {
	Plans int
	CPU   float64
	Front []baseline.Point
}

// compared is one latency target in the small space.
type compared struct {
	OK       bool
	Ours     baseline.Point
	CPU      float64
	Overall  baseline.Point // our plan for all requests of the trace
	Longer   float64        // its CPU time
	Random   []float64      // best accuracy by seed; 0 if none is in time
	Drawn    int            // plans, over all seeds
	Feasible int            // seeds with a plan in time
}

// quality is figure 10: our plans against every plan, and against the best of
// random ones that take twice our time.
func (b *bench) quality(f *published.Family, t *table.Table) error {
	c := smalls[f.Name]
	fam := f.Only(c.models...)
	fam.Grid = smallGrid
	var rates published.Rates
	for _, q := range f.Rates.Around(8, c.apart, c.peak) {
		for range c.last {
			rates = append(rates, q)
		}
	}
	space, err := baseline.NewSpace(fam, c.devices, c.ranges, rates)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s/small %d", f.Name, c.devices)
	all, err := memo(&b.runs, key+"/every plan", 2*perRequest*rates.Total()*float64(space.Size()), func() *searched { return &searched{} }, func(ctx context.Context) (*searched, error) {
		before := cputime.Used().Seconds()
		points, err := space.Exhaustive(ctx, b.jobs)
		if err != nil {
			return nil, err
		}
		return &searched{len(points), cputime.Used().Seconds() - before, baseline.ParetoFront(points)}, nil
	}, func(s *searched) string { return fmt.Sprintf("%d plans in %v of CPU", s.Plans, seconds(s.CPU)) })
	if err != nil {
		return err
	}
	for _, share := range []float64{1. / 16, 1. / 8, 1. / 4, 1. / 2, 1, 2} {
		slo := time.Duration(share * float64(f.SLO))
		v, err := memo(&b.runs, fmt.Sprintf("%s/%v", key, slo), 2*perPlan, func() *compared { return &compared{} }, func(ctx context.Context) (*compared, error) {
			return b.compare(ctx, space, slo)
		}, func(v *compared) string { return fmt.Sprintf("accuracy %.4f", v.Ours.Accuracy) })
		if err != nil {
			return err
		}
		if b.counting != nil {
			continue
		}
		best := baseline.Best(all.Front, slo)
		row := []any{f.Name, fmt.Sprintf("%.4g", ms(slo)), digits(best)}
		if best == 0 {
			row[2] = "none"
		}
		if !v.OK {
			t.Add(append(row, "none", "", "", "", "", "", "", "", "")...)
			continue
		}
		mean, half := interval(v.Random)
		drawn := plusMinus(mean, half)
		if v.Feasible < len(v.Random) {
			drawn = fmt.Sprintf("none in %d of %d", len(v.Random)-v.Feasible, len(v.Random))
		}
		t.Add(append(row, digits(v.Ours.Accuracy), fmt.Sprintf("%.1f", ms(v.Ours.P95)), fmt.Sprintf("%.3f", v.CPU),
			digits(v.Overall.Accuracy), fmt.Sprintf("%.1f", ms(v.Overall.P95)), fmt.Sprintf("%.3f", v.Longer), drawn, v.Drawn/len(v.Random),
			fmt.Sprintf("%.2f, %.2f", 100*(best-v.Ours.Accuracy), 100*(best-v.Overall.Accuracy)))...)
	}
	if b.counting == nil {
		t.Note("%s: %d cascades in %d ranges are %d plans, %v of CPU.", f.Name, len(space.Cascades), c.ranges, all.Plans, seconds(all.CPU))
	}
	return nil
}

// compare plans for a latency and draws plans for twice the CPU time, which
// nothing else uses meanwhile.
func (b *bench) compare(ctx context.Context, space *baseline.Space, slo time.Duration) (*compared, error) {
	before := cputime.Used().Seconds()
	found, ok, err := space.Planned(ctx, slo, false, planSeed)
	if err != nil || !ok {
		return &compared{}, err
	}
	v := &compared{OK: true, CPU: cputime.Used().Seconds() - before}
	if v.Ours, err = space.Show(ctx, found); err != nil {
		return nil, err
	}
	before = cputime.Used().Seconds()
	if found, ok, err = space.Planned(ctx, slo, true, planSeed); err != nil || !ok {
		return nil, errors.Join(err, errors.New("no plan for all requests where there is one for every range"))
	}
	v.Longer = cputime.Used().Seconds() - before
	if v.Overall, err = space.Show(ctx, found); err != nil {
		return nil, err
	}
	for seed := range b.seeds {
		from := cputime.Used().Seconds()
		points, err := space.Random(ctx, seeded.New(uint64(seed+1), "bench/gear/plans"), func() bool { return cputime.Used().Seconds()-from >= 2*max(v.CPU, v.Longer) })
		if err != nil {
			return nil, err
		}
		best := baseline.Best(points, slo)
		if best > 0 {
			v.Feasible++
		}
		v.Random, v.Drawn = append(v.Random, best), v.Drawn+len(points)
	}
	return v, nil
}

// timed is a plan with its cost.
type timed struct {
	CPU         float64
	Simulations int
	Accuracy    float64
}

// planningTime is figure 11, on four devices, over plans with different seeds.
func (b *bench) planningTime(f *published.Family, t *table.Table) error {
	for _, n := range []int{5, 10, 20, 40, 80} {
		var cpu, accuracy []float64
		simulations := 0
		for seed := range b.seeds {
			v, err := memo(&b.runs, fmt.Sprintf("%s/time/%d/%d", f.Name, n, seed+1), perPlan, func() *timed { return &timed{} }, func(ctx context.Context) (*timed, error) {
				p, err := baseline.Problem(f, 4, n, f.SLO)
				if err != nil {
					return nil, err
				}
				before := cputime.Used().Seconds()
				out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: uint64(seed + 1)})
				if err != nil {
					return nil, err
				}
				return &timed{cputime.Used().Seconds() - before, out.RunCount, out.Accuracy}, nil
			}, func(v *timed) string { return fmt.Sprintf("%.2f s", v.CPU) })
			if err != nil {
				return err
			}
			cpu, accuracy, simulations = append(cpu, v.CPU), append(accuracy, v.Accuracy), simulations+v.Simulations
		}
		mean, half := interval(cpu)
		planned, _ := interval(accuracy)
		t.Add(f.Name, n, fmt.Sprintf("%.2f ± %.2f", mean, half), simulations/b.seeds, digits(planned))
	}
	return nil
}

// aims are cases of the paper's size: devices, and accuracies in reach on them,
// the first by far.
type aims struct {
	devices int
	targets [2]float64
}

var goalCases = map[string][]aims{
	"bert5":  {{1, [2]float64{.92, .924}}, {2, [2]float64{.93, .932}}, {3, [2]float64{.93, .934}}, {4, [2]float64{.93, .935}}, {5, [2]float64{.93, .935}}},
	"llama4": {{4, [2]float64{.62, .638}}, {6, [2]float64{.62, .645}}, {8, [2]float64{.62, .65}}},
	"imdb3":  {{2, [2]float64{.78, .805}}, {4, [2]float64{.83, .845}}, {6, [2]float64{.84, .855}}},
}

// goalRounds is how often a plan for a goal is made: the median time is shown.
const goalRounds = 3

// reachedGoal holds the results of a plan for a goal.
type reachedGoal struct {
	OK                    bool
	Value, Bound, Gap     float64 // of the goal; accuracy below its bound
	Tried                 float64 // what trials leave; 0 if it is not known
	CPU                   []float64
	Accuracy, Simulations float64
}

// goals is the planning time of every goal, each with the SLO in every range and
// over all requests.
func (b *bench) goals(f *published.Family, t *table.Table) error {
	var medians []float64
	gap := 0.0
	for _, c := range goalCases[f.Name] {
		type goal struct {
			name, over string
			set        func(*cascades.Problem)
		}
		list := []goal{{"accuracy", "ranges", func(*cascades.Problem) {}}, {"accuracy", "requests", func(p *cascades.Problem) { p.OverRequests, p.MeasuredRates = true, f.Rates }}}
		for _, target := range c.targets {
			list = append(list,
				goal{fmt.Sprintf("latency for %g", target), "ranges", func(p *cascades.Problem) { p.SLO, p.TargetAccuracy = 0, target }},
				goal{fmt.Sprintf("devices for %g", target), "ranges", func(p *cascades.Problem) { p.TargetAccuracy, p.Kinds[0].Devices = target, c.devices+4 }},
				goal{fmt.Sprintf("devices for %g", target), "requests", func(p *cascades.Problem) {
					p.TargetAccuracy, p.Kinds[0].Devices, p.OverRequests, p.MeasuredRates = target, c.devices+4, true, f.Rates
				}})
		}
		for _, g := range list {
			v, err := memo(&b.runs, fmt.Sprintf("%s/goal/%d/%s/%s", f.Name, c.devices, g.name, g.over), goalRounds*perPlan, func() *reachedGoal { return &reachedGoal{} }, func(ctx context.Context) (*reachedGoal, error) {
				v := &reachedGoal{}
				for range goalRounds {
					p, err := b.problem(place{f, c.devices, f.SLO})
					if err != nil {
						return nil, err
					}
					g.set(p)
					before := cputime.Used().Seconds()
					out, err := search.Solve(ctx, p, highs.Solver{}, search.Options{Seed: planSeed})
					v.CPU = append(v.CPU, cputime.Used().Seconds()-before)
					if _, inf := errors.AsType[*cascades.InfeasibleError](err); inf {
						return v, nil
					}
					if err != nil {
						return nil, err
					}
					if v.OK, v.Value, v.Bound = true, out.Value, out.ValueBound; g.name == "accuracy" {
						v.Bound, v.Gap = out.Bound, out.Bound-out.Accuracy // of mixtures, whatever the SLO is over
					}
					v.Accuracy, v.Simulations, v.Tried = out.Accuracy, float64(out.RunCount), out.TrialBound
				}
				return v, nil
			}, func(v *reachedGoal) string { return fmt.Sprintf("%v s", v.CPU) })
			if err != nil {
				return err
			}
			if b.counting != nil {
				continue
			}
			slices.Sort(v.CPU)
			cpu := fmt.Sprintf("%.2f", v.CPU[len(v.CPU)/2])
			if medians = append(medians, v.CPU[len(v.CPU)/2]); v.OK && g.name == "accuracy" {
				gap = max(gap, v.Gap)
			}
			tried := ""
			if v.Tried > 0 {
				tried = fmt.Sprintf("%.4g", v.Tried)
			}
			switch {
			case !v.OK:
				t.Add(f.Name, c.devices, g.name, g.over, "no plan", "", "", "", cpu, "")
			case g.name == "accuracy":
				t.Add(f.Name, c.devices, g.name, g.over, digits(v.Value), digits(v.Bound), tried, fmt.Sprintf("%.3f", 100*v.Gap), cpu, v.Simulations)
			default:
				t.Add(f.Name, c.devices, g.name, g.over, fmt.Sprintf("%.4g", v.Value), fmt.Sprintf("%.4g", v.Bound), tried, "", cpu, v.Simulations)
			}
		}
	}
	if len(medians) > 0 {
		b.goalFigures(f, gap, medians)
	}
	return nil
}

// goalFigures are how far accuracies are below their bound at most, and how long plans take.
func (b *bench) goalFigures(f *published.Family, gap float64, medians []float64) {
	below := figures.Figure{Claim: fmt.Sprintf("accuracy of plans of %s below the bound, most", f.Name), Source: "bounds of gear plans (docs/methods.md)", Measured: 100 * gap, Unit: "points"}
	if f.Name == "bert5" { // nothing is asked of the others
		below.Asked, below.Holds = "at most 0.1", figures.If(gap <= 1e-3)
	}
	b.figure(below, "goals", f)
	b.figure(figures.Figure{Claim: fmt.Sprintf("CPU time of a gear plan of %s for any goal, most", f.Name), Source: "planning time",
		Asked: "at most 0.5", Measured: slices.Max(medians), Unit: "s", Holds: figures.If(slices.Max(medians) <= .5), Note: fmt.Sprintf("%d plans, median of %d each", len(medians), goalRounds)}, "goals", f)
}

// ablations is figure 12: what each part is worth.
func (b *bench) ablations(f *published.Family, t *table.Table) error {
	devices := []int{2, 4, 6}
	if f.Name == "bert5" {
		devices = []int{1, 2, 3, 4}
	}
	for _, d := range devices {
		p := place{f, d, f.SLO}
		row := func(without string, s *system) error {
			runs, err := b.all(s, append([]stream{even}, b.poisson()...))
			if err != nil {
				return err
			}
			sum := summarise(runs[1:])
			t.Add(f.Name, d, without, digits(runs[0].Accuracy), whole(ms(runs[0].P95)), plusMinus(sum.accuracy, sum.half), fmt.Sprintf("%.0f (%.0f)", sum.p95, ms(sum.worst)))
			return nil
		}
		problem := func() (*cascades.Problem, error) { return b.measured(p) }
		whole, err := b.ours(p)
		if err != nil {
			return err
		}
		one, err := b.planned(p, "one gear", func() (*cascades.Problem, error) { return baseline.Problem(f, d, 1, f.SLO) })
		if err != nil {
			return err
		}
		alone, err := b.singles(p)
		if err != nil {
			return err
		}
		em, err := b.plannedBy(p, "Algorithm 1", problem, func(ctx context.Context, p *cascades.Problem) (*trials.Plan, error) {
			return baseline.Alternation(ctx, p, planSeed)
		})
		if err != nil {
			return err
		}
		for _, v := range []struct {
			without string
			*plan
		}{
			{"nothing", whole}, {"the min-max load split (even instead)", evenSplit(whole)},
			{"gears (one, planned for the peak)", one}, {"cascades", alone}, {"the exact planner (Algorithm 1 repaired)", em},
		} {
			if !v.OK {
				t.Add(f.Name, d, v.without, "no plan", "", "", "")
				continue
			}
			if err := row(v.without, v.system); err != nil {
				return err
			}
		}
	}
	return nil
}

// evenSplit is a plan whose models share their work evenly over their devices.
func evenSplit(v *plan) *plan {
	if !v.OK {
		return v
	}
	out := *v
	out.system = &system{v.place, "even split", func() (*policy.Tables, error) {
		t, err := v.tables()
		if err != nil {
			return nil, err
		}
		own := policygear.TablesOf(t)
		if own == nil {
			return nil, errors.New("tables without gears")
		}
		changed, gears := *t, *own
		gears.Gears = slices.Clone(gears.Gears)
		for g := range gears.Gears {
			stages := slices.Clone(gears.Gears[g].Stages)
			for k := range stages {
				split := make([]float64, len(stages[k].ReplicaShares))
				for i := range split {
					split[i] = 1 / float64(len(split))
				}
				stages[k].ReplicaShares = split
			}
			gears.Gears[g].Stages = stages
		}
		changed.KindTables = &gears
		return &changed, nil
	}}
	return &out
}
