package drop

import (
	"testing"

	"inferplan/policy/flow"
)

// The end of a request counts for the first outcome that has no edge, in whichever order the edges are listed.
func TestEndCountsForTheOutcomeWithoutAnEdge(t *testing.T) {
	shares := &pathShares{tokens: []int32{10, 11, 12}} // by service
	app := &flow.Application{Nodes: []flow.Node{{Service: 0}, {Service: 1}, {Service: 2}}}
	for _, c := range []struct {
		edges []flow.Edge
		token int32
		want  int32
	}{
		{[]flow.Edge{{To: 1, Outcome: 0}, {To: 2, Outcome: 1}}, 99, 2},
		{[]flow.Edge{{To: 1, Outcome: 1}, {To: 2, Outcome: 0}}, 99, 2},
		{[]flow.Edge{{To: 1, Outcome: 1}, {To: 2, Outcome: -1}}, 99, 0},
		{[]flow.Edge{{To: 1, Outcome: 0}, {To: 1, Outcome: 1}, {To: 2, Outcome: 2}}, 99, 2}, // no outcome is without an edge: the last
		{[]flow.Edge{{To: 1, Outcome: 1}, {To: 2, Outcome: 0}}, 12, 0},
	} {
		branch := &flow.Node{Outputs: c.edges, OutcomeChances: make([]float64, 3)}
		if got := shares.outcomeOf(app, branch, c.token); got != c.want {
			t.Errorf("edges %+v, token %d: found outcome %d, expected %d", c.edges, c.token, got, c.want)
		}
	}
}
