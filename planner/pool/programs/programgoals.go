package programs

import (
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/solver/milp"
)

// MinimizeMoves makes the program look for the fewest moved devices, at most maxMoved of them, in place of the most
// throughput.
func (q *Program) MinimizeMoves(state *placement.RunningState, maxMoved float64) {
	q.LimitMoves(state, maxMoved)
	q.Model.SetSense(milp.Minimize)
	q.Model.SetObj(q.theta, 0)
	q.Model.SetObj(q.movedVar, 1)
}

// MaximizeSum makes the program look for the largest weighted sum of rates in place of the most throughput.
func (q *Program) MaximizeSum() {
	q.Model.SetObj(q.theta, 0)
	terms, _ := q.weightedSumTerms()
	for _, t := range terms {
		q.Model.SetObj(t.Var, t.Coef)
	}
	q.addModelCounts()
}

// MinimizeDevices makes the program look for the fewest devices in place of the most throughput. The weighted sum of
// rates must be at least minSum, up to the tolerance of sums, if that is not 0.
func (q *Program) MinimizeDevices(minSum float64) {
	q.Model.SetSense(milp.Minimize)
	q.Model.SetObj(q.theta, 0)
	if minSum > 0 {
		terms, total := q.weightedSumTerms()
		q.Model.AddGE("weighted sum", minSum/total*(1-problem.ValueTolerance), terms...)
	}

	// Each replica costs its part of a device.
	for i, ti := range q.TemplateSet {
		for si, replicaVar := range q.replicaVars[i] {
			if replicaVar >= 0 {
				q.Model.SetObj(replicaVar, 1/float64(q.catalogue.Templates[ti].Stages[si].Share))
			}
		}
	}
}

// MinimizePrice makes the program look for the least price of whole devices in place of the most throughput. It
// maximises the price of the idle devices: whole devices that stay idle are not paid for. It starts at minus the price
// of all devices, so that the objective is minus the price of those in use, in parts of totalPrice. The rate θ has no
// price.
func (q *Program) MinimizePrice(devicePrices []float64, totalPrice float64) {
	q.Model.SetObj(q.theta, 0)
	q.Model.SetOffset(-1)
	q.idleVars = make([]milp.Var, len(q.problem.Pools))
	for k := range q.problem.Pools {
		q.idleVars[k] = -1
		if n := q.problem.Pools[k].Count; n > 0 {
			q.idleVars[k] = q.Model.AddInt("idle "+q.problem.Pools[k].Kind, 0, float64(n), devicePrices[k]/totalPrice)
			q.Model.AddTerm(q.poolRows[k], q.idleVars[k], 1)
		}
	}
}

// weightedSumTerms returns the sum of the models' rates by weight as terms of a program. They are divided by
// total, what one unit of every model's rate gives, so that coefficients are near 1.
func (q *Program) weightedSumTerms() (terms []milp.Term, total float64) {
	for d := range q.problem.Models {
		total += q.problem.Models[d].Weight * q.catalogue.Units.ModelRPS[d]
	}
	for i, ti := range q.TemplateSet {
		d := q.catalogue.Templates[ti].Model
		terms = append(terms, milp.Term{Var: q.rateVars[i], Coef: q.problem.Models[d].Weight * q.catalogue.Units.ModelRPS[d] / total})
	}
	return terms, total
}
