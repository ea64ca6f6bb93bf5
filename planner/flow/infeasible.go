package flow

import (
	"context"
	"errors"
	"fmt"
	"math"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// explainInfeasible returns an error that says why there is no plan, and what would be nearest: lower
// rates, else longer SLOs, else more devices. fixedRates says that the workload asks for rates.
func (s *search) explained(ctx context.Context, rates bool) error {
	if rates {
		out, err := s.throughput(ctx)
		switch {
		case err == nil:
			return &kind.InfeasibleError{Constraint: "devices", Reason: "the devices do not carry the rates of the applications within their SLOs",
				Nearest: kind.Nearest{LoadFactor: math.Floor(out.value*1e6) / 1e6}}
		case !errors.Is(err, errNone):
			return err
		}
	}

	// If rates are not the reason, the SLOs may be: find the plan that stretches them least.
	out, err := s.soonest(ctx)
	if err == nil {
		if out.p != nil {
			s = s.over(out.p)
		}
		return s.tooSoon(out.picked)
	}
	if !errors.Is(err, errNone) {
		return err
	}

	// If no SLO is long enough, devices are missing.
	if out, err = s.one(ctx, ask{goal: lacking, top: 1}, milp.Options{}); err != nil {
		if errors.Is(err, errNone) {
			return &kind.InfeasibleError{Constraint: "devices", Reason: "some module was measured on no device that the cluster has"}
		}
		return err
	}
	e := &kind.InfeasibleError{Constraint: "devices", Reason: "there are fewer devices than models to deploy: each has devices of its own, unless the cluster says sharing: time and throughput is planned without a cold start"}
	if s.p.shares() {
		e.Constraint, e.Reason = "memory", "the models that have no devices of their own do not fit together in the memory of devices on which they take turns"
	}
	for k := range s.p.pools {
		n := -s.p.pools[k].count
		for u := range out.devices {
			n += out.devices[u][k]
		}
		if n > 0 {
			e.Nearest.Devices = append(e.Nearest.Devices, kind.MissingCount{Device: s.p.pools[k].kind, Count: n})
		}
	}
	return e
}

// sloError returns an error that names the application whose SLO has to grow by the largest factor, with
// the least SLO that the solution keeps.
func (s *search) tooSoon(x *picked) error {
	worst, by := 0, 0.0
	for a := range s.p.apps {
		if f := s.p.took(x, a).Seconds() / max(s.p.apps[a].budget().Seconds(), 1e-9); f > by {
			worst, by = a, f
		}
	}
	a := &s.p.apps[worst]
	need := s.p.took(x, worst)
	return &kind.InfeasibleError{Model: a.name, Constraint: "slo",
		Reason: fmt.Sprintf("no choice of batches and devices keeps the SLO of %s: its longest path takes %v, with a batch to wait for and one's own in every module, and %v less the margin of %v leaves %v",
			a.name, need, a.slo, a.margin, a.budget()),
		Nearest: kind.Nearest{SLOUS: float64(kind.LeastSLO(need, a.margin.Seconds()/a.slo.Seconds())) / 1000}}
}
