package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// Limit says what a little more of something would gain, by the bound.
type Limit struct {
	Pool   int     // -1 if the limit is a model's SLO
	Model  int     // -1 if the limit is a pool
	Change float64 // one device, or nanoseconds of SLO
	Value  float64 // of the objective, by the changed relaxation
	Gain   float64 // relative to the relaxation as it is
}

// SLOStep is the change of an SLO that limits are computed for.
const SLOStep = 10 * time.Millisecond

// findLimits solves the relaxation again with one more device of each kind, and with each model's SLO longer by
// SLOStep. It returns the limits by falling gain.
func (x *search) sensitivity(ctx context.Context) []Limit {
	var out []Limit
	now := x.lp.value
	add := func(l Limit, r *relaxation, err error) {
		if err != nil || r.value <= now*(1+1e-6) {
			return
		}
		l.Value = x.theta(r.value)
		l.Gain = r.value/now - 1
		out = append(out, l)
	}

	// One more device of each kind.
	var basis *milp.Basis
	for k := range x.Pools {
		if ctx.Err() != nil || x.Pools[k].Count == 0 {
			continue
		}
		r, err := relaxFrom(ctx, x.catalogue, x.s, nil, x.allowed, k, basis)
		if err == nil {
			basis = r.basis
		}
		add(Limit{Pool: k, Model: -1, Change: 1}, r, err)
	}

	// A longer SLO of each model: its templates are listed anew.
	for d := range x.Models {
		if ctx.Err() != nil || x.partial {
			break // too many templates to list again
		}
		wide := *x.Problem
		wide.Models = slices.Clone(x.Models)
		wide.Models[d].SLO += SLOStep
		wide.Models[d].Margin = kind.Margin(wide.Models[d].SLO, marginShare(&wide, d))
		more, _, err := wide.enumerate(d)
		if err != nil {
			continue
		}
		of := &catalogue{Problem: &wide, u: x.u}
		for _, i := range x.allowed {
			if x.templates[i].Model != d {
				of.templates = append(of.templates, x.templates[i])
			}
		}
		for i := range more {
			if x.rule.allows(&wide, &more[i]) {
				of.templates = append(of.templates, more[i])
			}
		}
		r, err := of.relax(ctx, x.s, nil, all(len(of.templates)), -1)
		add(Limit{Pool: -1, Model: d, Change: float64(SLOStep)}, r, err)
	}
	slices.SortStableFunc(out, func(a, b Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	return out
}

// Infeasible is the error that explains why there is no plan.
type Infeasible struct {
	Model      int    // -1 if no single model is the cause
	Constraint string // slo, memory, devices or min_rps
	Reason     string
	SLO        time.Duration // smallest with a pipeline; 0 if the SLO is not the cause
	Memory     int64         // bytes per device at which a pipeline fits
	Load       float64       // largest factor of the floors that whole devices carry
	Devices    []Missing     // fewest devices to add
	Conflict   []string      // limits that exclude each other
}

// MissingDevices is a number of devices that a pool lacks.
type Missing struct{ Pool, Count int }

func (e *Infeasible) Error() string { return e.Reason }

// noPipeline returns the error that explains why model d has no template at all.
func (p *Problem) noPipeline(d, tooBig int) error {
	m := &p.Models[d]
	e := &Infeasible{Model: d}
	need, batch, ok := p.leastTime(d)
	if !ok {
		e.Constraint = "memory"
		e.Memory = p.LeastMemory(d)
		if e.Memory == 0 {
			e.Constraint = "devices"
			e.Reason = fmt.Sprintf("%s was measured on no device of the cluster", m.Name)
			return e
		}
		e.Reason = fmt.Sprintf("%s fits no device: its smallest pipeline needs %d bytes on a device", m.Name, e.Memory)
		return e
	}
	e.Constraint = "slo"
	e.SLO = kind.LeastSLO(need, marginShare(p, d))
	e.Reason = fmt.Sprintf("no pipeline of %s keeps its SLO: the fastest takes %v at batch %d, and %v less the margin of %v leaves %v",
		m.Name, need, batch, m.SLO, m.Margin, m.SLO-m.Margin)
	if tooBig > 0 {
		e.Reason += "; some are left out because they do not fit in memory"
	}
	return e
}

// minLatency returns the least latency with batch building of any template within the memory limits, whatever
// the SLO, and its batch size. If there is no template, ok is false.
func (p *Problem) leastTime(d int) (least time.Duration, batch int, ok bool) {
	m := &p.Models[d]
	for _, b := range m.BatchSizes() {
		if t, found := p.Fastest(d, b); found && (!ok || t+m.BuildTime(b) < least) {
			least, batch, ok = t+m.BuildTime(b), b, true
		}
	}
	return least, batch, ok
}
