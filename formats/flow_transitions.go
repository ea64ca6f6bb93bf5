package formats

import (
	"fmt"
	"slices"

	"inferplan/formats/document"
)

// Transitions are recorded paths of workflow requests, from which prediction learns.
type Transitions struct {
	Format       string   `json:"format"` // inferplan.transitions/v1
	Applications []WaysOf `json:"applications"`
}

// WaysOf is the ways of an application.
type WaysOf struct {
	Application string `json:"application"`
	Paths       []Way  `json:"ways"`
}

// Way is the path of a request through an application, with the number of requests that took it.
type Way struct {
	Count      int       `json:"count"`
	KnownTasks int       `json:"known"` // tasks that were revealed when the request arrived
	Tasks      []WayTask `json:"tasks"`
}

// WayTask is a task of a way.
type WayTask struct {
	Model string  `json:"model"`
	Work  float64 `json:"work,omitempty" default:"1" check:"work"` // work as a part of the model's usual time
	Reads []int   `json:"reads,omitempty"`                         // predecessors, counted backwards: 1 is the task before; empty for the client's input
}

// maxRequests bounds the requests of a way.
const maxRequests = 1 << 24

// Validate checks a document of recorded ways of requests, which workflows are planned by. It returns all
// violations, each with its field path.
func (d *Transitions) Validate() error {
	var c document.Checker
	c.Values(d, d.Format, FormatTransitions, rules)
	c.FailIf(len(d.Applications) == 0, "applications", "an empty list", "at least one application")
	checkPaths(&c, d.Applications, "applications")
	return c.Err()
}

// checkPaths reports to c what is wrong with the recorded ways of applications.
func checkPaths(c *document.Checker, list []WaysOf, fieldPath string) {
	indexByName := map[string]int{}
	for i := range list {
		c.Name(indexByName, i, list[i].Application, "%s[%d].application", fieldPath, i)
		for k := range list[i].Paths {
			list[i].Paths[k].check(c, fmt.Sprintf("%s[%d].ways[%d]", fieldPath, i, k))
		}
	}
}

// check reports to c what is wrong with a way: the tasks that a counted number of requests ran, in order. A task
// reads tasks before it, each given as the distance back to it.
func (w *Way) check(c *document.Checker, fieldPath string) {
	c.FailIf(w.Count < 1 || w.Count > maxRequests, fieldPath+".count", w.Count, "1 to %d requests", maxRequests)
	if c.FailIf(len(w.Tasks) == 0 || len(w.Tasks) > MaxTasks, fieldPath+".tasks", fmt.Sprintf("%d tasks", len(w.Tasks)), "1 to %d", MaxTasks) {
		return
	}
	c.FailIf(w.KnownTasks < 1 || w.KnownTasks > len(w.Tasks), fieldPath+".known", w.KnownTasks, "1 to the tasks of the way, %d", len(w.Tasks))
	for i := range w.Tasks {
		t := &w.Tasks[i]
		c.FailIf(t.Model == "" || !document.Printable(t.Model), fmt.Sprintf("%s.tasks[%d].model", fieldPath, i), "the name "+document.Quote(t.Model), "a model")
		for k, distance := range t.Reads {
			c.FailIf(distance < 1 || distance > i, fmt.Sprintf("%s.tasks[%d].reads[%d]", fieldPath, i, k), distance, "1 to the tasks before it, %d", i)
		}
	}
}

// checkTransitions reports to p what is wrong with the expected ways of requests in a plan. Only workflows have
// them.
func (f *FlowPlan) checkTransitions(p *planChecker) {
	p.FailIf(len(f.Transitions) > 0 && !f.Workflow(), "flow.transitions", "ways of requests", "none: the applications have no segments")
	checkPaths(p.Checker, f.Transitions, "flow.transitions")
	for i := range f.Transitions {
		name := f.Transitions[i].Application
		isKnown := slices.ContainsFunc(f.Applications, func(a FlowApplication) bool { return a.Model == name })
		p.FailIf(!isKnown, fmt.Sprintf("flow.transitions[%d].application", i), document.Quote(name), "an application of the plan")
	}
}
