package diff

import (
	"fmt"

	"inferplan/formats"
)

// Flows records what changed between the applications of two plans, besides their deployment. For workflows it also
// compares copies at the start, loads, segments and expected paths. A plan of another kind has none of these. A
// segment is a part of a workflow whose modules run without a decision between them.
func Flows(oldPlan, newPlan *formats.Plan, r *Recorder) {
	a, b := orZero(formats.FlowOf(oldPlan)), orZero(formats.FlowOf(newPlan))
	r.section = "applications"
	for n, p := range commonNames(a.Applications, b.Applications, func(x *formats.FlowApplication) string { return x.Model }) {
		x, y := p.a, p.b
		r.addCount(n+" modules", len(x.Modules), len(y.Modules), neutral)
		r.addCount(n+" segments", len(x.Segments), len(y.Segments), neutral)
		for s := range min(len(x.Segments), len(y.Segments)) {
			r.addText(fmt.Sprintf("%s segment %d", n, s+1), x.Segments[s].Name, y.Segments[s].Name)
			r.addCount(fmt.Sprintf("%s visits of %s", n, y.Segments[s].Name), x.Segments[s].MaxVisits, y.Segments[s].MaxVisits, neutral)
		}
	}
	for n, p := range commonNames(a.Modules, b.Modules, func(x *formats.FlowModule) string { return x.Model }) {
		x, y := p.a, p.b
		r.addCount(n+" copies", len(x.Resident), len(y.Resident), neutral)
		r.addTime(n+" load", x.ColdStartUS, y.ColdStartUS, lessIsBetter)
		r.addCount(n+" weights", int(x.WeightBytes), int(y.WeightBytes), neutral)
		r.addFigure(n+" accuracy", x.Accuracy, y.Accuracy, "", moreIsBetter)
	}
	pathCount := func(f *formats.FlowPlan) (n int) {
		for i := range f.Transitions {
			n += len(f.Transitions[i].Paths)
		}
		return n
	}
	r.addCount("expected ways", pathCount(&a), pathCount(&b), neutral)
	r.addCount("rows of the scaling table", scalingRows(&a), scalingRows(&b), neutral)
}

// scalingRows returns the number of rows in the table of a plan's scaling, or 0 if all replicas always run.
func scalingRows(f *formats.FlowPlan) int {
	if f.Scaling == nil {
		return 0
	}
	return len(f.Scaling.Table)
}
