package search

import (
	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/trials"
	"inferplan/solver/milp"
)

// planSearch holds what the solves of one problem with different SLOs or devices share.
type planSearch struct {
	problem    *cascades.Problem
	options    *Options
	solver     milp.Solver // for linear programs
	cache      cascades.CascadeCache
	history    *trials.History
	lastInputs *planInputs // of the last SLO

	earlyPlan       *trials.Plan // early plan; nil if there is none
	proofBudget     *int         // number of requests that proofs may still simulate; nil if no proof is wanted
	enumeratedCount int          // largest number of cascades enumerated for any SLO
	laxInputs       *planInputs  // inputs without an SLO, for bounds
}
