package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

// OptionsToReplan returns the options with which a plan was made, without those that simulation chose: for other times
// and rates it chooses them anew. free names these.
func OptionsToReplan(p *formats.Plan) (o Options, free []string) {
	o = OptionsOfPlan(p)
	m := MethodOf(p.Kind)
	if m == nil || m.Tune == nil || p.Objective.Basis != formats.BasisSimulation {
		return o, nil
	}
	for _, name := range m.Tuned {
		if _, isSet := o.Values[name]; isSet {
			delete(o.Values, name)
			free = append(free, name)
		}
	}
	return o, free
}

// WorkloadToReplan returns the workload that a plan states, without what simulation kept back of it. It is nil if plans of
// the kind do not state it.
func WorkloadToReplan(p *formats.Plan) *formats.Workload {
	m := MethodOf(p.Kind)
	if m == nil || m.WorkloadOf == nil {
		return nil
	}
	w := m.WorkloadOf(p)
	if m.WithoutReserves != nil && p.Objective.Basis == formats.BasisSimulation {
		w = m.WithoutReserves(w)
	}
	return w
}

// WithPromisedSLOs returns the workload with the SLOs that a plan promises where it states multiples of latencies: those
// of other times are other SLOs.
func WithPromisedSLOs(w *formats.Workload, p *formats.Plan) *formats.Workload {
	m := MethodOf(p.Kind)
	if m == nil || m.RelaxWorkload == nil {
		return w
	}
	promised := &kind.Relaxation{SLOs: map[string]time.Duration{}}
	for _, s := range p.ServedModels() {
		promised.SLOs[s.Key().String()] = s.SLOUS.D()
	}
	changed := *w
	changed.Section = m.RelaxWorkload(w.Section, promised)
	return &changed
}

// WithTraffic returns the workload with the rates at which a served plan was asked for, and lines that say what differs
// from those that it was made for. It returns an error if the workload is for another kind of plan, or the report has no
// requests.
func WithTraffic(w *formats.Workload, t *kind.Traffic) (*formats.Workload, []string, error) {
	wantedKind, field := w.WorkloadKind()
	m := MethodOf(t.Running.Kind)
	switch {
	case wantedKind != t.Running.Kind:
		return nil, nil, &document.Error{Path: field, Found: "a workload for plans of kind " + wantedKind, Expected: "one for the plan that was served, of kind " + t.Running.Kind}
	case m == nil || m.WithTraffic == nil:
		return nil, nil, kind.UnsupportedOption("measured", wantedKind, kindsWhere(func(m *kind.Method) bool { return m.WithTraffic != nil }), "give measured times alone")
	case t.Report.Requests == 0:
		return nil, nil, &document.Error{Path: "requests", Found: "0", Expected: "the report of a run with requests"}
	}
	changed := *w
	section, lines := m.WithTraffic(w.Section, t)
	changed.Section = section
	return &changed, lines, nil
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
		return kind.UnsupportedOption("from", m.Kind, kindsWhere(func(m *kind.Method) bool { return m.CheckRunning != nil }), "leave out --from")
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
