package running

import (
	"fmt"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// observedPipeline returns an observed pipeline of a model with its times, at the largest batch up to the observed one
// that was measured and keeps the SLO. If even single requests break the SLO, it returns nil, with a warning.
func (a *adoption) observedPipeline(model int, observed *formats.Pipeline) (*problem.Pipeline, error) {
	p, m := a.resolved.Problem, &a.resolved.Problem.Models[model]
	t := stages.Template{Model: model, Batch: max(observed.Batch, 1), Stages: a.stagesOf(model, observed)}
	if err := a.checkMeasured(&t); err != nil {
		return nil, err
	}

	// The largest batch that was measured, and that keeps the SLO.
	asked := t.Batch
	for _, s := range t.Stages {
		batches := m.ShareCosts[s.Pool][s.Share-1].Batches
		t.Batch = min(t.Batch, batches[len(batches)-1].Batch)
	}
	if t.Batch < asked {
		a.run.Warn("%s: batches of up to %d run, and the profile has up to %d on %s: planned with these", m.Name, asked, t.Batch, a.kindsOf(&t))
	}
	measured, singleLatency := t.Batch, document.Micros(0)
	for ; t.Batch > 0; t.Batch-- {
		if err := templates.SetCosts(p, &t); err != nil {
			return nil, a.resolved.Input.FieldError("profile", "models", fmt.Sprintf("what runs of %s: %v", m.Name, err), "its blocks, as they run", "")
		}
		if t.Latency <= m.Budget(t.Batch) {
			break
		}
		singleLatency = document.Micros(t.Latency)
	}
	budget := document.Micros(m.Budget(1))
	if t.Batch == 0 {
		a.run.Warn("%s on %s is left out: a single request takes %v, and its SLO leaves %v", m.Name, a.kindsOf(&t), singleLatency.D(), budget.D())
		return nil, nil
	}
	if t.Batch < measured {
		a.run.Warn("%s: batches of up to %d run on %s, and the SLO leaves time for %d: planned with these", m.Name, measured, a.kindsOf(&t), t.Batch)
	}
	if !templates.FitsMemory(p, &t) {
		a.run.Warn("%s: by the profile its replicas do not fit their part of the memory of %s", m.Name, a.kindsOf(&t))
	}

	// Its places.
	pipeline := &problem.Pipeline{Template: t}
	for i := range observed.Stages {
		places := observed.Stages[i].Placement
		pipeline.Placement = append(pipeline.Placement, slices.Clone(places))
		pipeline.Replicas = append(pipeline.Replicas, lists.Sum(len(places), func(r int) int { return places[r].Replicas }))
	}
	return pipeline, nil
}

// checkMeasured returns an error if a stage runs where the cluster has no device or no such share, or where the model
// was not measured.
func (a *adoption) checkMeasured(t *stages.Template) error {
	m := &a.resolved.Problem.Models[t.Model]
	for i := range t.Stages {
		s := &t.Stages[i]
		if s.Pool < 0 {
			return a.resolved.Input.FieldError("cluster", "pools", m.Name+" on a kind of device that is not in the cluster", "the devices on which models run", "")
		}
		pool := &a.resolved.Problem.Pools[s.Pool]
		if s.Share > pool.MaxShares {
			return a.resolved.Input.FieldError("cluster", fmt.Sprintf("pools[%d].max_shares", s.Pool), fmt.Sprint(pool.MaxShares),
				fmt.Sprintf("at least %d: so many instances share a %s, one of them of %s", s.Share, pool.Kind, m.Name), "sharing: time says that instances take turns on a device")
		}
		if len(m.ShareCosts[s.Pool][s.Share-1].Batches) == 0 {
			return a.resolved.Input.FieldError("profile", "models", fmt.Sprintf("no measurement of %s on a share 1/%d of %s", m.Name, s.Share, pool.Kind), "one, as it runs there",
				fmt.Sprintf("measure it: plan profile --shares %d", s.Share))
		}
	}
	return nil
}

// kindsOf returns the device kinds of a template's stages, for messages.
func (a *adoption) kindsOf(t *stages.Template) string {
	kinds := lists.Map(len(t.Stages), func(i int) string { return a.resolved.Problem.Pools[t.Stages[i].Pool].Kind })
	return document.List(kinds)
}
