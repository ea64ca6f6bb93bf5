package pool

import (
	"cmp"
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/policy/reserve"
	"inferplan/solver/milp"
)

// policySpec returns the run-time policy of the plan. If the profile was sampled on real devices, the policy has
// the guards that it needs there, so that simulation and execution decide alike. Imported times are taken as
// exact.
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

// planOutcome writes the outcome of a search as the parts of a plan.
func (r *resolved) outcome(out *Outcome) *kind.Outcome {
	o := &kind.Outcome{
		Algorithm: r.opt.Algorithm, Values: r.in.Values, Objective: formats.Objective{Name: r.opt.Objective, Value: out.Value},
		Sense: r.opt.sense(), StoppedBy: out.StoppedBy, Pools: r.pools, Policy: r.policy(), Considered: out.Templates, Phases: out.Phases,
	}

	// The bound and the gap.
	if bound := out.Bound; !math.IsNaN(bound) {
		gap := milp.RelativeGap(o.Sense, out.Value, bound)
		o.Objective.Bound, o.Objective.Gap = &bound, &gap
	}

	// What is deployed and what is promised.
	promised := &formats.PoolPlan{}
	for d := range r.models {
		o.Deployment = append(o.Deployment, r.deployed(d, out))
		promised.Models = append(promised.Models, r.served(d, out))
	}
	promised.Headroom = r.headroom()
	if o.Objective.Bound != nil {
		o.Objective.BoundAmong = among(r.in.Values, r.in.Values.Whole("blocks"), o.Deployment, o.Pools)
	}
	o.Section = promised

	// Warnings, moves and limits.
	for _, d := range out.Exempt {
		r.run.Warnings = append(r.run.Warnings, fmt.Sprintf(
			"%s: its requests may wait behind another batch on a time-shared device for longer than its SLO leaves; certify the plan, relax the SLO or add a device",
			r.problem.Models[d].Name))
	}
	r.run.Warnings = append(r.run.Warnings, out.Warnings...)
	r.replanned(out, o)
	for _, l := range out.Limits {
		o.Limits = append(o.Limits, r.writeLimit(l))
	}
	return o
}

// writeLimit writes a limit in the names of the documents.
func (r *resolved) writeLimit(l Limit) formats.Limit {
	out := formats.Limit{Value: l.Value, Gain: l.Gain}
	if l.Pool >= 0 {
		out.What, out.Change = "device "+r.problem.Pools[l.Pool].Kind, "+1 device"
	} else {
		out.What, out.Change = "slo "+r.problem.Models[l.Model].Name, "+"+document.Duration(SLOStep).String()
	}
	return out
}

// headrooms returns what is kept back of every model. If the options alone say it, it returns nil.
func (r *resolved) headroom() []formats.Headroom {
	var out []formats.Headroom
	own := false
	for i := range r.models {
		h := r.models[i].headroom
		out, own = append(out, h), own || h != formats.Headroom{Margin: r.opt.Margin, Utilisation: 1}
	}
	if !own {
		return nil
	}
	return out
}

// servedModel returns what is promised to the requests for model d.
func (r *resolved) served(d int, out *Outcome) formats.Served {
	m, pm := &r.models[d], &r.problem.Models[d]
	return formats.Served{
		Model: m.workload.Model, Class: m.workload.Class, SLOUS: document.Micros(pm.SLO), MarginUS: document.Micros(pm.Margin),
		Percentile: cmp.Or(m.workload.Percentile, "p99"), Weight: m.weight, RPS: out.RPS[d] * m.headroom.Utilisation,
	}
}

// deployedModel returns where model d runs.
func (r *resolved) deployed(d int, out *Outcome) formats.Deployed {
	m := &r.models[d]
	o := m.profile.Deployed()
	o.Model, o.Class, o.NumBlocks = m.workload.Model, m.workload.Class, r.problem.Models[d].NumBlocks()
	for i := range out.Pipelines {
		if out.Pipelines[i].Model == d {
			o.Pipelines = append(o.Pipelines, r.writePipeline(d, &out.Pipelines[i]))
		}
	}
	return o
}

// writePipeline writes a pipeline of model d, with its stages, placements and cuts.
func (r *resolved) writePipeline(d int, pl *Pipeline) formats.Pipeline {
	pm := &r.problem.Models[d]
	o := formats.Pipeline{
		Batch: pl.Batch, RPS: pl.RPS * r.models[d].headroom.Utilisation,
		BatchBuildUS: document.Micros(pm.BuildTime(pl.Batch)),
	}
	for i := range pl.Stages {
		// The stage with its times.
		s := &pl.Stages[i]
		st := formats.Stage{
			Blocks: [2]int{s.First, s.Last}, Device: r.problem.Pools[s.Pool].Kind, Share: s.Share,
			Replicas: pl.Replicas[i], GPUs: pl.Devices[i], RPS: s.Rate * float64(pl.Replicas[i]),
		}
		if r.problem.Pools[s.Pool].Time {
			st.RPS = o.RPS // a stage that shares time carries no more than the pipeline's rate
		}
		pm.Costs[s.Pool][s.Share-1].Write(&st, r.models[d].profile, pl.Batch)
		o.LatencyUS += st.InferUS[pl.Batch-1]

		// Its places.
		for _, run := range pl.Placed[i] {
			st.Placement = append(st.Placement, formats.Placement{First: run.First, PerDevice: run.PerDevice, Replicas: run.Replicas})
		}

		// The cut after it.
		if i+1 < len(pl.Stages) {
			c := r.models[d].cuts[s.Last-1]
			st.Cut = &formats.Cut{Tensors: c.Tensors, DType: c.DType, Bytes: c.Bytes}
			for b := 1; b <= pl.Batch; b++ {
				st.Cut.TransferUS = append(st.Cut.TransferUS, document.Micros(r.problem.XferTime(s.Pool, pl.Stages[i+1].Pool, c.Bytes, b)))
			}
			o.LatencyUS += st.Cut.TransferUS[pl.Batch-1]
		}
		o.Stages = append(o.Stages, st)
	}
	return o
}
