package served

import (
	"fmt"
	"strings"
)

// Gear is the part of plans of gears.
type Gear struct {
	InForce  int         `json:"in_force"` // index into Gears
	Switches int64       `json:"switches"` // since the plan came into force
	Gears    []GearState `json:"gears"`
}

// GearState is a gear with what came under it.
type GearState struct {
	ToRPS    float64  `json:"to_rps"` // upper end of its range of rates
	Models   []string `json:"models"` // of its cascade
	Requests int64    `json:"requests"`
	Answers  []int64  `json:"answers"` // of its models
}

// PlanKind implements Part.
func (*Gear) PlanKind() string { return "gear" }

// Gauge implements Part.
func (g *Gear) Gauge() (string, float64) { return "Gear", float64(g.InForce) }

// Tables implements Part.
func (g *Gear) Tables() []Table {
	t := Table{Title: "Gears", Text: fmt.Sprintf("Gear %d is in force. The gear changed %d times under this plan.", g.InForce, g.Switches), Align: "rrlrr",
		Header: []string{"gear", "up to rps", "cascade with its answers", "requests", "in force"}}
	for i := range g.Gears {
		gear := &g.Gears[i]
		var models []string
		for k, name := range gear.Models {
			models = append(models, fmt.Sprintf("%s %d", name, gear.Answers[k]))
		}
		mark := ""
		if i == g.InForce {
			mark = "yes"
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(i), rate(gear.ToRPS), strings.Join(models, ", then "), fmt.Sprint(gear.Requests), mark})
	}
	return []Table{t}
}
