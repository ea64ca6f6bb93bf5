package planner

import (
	"fmt"
	"math"
	"time"

	"inferplan/formats"
	"inferplan/planner/pool"
	"inferplan/planner/stages"
	"inferplan/policy/reserve"
	"inferplan/solver/milp"
)

// policy is the run-time policy of the plan. Where the profile was sampled on
// real devices, the policy keeps the guards that it will need there, so that
// simulation and execution decide alike; imported times are taken as exact.
func (r *resolved) policy() formats.PolicySpec {
	spec := formats.PolicySpec{Name: reserve.Name}
	for i := range r.in.Profile.Models {
		for _, m := range r.in.Profile.Models[i].Measurements {
			for _, b := range m.Blocks {
				if b.Samples > 0 {
					spec.Params = reserve.WithGuards(nil)
					return spec
				}
			}
		}
	}
	return spec
}

// write makes the plan document of an outcome.
func (r *resolved) write(out *pool.Outcome, stopped milp.StoppedBy, solverName string) *formats.Plan {
	objective := formats.Objective{Name: r.opt.Objective, Value: out.Value}
	if bound := out.Bound; !math.IsNaN(bound) {
		gap := milp.RelativeGap(r.opt.sense(), out.Value, bound)
		objective.Bound, objective.Gap = &bound, &gap
	}
	p := &formats.Plan{
		Format: "inferplan.plan/v1", Kind: formats.PlanPool,
		Tool: formats.Tool{Version: Version, Solver: solverName}, Seed: r.opt.Seed, Algorithm: r.opt.Algorithm,
		Objective: objective,
		StoppedBy: string(stopped), Inputs: r.in.Files, Options: r.opt.plan(), Pools: r.pools,
		Execution: r.in.Profile.Execution(r.pools),
		Policy:    r.policy(), Assumptions: r.assumptions, Warnings: r.warnings,
	}
	p.Arrivals = r.in.Workload.Arrivals
	if p.Arrivals == nil {
		p.Arrivals = &formats.Arrivals{Process: "poisson"}
	}
	if p.Inputs == nil {
		p.Inputs = []formats.Input{}
	}
	for d := range r.models {
		p.Models = append(p.Models, r.writeModel(d, out))
	}
	for _, d := range out.Exempt {
		p.Warnings = append(p.Warnings, fmt.Sprintf(
			"%s: its requests may wait behind another batch on a time-shared device for longer than its SLO leaves; certify the plan, relax the SLO or add a device",
			r.problem.Models[d].Name))
	}
	p.Warnings = append(p.Warnings, out.Warnings...)
	r.replanned(out, p)
	for _, l := range out.Limits {
		p.Limits = append(p.Limits, r.writeLimit(l))
	}
	return p
}

func (r *resolved) writeLimit(l pool.Limit) formats.Limit {
	out := formats.Limit{Value: l.Value, Gain: l.Gain}
	if l.Pool >= 0 {
		out.What, out.Change = "device "+r.problem.Pools[l.Pool].Kind, "+1 device"
	} else {
		out.What, out.Change = "slo "+r.problem.Models[l.Model].Name, "+"+formats.Duration(pool.SLOStep).String()
	}
	return out
}

func (r *resolved) writeModel(d int, out *pool.Outcome) formats.PlanModel {
	m, pm := &r.models[d], &r.problem.Models[d]
	o := formats.PlanModel{
		Model: m.workload.Model, Class: m.workload.Class, SLOUS: formats.Micros(pm.SLO), MarginUS: formats.Micros(pm.Margin),
		Percentile: m.workload.Percentile, Weight: pm.Weight, RPS: out.RPS[d],
		Inputs: m.profile.Inputs, Outputs: m.profile.Outputs, NumBlocks: pm.NumBlocks(),
		Pipelines: []formats.Pipeline{},
	}
	if o.Percentile == "" {
		o.Percentile = "p99"
	}
	if m.profile.Source != nil {
		o.SHA256 = m.profile.Source.SHA256
	}
	for i := range out.Pipelines {
		if out.Pipelines[i].Model == d {
			o.Pipelines = append(o.Pipelines, r.writePipeline(d, &out.Pipelines[i]))
		}
	}
	return o
}

func (r *resolved) writePipeline(d int, pl *pool.Pipeline) formats.Pipeline {
	pm := &r.problem.Models[d]
	o := formats.Pipeline{
		Batch: pl.Batch, RPS: pl.RPS, LatencyUS: formats.Micros(pl.Latency),
		BatchBuildUS: formats.Micros(pm.BuildTime(pl.Batch)),
	}
	for i := range pl.Stages {
		s := &pl.Stages[i]
		st := formats.Stage{
			Blocks: [2]int{s.First, s.Last}, Device: r.problem.Pools[s.Pool].Kind, Share: s.Share,
			Replicas: pl.Replicas[i], GPUs: pl.Devices[i], RPS: s.Rate * float64(pl.Replicas[i]),
		}
		if r.problem.Pools[s.Pool].Time {
			st.RPS = pl.RPS // its time share carries no more
		}
		costs := &pm.Costs[s.Pool][s.Share-1]
		for b := 1; b <= pl.Batch; b++ {
			st.InferUS = append(st.InferUS, formats.Micros(stages.Infer(costs, b, s.First, s.Last)))
		}
		for _, t := range costs.At(pl.Batch).Blocks[s.First:s.Last] {
			st.BlockUS = append(st.BlockUS, formats.Micros(t))
		}
		for _, run := range pl.Placed[i] {
			st.Placement = append(st.Placement, formats.Placement{First: run.First, PerDevice: run.PerDevice, Replicas: run.Replicas})
		}
		if i+1 < len(pl.Stages) {
			c := r.models[d].cuts[s.Last-1]
			st.Cut = &formats.Cut{Tensors: c.Tensors, DType: c.DType, Bytes: c.Bytes}
			for b := 1; b <= pl.Batch; b++ {
				st.Cut.TransferUS = append(st.Cut.TransferUS, formats.Micros(r.problem.XferTime(s.Pool, pl.Stages[i+1].Pool, c.Bytes, b)))
			}
		}
		o.Stages = append(o.Stages, st)
	}
	return o
}

// incumbent is one improvement on the way.
func incumbent(cpu time.Duration, value, bound float64) Incumbent {
	in := Incumbent{CPUMS: math.Round(cpu.Seconds()*1e6) / 1e3, Value: value}
	if !math.IsNaN(bound) && !math.IsInf(bound, 0) {
		in.Bound = &bound
	}
	return in
}
