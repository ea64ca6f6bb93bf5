package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/solver/milp"
)

// sloStep is the change of an SLO that limits are computed for.
const sloStep = 10 * time.Millisecond

// findLimits finds what limits the plan: it solves the linear program again with one more device of each kind,
// and with each model's SLO longer by sloStep. It returns the changes that raise the objective, by falling
// gain. The gain is relative to the relaxation as it is.
func findLimits(ctx context.Context, search *planSearch) []formats.Limit {
	var limits []formats.Limit
	value := search.choice.lp.value
	add := func(constraint, change string, solved *relaxation, err error) {
		if err == nil && solved.value > value*(1+1e-6) {
			limits = append(limits, formats.Limit{Constraint: constraint, Change: change, Value: search.catalogue.unitsToRate(solved.value), Gain: solved.value/value - 1})
		}
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
		add("device "+search.problem.Pools[k].Kind, "+1 device", solved, err)
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
		add("slo "+search.problem.Models[d].Name, "+"+document.Duration(sloStep).String(), solved, err)
	}
	slices.SortStableFunc(limits, func(a, b formats.Limit) int { return cmp.Compare(b.Gain, a.Gain) })
	return limits
}

// withLongerSLO returns the catalogue of the templates that are allowed if the SLO of model d is longer by
// sloStep: those of the other models, and those of the model listed anew. The units stay.
func withLongerSLO(search *planSearch, d int) (*templateCatalogue, error) {
	relaxed := *search.problem
	relaxed.Models = slices.Clone(search.problem.Models)
	relaxed.Models[d].SLO += sloStep
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

// noPipeline returns the error that explains why model d has no template at all: no device it was measured on,
// too little memory, or an SLO that the fastest pipeline misses. tooBig is the number of stages that were left
// out for lack of memory.
func (p *Problem) noPipeline(d, tooBig int) error {
	m := &p.Models[d]
	reason := &kind.InfeasibleError{Model: m.Name}
	latency, batch, ok := p.minLatency(d)
	if !ok {
		reason.Constraint = "memory"
		reason.Nearest.MemoryBytes = p.MinMemory(d)
		if reason.Nearest.MemoryBytes == 0 {
			reason.Constraint = "devices"
			reason.Reason = fmt.Sprintf("%s was measured on no device of the cluster", m.Name)
			return reason
		}
		reason.Reason = fmt.Sprintf("%s fits no device: its smallest pipeline needs %d bytes on a device", m.Name, reason.Nearest.MemoryBytes)
		return reason
	}
	reason.Constraint = "slo"
	reason.Nearest.SLOUS = float64(kind.MinSLO(latency, marginShareOf(p, d))) / 1000
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
