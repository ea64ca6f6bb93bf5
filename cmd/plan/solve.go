package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/explain"
	"inferplan/solver/highs"
	"inferplan/solver/milp"
)

type solveOptions struct {
	profile, cluster, workload, out string
	slo                             string
	method, algorithm, objective    string
	rounding                        string
	margin                          string
	minLoad                         float64
	batchBuild                      float64
	maxPartitions, maxBatch         int
	effort                          int
	gap                             float64
	requireGap                      float64
	timeLimit                       time.Duration
	seed                            uint64
	certify, force                  bool
	from                            string
	maxMoved                        float64
	blocks                          int
	blocksBy                        string
	unevenNIC                       bool
	attainment                      float64
	typed                           map[string]bool // flags of the command line, of those that need another
}

func newSolveCommand(g *globals) *cobra.Command {
	o := &solveOptions{typed: map[string]bool{}}
	cmd := &cobra.Command{
		Use:   "solve",
		Short: "Find the best deployment, with a proven bound where there is one",
		Long: `Find the best deployment of the workload's models on the cluster's devices.

Without files it takes ./profile.json, the devices of this machine that the profile
measured, and all its models with equal weight. The plan says what it reached, how far
from the proven bound, what limits it, and what one more device or 10 ms would buy.

Exit codes: 0 a feasible plan was written, whatever the gap; 2 bad input; 3 infeasible, with
the reason and the nearest feasible SLO; 4 interrupted or --require-gap missed, best so far written.`,
		Example: `  plan solve --slo 200ms
  plan solve --slo 5x --certify
  plan solve --profile p.json --cluster c.yaml --workload w.yaml --gap 1e-4 -o plan.json
  plan solve --from plan.json --max-moved 0.1 -o next.json
  plan solve --slo 100ms --gpu-rounding fractional --max-partitions 3 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			// Here, before the configuration is read: that may say for all solves what only some use.
			for _, flag := range []string{"max-moved", "blocks-by", "attainment"} {
				o.typed[flag] = cmd.Flags().Changed(flag)
			}
			return noArguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("output") {
				o.out = "plan.json"
			} else {
				o.force = true
			}
			return runSolve(cmd.Context(), newPrinter(cmd, g), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.profile, "profile", "", "profile (default ./profile.json or .yaml)")
	f.StringVar(&o.cluster, "cluster", "", "cluster (default ./cluster.yaml or .json, else this machine)")
	f.StringVar(&o.workload, "workload", "", "workload (default ./workload.yaml or .json, else all models alike)")
	f.StringVar(&o.slo, "slo", "", "latency SLO of every model, such as 200ms or 5x; overrides the workload's")
	f.StringVar(&o.method, "method", "auto", "auto, pool, or gear (a cascade workload)")
	f.StringVar(&o.algorithm, "algorithm", "template", "of the pool method: template, np (no partitioning) or dart-r (pairs of devices); of gear: exact (default) or em (the paper's alternation)")
	f.StringVar(&o.objective, "objective", "throughput", "what to optimise: throughput; or the least cost, power or gpus that carries --min-load. Of gear: what the workload's SLO leaves open, accuracy, latency, or gpus, cost, power")
	f.StringVar(&o.rounding, "gpu-rounding", "slot", "whole devices per model and stage position (slot), or shares packed freely (fractional)")
	f.StringVar(&o.margin, "margin", "0.4", "share of the SLO kept back for queueing and jitter, or auto: what simulation certifies most with")
	f.Float64Var(&o.minLoad, "min-load", 0, "least rps / weight that every model must reach")
	f.Float64Var(&o.batchBuild, "batch-build", 0, "factor of the delay reserved for filling a batch (1.3 in PPipe's artifact)")
	f.IntVar(&o.maxPartitions, "max-partitions", 2, "stages per pipeline")
	f.IntVar(&o.maxBatch, "max-batch", 0, "largest batch (default: the largest measured)")
	f.IntVar(&o.blocks, "blocks", 0, "cut every model as if it had so many blocks at most (default: all of the profile's)")
	f.StringVar(&o.blocksBy, "blocks-by", planner.BlocksByBytes, "with --blocks: bytes (cuts that few bytes cross) or time (the slowest block as fast as can be)")
	f.BoolVar(&o.unevenNIC, "uneven-nic", false, "where a kind is one node: some of its devices may leave the NIC to the others, to run whole models")
	f.IntVar(&o.effort, "effort", 1, "work allowed to the solver: each step doubles it")
	f.Float64Var(&o.gap, "gap", 1e-2, "stop when the relative gap to the bound is this small")
	f.Float64Var(&o.requireGap, "require-gap", 0, "exit 4 unless this gap was reached")
	f.DurationVar(&o.timeLimit, "time-limit", 0, "safety net on wall time; plans stopped by it are not reproducible")
	f.Uint64Var(&o.seed, "seed", 1, "seed of every random choice")
	f.BoolVar(&o.certify, "certify", false, "simulate the workload's arrivals and store the rate that holds")
	f.Float64Var(&o.attainment, "attainment", 0.99, "share of requests in time that --certify asks for")
	f.StringVarP(&o.out, "output", "o", "", "plan to write, - for stdout instead of the tables (default plan.json)")
	f.StringVar(&o.from, "from", "", "plan that runs: its devices go on as they are where that is good enough")
	f.Float64Var(&o.maxMoved, "max-moved", planner.DefaultOptions().MaxMoved, "with --from: share of the devices that may have to load something new")
	f.BoolVar(&o.force, "force", false, "replace plan.json if it differs")
	complete(cmd, "blocks-by", planner.BlocksByTime, planner.BlocksByBytes)
	complete(cmd, "margin", planner.MarginAuto, "0.4")
	complete(cmd, "gpu-rounding", "slot", "fractional")
	complete(cmd, "objective", "throughput", "cost", "power", "gpus", "accuracy", "latency")
	complete(cmd, "method", "auto", "pool", "gear")
	complete(cmd, "algorithm", "template", "np", "dart-r", "exact", "em")
	return cmd
}

func runSolve(ctx context.Context, p *printer, o *solveOptions) error {
	if err := p.output("output", o.out, formats.KindPlan); err != nil {
		return err
	}
	if err := first(o.bounds(), o.together()); err != nil {
		return err
	}
	in, assumed, err := solveInputs(o)
	if err != nil {
		return err
	}
	opt, err := o.planner()
	if err != nil {
		return err
	}
	opt.Assumptions = append(opt.Assumptions, assumed...)
	heed(ctx)
	bar := p.meter(100, "solving")
	solve := planner.Solve
	if o.margin == planner.MarginAuto {
		solve = func(ctx context.Context, in planner.Inputs, opt planner.Options, s milp.Solver, tell func(planner.Progress)) (*planner.Result, error) {
			return planner.SolveAuto(ctx, in, opt, planner.CertifyOptions{Attainment: o.attainment, Seed: o.seed, Dir: in.WorkloadDir}, s, tell)
		}
	}
	res, err := solve(ctx, in, opt, highs.Solver{}, func(u planner.Progress) {
		bar.set(int64(100*u.Fraction), 0, u.Phase)
	})
	bar.finish()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return &exitError{exitInterrupted, errors.New("interrupted before a first plan was found; nothing was written")}
		}
		var inf *planner.InfeasibleError
		if errors.As(err, &inf) && p.json {
			if e := p.document(map[string]any{"status": "infeasible", "reason": inf.Error(), "nearest": inf.Nearest}); e != nil {
				return e
			}
		}
		return err
	}
	plan := res.Plan
	interrupted := ctx.Err() != nil
	if o.certify && !interrupted && plan.Certified == nil {
		bar := p.meter(100, "certifying by simulation")
		err := planner.Certify(ctx, plan, planner.CertifyOptions{Attainment: o.attainment, Seed: o.seed, Dir: in.WorkloadDir})
		bar.finish()
		if err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("certifying: %w", err)
		}
		interrupted = ctx.Err() != nil
	}
	if err := p.save(o.out, plan, o.force); err != nil {
		return err
	}
	p.assumed(plan.Assumptions)
	p.warned(plan.Warnings)
	if p.json {
		if err := p.document(solveDocument(res)); err != nil {
			return err
		}
	} else if err := printPlan(p, plan, o.out); err != nil {
		return err
	}
	if interrupted {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; the best plan so far is in %s", o.out)}
	}
	if o.requireGap > 0 && (plan.Objective.Gap == nil || *plan.Objective.Gap > o.requireGap) {
		return &exitError{exitInterrupted, fmt.Errorf("--require-gap %g missed; the best plan so far is in %s", o.requireGap, o.out)}
	}
	return nil
}

// bounds checks what the planner's options take a zero of as their default.
func (o *solveOptions) bounds() error {
	return first(number("require-gap", o.requireGap, 0, 1), share("attainment", o.attainment), whole("max-partitions", o.maxPartitions, 1, 8),
		whole("effort", o.effort, 1, 16), number("min-load", o.minLoad, 0, 1e12))
}

// together refuses flags that were typed without the one that they say more about.
func (o *solveOptions) together() error {
	switch {
	case o.typed["max-moved"] && o.from == "":
		return usageErrorf("--max-moved limits what a new plan may change of one that runs: it needs --from, such as --from plan.json")
	case o.typed["blocks-by"] && o.blocks == 0:
		return usageErrorf("--blocks-by says where few blocks are cut: it needs --blocks, such as --blocks 10")
	case o.typed["attainment"] && !o.certify && o.margin != planner.MarginAuto:
		return usageErrorf("--attainment is what the certified rate must reach: it needs --certify or --margin auto")
	}
	return nil
}

// planner turns the flags into the planner's options.
func (o *solveOptions) planner() (planner.Options, error) {
	opt := planner.DefaultOptions()
	opt.Method, opt.Algorithm, opt.Objective, opt.GPURounding = o.method, o.algorithm, o.objective, o.rounding
	opt.MaxPartitions, opt.MaxBatch, opt.BatchBuild, opt.MinLoad = o.maxPartitions, o.maxBatch, o.batchBuild, o.minLoad
	opt.Blocks, opt.BlocksBy, opt.UnevenNIC = o.blocks, o.blocksBy, o.unevenNIC
	opt.Gap, opt.Effort, opt.TimeLimit, opt.Seed, opt.MaxMoved = o.gap, o.effort, o.timeLimit, o.seed, o.maxMoved
	var err error
	if opt.SLO, err = o.target(); err != nil {
		return opt, err
	}
	if o.margin == planner.MarginAuto {
		return opt, nil // chosen by planner.SolveAuto
	}
	m, err := strconv.ParseFloat(o.margin, 64)
	if err != nil {
		return opt, usageErrorf("--margin %q: expected a share of the SLO, such as 0.4, or auto", o.margin)
	}
	opt.Margin = m
	return opt, nil
}

// target is --slo; zero without it.
func (o *solveOptions) target() (formats.SLO, error) {
	var slo formats.SLO
	if o.slo == "" {
		return slo, nil
	}
	if err := slo.UnmarshalText([]byte(o.slo)); err != nil {
		return slo, usageErrorf("--slo: %w", err)
	}
	return slo, nil
}

// solveInputs reads the documents, or assumes what is missing.
func solveInputs(o *solveOptions) (planner.Inputs, []string, error) {
	var in planner.Inputs
	var assumed []string
	out := o.out
	path, err := document("profile", o.profile)
	if err != nil {
		return in, nil, err
	}
	if path == "" {
		return in, nil, usageErrorf("no profile here (profile.json); type: plan profile MODEL.onnx")
	}
	if in.Profile, err = formats.ReadProfile(path); err != nil {
		return in, nil, withCode(exitUsage, err)
	}
	add := func(role, path string) error {
		f, err := input(role, path, out)
		if err != nil {
			return err
		}
		in.Files = append(in.Files, f)
		return nil
	}
	if err := add("profile", path); err != nil {
		return in, nil, err
	}
	in.ProfileDir = filepath.Dir(path)
	if o.from != "" {
		if in.Running, err = readPlan(o.from); err != nil {
			return in, nil, withCode(exitUsage, err)
		}
		if err := add("running", o.from); err != nil {
			return in, nil, err
		}
	}

	if path, err = document("cluster", o.cluster); err != nil {
		return in, nil, err
	}
	if path != "" {
		if in.Cluster, err = formats.ReadCluster(path); err != nil {
			return in, nil, withCode(exitUsage, err)
		}
		if err := add("cluster", path); err != nil {
			return in, nil, err
		}
	} else {
		var why []string
		if in.Cluster, why, err = planner.LocalCluster(in.Profile, thisMachine()); err != nil {
			return in, nil, withCode(exitUsage, err)
		}
		assumed = append(assumed, why...)
	}

	if path, err = document("workload", o.workload); err != nil {
		return in, nil, err
	}
	if path != "" {
		if in.Workload, err = formats.ReadWorkload(path); err != nil {
			return in, nil, withCode(exitUsage, err)
		}
		if err := add("workload", path); err != nil {
			return in, nil, err
		}
		in.WorkloadDir = filepath.Dir(path)
		if rates := measuredRates(in.Workload, path); rates != "" {
			if err := add("qps", rates); err != nil {
				return in, nil, err
			}
		}
	} else {
		if o.slo == "" {
			return in, nil, usageErrorf("no workload here (workload.yaml) and no --slo; type: plan solve --slo 200ms")
		}
		var why []string
		slo, err := o.target()
		if err != nil {
			return in, nil, err
		}
		in.Workload, why = planner.EqualWorkload(in.Profile, slo)
		assumed = append(assumed, why...)
	}
	return in, assumed, nil
}

// solveJSON is the stable document of `plan solve --json`.
type solveJSON struct {
	Status     string               `json:"status"` // optimal, gap, limit, interrupted
	StoppedBy  string               `json:"stopped_by"`
	Objective  formats.Objective    `json:"objective"`
	Models     []solveModelJSON     `json:"models"`
	Incumbents []planner.Incumbent  `json:"incumbents"`
	Limits     []formats.Limit      `json:"limits,omitempty"`
	Certified  *formats.Certificate `json:"certified,omitempty"`
	Replan     *formats.Replan      `json:"replan,omitempty"`
	WallMS     float64              `json:"wall_ms"`
}

type solveModelJSON struct {
	Model     string             `json:"model"`
	Class     string             `json:"class,omitempty"`
	RPS       float64            `json:"rps"`
	Weight    float64            `json:"weight"`
	SLOUS     formats.Micros     `json:"slo_us"`
	Pipelines []formats.Pipeline `json:"pipelines"`
}

func solveDocument(res *planner.Result) solveJSON {
	d := solveJSON{
		Status: res.Status, StoppedBy: res.Plan.StoppedBy, Objective: res.Plan.Objective, Incumbents: res.Incumbents,
		Limits: res.Plan.Limits, Certified: res.Plan.Certified, Replan: res.Plan.Replan, WallMS: res.WallMS,
	}
	for _, m := range res.Plan.Models {
		d.Models = append(d.Models, solveModelJSON{m.Model, m.Class, m.RPS, m.Weight, m.SLOUS, m.Pipelines})
	}
	return d
}

// printPlan prints the closing table.
func printPlan(p *printer, plan *formats.Plan, path string) error {
	certified := map[formats.ModelClass]formats.CertifiedModel{}
	if plan.Certified != nil {
		for _, c := range plan.Certified.Models {
			certified[c.Key()] = c
		}
	}
	var rows [][]string
	for _, m := range plan.Models {
		for i, pl := range m.Pipelines {
			name, planned, cert, p99 := "", "", "", ""
			if i == 0 {
				name, planned = m.Key().String(), rate(m.RPS)
				if c, ok := certified[m.Key()]; ok {
					cert, p99 = rate(c.RPS), ms(c.P99US.D())
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
				name, strings.Join(stages, " > "), fmt.Sprint(pl.Batch), strings.Join(devices, " > "), rate(pl.RPS),
				planned, cert, ms(pl.LatencyUS.D()), p99, ms(m.SLOUS.D()),
			})
		}
	}
	err := p.table("llrlrrrrrr", []string{"model", "pipeline (blocks)", "batch", "devices", "rps", "planned rps", "certified rps", "service ms", "p99 ms", "SLO ms"}, rows)
	if err != nil {
		return err
	}
	for _, l := range explain.Lines(plan) {
		fmt.Fprintln(p.out, l)
	}
	if path != toStdout {
		p.note("wrote %s; next: plan simulate %s --load 0.8", path, path)
	}
	return nil
}

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
