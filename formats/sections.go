package formats

import (
	"reflect"

	"inferplan/formats/document"
)

// planKind is one kind of plan, with its section and its options.
type planKind struct {
	name    string
	section PlanSection // a value of the section's type, which only shows the type
	options []document.Option
	schema  string // the section's schema, see Schema
}

// planKinds is the table of plan kinds: reading, validation, schema, upgrade and
// tests follow it.
var planKinds = []planKind{poolKind, gearKind, queueKind, flowKind}

// workloadPart is one thing that a workload can ask for.
type workloadPart struct {
	name    string          // the field's name
	kind    string          // the kind of the plans that are made for it
	section WorkloadSection // a value of the section's type, which only shows the type
	schema  string
}

// workloadParts is the table of the sections that workloads can have.
var workloadParts = []workloadPart{modelsPart, cascadePart, applicationsPart, llmPart}

// PlanKinds lists the kinds of plans.
func PlanKinds() []string {
	return document.Map(planKinds, func(k *planKind) string { return k.name })
}

// WorkloadKinds lists the kinds of plans that a workload can ask for, also those
// that cannot be made yet.
func WorkloadKinds() []string {
	return document.Map(workloadParts, func(p *workloadPart) string { return p.kind })
}

// PlanOptions returns the options of a kind of plan, or nil if the kind is unknown.
func PlanOptions(kind string) []document.Option {
	if k := planKindOf(kind); k != nil {
		return k.options
	}
	return nil
}

func planKindOf(name string) *planKind {
	return document.First(planKinds, func(k *planKind) bool { return k.name == name })
}

// sectionOf returns the name of the kind of plan that a section belongs to, or "" if it belongs to none.
func sectionOf(section PlanSection) string {
	if k := document.First(planKinds, func(k *planKind) bool { return reflect.TypeOf(k.section) == reflect.TypeOf(section) }); k != nil {
		return k.name
	}
	return ""
}

// planSection returns the section of a plan if it is of type T, or else the zero value.
func planSection[T PlanSection](p *Plan) T {
	section, _ := p.Section.(T)
	return section
}

// workloadSection returns the section of a workload if it is of type T, or else the zero value, also without a workload.
func workloadSection[T WorkloadSection](w *Workload) (section T) {
	if w != nil {
		section, _ = w.Section.(T)
	}
	return section
}

// WorkloadKind returns the kind of plan that is made for a workload, and the name of the field that decides this.
// Both are empty if the workload has no section.
func (d *Workload) WorkloadKind() (kind, field string) {
	if d.Section == nil {
		return "", ""
	}
	if p := document.First(workloadParts, func(p *workloadPart) bool { return reflect.TypeOf(p.section) == reflect.TypeOf(d.Section) }); p != nil {
		return p.kind, p.name
	}
	return "", ""
}

// Sections returns the sections that plans may have, one for each kind, for decoding and schemas.
func (*Plan) Sections() []document.Section {
	return document.Map(planKinds, func(k *planKind) document.Section {
		return document.Section{Name: k.name, Type: reflect.TypeOf(k.section), Schema: k.schema, Options: k.options}
	})
}

// Sections returns the sections that workloads may have, for decoding and schemas.
func (*Workload) Sections() []document.Section {
	return document.Map(workloadParts, func(p *workloadPart) document.Section {
		return document.Section{Name: p.name, Type: reflect.TypeOf(p.section), Schema: p.schema}
	})
}
