package pool

import (
	"fmt"
	"math"

	"inferplan/planner/kind"
	"inferplan/planner/stages"
	"inferplan/solver/milp"
)

// InputPipeline is a pipeline with its replicas that was chosen elsewhere.
type Given struct {
	Model, Batch int
	RPS          float64 // if 0, the rate that its replicas carry
	Stages       []GivenStage
}

// InputStage is one stage of an InputPipeline: blocks [First, Last) on a share of the devices of a pool.
type GivenStage struct{ First, Last, Pool, Share, Replicas int }

// AdoptedOutcome is the outcome of pipelines that were chosen elsewhere.
type Adopted struct {
	Outcome
	Carried []float64 // by input pipeline: requests/s that its replicas carry
}

// AdoptDocuments returns the outcome of pipelines that were chosen elsewhere for the problem of the documents,
// and the rate that the replicas of each carry. Batches take as long to fill as the workload's batch_build_rps
// says.
func Planned(in *kind.Problem, run *kind.Run, given []Given) (*kind.Outcome, []float64, error) {
	r, err := resolve(in, run)
	if err != nil {
		return nil, nil, err
	}
	for d := range r.models {
		if rps := r.models[d].workload.BatchBuildRPS; rps > 0 {
			r.problem.Models[d].Build = r.opt.BatchBuild * 1e6 / rps
		}
	}
	out, err := Adopt(r.problem, given)
	if err != nil {
		return nil, nil, err
	}
	return r.outcome(&out.Outcome), out.Carried, nil
}

// Adopt returns an outcome of pipelines that were chosen elsewhere. Their replicas stay as they are. What they
// cost and carry is computed from the problem, and they are placed on devices as our own pipelines are. There is
// no bound. Pools must be exclusive.
func Adopt(p *Problem, given []Given) (*Adopted, error) {
	var templates []stages.Template
	var carried []float64
	plan := &counts{rps: make([]float64, len(p.Models)), value: math.Inf(1)}

	// The template of each pipeline, with the rate that its replicas carry.
	for i := range given {
		t, err := p.template(&given[i])
		if err != nil {
			return nil, fmt.Errorf("pipeline %d: %w", i, err)
		}
		c := count{template: i, model: t.Model, rps: math.Inf(1)}
		for si := range t.Stages {
			n := given[i].Stages[si].Replicas
			c.replicas = append(c.replicas, n)
			c.rps = min(c.rps, t.Stages[si].Rate*float64(n))
		}
		carried = append(carried, c.rps)
		if promised := given[i].RPS; promised > 0 {
			if promised > c.rps*(1+1e-9) {
				return nil, fmt.Errorf("pipeline %d: its replicas carry %.6g requests/s, not %.6g", i, c.rps, promised)
			}
			c.rps = min(c.rps, promised)
		}
		plan.rps[t.Model] += c.rps
		plan.list = append(plan.list, c)
		templates = append(templates, *t)
	}

	// The objective, the limits and the placement.
	for d := range p.Models {
		plan.value = min(plan.value, plan.rps[d]/p.Models[d].Weight)
		plan.sum += plan.rps[d] * p.Models[d].Weight
	}
	c := &catalogue{Problem: p, templates: templates}
	if why := c.excess(plan); why != "" {
		return nil, fmt.Errorf("the pipelines take %s", why)
	}
	where, stuck := (&packing{c, plan, nil}).try()
	if stuck >= 0 {
		return nil, fmt.Errorf("the shares of %s do not fit its devices one by one", p.Pools[stuck].Kind)
	}
	return &Adopted{Carried: carried, Outcome: Outcome{
		Pipelines: c.pipelines(plan, where), RPS: plan.rps, Value: plan.value, Bound: math.NaN(),
		StoppedBy: milp.StoppedByWork, Templates: len(templates),
	}}, nil
}

// templateOf returns the template of an input pipeline, with its times and rates.
func (p *Problem) template(g *Given) (*stages.Template, error) {
	if g.Model < 0 || g.Model >= len(p.Models) {
		return nil, fmt.Errorf("model %d of %d", g.Model, len(p.Models))
	}
	m := &p.Models[g.Model]
	t := &stages.Template{Model: g.Model, Batch: g.Batch}
	at := 0

	// Check each stage and compute its times.
	for i, s := range g.Stages {
		switch {
		case s.First != at || s.Last <= s.First || s.Last > m.NumBlocks():
			return nil, fmt.Errorf("stage %d holds blocks [%d, %d), expected them from %d on, of %d", i, s.First, s.Last, at, m.NumBlocks())
		case s.Pool < 0 || s.Pool >= len(p.Pools) || p.Pools[s.Pool].Time:
			return nil, fmt.Errorf("stage %d is not on an exclusive pool", i)
		case s.Share < 1 || s.Share > len(m.Costs[s.Pool]) || m.Costs[s.Pool][s.Share-1].At(g.Batch) == nil:
			return nil, fmt.Errorf("stage %d: %s was not measured at batch %d on a share 1/%d of %s", i, m.Name, g.Batch, s.Share, p.Pools[s.Pool].Kind)
		case s.Replicas < 1:
			return nil, fmt.Errorf("stage %d has %d replicas", i, s.Replicas)
		case s.Last < m.NumBlocks() && m.CutBytes[s.Last-1] < 0:
			return nil, fmt.Errorf("stage %d: the size of the cut after block %d is not known", i, s.Last-1)
		}
		at = s.Last
		st := stages.Stage{First: s.First, Last: s.Last, Pool: s.Pool, Share: s.Share}
		costs := &m.Costs[s.Pool][s.Share-1]
		expected := costs.Expect(g.Batch)
		st.Infer, st.Run = stages.Infer(costs, g.Batch, s.First, s.Last), expected.Mean(s.First, s.Last)
		if i > 0 {
			prev := &t.Stages[i-1]
			prev.Xfer = p.XferTime(prev.Pool, s.Pool, m.CutBytes[s.First-1], g.Batch)
		}
		t.Stages = append(t.Stages, st)
	}
	if at != m.NumBlocks() {
		return nil, fmt.Errorf("the stages hold %d of %d blocks", at, m.NumBlocks())
	}

	// Latency, rates and the SLO.
	for i := range t.Stages {
		t.Latency += t.Stages[i].Infer + t.Stages[i].Xfer
		t.Stages[i].Rate = p.StageRate(t, i)
	}
	if spent := t.Latency + m.BuildTime(g.Batch) + m.Margin; spent > m.SLO {
		return nil, fmt.Errorf("it takes %v with margin and batch building, the SLO of %s is %v", spent, m.Name, m.SLO)
	}
	return t, nil
}
