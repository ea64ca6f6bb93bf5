package workload

import (
	"fmt"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/importers/requestlog"
)

// saveModels writes a workload of models, whose weights are the rates at which a log asks for them, and prints them.
// Arrivals are those of the model that is asked for most often.
func (o *workloadImport) saveModels(r *importers.Run, log *requestlog.Log) error {
	if o.Figure != "" {
		return usage.Errorf("--of %s: %s has no tokens, so its models have SLOs of the whole", o.Figure, log.Format)
	}
	loads := modelLoads(traceOf(log))
	var models formats.WorkloadModels
	busiest := &loads[0]
	for i := range loads {
		l := &loads[i]
		if l.Model == "" {
			return usage.Errorf("--model: name the model that the requests of %s ask for", r.Args[0])
		}
		if l.Count > busiest.Count {
			busiest = l
		}
		models = append(models, formats.WorkloadModel{Model: l.Model, SLO: o.SLO, Percentile: o.Percentile, Weight: l.RPS})
	}
	doc := &formats.Workload{Format: formats.FormatWorkload, Section: models, Arrivals: process(busiest.rows)}
	if err := doc.Validate(); err != nil {
		return usage.Mark(fmt.Errorf("the workload of %s: %w", r.Args[0], err))
	}
	if err := r.SaveDocument(r.Path, doc); err != nil {
		return err
	}
	if r.JSON {
		return r.PrintResult(map[string]any{"requests": len(log.Requests), "models": loads}, "")
	}
	var rows [][]string
	for i := range loads {
		l := &loads[i]
		rows = append(rows, []string{l.Model, fmt.Sprint(l.Count), fmt.Sprint(l.RPS), fmt.Sprint(l.PeakRPS)})
	}
	if err := r.PrintTable("lrrr", []string{"model", "requests", "rps", "rps in the busiest minute"}, rows); err != nil {
		return err
	}
	return r.PrintResult(nil, "wrote %s: %s; a throughput of 1 per weight carries the mean rates", r.Path, document.CountOf(len(models), "model"))
}
