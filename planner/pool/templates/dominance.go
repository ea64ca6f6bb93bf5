package templates

import (
	"cmp"
	"slices"

	"inferplan/planner/pool/problem"
	"inferplan/planner/stages"
)

// UndominatedTemplates lists the templates of one model that no other one dominates, in a fixed order. tooBig
// is the number of stages that were left out for lack of memory. A template dominates another one if it may
// replace it in any plan.
func UndominatedTemplates(p *problem.Problem, model int) (list []stages.Template, tooBig int, err error) {
	if list, tooBig, err = p.ListTemplates(model); err != nil {
		return nil, 0, err
	}
	return withoutDominated(p, list), tooBig, nil
}

// withoutDominated returns the templates of a list that no other one dominates. One template dominates another if
// both take the same device kinds and shares at the same positions and none of its stages is slower or larger.
// Then any plan with the other stays a plan with this one in its place, and gets no worse. On time-shared pools
// its longest inference must not be longer either, because it holds up other pipelines.
func withoutDominated(p *problem.Problem, list []stages.Template) []stages.Template {
	// Group the templates by the kinds and shares of their stages.
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
		var keptTemplates []int
		for _, i := range group {
			if slices.ContainsFunc(keptTemplates, func(j int) bool { return dominates(p, &list[j], &list[i]) }) {
				continue
			}
			keptTemplates = slices.DeleteFunc(keptTemplates, func(j int) bool { return dominates(p, &list[i], &list[j]) })
			keptTemplates = append(keptTemplates, i)
		}
		slices.Sort(keptTemplates)
		for _, i := range keptTemplates {
			remaining = append(remaining, list[i])
		}
	}
	return remaining
}

// dominates reports whether template a may replace b in any plan, which has the same kinds and shares stage for
// stage: no stage of a is slower or needs more memory. On time-shared pools a must not make others wait longer
// either, nor take longer in all.
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
			// A stage that is larger by itself may have its weights in memory already.
			if pool.Memory > 0 && pool.SharedWeights && (stageA.FirstBlock != stageB.FirstBlock || stageA.EndBlock != stageB.EndBlock) {
				return false
			}
		}
	}
	return !onTimeShared || a.Latency+p.Models[a.Model].BatchWait(a.Batch) <= b.Latency+p.Models[b.Model].BatchWait(b.Batch)
}
