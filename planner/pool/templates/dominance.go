package templates

import (
	"cmp"
	"slices"

	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// UndominatedTemplates lists the templates (pipelines without replica counts) of one model that no other one
// dominates, in a fixed order. A template dominates another one if it may replace it in any plan. tooBig is the number
// of stages that were left out for lack of memory. If there are too many templates to list, it returns an error.
func UndominatedTemplates(p *problem.Problem, model int) (list []stages.Template, tooBig int, err error) {
	if list, tooBig, err = p.ListTemplates(model); err != nil {
		return nil, 0, err
	}
	return withoutDominated(p, list), tooBig, nil
}

// withoutDominated returns the templates of a list (all of one model) that no other one dominates, so that programs
// have fewer columns. One template dominates another if both take the same device kinds and shares at the same
// positions and none of its stages is slower or larger. Then any plan with the other stays a plan with this one in its
// place, and gets no worse. On time-shared pools its longest inference must not be longer either, because other
// pipelines wait for it. Groups of equal kinds and shares come in the order of their first template, and templates of
// a group in that of the list.
func withoutDominated(p *problem.Problem, list []stages.Template) []stages.Template {
	// Group the templates by the pools and shares of their stages, written as bytes: only within a group may one
	// dominate another.
	byShape := map[string][]int{}
	var shapes []string
	shapeKey := make([]byte, 0, 16)
	for i := range list {
		shapeKey = shapeKey[:0]
		for _, s := range list[i].Stages {
			shapeKey = append(shapeKey, byte(s.Pool), byte(s.Pool>>8), byte(s.Share))
		}
		shape := string(shapeKey)
		if _, ok := byShape[shape]; !ok {
			shapes = append(shapes, shape)
		}
		byShape[shape] = append(byShape[shape], i)
	}

	// Keep the templates of each group that no other one of it dominates.
	var remaining []stages.Template
	for _, shape := range shapes {
		group := byShape[shape]
		// Of two templates that are equal in all that counts, the earlier in this order stays.
		slices.SortFunc(group, func(a, b int) int { return cmp.Or(cmp.Compare(list[a].Latency, list[b].Latency), cmp.Compare(a, b)) })
		var undominatedIndexes []int // indexes in list
		for _, i := range group {
			if slices.ContainsFunc(undominatedIndexes, func(j int) bool { return dominates(p, &list[j], &list[i]) }) {
				continue
			}
			undominatedIndexes = slices.DeleteFunc(undominatedIndexes, func(j int) bool { return dominates(p, &list[i], &list[j]) })
			undominatedIndexes = append(undominatedIndexes, i)
		}
		slices.Sort(undominatedIndexes)
		remaining = append(remaining, lists.Map(len(undominatedIndexes), func(i int) stages.Template { return list[undominatedIndexes[i]] })...)
	}
	return remaining
}

// dominates reports whether template a may replace b in any plan and leave it no worse. Both must be of one model and
// have the same pools and shares stage for stage. It holds if no stage of a carries a lower rate or needs more memory.
// If some stage is on a time-shared pool, no stage there may take longer either (batches of others wait for it), and
// the latency with batch building must not be longer, because waits come on top of it.
func dominates(p *problem.Problem, a, b *stages.Template) bool {
	onTimeShared := false
	for i := range a.Stages {
		stageA, stageB := &a.Stages[i], &b.Stages[i]
		pool := &p.Pools[stageA.Pool]
		if stageA.Rate < stageB.Rate || pool.Memory > 0 && stageA.Memory > stageB.Memory {
			return false
		}
		if pool.TimeShared {
			onTimeShared = true
			if stageA.MaxTime > stageB.MaxTime || stageA.MeanTime > stageB.MeanTime {
				return false
			}
			// Where equal blocks are loaded once, the weights of b may be in memory already and those of a not, so
			// a may need more even if its stage is smaller by itself.
			if pool.Memory > 0 && pool.SharedWeights && (stageA.FirstBlock != stageB.FirstBlock || stageA.EndBlock != stageB.EndBlock) {
				return false
			}
		}
	}
	return !onTimeShared || a.Latency+p.Models[a.Model].BatchWait(a.Batch) <= b.Latency+p.Models[b.Model].BatchWait(b.Batch)
}
