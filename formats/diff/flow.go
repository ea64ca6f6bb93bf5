package diff

import (
	"fmt"

	"inferplan/formats"
)

// Flows compares the promises of two plans of applications, besides their deployment. For workflows it also
// compares copies at the start, loads, segments and expected paths. A plan of another kind has none of these.
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

// scalingRows returns the number of rows in the table of a plan's scaling, or 0 if all replicas always run.
func rows(f *formats.FlowPlan) int {
	if f.Scaling == nil {
		return 0
	}
	return len(f.Scaling.Table)
}
