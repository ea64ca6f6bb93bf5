package sim

import (
	"math/rand/v2"

	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// branchTruth is the truth of applications with branches. The path of a request is drawn from the plan's
// probabilities when the request arrives, so that it does not depend on the policy.
type branchTruth struct {
	tables      *policy.Tables
	graphTables *flows.GraphTables
	rng         *rand.Rand
	maxNodes    int       // nodes of the largest application
	apps        []int32   // by request slot: its application
	draws       []float64 // [request slot * maxNodes + node]: a uniform number
}

// hasBranches reports whether some application has a node with several outcomes (branches).
func hasBranches(tables *flows.GraphTables) bool {
	for app := range tables.Apps {
		for node := range tables.Apps[app].Nodes {
			if tables.Apps[app].Nodes[node].OutcomeChances != nil {
				return true
			}
		}
	}
	return false
}

// newBranchTruth returns the truth of a run, which says which branches each request takes. They are drawn from the
// random stream "branches" of the seed.
func newBranchTruth(tables *policy.Tables, graphTables *flows.GraphTables, seed uint64) *branchTruth {
	truth := &branchTruth{tables: tables, graphTables: graphTables, rng: seeded.New(seed, "branches")}
	for app := range graphTables.Apps {
		truth.maxNodes = max(truth.maxNodes, len(graphTables.Apps[app].Nodes))
	}
	return truth
}

// Arrive draws for a request that arrives a number from [0,1) for each node of its application, which later decides the
// branch there; the draws of a request slot stand at slot * maxNodes. So a request's branches do not depend on what the
// policy does. It implements Truth (what requests really do).
func (w *branchTruth) Arrive(req int32, request *arrivals.Request) {
	for int(req) >= len(w.apps) {
		w.apps = append(w.apps, 0)
		for range w.maxNodes {
			w.draws = append(w.draws, 0)
		}
	}
	w.apps[req] = request.Model
	for node := range w.graphTables.Apps[request.Model].Nodes {
		w.draws[int(req)*w.maxNodes+node] = w.rng.Float64()
	}
}

// Outcome returns the branch that a request takes at the node whose service the pipeline runs, by the chances of the
// branches and the number drawn at its arrival. At a node without branches it is 0. The second result, the level (how
// certain a model is), is 0. It implements Truth.
func (w *branchTruth) Outcome(req, _, pipeline int32) (outcome policy.Outcome, level int64) {
	service := w.tables.Pipelines[pipeline].Service
	for nodeIndex := range w.graphTables.Apps[w.apps[req]].Nodes {
		node := &w.graphTables.Apps[w.apps[req]].Nodes[nodeIndex]
		if node.Service != service || node.OutcomeChances == nil {
			continue
		}
		outcome.Branch = node.OutcomeAt(w.draws[int(req)*w.maxNodes+nodeIndex])
		return outcome, 0
	}
	return outcome, 0
}

// Tokens returns 0: tasks of applications have no tokens. It implements Truth.
func (w *branchTruth) Tokens(int32) int32 { return 0 }
