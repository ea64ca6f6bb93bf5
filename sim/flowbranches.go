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
type branchTruth struct {
	t      *policy.Tables
	tables *flows.GraphTables
	rng    *rand.Rand
	nodes  int
	app    []int32   // application, by request
	draws  []float64 // uniform numbers, by request and node
}

// hasBranches reports whether an application has branches.
func hasBranches(tables *flows.GraphTables) bool {
	for a := range tables.Apps {
		for n := range tables.Apps[a].Nodes {
			if tables.Apps[a].Nodes[n].OutcomeChances != nil {
				return true
			}
		}
	}
	return false
}

// newBranchTruth returns the truth of a run, that is, which branches each request takes. They are drawn from the
// random stream "branches" of the seed.
func newBranchTruth(t *policy.Tables, tables *flows.GraphTables, seed uint64) *branchTruth {
	w := &branchTruth{t: t, tables: tables, rng: seeded.New(seed, "branches")}
	for a := range tables.Apps {
		w.nodes = max(w.nodes, len(tables.Apps[a].Nodes))
	}
	return w
}

// Arrive draws, for a request that arrives, a number from [0,1) for each node, which later decides the branch
// there. So a request's branches do not depend on what the policy does. It implements Truth.
func (w *branchTruth) Arrive(req int32, r *arrivals.Request) {
	for int(req) >= len(w.app) {
		w.app = append(w.app, 0)
		for range w.nodes {
			w.draws = append(w.draws, 0)
		}
	}
	w.app[req] = r.Model
	for n := range w.tables.Apps[r.Model].Nodes {
		w.draws[int(req)*w.nodes+n] = w.rng.Float64()
	}
}

// Outcome returns the branch that a request takes at the node whose service the pipeline runs, by its chances and
// the number drawn at its arrival. A service without branches has outcome 0. It implements Truth.
func (w *branchTruth) Outcome(req, _, pipeline int32) (o policy.Outcome, level int64) {
	service := w.t.Pipelines[pipeline].Service
	for i := range w.tables.Apps[w.app[req]].Nodes {
		n := &w.tables.Apps[w.app[req]].Nodes[i]
		if n.Service != service || n.OutcomeChances == nil {
			continue
		}
		o.Branch = n.OutcomeAt(w.draws[int(req)*w.nodes+i])
		return o, 0
	}
	return o, 0
}

// Tokens implements Truth. Applications have no tokens.
func (w *branchTruth) Tokens(int32) int32 { return 0 }
