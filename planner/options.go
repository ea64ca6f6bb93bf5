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

// Inputs are the documents from which a plan is made.
type Inputs = kind.Documents

// MethodAuto stands for the method that the workload asks for.
const MethodAuto = "auto"

// Auto is the value of an option that simulation is to find.
const Auto = "auto"

// Options are the choices of a solve. The zero value has the defaults.
type Options struct {
	Method string // kind of the plan; auto or empty stand for what the workload asks for
	// Values holds the method's options by name. An option that is missing has its default.
	Values map[string]any
	Seed   *uint64 // if nil, 1
	// Certify simulates the plan on the workload's arrivals and stores the rate that it
	// sustains. TestSettings are the settings of that.
	Certify      bool
	TestSettings kind.TestSettings
	// SkipNearest leaves out the search for the nearest feasible problem, which takes many
	// solves.
	SkipNearest bool
	// Assumptions are those that the caller made before. They come first in the plan.
	Assumptions []string
}

// Set chooses the value of an option. Copies of o that were made before are not changed.
func (o *Options) Set(name string, value any) {
	o.Values = maps.Clone(o.Values)
	if o.Values == nil {
		o.Values = map[string]any{}
	}
	o.Values[name] = value
}

// OptionsOfPlan returns the options with which a plan was made: those that its user chose, its seed, and the algorithm
// and objective if its kind has such options. A solve with them makes the plan again.
func OptionsOfPlan(p *formats.Plan) Options {
	o := Options{Method: p.Kind, Seed: &p.Seed}
	planOptions := p.Options.PlanForm()
	for _, option := range planOptions.Options() {
		if planOptions.IsChosen(option.Name) {
			o.Set(option.Name, planOptions.Get(option.Name))
		}
	}
	for name, value := range map[string]string{"algorithm": p.Algorithm, "objective": p.Objective.Name} {
		if planOptions.Has(name) {
			o.Set(name, value)
		}
	}
	return o
}

// MethodFor returns the method for a workload: the one with the given name, else the one that
// the workload asks for. If the workload is for another method, it returns an error.
func MethodFor(name string, in *Inputs) (*kind.Method, error) {
	kinds := Kinds()
	if name != "" && name != MethodAuto && MethodOf(name) == nil {
		e := &document.Error{Path: "--method", Found: fmt.Sprintf("%q", name), Expected: strings.Join(append([]string{MethodAuto}, kinds...), " or "), Hint: document.DidYouMean(name, kinds)}
		if slices.Contains(formats.WorkloadKinds(), name) {
			e.Hint = name + " is not available in this version"
		}
		return nil, e
	}
	if in.Workload == nil {
		return nil, in.FieldError("workload", "", "nothing", "a workload", "")
	}

	// The workload must ask for something, and for the named method if one is named. field is its section.
	wantedKind, field := in.Workload.WorkloadKind()
	switch {
	case wantedKind == "":
		return nil, in.FieldError("workload", "", "nothing that is asked for", "a section of a workload, such as models", "")
	case name != "" && name != MethodAuto && name != wantedKind:
		return nil, in.FieldError("workload", field, "a workload for the method "+wantedKind, "one for the method "+name, "leave out --method "+name)
	}

	// The method must exist in this version.
	m := MethodOf(wantedKind)
	if m == nil {
		return nil, in.FieldError("workload", field, "a workload for the method "+wantedKind, "one for the method "+strings.Join(kinds, " or "), "the method "+wantedKind+" is not available in this version")
	}
	return m, nil
}

// methodValues checks the chosen options against those of a method, and returns the values of all.
func (o *Options) methodValues(m *kind.Method) (document.Values, error) {
	v := document.NewValues(m.Options())
	for _, name := range slices.Sorted(maps.Keys(o.Values)) {
		if !v.Has(name) {
			return v, kind.UnsupportedOption(name, m.Kind, kindsWithOption(name), "leave it out")
		}
		if err := v.Set(name, o.Values[name]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// checkSupported returns an error if the inputs or options ask for what the method cannot do: start from a running plan,
// certify a plan by simulation, or find the value of an option that is set to auto. The error names the kinds of plans
// whose methods can. v has the values of all options.
func checkSupported(m *kind.Method, in *Inputs, o *Options, v document.Values) error {
	switch {
	case in.RunningPlan != nil && m.CheckRunning == nil:
		return kind.UnsupportedOption("from", m.Kind, kindsWhere(func(m *kind.Method) bool { return m.CheckRunning != nil }), "plans of this kind are made anew")
	case o.Certify && m.Certify == nil:
		return kind.UnsupportedOption("certify", m.Kind, kindsWhere(func(m *kind.Method) bool { return m.Certify != nil }), "plan simulate shows what a plan holds at any rate")
	}
	if name := autoOption(v); name != "" && m.Tune == nil {
		return kind.UnsupportedOption(name, m.Kind, kindsWhere(func(m *kind.Method) bool { return m.Tune != nil }), "give a number instead of auto")
	}
	return nil
}

// autoOption returns the name of the option whose value simulation is to find, or an empty string.
func autoOption(v document.Values) string {
	for _, o := range v.Options() {
		if o.Type == document.NumberOption && v.Word(o.Name) == Auto {
			return o.Name
		}
	}
	return ""
}
