package planner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"inferplan/formats"
	"inferplan/planner/pool"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// Result is what a solve ended with.
type Result struct {
	Plan       *formats.Plan
	Status     string // optimal, gap, limit, interrupted
	StoppedBy  string // proved, gap, work, time, interrupt
	Incumbents []Incumbent
	Phases     []pool.Phase
	Templates  int // possible pipelines that were looked at
	WallMS     float64
}

// Incumbent is an improvement on the way to the plan.
type Incumbent struct {
	CPUMS float64  `json:"cpu_ms"` // of this process since the solve began
	Value float64  `json:"value"`
	Bound *float64 `json:"bound"`
}

// Progress is the state of a running solve.
type Progress struct {
	Phase        string
	Fraction     float64 // of the phases, 0..1
	Value, Bound float64 // NaN while unknown
	Detail       string
}

// phases are the names of the phases in order, for Progress.Fraction.
var phases = []string{"pipelines", "relaxation", "what runs", "rounding", "bundles", "basis", "whole devices", "losses", "pool", "survivors", "fewest moves", "weighted sum"}

func fraction(phase string) float64 {
	for i, p := range phases {
		if p == phase {
			return float64(i+1) / float64(len(phases))
		}
	}
	return 0
}

// Solve makes a plan. The solver does the mathematics; progress may be nil and
// is called from the solving goroutine.
//
// When ctx ends after a plan was found, that plan is returned without an error,
// with StoppedBy interrupt (or time, for Options.TimeLimit).
func Solve(ctx context.Context, in Inputs, opt Options, solver milp.Solver, progress func(Progress)) (*Result, error) {
	if opt.Method == MethodGear || (opt.Method == MethodAuto || opt.Method == "") && in.Workload != nil && in.Workload.Cascade != nil {
		return solveGear(ctx, in, opt, solver, progress)
	}
	start, cpu := time.Now(), cpuTime()
	if err := opt.complete(); err != nil {
		return nil, err
	}
	r, err := resolve(in, opt)
	if err != nil {
		return nil, err
	}
	r.checkModelFiles()

	outer := ctx
	if opt.TimeLimit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opt.TimeLimit)
		defer cancel()
	}
	res := &Result{}
	po := opt.pool()
	po.Progress = func(p pool.Progress) {
		if !math.IsNaN(p.Value) && p.Value > 0 {
			if n := len(res.Incumbents); n == 0 || opt.better(p.Value, res.Incumbents[n-1].Value) {
				res.Incumbents = append(res.Incumbents, incumbent(cpuTime()-cpu, p.Value, p.Bound))
			}
		}
		if progress != nil {
			progress(Progress{Phase: p.Phase, Fraction: fraction(p.Phase), Value: p.Value, Bound: p.Bound, Detail: p.Detail})
		}
	}
	if po.Running, err = r.running(); err != nil {
		return nil, err
	}
	if err := r.batchBuilding(ctx, solver, po); err != nil {
		return nil, r.explained(err)
	}
	var out *pool.Outcome
	switch opt.Algorithm {
	case AlgorithmNP:
		out, err = pool.NP(ctx, r.problem, solver, po)
	case AlgorithmDARTr:
		if out, err = pool.DARTr(ctx, r.problem, solver, po); errors.Is(err, pool.ErrKinds) {
			err = r.fail("cluster", "pools", fmt.Sprintf("%d pools", len(r.pools)), "at most two kinds, none shared in time, for --algorithm dart-r", err.Error())
		}
	default:
		if opt.Objective == ObjectiveThroughput {
			solve := pool.Solve
			if opt.UnevenNIC {
				solve = pool.SolveUneven
			}
			out, err = solve(ctx, r.problem, solver, po)
			break
		}
		var prices []float64
		if prices, err = r.prices(); err == nil {
			out, err = pool.Cheapest(ctx, r.problem, prices, solver, po)
		}
	}
	if err != nil {
		return nil, r.explained(err)
	}
	stopped := out.StoppedBy
	if stopped == milp.StoppedByInterrupt && outer.Err() == nil {
		stopped = milp.StoppedByTime
	}
	res.Plan = r.write(out, stopped, solverName(solver))
	res.StoppedBy, res.Status = string(stopped), status(stopped)
	res.Phases, res.Templates = out.Phases, out.Templates
	res.Incumbents = settle(res.Incumbents, opt, incumbent(cpuTime()-cpu, out.Value, out.Bound))
	res.WallMS = math.Round(time.Since(start).Seconds()*1e6) / 1e3
	return res, nil
}

