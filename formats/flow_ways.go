package formats

import (
	"fmt"

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
	Ways        []Way  `json:"ways"`
}

// Way is the path of a request through an application, with the number of requests that took it.
type Way struct {
	Count int       `json:"count"`
	Known int       `json:"known"` // tasks that were revealed when the request arrived
	Tasks []WayTask `json:"tasks"`
}

// WayTask is a task of a way.
type WayTask struct {
	Model string  `json:"model"`
	Work  float64 `json:"work,omitempty" default:"1"` // work as a part of the model's usual time
	Reads []int   `json:"reads,omitempty"`            // predecessors, counted backwards: 1 is the task before; empty for the client's input
}

// maxRequests bounds the requests of a way.
const maxRequests = 1 << 24

// Validate checks the rules that the types cannot express.
func (d *Transitions) Validate() error {
	var c document.Checker
	c.Header(d, d.Format, FormatTransitions)
	c.FailIf(len(d.Applications) == 0, "applications", "an empty list", "at least one application")
	checkWays(&c, d.Applications, "applications")
	return c.Err()
}

// checkWays checks the ways of applications.
func checkWays(c *document.Checker, list []WaysOf, at string) {
	seen := map[string]int{}
	for i := range list {
		c.Name(seen, i, list[i].Application, "%s[%d].application", at, i)
		for k := range list[i].Ways {
			list[i].Ways[k].check(c, fmt.Sprintf("%s[%d].ways[%d]", at, i, k))
		}
	}
}

func (w *Way) check(c *document.Checker, at string) {
	c.FailIf(w.Count < 1 || w.Count > maxRequests, at+".count", w.Count, "1 to %d requests", maxRequests)
	if c.FailIf(len(w.Tasks) == 0 || len(w.Tasks) > MaxTasks, at+".tasks", fmt.Sprintf("%d tasks", len(w.Tasks)), "1 to %d", MaxTasks) {
		return
	}
	c.FailIf(w.Known < 1 || w.Known > len(w.Tasks), at+".known", w.Known, "1 to the tasks of the way, %d", len(w.Tasks))
	for i := range w.Tasks {
		t := &w.Tasks[i]
		c.FailIf(t.Model == "" || !document.Printable(t.Model), fmt.Sprintf("%s.tasks[%d].model", at, i), "the name "+document.Quote(t.Model), "a model")
		c.FailIf(t.Work < 0 || t.Work > 1e3, fmt.Sprintf("%s.tasks[%d].work", at, i), t.Work, "a part of the usual work, at most 1000")
		for k, back := range t.Reads {
			c.FailIf(back < 1 || back > i, fmt.Sprintf("%s.tasks[%d].reads[%d]", at, i, k), back, "1 to the tasks before it, %d", i)
		}
	}
}

// transitions checks the ways that a plan has.
func (f *FlowPlan) transitions(p *planChecker) {
	p.FailIf(len(f.Transitions) > 0 && !f.Workflow(), "flow.transitions", "ways of requests", "none: the applications have no segments")
	checkWays(p.Checker, f.Transitions, "flow.transitions")
	known := map[string]bool{}
	for i := range f.Applications {
		known[f.Applications[i].Model] = true
	}
	for i := range f.Transitions {
		if name := f.Transitions[i].Application; !known[name] {
			p.Fail(fmt.Sprintf("flow.transitions[%d].application", i), document.Quote(name), "an application of the plan", "")
		}
	}
}
