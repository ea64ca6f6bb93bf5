package formats

import (
	"reflect"
	"strings"
)

// planKind is one kind of plan: what its section is and which options it has.
type planKind struct {
	name    string
	section PlanSection // of the section's type; its value does not matter
	options []Option
	schema  string // of the section, see Schema
}

// planKinds is the table of plan kinds: reading, validation, schema, upgrade and
// tests follow it.
var planKinds = []planKind{poolKind, gearKind, queueKind, flowKind}

// workloadPart is one thing that a workload can ask for.
type workloadPart struct {
	name    string          // of the field
	kind    string          // of the plans that are made for it
	section WorkloadSection // of the section's type; its value does not matter
	schema  string
}

// workloadParts is the table of what workloads can ask for.
var workloadParts = []workloadPart{modelsPart, cascadePart, applicationsPart, llmPart}

// PlanKinds lists the kinds of plans.
func PlanKinds() []string {
	return named(planKinds, func(k *planKind) string { return k.name })
}

// WorkloadKinds lists the kinds of plans that a workload can ask for, also those
// that cannot be made yet.
func WorkloadKinds() []string {
	return named(workloadParts, func(p *workloadPart) string { return p.kind })
}

// PlanOptions are the options of a kind of plan; nil for an unknown one.
func PlanOptions(kind string) []Option {
	if k := planKindOf(kind); k != nil {
		return k.options
	}
	return nil
}

func planKindOf(name string) *planKind {
	return find(planKinds, func(k *planKind) bool { return k.name == name })
}

// WorkloadKind is the kind of plans that are made for what a workload asks for,
// and the name of the field that says so; both are empty without a section.
func (d *Workload) WorkloadKind() (kind, field string) {
	if d.Section == nil {
		return "", ""
	}
	if p := find(workloadParts, func(p *workloadPart) bool { return reflect.TypeOf(p.section) == reflect.TypeOf(d.Section) }); p != nil {
		return p.kind, p.name
	}
	return "", ""
}

// sectionEntry is a row of a table as the binder and the writer see it.
type sectionEntry struct {
	name   string
	typ    reflect.Type
	schema string
}

// sections lists the rows of the table that a section's tag names.
func sections(table string) []sectionEntry {
	var out []sectionEntry
	switch table {
	case KindPlan:
		for i := range planKinds {
			k := &planKinds[i]
			out = append(out, sectionEntry{k.name, reflect.TypeOf(k.section), k.schema})
		}
	case KindWorkload:
		for i := range workloadParts {
			p := &workloadParts[i]
			out = append(out, sectionEntry{p.name, reflect.TypeOf(p.section), p.schema})
		}
	}
	return out
}

// sectionNames lists the fields that a section may have.
func sectionNames(table string) []string {
	return named(sections(table), func(e *sectionEntry) string { return e.name })
}

// sectionName is the field under which a section of that type stands.
func sectionName(table string, typ reflect.Type) string {
	for _, e := range sections(table) {
		if e.typ == typ {
			return e.name
		}
	}
	return ""
}

// ofKind finds the options of a plan whose fields are about to be bound: what
// they are depends on its kind, which may stand anywhere in the document. Where
// the kind is unknown, that is the finding, and the options are not looked at.
func (b *binder) ofKind(n *node, info *structInfo) {
	kind := n.field("kind")
	if info.fields[info.section].table != KindPlan || kind == nil || kind.kind != stringNode {
		return
	}
	if b.options = PlanOptions(kind.text); b.options != nil {
		return
	}
	b.findings.add(b.src.fail(kind.pos, "kind", kind.describe(), strings.Join(PlanKinds(), ", "), DidYouMean(kind.text, PlanKinds())))
}

// section binds a field where it is a section; it tells whether it is one.
func (b *binder) section(k *key, item *node, info *structInfo, v reflect.Value) bool {
	f := &info.fields[info.section]
	for _, e := range sections(f.table) {
		if e.name != k.name {
			continue
		}
		at := v.FieldByIndex(f.index)
		mark := len(b.path)
		if !at.IsNil() {
			b.field(k.name)
			both := sectionName(f.table, at.Elem().Type()) + " and " + k.name
			b.findings.add(b.src.fail(item.pos, string(b.path), both, "exactly one of "+listOf(sectionNames(f.table)), "make two "+f.table+"s"))
			b.path = b.path[:mark]
			return true
		}
		b.field(k.name)
		section := reflect.New(e.typ).Elem()
		b.nullable = false // of the field before
		b.bind(item, section)
		at.Set(section)
		b.path = b.path[:mark]
		return true
	}
	return false
}

// listOf writes "a, b and c".
func listOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
