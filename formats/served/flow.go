package served

import (
	"fmt"

	"inferplan/formats/document"
)

// Flow is the part of plans of flows.
type Flow struct {
	Modules []Module `json:"modules"`
}

// Module counts the tasks of a module since the plan came into force.
type Module struct {
	Module  string          `json:"module"`
	Tasks   int64           `json:"tasks"`
	Ended   int64           `json:"ended"`
	Dropped int64           `json:"dropped"` // requests dropped because of it
	Waiting int64           `json:"waiting"`
	Running int64           `json:"running"`
	RunUS   document.Micros `json:"run_us"` // mean of a batch
	Batch   float64         `json:"batch"`  // mean size
}

// PlanKind implements Part.
func (*Flow) PlanKind() string { return "flow" }

// Gauge implements Part.
func (*Flow) Gauge() (string, float64) { return "", 0 }

// Tables implements Part.
func (f *Flow) Tables() []Table {
	t := Table{Title: "Modules", Text: "Tasks since the plan came into force. A request that is dropped counts for the module because of which it was.", Align: "lrrrrrrr",
		Header: []string{"module", "tasks", "ended", "drops", "waiting", "running", "run ms", "batch"}}
	for _, m := range f.Modules {
		t.Rows = append(t.Rows, []string{m.Module, fmt.Sprint(m.Tasks), fmt.Sprint(m.Ended), fmt.Sprint(m.Dropped), fmt.Sprint(m.Waiting), fmt.Sprint(m.Running),
			document.FormatMillis(m.RunUS.D()), fmt.Sprintf("%.2f", m.Batch)})
	}
	return []Table{t}
}
