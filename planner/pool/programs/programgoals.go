package programs

import (
	"inferplan/planner/pool/placement"
	"inferplan/planner/pool/problem"
	"inferplan/solver/milp"
)

// MinimizeMoves makes the program look for the fewest devices that move (have to load something, against the plan that
// runs; in fractions by share), at most maxMoved of them, in place of the most throughput.
func (q *Program) MinimizeMoves(state *placement.RunningState, maxMoved float64) {
	q.LimitMoves(state, maxMoved)
	q.Model.SetSense(milp.Minimize)
	q.Model.SetObj(q.theta, 0)
	q.Model.SetObj(q.movedVar, 1)
}

// MaximizeSum makes the program look for the largest sum of the models' rates by weight, in place of the most throughput
// (the least rate per weight). A search does so once the throughput stands, to use idle devices.
func (q *Program) MaximizeSum() {
	q.Model.SetObj(q.theta, 0)
	terms, _ := q.weightedSumTerms()
	for _, t := range terms {
		q.Model.SetObj(t.Var, t.Coef)
	}
	q.addModelCounts()
}

// MinimizeDevices makes the program look for the fewest devices of exclusive pools, in fractions by the shares of the
// replicas, in place of the most throughput. The sum of the models' rates by weight (requests/s) must be at least minSum,
// up to the tolerance of sums; 0 is no such limit. A search does so once the rates stand.
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

// MinimizePrice makes the program look for the least price of whole devices in place of the most throughput θ, which
// then does not count. devicePrices has the price of one device of each pool, and totalPrice is that of all devices. The
// program maximises the price of the idle devices: whole devices that stay idle are not paid for. It starts at minus the
// price of all devices, so that the objective is minus the price of those in use, in parts of totalPrice.
func (q *Program) MinimizePrice(devicePrices []float64, totalPrice float64) {
	q.Model.SetObj(q.theta, 0)
	q.Model.SetOffset(-1)

	// The idle devices of each pool take up devices in its row as those in use do. A pool without devices has none (-1).
	q.idleVars = make([]milp.Var, len(q.problem.Pools))
	for k := range q.problem.Pools {
		q.idleVars[k] = -1
		if n := q.problem.Pools[k].Count; n > 0 {
			q.idleVars[k] = q.Model.AddInt("idle "+q.problem.Pools[k].Kind, 0, float64(n), devicePrices[k]/totalPrice)
			q.Model.AddTerm(q.poolRows[k], q.idleVars[k], 1)
		}
	}
}

// weightedSumTerms returns the sum of the models' rates by weight as terms over the program's rate variables, which are
// in units. So that coefficients are near 1, the terms are divided by total: the sum, in requests/s by weight, if every
// model has one unit of rate. The caller divides limits of the sum by it too.
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

// newContent counts the replicas of a content beyond those that run.
type newContent struct {
	addedVar     milp.Var // the replicas beyond
	replicaVars  []milp.Var
	heldReplicas int
}

// LimitMoves adds to a program the number of devices that move (have to load something, in fractions by share), against
// the plan that runs, and limits it to maxMoved. All pools must be exclusive.
func (q *Program) LimitMoves(state *placement.RunningState, maxMoved float64) {
	// The replica variables of each content (blocks of a network on a share of a pool's device): stages of several
	// templates may have the same content, and then replace one another without a move.
	varsByContent := map[placement.Content][]milp.Var{}
	var contents []placement.Content
	for i, ti := range q.TemplateSet {
		t := &q.catalogue.Templates[ti]
		for si, replicaVar := range q.replicaVars[i] {
			content := placement.ContentOf(q.problem, t, si)
			if _, ok := varsByContent[content]; !ok {
				contents = append(contents, content)
			}
			varsByContent[content] = append(varsByContent[content], replicaVar)
		}
	}

	// moved >= Σ max(replicas - running, 0) / share, over contents. Each max is a variable, at least 0 and at least the
	// difference.
	q.replan, q.movedVar = state, q.Model.AddVar("moved", 0, maxMoved, 0)
	moveRow := q.Model.AddLE("moves", 0, milp.Term{Var: q.movedVar, Coef: -1})
	for _, content := range contents {
		devicePart := 1 / float64(content.Share)
		heldReplicas := state.RunningReplicas[content]
		// Of content that nothing holds, every replica has to be loaded.
		if heldReplicas == 0 {
			for _, replicaVar := range varsByContent[content] {
				q.Model.AddTerm(moveRow, replicaVar, devicePart)
			}
			continue
		}
		addedVar := q.Model.AddVar("", 0, milp.Inf, 0)
		row := q.Model.AddLE("", float64(heldReplicas), milp.Term{Var: addedVar, Coef: -1})
		for _, replicaVar := range varsByContent[content] {
			q.Model.AddTerm(row, replicaVar, 1)
		}
		q.Model.AddTerm(moveRow, addedVar, devicePart)
		q.newContents = append(q.newContents, newContent{addedVar, varsByContent[content], heldReplicas})
	}
}
