package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

// Inputs are the documents that a plan is made from.
type Inputs = kind.Documents

// MethodAuto takes the method that the workload asks for.
const MethodAuto = "auto"

// Auto is the word for an option whose value is found by simulation.
const Auto = "auto"

// Options are the choices of a solve. The zero value is what is taken where
// nobody chooses.
type Options struct {
	Method string // kind of the plan; auto, or empty: what the workload asks for
	// Values are the method's options by name. One that is left out has its
	// default.
	Values map[string]any
	Seed   *uint64 // nil: 1
	// Certify simulates the plan on the workload's arrivals and stores the rate
	// that holds. Asked says what it must show.
	Certify bool
	Asked   kind.Asked
	// NearestUntold leaves out what is nearest to a problem without a plan: looking for
	// it takes many solves.
	NearestUntold bool
	// Assumptions are what the caller assumed before; they go into the plan first.
	Assumptions []string
}

// Set chooses the value of an option. Copies of o made before keep theirs.
func (o *Options) Set(name string, value any) {
	o.Values = maps.Clone(o.Values)
	if o.Values == nil {
		o.Values = map[string]any{}
	}
	o.Values[name] = value
}

// OptionsOf are the options that a plan was made with.
func OptionsOf(p *formats.Plan) Options {
	o := Options{Method: p.Kind, Seed: &p.Seed}
	kept := p.Options.Kept()
	for _, option := range kept.Options() {
		if kept.Chosen(option.Name) {
			o.Set(option.Name, kept.Get(option.Name))
		}
	}
	for name, value := range map[string]string{"algorithm": p.Algorithm, "objective": p.Objective.Name} {
		if kept.Has(name) {
			o.Set(name, value)
		}
	}
	return o
}

// MethodFor is the method that plans for a workload: the one that is named, else
// the one that the workload asks for. A workload for another method is an error.
func MethodFor(name string, in *Inputs) (*kind.Method, error) {
	known := Kinds()
	if name != "" && name != MethodAuto && MethodOf(name) == nil {
		e := &document.Error{Path: "--method", Found: fmt.Sprintf("%q", name), Expected: strings.Join(append([]string{MethodAuto}, known...), " or "), Hint: document.DidYouMean(name, known)}
		if slices.Contains(formats.WorkloadKinds(), name) {
			e.Hint = name + " is not available in this version"
		}
		return nil, e
	}
	if in.Workload == nil {
		return nil, in.Fail("workload", "", "nothing", "a workload", "")
	}
	wants, field := in.Workload.WorkloadKind()
	switch {
	case wants == "":
		return nil, in.Fail("workload", "", "nothing that is asked for", "a section of a workload, such as models", "")
	case name != "" && name != MethodAuto && name != wants:
		return nil, in.Fail("workload", field, "a workload for the method "+wants, "one for the method "+name, "leave out --method "+name)
	}
	m := MethodOf(wants)
	if m == nil {
		return nil, in.Fail("workload", field, "a workload for the method "+wants, "one for the method "+strings.Join(known, " or "), "the method "+wants+" is not available in this version")
	}
	return m, nil
}

// values checks the options that were chosen against those of a method.
func (o *Options) values(m *kind.Method) (document.Values, error) {
	v := document.NewValues(m.Options())
	for _, name := range slices.Sorted(maps.Keys(o.Values)) {
		if !v.Has(name) {
			return v, kind.Cannot(name, m.Kind, kindsWithOption(name), "leave it out")
		}
		if err := v.Set(name, o.Values[name]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// refuse names what a method cannot do of what is asked, before any work.
func refuse(m *kind.Method, in *Inputs, o *Options, v document.Values) error {
	switch {
	case in.Running != nil && m.From == nil:
		return kind.Cannot("from", m.Kind, kindsWith(func(m *kind.Method) bool { return m.From != nil }), "plans of this kind are made anew")
	case o.Certify && m.Certify == nil:
		return kind.Cannot("certify", m.Kind, kindsWith(func(m *kind.Method) bool { return m.Certify != nil }), "plan simulate shows what a plan holds at any rate")
	}
	if name := tuned(v); name != "" && m.Tune == nil {
		return kind.Cannot(name, m.Kind, kindsWith(func(m *kind.Method) bool { return m.Tune != nil }), "give a number instead of auto")
	}
	return nil
}

// tuned is the option whose value is to be found by simulation; empty: none.
func tuned(v document.Values) string {
	for _, o := range v.Options() {
		if o.Type == document.NumberOption && v.Word(o.Name) == Auto {
			return o.Name
		}
	}
	return ""
}
