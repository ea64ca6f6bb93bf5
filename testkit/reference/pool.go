package reference

import (
	"inferplan/formats"
	"inferplan/formats/document"
)

// WorkloadDocument is the workload that the plan was made for.
func (p *Plan) WorkloadDocument() *formats.Workload {
	var models formats.WorkloadModels
	for i := range p.DNNs {
		d := &p.DNNs[i]
		models = append(models, formats.WorkloadModel{
			Model: d.Model, SLO: document.SLO{Duration: Micros(d.SLOUS).D()}, Weight: p.Weights[i], BatchBuildRPS: d.BuildRPS,
		})
	}
	return &formats.Workload{Format: formats.FormatWorkload, Section: models}
}