// solverNoise is how far the solver's figure of a plan may be from the plan's
// own, recomputed from whole replicas.
const solverNoise = 1e-7

// settle ends the list of incumbents with the plan itself. One that was the
// plan but for the solver's noise keeps its time and gets the plan's value;
// what claims more than the plan holds is left out.
func settle(list []Incumbent, opt Options, last Incumbent) []Incumbent {
	var out []Incumbent
	for _, in := range list {
		if math.Abs(in.Value-last.Value) <= solverNoise*last.Value {
			in.Value = last.Value
		} else if opt.better(in.Value, last.Value) {
			continue
		}
		if n := len(out); n == 0 || opt.better(in.Value, out[n-1].Value) {
			out = append(out, in)
		}
	}
	return append(out, last)
}

func status(s milp.StoppedBy) string {
	switch s {
	case milp.StoppedByProof:
		return "optimal"
	case milp.StoppedByGap:
		return "gap"
	case milp.StoppedByInterrupt:
		return "interrupted"
	}
	return "limit"
}

// solverName asks the solver for its name and version, where it tells.
func solverName(s milp.Solver) string {
	if v, ok := s.(interface{ Version() string }); ok {
		return v.Version()
	}
	return ""
}

// explained turns the method's infeasibility into the planner's.
func (r *resolved) explained(err error) error {
	var inf *pool.Infeasible
	if errors.As(err, &inf) {
		return r.infeasible(inf)
	}
	return err
}

// batchBuilding sets the delay for filling batches. The rate at which a batch
// fills is the workload's, else what the model gets in a plan without
// partitioning and without this delay.
func (r *resolved) batchBuilding(ctx context.Context, solver milp.Solver, po pool.Options) error {
	if r.opt.BatchBuild == 0 {
		return nil
	}
	rates := make([]float64, len(r.models))
	missing := false
	for d := range r.models {
		rates[d] = r.models[d].workload.BatchBuildRPS
		missing = missing || rates[d] <= 0
	}
	if missing {
		po.Progress, po.Running = nil, nil
		free := *r.problem
		free.Models = append([]stages.Model(nil), r.problem.Models...)
		for d := range free.Models {
			free.Models[d].MinRPS = 0
		}
		np, err := pool.NP(ctx, &free, solver, po)
		if err != nil {
			return fmt.Errorf("planning without partitioning for the rate at which batches fill: %w", err)
		}
		for d := range rates {
			if rates[d] <= 0 {
				rates[d] = np.RPS[d]
				r.assume("batch_build_rps %.6g for %s: its rate in the plan without partitioning", rates[d], r.problem.Models[d].Name)
			}
		}
	}
	for d := range rates {
		m := &r.problem.Models[d]
		m.Build = r.opt.BatchBuild * 1e6 / rates[d]
		m.EveryBatch = true
	}
	return nil
}

// checkModelFiles warns where a model file is not the one that was measured.
func (r *resolved) checkModelFiles() {
	if r.in.ProfileDir == "" {
		return
	}
	for _, m := range r.models {
		src := m.profile.Source
		if src == nil || src.Path == "" || src.SHA256 == "" {
			continue
		}
		path := src.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.in.ProfileDir, filepath.FromSlash(path))
		}
		if _, err := os.Stat(path); err != nil {
			continue // a plan needs no model file; serving says what is missing
		}
		sum, err := formats.Digest(path)
		if err != nil {
			r.warn("the model file of %s cannot be read: %v", m.profile.Model, err)
		} else if sum != src.SHA256 {
			r.warn("stale profile: %s has changed since %s was measured; measure it again: plan profile %s", src.Path, m.profile.Model, src.Path)
		}
	}
}
