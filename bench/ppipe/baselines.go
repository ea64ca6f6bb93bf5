package main

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"

	"inferplan/bench/figures"
	"inferplan/formats"
	"inferplan/formats/report"
	"inferplan/planner"
	"inferplan/solver/highs"
	"inferplan/testkit/reference"
)

// baselines holds our NP and DART-r plans of recorded cases against the recorded ones:
// the highest load of each DNN, where load 1 is the promise of the recorded PPipe plan.
func (b *bench) baselines(ctx context.Context, w *tabwriter.Writer) error {
	theirs, err := b.scenes("^maf19/", b.recorded())
	if err != nil {
		return err
	}
	ours := make([]scene, len(theirs))
	for i := range theirs {
		ours[i] = b.rebuilt(&theirs[i])
	}
	fmt.Fprintf(w, "cases\tpolicy, network\t%s\n", loadColumns)
	p := process{name: "poisson", spec: poisson}
	var loads [2]*compared
	for k, scenes := range [][]scene{theirs, ours} {
		if loads[k], err = b.compare(ctx, scenes, asArtifact, p, algorithms); err != nil {
			return err
		}
		loads[k].rows(w, fmt.Sprintf("%s\t%s, %s", []string{"recorded", "ours"}[k], asArtifact.policy, asArtifact.network), algorithms, nil)
	}
	for _, a := range []string{"DART-r", "NP"} {
		above := loads[1].load("", a) - loads[0].load("", a)
		b.measured = append(b.measured, figures.Figure{Claim: fmt.Sprintf("highest load of our %s plans over that of the recorded ones, mean of %d DNNs", a, len(loads[0].dnns)),
			Source: "PPipe (USENIX ATC 2025), recorded plans", Asked: "at least -0.01", Measured: above, Holds: figures.If(above >= -.01),
			Note: fmt.Sprintf("ours %.3f, recorded %.3f; Poisson, the artifact's dispatch", loads[1].load("", a), loads[0].load("", a))})
	}
	return nil
}

// rebuilt is a recorded case whose NP and DART-r plans are ours.
func (b *bench) rebuilt(s *scene) scene {
	out, recorded := *s, s.plan
	out.plan = func(ctx context.Context, algorithm string) (*formats.Plan, error) {
		if algorithm == "PPipe" {
			return recorded(ctx, algorithm)
		}
		ref, err := reference.Find(b.plans, plansFile, s.name, algorithm)
		if err != nil {
			return nil, err
		}
		in, opt := b.inputs(ref)
		opt.Set("algorithm", ourName[algorithm])
		return b.store.plan(keyOf(in.Cluster, in.Workload)+"-"+keyOf(b.profileKey, fmt.Sprintf("%+v", opt)), func() (*formats.Plan, error) {
			res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", s.name, algorithm, err)
			}
			return res.Plan, ctx.Err()
		})
	}
	return out
}

// gains adds the figures of a row of loads: PPipe's highest load over that of the other
// algorithms. The paper's figures are of Poisson arrivals, and of a bursty trace as which
// gamma gaps of CV 1.5 stand.
func (b *bench) gains(c *compared, family string, m manner, p process) {
	paper := map[string]map[string]float64{"poisson": {"NP": 48, "DART-r": 32}, "gamma:1.5": {"NP": 75, "DART-r": 36}}[p.name]
	for _, a := range []string{"NP", "DART-r"} {
		ratios, none := c.ratios("", a)
		if len(ratios) < 2 {
			continue
		}
		mean, low, high := report.MeanInterval(ratios, .95)
		f := figures.Figure{Claim: fmt.Sprintf("highest load of PPipe above that of %s, mean of ratios, %s, %s, %s on %s", a, family, p.name, m.policy, m.network), Source: "PPipe (USENIX ATC 2025), figure 6",
			Measured: 100 * (mean - 1), Interval: &[2]float64{100 * (low - 1), 100 * (high - 1)}, Unit: "%",
			Note: fmt.Sprintf("%d DNNs, %d of them at no load; PPipe %.3f, %s %.3f", len(c.dnns), none, c.load("", "PPipe"), a, c.load("", a))}
		if asked := paper[a]; asked > 0 && m == asArtifact {
			f.Asked, f.Holds = fmt.Sprintf("at least %g", asked), figures.If(f.Measured >= asked)
		}
		f.Command = b.command("tables", "load", "cases", cmp.Or(b.cases, "^"+family))
		b.measured = append(b.measured, f)
	}
}
