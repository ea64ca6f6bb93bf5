package sim

import (
	"math/rand/v2"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// branchTruth is the truth of applications with branches. The path of a request is drawn
// from the plan's probabilities when the request arrives, so that it does not depend on the
// policy.
type ways struct {
	t     *policy.Tables
	own   *flows.Tables
	rng   *rand.Rand
	nodes int
	app   []int32   // application, by request
	drawn []float64 // uniform numbers, by request and node
}

// hasBranches reports whether an application has branches.
func hasWays(own *flows.Tables) bool {
	for a := range own.Apps {
		for n := range own.Apps[a].Nodes {
			if own.Apps[a].Nodes[n].Ways != nil {
				return true
			}
		}
	}
	return false
}

// newBranchTruth returns the truth of a run, which draws from the stream "branches" of the seed.
func newWays(t *policy.Tables, own *flows.Tables, seed uint64) *ways {
	w := &ways{t: t, own: own, rng: seeded.New(seed, "branches")}
	for a := range own.Apps {
		w.nodes = max(w.nodes, len(own.Apps[a].Nodes))
	}
	return w
}

// Arrive implements Truth.
func (w *ways) Arrive(req int32, r *arrivals.Request) {
	for int(req) >= len(w.app) {
		w.app = append(w.app, 0)
		for range w.nodes {
			w.drawn = append(w.drawn, 0)
		}
	}
	w.app[req] = r.Model
	for n := range w.own.Apps[r.Model].Nodes {
		w.drawn[int(req)*w.nodes+n] = w.rng.Float64()
	}
}

// Outcome implements Truth.
func (w *ways) Outcome(req, _, pipeline int32) (o policy.Outcome, level int64) {
	service := w.t.Pipelines[pipeline].Service
	for i := range w.own.Apps[w.app[req]].Nodes {
		n := &w.own.Apps[w.app[req]].Nodes[i]
		if n.Service != service || n.Ways == nil {
			continue
		}
		o.Branch = n.Way(w.drawn[int(req)*w.nodes+i])
		return o, 0
	}
	return o, 0
}

// Tokens implements Truth. Applications have no tokens.
func (w *ways) Tokens(int32) int32 { return 0 }
