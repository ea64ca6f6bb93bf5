package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/executor"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/inputs"
	"inferplan/planner/kind"
)

type checkOptions struct {
	againstName           string
	profiles, oldProfiles []string
	cluster, workload     string
	regression            string
	format                string
	noSolve               bool
}

// newCheckCommand makes the verb check, which judges whether a plan still holds for today's documents. Its help lists
// the figures that it compares, with their default tolerances.
func newCheckCommand(g *globalFlags) *cobra.Command {
	o := &checkOptions{}
	metrics := document.Map(check.Metrics(), func(m *check.Metric) string { return fmt.Sprintf("  %-6s %g %%  %s", m.Name, 100*m.Tolerance, m.Help) })
	cmd := &cobra.Command{
		Use:   "check [plan.json]",
		Short: "Does the plan still hold? A gate for CI",
		Long: `Validate a plan from first principles against today's profile, cluster and workload,
plan again with its own options, and compare with tolerances.

Figures and default tolerances:
` + strings.Join(metrics, "\n") + `

A constraint that no longer holds fails: an SLO, a device that is gone, memory. So does
a figure that is worse than its tolerance, where that is no chance. Two profiles of an
unchanged model never agree: a figure of times must be worse than they differ by from run
to run (1.5 %, or what the profile tells as between_runs) and than their medians leave
open. Several profiles a side (--profile and --was, each several times) find less. Where
profiles tell how fast the machine was (reference_us), that is taken out first.

Without --against the plan is compared with the same file at the merge base where a CI
job tells it (GITHUB_BASE_REF, CI_MERGE_REQUEST_DIFF_BASE_SHA), else in git HEAD.

Exit codes: 0 the gate passes; 1 it fails, and says by what; 2 bad input.`,
		Example: `  plan check
  plan check plan.json --against old.json --max-regression rps=1%,p99=2%,cost=1%
  plan check --against origin/main --format github
  plan check --profile a.json --profile b.json --profile c.json
  plan check plan.json --format json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if g.json {
				o.format = "json"
			}
			return runCheck(cmd.Context(), newPrinter(cmd, g), o, planArgument(args))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.againstName, "against", "", "plan that was promised: a file, or a git revision of this one (default: the merge base in CI, else git HEAD, else the plan itself)")
	f.StringArrayVar(&o.profiles, "profile", nil, "today's profile; several times: profiles taken at different times (default: the plan's input)")
	f.StringArrayVar(&o.oldProfiles, "was", nil, "profile of the promised plan; several times: taken at different times (default: its input)")
	f.StringVar(&o.cluster, "cluster", "", "today's cluster (default: the plan's input, else the cluster inside the plan)")
	f.StringVar(&o.workload, "workload", "", "today's workload (default: the plan's input, else the targets inside the plan)")
	f.StringVar(&o.regression, "max-regression", "", "tolerances, such as rps=1%,p99=2%,cost=1%")
	f.StringVar(&o.format, "format", "text", strings.Join(gateFormatNames, ", "))
	f.BoolVar(&o.noSolve, "no-solve", false, "only validate; do not plan again")
	completeFlag(cmd, "format", gateFormatNames...)
	return cmd
}

// runCheck executes plan check for the plan at path. It reads today's documents and the promised plan (an earlier
// version to compare with), plans again, and writes the verdict in the chosen format. If the verdict is not a pass,
// it returns an error with the exit code of a gate.
func runCheck(ctx context.Context, p *printer, o *checkOptions, path string) error {
	write, ok := gateFormats[o.format]
	if !ok {
		return usageErrorf("--format %q: expected %s", o.format, strings.Join(gateFormatNames, ", "))
	}
	tolerances, err := check.ParseTolerances(o.regression)
	if err != nil {
		return withCode(exitUsage, err)
	}
	plan, err := readPlan(path)
	if err != nil {
		return err
	}
	in := check.GateInput{Plan: plan, Tolerances: tolerances, ServerFindings: refusedByServe}
	if !o.noSolve {
		solver, err := newSolver()
		if err != nil {
			return err
		}
		defer solver.Close()
		in.Solver = solver
	}

	// Read today's documents, and the plan to compare with.
	if err := o.readToday(&in, path); err != nil {
		return err
	}
	if err := o.findPromised(ctx, p, &in, path); err != nil {
		return err
	}

	// Plan again, and judge.
	bar := p.newProgressBar(100, "planning again")
	in.Progress = func(u planner.Progress) { bar.setProgress(int64(100*u.Fraction), u.Phase) }
	res, err := check.Gate(ctx, in)
	bar.finish()
	if errors.Is(err, context.Canceled) {
		return &exitError{exitInterrupted, errors.New("interrupted; there is no verdict")}
	}
	if err != nil {
		return err
	}
	res.Notes = append(res.Notes, o.changeNotes(&in)...)
	if err := write(p, res, path); err != nil {
		return err
	}
	if res.Verdict != check.Pass {
		return &exitError{code: exitGate}
	}
	return nil
}

// refusedByServe returns a finding if plan serve would not start the plan. If only the models make it refuse, the
// finding is a warning, because the plan can be served with --engine replay.
func refusedByServe(plan *formats.Plan) []check.Finding {
	err := executor.Compile(plan, true)
	switch {
	case errors.Is(err, turn.ErrSimulatedOnly):
		return []check.Finding{refusal(check.Warning, "plan serve does not serve plans of this sort; they are checked and simulated", err)}
	case err != nil:
		return []check.Finding{refusal(check.Error, "plan serve refuses the plan", err)}
	case slices.ContainsFunc(plan.Deployment, func(m formats.Deployed) bool { return len(m.Inputs) == 0 || len(m.Outputs) == 0 }):
		return nil // the tensors of its models are not known
	}
	if err := executor.Compile(plan, false); err != nil {
		return []check.Finding{refusal(check.Warning, "plan serve refuses the plan, unless with --engine replay", err)}
	}
	return nil
}

// refusal makes a finding about a plan that cannot be served.
func refusal(severity check.Severity, message string, err error) check.Finding {
	f := check.Finding{Severity: severity, Constraint: "serve", Found: err.Error(), Message: message}
	if findings := document.Findings(err); len(findings) > 0 {
		f.Path, f.Found, f.Expected = findings[0].Path, findings[0].Found, findings[0].Expected
	}
	return f
}

// changeNotes returns a note for each input whose file is not the one that the plan was made from, and one if another
// version of the program made the plan. Inputs that a flag replaces are left out.
func (o *checkOptions) changeNotes(in *check.GateInput) []string {
	var notes []string
	isGiven := map[string]bool{"profile": len(o.profiles) > 0, "cluster": o.cluster != "", "workload": o.workload != ""}
	for _, i := range in.Plan.Inputs {
		if current := todaysHash(in, i.Role); !isGiven[i.Role] && current != "" && current != i.SHA256 {
			notes = append(notes, fmt.Sprintf("%s is not the file that the plan says it was made from: sha256 %.12s, and now %.12s", i.Path, i.SHA256, current))
		}
	}
	if t := in.Plan.Tool; t.Version != kind.Version {
		notes = append(notes, fmt.Sprintf("the plan says that version %s made it; this is %s", t.Version, kind.Version))
	}
	return notes
}

// readToday reads today's documents: the files that the flags name or, without a flag, the inputs that the plan
// names. It fills in.Today and, if --profile is given several times, in.Profiles with all but the first.
func (o *checkOptions) readToday(in *check.GateInput, planPath string) error {
	// pathOf returns the path that a flag gives, or else that of the plan's input.
	pathOf := func(role, flag string) string {
		if flag != "" {
			return flag
		}
		for _, i := range in.Plan.Inputs {
			if i.Role == role {
				return filepath.Join(filepath.Dir(planPath), filepath.FromSlash(i.Path))
			}
		}
		return ""
	}
	paths := o.profiles
	if len(paths) == 0 {
		path := pathOf("profile", "")
		if path == "" {
			return usageErrorf("%s names no profile; give today's with --profile", planPath)
		}
		paths = []string{path}
	}

	// Read today's documents.
	r := &inputs.Reader{PlanPath: planPath}
	if err := r.ReadProfile(paths[0]); err != nil {
		return err
	}
	var err error
	if in.Profiles, err = readProfiles(paths[1:]); err != nil {
		return err
	}
	if path := pathOf("cluster", o.cluster); path != "" {
		if err := r.ReadCluster(path); err != nil {
			return err
		}
	}
	if path := pathOf("workload", o.workload); path != "" {
		if err := r.ReadWorkload(path); err != nil {
			return err
		}
	}
	in.Today = r.Documents
	return nil
}
