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

// findLimits finds what limits the plan: it solves the linear program again with one more device of each kind,
// and with each model's SLO longer by SLOStep. It returns the changes that raise the objective, by falling
// gain.
func findLimits(ctx context.Context, search *planSearch) []Limit {
	var limits []Limit
	value := search.choice.lp.value
	add := func(l Limit, solved *relaxation, err error) {
		if err != nil || solved.value <= value*(1+1e-6) {
			return
		}
		l.Value = search.catalogue.unitsToRate(solved.value)
		l.Gain = solved.value/value - 1
		limits = append(limits, l)
	}

	// One more device of each kind.
	var basis *milp.Basis
	for k := range search.problem.Pools {
		if ctx.Err() != nil || search.problem.Pools[k].Count == 0 {
			continue
		}
		solved, err := solveRelaxationFrom(ctx, search.catalogue, search.solver, nil, search.choice.allowedTemplates, k, basis)
		if err == nil {
			basis = solved.basis
		}
		add(Limit{Pool: k, Model: -1, Change: 1}, solved, err)
	}

	// A longer SLO of each model. If the templates are too many to list again, these limits are left out.
	for d := range search.problem.Models {
		if ctx.Err() != nil || search.catalogue.incomplete {
			break
		}
		changed, err := withLongerSLO(search, d)
		if err != nil {
			continue
		}
		solved, err := changed.solveRelaxation(ctx, search.solver, nil, indexesBelow(len(changed.templates)))
		add(Limit{Pool: -1, Model: d, Change: float64(SLOStep)}, solved, err)
	}
	slices.SortStableFunc(limits, func(a, b Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	return limits
}

// withLongerSLO returns the catalogue of the templates that are allowed if the SLO of model d is longer by
// SLOStep: those of the other models, and those of the model listed anew. The units stay.
func withLongerSLO(search *planSearch, d int) (*templateCatalogue, error) {
	relaxed := *search.problem
	relaxed.Models = slices.Clone(search.problem.Models)
	relaxed.Models[d].SLO += SLOStep
	relaxed.Models[d].Margin = kind.Margin(relaxed.Models[d].SLO, marginShareOf(&relaxed, d))
	templates, _, err := relaxed.undominatedTemplates(d)
	if err != nil {
		return nil, err
	}
	changed := &templateCatalogue{problem: &relaxed, units: search.catalogue.units}
	for _, i := range search.choice.allowedTemplates {
		if search.catalogue.templates[i].Model != d {
			changed.templates = append(changed.templates, search.catalogue.templates[i])
		}
	}
	for i := range templates {
		if search.choice.waits.allowsTemplate(&relaxed, &templates[i]) {
			changed.templates = append(changed.templates, templates[i])
		}
	}
	return changed, nil
}

// Infeasible is the error that explains why there is no plan.
type Infeasible struct {
	Model      int    // -1 if no single model is the cause
	Constraint string // slo, memory, devices or min_rps
	Reason     string
	SLO        time.Duration    // smallest with a pipeline; 0 if the SLO is not the cause
	Memory     int64            // bytes per device at which a pipeline fits
	Load       float64          // largest factor of the floors that whole devices carry
	Devices    []MissingDevices // fewest devices to add
	Conflict   []string         // limits that exclude each other
}

// MissingDevices is a number of devices that a pool lacks.
type MissingDevices struct{ Pool, Count int }

// Error returns why there is no plan.
func (e *Infeasible) Error() string { return e.Reason }

// noPipeline returns the error that explains why model d has no template at all: no device it was measured on,
// too little memory, or an SLO that the fastest pipeline misses. tooBig is the number of stages that were left
// out for lack of memory.
func (p *Problem) noPipeline(d, tooBig int) error {
	m := &p.Models[d]
	reason := &Infeasible{Model: d}
	latency, batch, ok := p.minLatency(d)
	if !ok {
		reason.Constraint = "memory"
		reason.Memory = p.MinMemory(d)
		if reason.Memory == 0 {
			reason.Constraint = "devices"
			reason.Reason = fmt.Sprintf("%s was measured on no device of the cluster", m.Name)
			return reason
		}
		reason.Reason = fmt.Sprintf("%s fits no device: its smallest pipeline needs %d bytes on a device", m.Name, reason.Memory)
		return reason
	}
	reason.Constraint = "slo"
	reason.SLO = kind.MinSLO(latency, marginShareOf(p, d))
	reason.Reason = fmt.Sprintf("no pipeline of %s keeps its SLO: the fastest takes %v at batch %d, and %v less the margin of %v leaves %v",
		m.Name, latency, batch, m.SLO, m.Margin, m.SLO-m.Margin)
	if tooBig > 0 {
		reason.Reason += "; some are left out because they do not fit in memory"
	}
	return reason
}

// minLatency returns the least latency with batch building of any template within the memory limits, whatever
// the SLO, and its batch size. If there is no template, ok is false.
func (p *Problem) minLatency(d int) (latency time.Duration, batch int, ok bool) {
	m := &p.Models[d]
	for _, b := range m.BatchSizes() {
		if fastest, hasTemplate := p.MinLatency(d, b); hasTemplate && (!ok || fastest+m.BatchWait(b) < latency) {
			latency, batch, ok = fastest+m.BatchWait(b), b, true
		}
	}
	return latency, batch, ok
}
