package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/planner"
	"inferplan/planner/check"
	"inferplan/planner/explain"
	"inferplan/planner/inputs"
	"inferplan/planner/kind"
)

type solveOptions struct {
	profile, cluster, workload, outPath string
	method                              string
	choices                             *optionFlags
	requireGap                          float64
	seed                                uint64
	certify, force                      bool
	runningPlan                         string
	measured                            []string
	served                              *servedRun // what --measured names, once it is read
	seedTyped                           bool
	attainment                          float64
	attainmentTyped, budgetTyped        bool
	measure                             bool
	budget                              time.Duration
}

// newSolveCommand makes the verb solve, which finds a plan.
func newSolveCommand(g *globalFlags) *cobra.Command {
	o := &solveOptions{}
	cmd := &cobra.Command{
		Use:   "solve",
		Short: "Find the best deployment, with a proven bound where there is one",
		Long: `Find the best deployment of the workload's models on the cluster's devices.

Without files, solve uses ./profile.json, the devices of this machine that were measured,
and all measured models with equal weight. The output says how good the plan is, how far
it can be from the optimum at most, what the bottleneck is, and what one more device or
10 ms of latency would gain.

With --measured the plan of --from is made again for what a server measured while it ran:
times of runs, and rates. The documents are those that this plan names, and its options hold.

Exit codes: 0 a plan was written; 2 bad input; 3 infeasible (the reason and the nearest
feasible values are printed); 4 interrupted, or --require-gap was missed (the best plan so
far is written).`,
		Example: `  plan solve --slo 200ms
  plan solve --slo 5x --certify
  plan solve --slo 200ms --measure --budget 10m
  plan solve --profile p.json --cluster c.yaml --workload w.yaml --gap 1e-4 -o plan.json
  plan solve --from plan.json --max-moved 0.1 -o next.json
  plan solve --from plan.json --measured service.json,report.json -o next.json
  plan solve --slo 100ms --gpu-rounding fractional --max-partitions 3 --json
  plan solve --method queue --objective gpus --profile llms.json --cluster gpus.yaml --workload chat.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			// This comes before the configuration is read, which may set options for all solves that only some
			// use.
			o.choices.noteTyped(cmd.Flags())
			o.attainmentTyped, o.budgetTyped = cmd.Flags().Changed("attainment"), cmd.Flags().Changed("budget")
			return noArguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.seedTyped = cmd.Flags().Changed("seed")
			if cmd.Flags().Changed("output") {
				o.force = true
			} else if o.outPath = "plan.json"; len(o.measured) > 0 { // the served plan may be in force
				o.outPath, o.force = "plan.new.json", true
			}
			if err := o.choices.check(cmd.Flags()); err != nil {
				return err
			}
			return runSolve(cmd.Context(), newPrinter(cmd, g), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.profile, "profile", "", "profile (default ./profile.json or .yaml)")
	f.StringVar(&o.cluster, "cluster", "", "cluster (default ./cluster.yaml or .json, else this machine)")
	f.StringVar(&o.workload, "workload", "", "workload (default ./workload.yaml or .json, else all models alike)")
	f.StringVar(&o.method, "method", planner.MethodAuto, "kind of plan: "+strings.Join(planner.Kinds(), ", ")+", or auto: the workload decides")
	o.choices = newOptionFlags(cmd)
	f.Float64Var(&o.requireGap, "require-gap", 0, "exit with 4 unless the proven gap is at most this")
	f.Uint64Var(&o.seed, "seed", 1, "seed of every random choice")
	f.BoolVar(&o.certify, "certify", false, "simulate the workload's arrivals and store the highest rate that keeps the SLO")
	f.Float64Var(&o.attainment, "attainment", 0, "share of the requests that must be in time; default: what the percentile of each model or class says, .99 for p99")
	f.StringVarP(&o.outPath, "output", "o", "", "file to write the plan to; - writes it to stdout instead of the tables (default plan.json)")
	f.StringVar(&o.runningPlan, "from", "", "plan currently deployed; keep its placement where that is within --gap of the optimum")
	f.StringSliceVar(&o.measured, "measured", nil, "measurements of the plan of --from: the times of plan serve --record, a report of plan serve --output or plan load, or both; the new plan uses these times and rates, and that plan's options")
	f.BoolVar(&o.force, "force", false, "replace an existing plan.json that differs (without it, the new plan is written to plan.new.json)")
	f.BoolVar(&o.measure, "measure", false, "measure stages whose times are only estimated, on the devices of this machine, and solve again until the plan no longer changes")
	f.DurationVar(&o.budget, "budget", 5*time.Minute, "total time for --measure")
	completeFlag(cmd, "method", append([]string{planner.MethodAuto}, planner.Kinds()...)...)
	return cmd
}

// runSolve executes plan solve: it finds a plan, writes it and prints it. Without any plan it returns the planner's
// error, which says why.
func runSolve(ctx context.Context, p *printer, o *solveOptions) error {
	if err := p.checkOutput("output", o.outPath, formats.KindPlan); err != nil {
		return err
	}
	if err := firstError(o.checkFlags(), o.checkFlagPairs()); err != nil {
		return err
	}
	var res *planner.Result
	solveOnce := func() (plan *formats.Plan, err error) {
		if res, err = o.solveOnce(ctx, p); err != nil {
			return nil, err
		}
		return res.Plan, nil
	}

	// Solve, and explain why if there is no plan.
	err := o.solveOrSettle(ctx, p, solveOnce)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return &exitError{exitInterrupted, errors.New("interrupted before a first plan was found; nothing was written")}
		}
		if inf, ok := errors.AsType[*planner.InfeasibleError](err); ok && p.json {
			if e := p.PrintJSON(infeasibleJSON{"infeasible", inf.Error(), inf.Nearest, inf.Alternatives, inf.CutShort}); e != nil {
				return e
			}
		}
		return err
	}

	// Write and print the plan.
	plan := res.Plan
	interrupted := ctx.Err() != nil
	if err := firstError(o.served.saveFiles(p), o.savePlan(p, plan)); err != nil {
		return err
	}
	p.printAssumptions(plan.Assumptions)
	p.printWarnings(plan.Warnings)
	if err := o.showPlan(p, res); err != nil {
		return err
	}
	if interrupted {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; the best plan so far is in %s", o.outPath)}
	}
	if o.requireGap > 0 && (plan.Objective.Gap == nil || *plan.Objective.Gap > o.requireGap) {
		return &exitError{exitInterrupted, fmt.Errorf("--require-gap %g missed; the best plan so far is in %s", o.requireGap, o.outPath)}
	}
	return nil
}

// showPlan prints the plan and, if it was made from what a server measured, what changed against the plan that was served.
func (o *solveOptions) showPlan(p *printer, res *planner.Result) error {
	var changes *diff.Result
	if o.served != nil {
		changes = planner.Diff(o.served.plan, res.Plan)
	}
	if p.json {
		d := solveDocument(res)
		d.Changes = changes
		return p.PrintJSON(d)
	}
	if err := printPlan(p, res.Plan, o.outPath); err != nil || changes == nil {
		return err
	}
	p.printLines(append([]string{"changed against " + o.runningPlan + ":"}, changes.Lines()...))
	return nil
}

// infeasibleJSON is the stable document of `plan solve --json` if there is no plan.
type infeasibleJSON struct {
	Status       string                 `json:"status"`
	Reason       string                 `json:"reason"`
	Nearest      kind.NearestFeasible   `json:"nearest"`
	Alternatives []kind.NearestFeasible `json:"or,omitempty"`        // other changes, each of which would also be enough
	CutShort     string                 `json:"cut_short,omitempty"` // why the search for the nearest feasible problem ended early
}

// savePlan writes the plan. If plan.json exists and differs, it writes the new plan to plan.new.json, because the
// old plan may be in force, and a solve may have taken long.
func (o *solveOptions) savePlan(p *printer, plan *formats.Plan) error {
	err := p.saveDocument(o.outPath, plan, o.force)
	if _, exists := errors.AsType[*document.ExistsError](err); !exists {
		return err
	}
	existingPath := o.outPath
	ext := filepath.Ext(existingPath)
	o.outPath = strings.TrimSuffix(existingPath, ext) + ".new" + ext
	if err := p.SaveDocument(o.outPath, plan); err != nil {
		return err
	}
	p.PrintNote("note: %s is there and differs, so the new plan is in %s; plan diff %[1]s %[2]s tells what moved, --force replaces", existingPath, o.outPath)
	return nil
}

// solveOrSettle calls solveOnce once. With --measure, it calls it again and again: after each plan it measures on
// this machine, into the profile, the times that the plan only estimates, until none is estimated or --budget, the
// time for measuring, is spent.
func (o *solveOptions) solveOrSettle(ctx context.Context, p *printer, solveOnce func() (*formats.Plan, error)) error {
	if !o.measure {
		_, err := solveOnce()
		return err
	}
	path, err := inputs.FindFile("profile", o.profile)
	if err != nil {
		return err
	}
	return settlePlan(ctx, p, path, o.budget, o.seed, solveOnce)
}

// solveOnce reads the profile, the cluster and the workload, and finds a plan for them. What was assumed for
// documents that are missing is recorded in the plan. From here on an interrupt ends the search with the best plan so
// far.
func (o *solveOptions) solveOnce(ctx context.Context, p *printer) (*planner.Result, error) {
	in, assumed, err := solveInputs(o)
	if err != nil {
		return nil, err
	}
	opt, err := o.plannerOptions(&in)
	if err != nil {
		return nil, err
	}
	opt.Assumptions = append(opt.Assumptions, assumed...)
	if o.served != nil {
		opt.Assumptions = append([]string{o.takeOptions(&opt, o.served)}, opt.Assumptions...)
	}
	endsWellOnInterrupt(ctx) // before this an interrupt ends the program at once
	solver, err := newSolver()
	if err != nil {
		return nil, err
	}
	defer solver.Close()
	bar := p.newProgressBar(100, "solving")
	defer bar.finish()
	return planner.Solve(ctx, in, opt, solver, func(u planner.Progress) {
		bar.setProgress(int64(100*u.Fraction), u.Phase)
	})
}

func (o *solveOptions) checkFlags() error {
	return firstError(usage.CheckRange("require-gap", o.requireGap, 0, 1), checkTypedShare("attainment", o.attainment, o.attainmentTyped), usage.CheckPositiveDuration("budget", o.budget))
}

// checkFlagPairs refuses flags that were typed without the flag that they need.
func (o *solveOptions) checkFlagPairs() error {
	if margin := o.choices.textOf("margin"); o.attainmentTyped && !o.certify && margin != "" && margin != planner.Auto {
		return usageErrorf("--attainment is what the certified rate must reach: with --margin %s it needs --certify", margin)
	}
	if len(o.measured) > 0 && o.runningPlan == "" {
		return usageErrorf("--measured is of a plan that was served: it needs --from")
	}
	if len(o.measured) > 0 && o.measure {
		return usageErrorf("--measured and --measure exclude each other: one takes times of a server, the other measures here")
	}
	if o.budgetTyped && !o.measure {
		return usageErrorf("--budget is the time for what --measure measures: it needs --measure")
	}
	return nil
}

// plannerOptions returns the planner's options from the flags.
func (o *solveOptions) plannerOptions(in *planner.Inputs) (planner.Options, error) {
	opt := planner.Options{Method: o.method, Seed: &o.seed, Certify: o.certify, TestSettings: kind.TestSettings{Attainment: o.attainment, Seed: o.seed, TraceDir: in.WorkloadDir}}
	m, err := planner.MethodFor(o.method, in)
	if err != nil {
		return opt, err
	}
	opt.Values, err = o.choices.methodOptions(m)
	return opt, err
}

// solveInputs reads the documents. For a missing document it makes one from defaults, and returns a line that says
// so.
func solveInputs(o *solveOptions) (planner.Inputs, []string, error) {
	r := &inputs.Reader{PlanPath: o.outPath}
	if len(o.measured) > 0 {
		return o.servedInputs(r)
	}
	path, err := inputs.FindFile("profile", o.profile)
	if err == nil && path == "" {
		err = usageErrorf("no profile here (profile.json); type: plan profile MODEL.onnx")
	}
	if err == nil {
		err = r.ReadProfile(path)
	}
	if err != nil {
		return r.Documents, nil, err
	}
	if o.runningPlan != "" {
		if r.RunningPlan, err = readPlan(o.runningPlan); err != nil {
			return r.Documents, nil, err
		}
		if err := r.AddFile("running", o.runningPlan); err != nil {
			return r.Documents, nil, err
		}
	}
	cluster, err := o.readCluster(r)
	if err != nil {
		return r.Documents, nil, err
	}
	workload, err := o.readWorkload(r)
	return r.Documents, slices.Concat(cluster, workload, r.Unnamed), err
}

// readCluster reads the cluster or, without one, takes this machine. assumptions says what was assumed.
func (o *solveOptions) readCluster(r *inputs.Reader) (assumptions []string, err error) {
	path, err := inputs.FindFile("cluster", o.cluster)
	if err != nil {
		return nil, err
	}
	if path != "" {
		return nil, r.ReadCluster(path)
	}
	r.Cluster, assumptions, err = planner.LocalCluster(r.Profile, thisMachine())
	return assumptions, withCode(exitUsage, err)
}

// readWorkload reads the workload or, without one, makes one of all models with the SLO. assumptions says what was
// assumed.
func (o *solveOptions) readWorkload(r *inputs.Reader) (assumptions []string, err error) {
	path, err := inputs.FindFile("workload", o.workload)
	if err != nil {
		return nil, err
	}
	if path != "" {
		return nil, r.ReadWorkload(path)
	}
	if o.runningPlan != "" && o.choices.textOf("slo") == "" {
		if r.Workload = check.WorkloadOf(r.RunningPlan); r.Workload == nil {
			return nil, usageErrorf("no workload here (workload.yaml), and %s does not tell what it was asked for", o.runningPlan)
		}
		return []string{"workload: as " + o.runningPlan + " was asked for"}, nil
	}
	if o.choices.textOf("slo") == "" {
		return nil, usageErrorf("no workload here (workload.yaml) and no --slo; type: plan solve --slo 200ms")
	}
	slo, err := document.ParseSLO(o.choices.textOf("slo"))
	if err != nil {
		return nil, usageErrorf("--slo: %w", err)
	}
	r.Workload, assumptions = planner.AssumedWorkload(r.Profile, slo)
	return assumptions, nil
}

// solveJSON is the stable document of `plan solve --json`.
type solveJSON struct {
	Status      string               `json:"status"` // optimal, gap, trials, limit, interrupted
	StoppedBy   string               `json:"stopped_by"`
	Objective   formats.Objective    `json:"objective"`
	Models      []solveModelJSON     `json:"models"`
	Incumbents  []planner.Incumbent  `json:"incumbents"`
	Limits      []formats.Limit      `json:"limits,omitempty"`
	Certificate *formats.Certificate `json:"certified,omitempty"`
	Replan      *formats.Replan      `json:"replan,omitempty"`
	Changes     *diff.Result         `json:"changes,omitempty"` // against the plan that was served, with --measured
	WallMS      float64              `json:"wall_ms"`
}

type solveModelJSON struct {
	Model     string             `json:"model"`
	Class     string             `json:"class,omitempty"`
	RPS       float64            `json:"rps"`
	Weight    float64            `json:"weight"`
	SLOUS     document.Micros    `json:"slo_us"`
	Pipelines []formats.Pipeline `json:"pipelines"`
}

// solveDocument returns the result of a solve for --json.
func solveDocument(res *planner.Result) solveJSON {
	d := solveJSON{
		Status: res.Status, StoppedBy: res.Plan.StoppedBy, Objective: res.Plan.Objective, Incumbents: res.Incumbents,
		Limits: res.Plan.Limits, Certificate: res.Plan.Certificate, Replan: res.Plan.Replan, WallMS: res.WallMS,
	}
	for i, m := range res.Plan.Deployment {
		promised := res.Plan.PromiseFor(i)
		d.Models = append(d.Models, solveModelJSON{m.Model, m.Class, promised.RPS, promised.Weight, promised.SLOUS, m.Pipelines})
	}
	return d
}

// printPlan prints the closing tables. There is a row for each pipeline (copies of a model in stages on devices),
// with rates in requests per second, certified ones only if there are any: those of applications are not by model. path
// is the file of the plan.
func printPlan(p *printer, plan *formats.Plan, path string) error {
	// Find the certified rate of each model.
	certified := map[formats.ModelClass]formats.CertifiedModel{}
	if plan.Certificate != nil {
		for _, c := range plan.Certificate.Models {
			certified[c.Key()] = c
		}
	}

	// A row for every pipeline.
	var rows [][]string
	anyCertified := false
	for d, m := range plan.Deployment {
		promised := plan.PromiseFor(d)
		for i, pl := range m.Pipelines {
			name, planned, cert, p99 := "", "", "", ""
			if i == 0 {
				name, planned = m.Key().String(), formatRate(promised.RPS)
				if c, ok := certified[m.Key()]; ok {
					cert, p99, anyCertified = formatRate(c.RPS), document.FormatMillis(c.P99US.D()), true
				} else {
					cert, p99 = "-", "-"
				}
			}
			var stages, devices []string
			for _, s := range pl.Stages {
				stages = append(stages, fmt.Sprintf("[%d,%d)", s.Blocks[0], s.Blocks[1]))
				devices = append(devices, deviceText(&s))
			}
			rows = append(rows, []string{
				name, strings.Join(stages, " > "), fmt.Sprint(pl.Batch), strings.Join(devices, " > "), formatRate(pl.RPS),
				planned, cert, document.FormatMillis(pl.LatencyUS.D()), p99, document.FormatMillis(promised.SLOUS.D()),
			})
		}
	}
	if len(rows) == 0 { // a kind that deploys no pipelines; printExplanation describes it
		return printExplanation(p, plan, path)
	}
	header := []string{"model", "pipeline (blocks)", "batch", "devices", "rps", "planned rps", "certified rps", "service ms", "p99 ms", "SLO ms"}
	if !anyCertified {
		const rateColumn, p99Column = 6, 8
		withoutCertified := func(row []string) []string {
			return slices.Delete(slices.Delete(row, p99Column, p99Column+1), rateColumn, rateColumn+1)
		}
		header = withoutCertified(header)
		for i := range rows {
			rows[i] = withoutCertified(rows[i])
		}
	}
	if err := p.PrintTable("llrlrrrrrr", header, rows); err != nil {
		return err
	}
	return printExplanation(p, plan, path)
}

// printExplanation prints the explanation of a plan, and the next command.
func printExplanation(p *printer, plan *formats.Plan, path string) error {
	p.printLines(explain.PlanLines(plan))
	if path != toStdout {
		p.PrintNote("wrote %s; next: plan simulate %s%s", path, path, atHeldRate(plan))
	}
	return nil
}

// atHeldRate returns the flag of plan simulate for a rate that the plan sustains: none if the planned rates were
// tested by simulation, else the certified load, else a load below the planned one.
func atHeldRate(plan *formats.Plan) string {
	switch c := plan.Certificate; {
	case plan.Objective.Basis == formats.BasisSimulation:
		return ""
	case c != nil && c.LoadFactor > 0:
		return fmt.Sprintf(" --load %.4g", min(c.LoadFactor, 1))
	}
	return " --load 0.8"
}

// deviceText describes the devices of a stage: their number and kind, the share 1/v of each that a replica has, and
// the part of the time that it uses if that is less.
func deviceText(s *formats.Stage) string {
	t := fmt.Sprintf("%d x %s", s.Replicas, s.Device)
	if s.Share > 1 {
		t = fmt.Sprintf("%d x 1/%d %s", s.Replicas, s.Share, s.Device)
	}
	if s.GPUs < float64(s.Replicas)/float64(max(s.Share, 1)) {
		t += fmt.Sprintf(" (%.0f %% of the time)", 100*s.GPUs/float64(s.Replicas))
	}
	return t
}
