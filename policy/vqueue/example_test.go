package vqueue

import (
	"fmt"
	"testing"

	"inferplan/testkit/methodspage"
)

// TestObjectiveExample computes the expected number of late requests of the group in the worked example of
// docs/methods/queue.md.
func TestObjectiveExample(t *testing.T) {
	p := &Problem{Objective: Objective{LatenessRule: ByQuantiles, LateWeight: 1}}
	group := &Group{Size: 4, Deadline: [Quantiles]float64{8, 8, 8, 8}}
	cost := &Cost{Work: 8, Residence: 2, ResidenceVar: 1}
	methodspage.Require(t, "queue.md", "## Example", fmt.Sprintf("%.2f late requests", p.startCost(group, cost, 0, 0)), fmt.Sprintf("start 2 s later, it is %.2f", p.startCost(group, cost, 2, 0)))
}
