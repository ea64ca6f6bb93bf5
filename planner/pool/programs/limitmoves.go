package programs

import (
	"inferplan/planner/pool/placement"
	"inferplan/solver/milp"
)

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
