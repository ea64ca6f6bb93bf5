package served

import (
	"fmt"
	"inferplan/formats/document"
	"strings"
)

// Pool is the part of plans of pools.
type Pool struct {
	Pipelines []Pipeline `json:"pipelines"`
}

// Pipeline is a pooled pipeline with the devices of its stages.
type Pipeline struct {
	Model       string  `json:"model"`
	Batch       int     `json:"batch"` // planned
	PromisedRPS float64 `json:"promised_rps"`
	Stages      []Stage `json:"stages"`
}

// Stage counts the devices of a stage.
type Stage struct {
	DeviceKind string `json:"device_kind"`
	Up         int    `json:"up"`
	Devices    int    `json:"devices"`
}

// PlanKind implements Part.
func (*Pool) PlanKind() string { return "pool" }

// Gauge implements Part.
func (*Pool) Gauge() (string, float64) { return "", 0 }

// Tables implements Part.
func (p *Pool) Tables() []Table {
	t := Table{Title: "Pipelines", Text: "A pipeline runs a model in stages. Each stage has the devices that are up of those that the plan gives it.", Align: "lrrl",
		Header: []string{"model", "planned batch", "planned rps", "stages"}}
	for i := range p.Pipelines {
		pipeline := &p.Pipelines[i]
		stages := document.Map(pipeline.Stages, func(s *Stage) string { return fmt.Sprintf("%d of %d %s", s.Up, s.Devices, s.DeviceKind) })
		t.Rows = append(t.Rows, []string{pipeline.Model, fmt.Sprint(pipeline.Batch), rate(pipeline.PromisedRPS), strings.Join(stages, ", then ")})
	}
	return []Table{t}
}

// rate returns a rate for people; a rate that is not known is a dash.
func rate(rps float64) string {
	if rps <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", rps)
}
