package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"

	"inferplan/formats"
	"inferplan/formats/importer/reference"
	"inferplan/planner"
	"inferplan/policy"
	"inferplan/policy/artifact"
	"inferplan/policy/reactive"
	"inferplan/policy/reserve"
	"inferplan/sim"
	"inferplan/solver/highs"
)

const asked = 0.99

var errNoCase = errors.New("no recorded plan matches -cases")

// highClass are the kinds of the clusters' high class.
var highClass = []string{"L4", "V100"}

func (b *bench) recompute(_ context.Context, w *tabwriter.Writer) error {
	fmt.Fprintln(w, "algorithm\tplans\trecomputed")
	for _, algorithm := range []string{"NP", "DART-r", "PPipe"} {
		all := b.selected(algorithm)
		good := 0
		for _, ref := range all {
			if _, err := planner.FromReference(ref, b.profile, nil); err != nil {
				fmt.Fprintf(b.out, "%v\n", err)
				continue
			}
			good++
		}
		fmt.Fprintf(w, "%s\t%d\t%d\n", algorithm, len(all), good)
	}
	return nil
}

// inputs are the documents and options under which a case was planned.
func (b *bench) inputs(ref *reference.Plan) (planner.Inputs, planner.Options) {
	opt := planner.DefaultOptions()
	opt.Margin, opt.BatchBuild, opt.MaxPartitions, opt.TimeLimit = ref.Margin, ref.BatchBuild, ref.MaxPartitions, b.timeLimit
	return planner.Inputs{Profile: b.profile, Cluster: ref.ClusterDocument(), Workload: ref.WorkloadDocument()}, opt
}

func (b *bench) objective(ctx context.Context, w *tabwriter.Writer) error {
	fmt.Fprintln(w, "case\tours\trecorded\tdifference\tbound\tgap\tCPU ms to the recorded value")
	all := b.selected("PPipe")
	if len(all) == 0 {
		return errNoCase
	}
	for _, ref := range all {
		in, opt := b.inputs(ref)
		opt.Gap = 1e-4
		res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", ref.Case, err)
		}
		took := "not reached"
		if i := slices.IndexFunc(res.Incumbents, func(i planner.Incumbent) bool { return i.Value >= ref.Objective*(1-1e-4) }); i >= 0 {
			took = fmt.Sprintf("%.0f", res.Incumbents[i].CPUMS)
		}
		o := res.Plan.Objective
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%+.3f %%\t%.2f\t%.4f %%\t%s\n", ref.Case, o.Value, ref.Objective, 100*(o.Value/ref.Objective-1), *o.Bound, 100**o.Gap, took)
	}
	return nil
}

// scenario is a recorded plan under a policy, at the rates of the case's PPipe
// plan.
func (b *bench) scenario(ref, ppipe *reference.Plan, name string, network policy.Network, arrivals *formats.Arrivals) (*sim.Scenario, error) {
	plan, err := planner.FromReference(ref, b.profile, nil)
	if err != nil {
		return nil, err
	}
	sc, err := sim.NewScenarioOn(plan, network)
	if err != nil {
		return nil, err
	}
	sc.Policy, sc.Arrivals, sc.Duration, sc.Seed = formats.PolicySpec{Name: name}, arrivals, b.duration, 1
	for i := range sc.Tables.Models {
		d := slices.IndexFunc(ppipe.DNNs, func(d reference.DNN) bool { return d.Model == sc.Tables.Models[i].Name })
		if d < 0 {
			return nil, fmt.Errorf("%s: the PPipe plan has no model %s", ref.Case, sc.Tables.Models[i].Name)
		}
		sc.Rates = append(sc.Rates, math.Floor(ppipe.DNNs[d].RPS))
	}
	return sc, nil
}

func (b *bench) ppipeOf(ref *reference.Plan) (*reference.Plan, error) {
	return reference.Find(b.plans, "reference_plans_dev.json", ref.Case, "PPipe")
}

// sum collects the mean of what was added.
type sum struct {
	total float64
	n     int
}

func (s *sum) add(v float64) { s.total += v; s.n++ }

func (s *sum) mean() float64 { return s.total / float64(s.n) }

