package pool

import (
	"inferplan/formats"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// promise lowers what a plan promises to parts of it, one per model: what its replicas
// carry stays. Where throughput is the objective, no plan that keeps as much back of every model as this one
// does then has more than the bound times the largest part.
func promise(res *kind.Result, parts []float64) {
	plan := res.Plan
	s := formats.PoolOf(plan)
	if s.Headroom == nil {
		for range s.Models {
			s.Headroom = append(s.Headroom, formats.Headroom{Margin: plan.Options.Number("margin"), Utilisation: 1})
		}
	}
	most, before := 0.0, plan.Objective.Value
	for i, part := range parts {
		most = max(most, part)
		s.Headroom[i].Utilisation *= part
		sum := 0.0
		for k := range plan.Deployment[i].Pipelines {
			l := &plan.Deployment[i].Pipelines[k]
			l.RPS *= part
			for j := range l.Stages {
				if timeShared(plan, l.Stages[j].Device) {
					l.Stages[j].RPS = l.RPS
				}
			}
			sum += l.RPS
		}
		s.Models[i].RPS = sum
	}
	o := &plan.Objective
	if o.Name != ObjectiveThroughput {
		return
	}
	for i := range s.Models {
		if per := s.Models[i].RPS / s.Models[i].Weight; i == 0 || per < o.Value {
			o.Value = per
		}
	}
	for i := range plan.Limits {
		plan.Limits[i].Value *= o.Value / before
	}
	if o.Bound == nil {
		return
	}
	bound := max(*o.Bound*most, o.Value)
	gap := milp.RelativeGap(milp.Maximize, o.Value, bound)
	o.Bound, o.Gap = &bound, &gap
	stopped := milp.StoppedBy(plan.StoppedBy)
	if gap > plan.Options.Number("gap") && (stopped == milp.StoppedByGap || stopped == milp.StoppedByProof) {
		plan.StoppedBy = string(milp.StoppedByWork)
		res.StoppedBy, res.Status = plan.StoppedBy, kind.Status(milp.StoppedByWork)
	} else if gap > proof && stopped == milp.StoppedByProof {
		plan.StoppedBy = string(milp.StoppedByGap)
		res.StoppedBy, res.Status = plan.StoppedBy, kind.Status(milp.StoppedByGap)
	}
}

// timeShared tells whether stages take turns on a kind.
func timeShared(plan *formats.Plan, device string) bool {
	for i := range plan.Pools {
		if plan.Pools[i].Device == device {
			return plan.Pools[i].TimeShared()
		}
	}
	return false
}
