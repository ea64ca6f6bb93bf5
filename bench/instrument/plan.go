package instrument

import (
	"inferplan/formats"
	"inferplan/formats/document"
)

// Plan is a plan within a kept value, written and read as plan files are: the kind of a plan says what its section is. It may hold
// no plan.
type Plan struct{ *formats.Plan }

// MarshalJSON writes the plan.
func (p Plan) MarshalJSON() ([]byte, error) {
	if p.Plan == nil {
		return []byte("null"), nil
	}
	return document.Marshal(p.Plan)
}

// UnmarshalJSON reads the plan.
func (p *Plan) UnmarshalJSON(data []byte) (err error) {
	if string(data) != "null" {
		p.Plan, err = formats.DecodePlan(data, "a kept plan")
	}
	return err
}
