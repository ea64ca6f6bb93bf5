package diff

import (
	"fmt"

	"inferplan/formats"
)

// Flows compares what two plans of applications promise beside the deployment: of
// workflows also copies at the start, loads, segments and expected ways. A plan of
// another kind has none.
func Flows(before, after *formats.Plan, r *Recorder) {
	a, b := orZero(formats.FlowOf(before)), orZero(formats.FlowOf(after))
	r.section = "applications"
	for n, p := range shared(a.Applications, b.Applications, func(x *formats.FlowApplication) string { return x.Model }) {
		x, y := p.a, p.b
		r.count(n+" modules", len(x.Modules), len(y.Modules), neutral)
		r.count(n+" segments", len(x.Segments), len(y.Segments), neutral)
		for s := range min(len(x.Segments), len(y.Segments)) {
			r.text(fmt.Sprintf("%s segment %d", n, s+1), x.Segments[s].Name, y.Segments[s].Name)
			r.count(fmt.Sprintf("%s visits of %s", n, y.Segments[s].Name), x.Segments[s].Most, y.Segments[s].Most, neutral)
		}
	}
	for n, p := range shared(a.Modules, b.Modules, func(x *formats.FlowModule) string { return x.Model }) {
		x, y := p.a, p.b
		r.count(n+" copies", len(x.Resident), len(y.Resident), neutral)
		r.span(n+" load", x.ColdStartUS, y.ColdStartUS, lessIsBetter)
		r.count(n+" weights", int(x.WeightBytes), int(y.WeightBytes), neutral)
		r.figure(n+" accuracy", x.Accuracy, y.Accuracy, "", moreIsBetter)
	}
	ways := func(f *formats.FlowPlan) (n int) {
		for i := range f.Transitions {
			n += len(f.Transitions[i].Ways)
		}
		return n
	}
	r.count("expected ways", ways(&a), ways(&b), neutral)
	r.count("rows of the scaling table", rows(&a), rows(&b), neutral)
}

// rows is how many rows the table of a plan's scaling has; 0: all replicas are there all
// the time.
func rows(f *formats.FlowPlan) int {
	if f.Scaling == nil {
		return 0
	}
	return len(f.Scaling.Table)
}
