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

// LimitMoves adds to a program the number of devices that move (have to load something, in fractions by share),
// and limits it to maxMoved.
func (q *Program) LimitMoves(state *placement.RunningState, maxMoved float64) {
	// The replicas of each content.
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

	// moved >= Σ max(replicas - running, 0) / share.
	q.replan, q.movedVar = state, q.Model.AddVar("moved", 0, maxMoved, 0)
	moveRow := q.Model.AddLE("moves", 0, milp.Term{Var: q.movedVar, Coef: -1})
	for _, content := range contents {
		devicePart := 1 / float64(content.Share)
		heldReplicas := state.RunningReplicas[content]
		// Of content that nothing holds, every replica has to be loaded.
		if heldReplicas == 0 {
			for _, v := range varsByContent[content] {
				q.Model.AddTerm(moveRow, v, devicePart)
			}
			continue
		}
		v := q.Model.AddVar("", 0, milp.Inf, 0)
		row := q.Model.AddLE("", float64(heldReplicas), milp.Term{Var: v, Coef: -1})
		for _, g := range varsByContent[content] {
			q.Model.AddTerm(row, g, 1)
		}
		q.Model.AddTerm(moveRow, v, devicePart)
		q.newContents = append(q.newContents, newContent{v, varsByContent[content], heldReplicas})
	}
}