func (b *bench) loads(ctx context.Context, w *tabwriter.Writer) error {
	fmt.Fprintln(w, "arrivals\tpolicy\tnetwork\tplan\tcases\tload factor\tPPipe's gain\thigh class\tlow class")
	processes := []*formats.Arrivals{{Process: "poisson"}, {Process: "gamma", CV: b.cv}}
	under := []struct {
		policy  string
		network policy.Network
	}{{artifact.Name, policy.NetworkStages}, {reserve.Name, policy.NetworkStages}, {reserve.Name, policy.NetworkNodes}}
	for _, process := range processes {
		title := process.Process
		if process.CV > 0 {
			title += fmt.Sprintf(" CV %g", process.CV)
		}
		for _, u := range under {
			ours := 0.0
			for _, algorithm := range []string{"PPipe", "DART-r", "NP"} {
				all := b.selected(algorithm)
				if len(all) == 0 {
					return errNoCase
				}
				var load, high, low sum
				for _, ref := range all {
					ppipe, err := b.ppipeOf(ref)
					if err != nil {
						return err
					}
					sc, err := b.scenario(ref, ppipe, u.policy, u.network, process)
					if err != nil {
						return err
					}
					found, err := sim.FindMaxLoad(ctx, sc, asked, b.runs)
					if err != nil {
						return fmt.Errorf("%s: %w", ref.Case, err)
					}
					for _, v := range found.Models {
						load.add(min(1, v)) // the artifact's search ends at 1
					}
					if at := found.At(min(1, found.Overall)); at != nil {
						for _, d := range at.Report.Devices {
							if slices.Contains(highClass, d.Device) {
								high.add(d.Utilisation)
							} else {
								low.add(d.Utilisation)
							}
						}
					}
				}
				gain := "-"
				if algorithm == "PPipe" {
					ours = load.mean()
				} else {
					gain = fmt.Sprintf("%+.1f %%", 100*(ours/load.mean()-1))
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.3f\t%s\t%.3f\t%.3f\n", title, u.policy, u.network, algorithm, len(all), load.mean(), gain, high.mean(), low.mean())
				w.Flush()
			}
		}
	}
	return nil
}

func (b *bench) transfers(ctx context.Context, w *tabwriter.Writer) error {
	fmt.Fprintln(w, "case\tpolicy\thighest load\tattainment at 0.9\ttransfers\tmean ms\tp99 ms")
	all := b.selected("PPipe")
	if len(all) == 0 {
		return errNoCase
	}
	for _, ref := range all {
		for _, name := range []string{reserve.Name, reactive.Name} {
			sc, err := b.scenario(ref, ref, name, policy.NetworkNodes, &formats.Arrivals{Process: "poisson"})
			if err != nil {
				return err
			}
			found, err := sim.FindOverallLoad(ctx, sc, asked, b.runs)
			if err != nil {
				return fmt.Errorf("%s: %w", ref.Case, err)
			}
			sc.Load = 0.9
			res, err := sim.Replicate(ctx, sc, b.runs)
			if err != nil {
				return fmt.Errorf("%s: %w", ref.Case, err)
			}
			fmt.Fprintf(w, "%s\t%s\t%.2f\t%.4f\t%d\t%.2f\t%.2f\n", ref.Case, name, found.Overall, res.Report.Attainment, res.Transfers.Count,
				float64(res.Transfers.Mean)/1e6, float64(res.Transfers.P99)/1e6)
		}
	}
	return nil
}

// sustained is the highest load factor at which the artifact's plan attained
// what is asked for a model in its own simulator, late requests counted, mean
// over its repetitions; 0: at none of the recorded.
func (b *bench) sustained(ref *reference.Plan, model string) (load float64) {
	at := map[float64]*sum{}
	for _, p := range b.peers {
		if p.group == ref.Group && p.cluster == ref.Cluster && p.model == model && p.algorithm == "PPipe" {
			if at[p.load] == nil {
				at[p.load] = &sum{}
			}
			at[p.load].add(p.attainment)
		}
	}
	for l, s := range at {
		if s.mean() >= asked {
			load = max(load, l)
		}
	}
	return load
}

func (b *bench) headline(ctx context.Context, w *tabwriter.Writer) error {
	fmt.Fprintln(w, "case\tartifact rps/weight\tours, its margin\tratio\tours, --margin auto\tratio\tmargin\tbound without margin")
	var fixed, auto sum
	all := b.selected("PPipe")
	if len(all) == 0 {
		return errNoCase
	}
	for _, ref := range all {
		theirs := math.Inf(1)
		for i := range ref.DNNs {
			theirs = min(theirs, b.sustained(ref, ref.DNNs[i].Model)*ref.DNNs[i].RPS/ref.Weights[i])
		}
		if theirs == 0 || math.IsInf(theirs, 0) {
			fmt.Fprintf(w, "%s\tno load recorded at which every model attains\n", ref.Case)
			continue
		}
		in, opt := b.inputs(ref)
		cert := planner.CertifyOptions{Attainment: asked, Runs: b.runs, Duration: b.duration, Seed: 1}
		res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
		if err == nil {
			err = planner.Certify(ctx, res.Plan, cert)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ref.Case, err)
		}
		best, err := planner.SolveAuto(ctx, in, opt, cert, highs.Solver{}, nil)
		if err != nil {
			return fmt.Errorf("%s, margin auto: %w", ref.Case, err)
		}
		opt.Margin = 0
		free, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
		if err != nil {
			return fmt.Errorf("%s, without margin: %w", ref.Case, err)
		}
		ours, oursAuto := certified(res.Plan), certified(best.Plan)
		fixed.add(ours / theirs)
		auto.add(oursAuto / theirs)
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.3f\t%.1f\t%.3f\t%.2f\t%.1f\n", ref.Case, theirs, ours, ours/theirs, oursAuto, oursAuto/theirs, best.Plan.Options.Margin, *free.Plan.Objective.Bound)
		w.Flush()
	}
	if fixed.n > 0 {
		fmt.Fprintf(w, "mean of %d\t\t\t%.3f\t\t%.3f\n", fixed.n, fixed.mean(), auto.mean())
	}
	return nil
}

// certified is a plan's certified rps per weight, the least over models.
func certified(p *formats.Plan) float64 {
	least := math.Inf(1)
	for i, m := range p.Certified.Models {
		least = min(least, m.RPS/p.Models[i].Weight)
	}
	return least
}
