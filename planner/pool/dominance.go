package pool

import (
	"cmp"
	"slices"

	"inferplan/planner/stages"
)

// undominatedTemplates lists the templates of one model that no other one dominates, in a fixed order. tooBig is
// the number of stages that were left out for lack of memory.
func (p *Problem) enumerate(model int) (list []stages.Template, tooBig int, err error) {
	if list, tooBig, err = p.Templates(model); err != nil {
		return nil, 0, err
	}
	return p.undominated(list), tooBig, nil
}

// withoutDominated returns the templates of a list that no other one dominates. One template dominates another if
// both take the same device kinds and shares at the same positions and none of its stages is slower or larger.
// Then any plan with the other stays a plan with this one in its place, and gets no worse. On time-shared pools
// its longest inference must not be longer either, because it holds up other pipelines.
func (p *Problem) undominated(list []stages.Template) []stages.Template {
	// Group the templates by the kinds and shares of their stages.
	groups := map[string][]int{}
	var keys []string
	buf := make([]byte, 0, 16)
	for i := range list {
		buf = buf[:0]
		for _, s := range list[i].Stages {
			buf = append(buf, byte(s.Pool), byte(s.Pool>>8), byte(s.Share))
		}
		k := string(buf)
		if _, ok := groups[k]; !ok {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], i)
	}

	// Keep the templates of each group that no other one of it dominates.
	var out []stages.Template
	for _, k := range keys {
		g := groups[k]
		// Of two templates that are equal in all that counts, the earlier in this order stays.
		slices.SortFunc(g, func(a, b int) int { return cmp.Or(cmp.Compare(list[a].Latency, list[b].Latency), cmp.Compare(a, b)) })
		var kept []int
		for _, i := range g {
			beaten := false
			for _, j := range kept {
				if p.replaces(&list[j], &list[i]) {
					beaten = true
					break
				}
			}
			if beaten {
				continue
			}
			kept = slices.DeleteFunc(kept, func(j int) bool { return p.replaces(&list[i], &list[j]) })
			kept = append(kept, i)
		}
		slices.Sort(kept)
		for _, i := range kept {
			out = append(out, list[i])
		}
	}
	return out
}

// dominates reports whether a stage for stage replaces b, which has the same kinds and shares.
func (p *Problem) replaces(a, b *stages.Template) bool {
	shared := false
	for i := range a.Stages {
		x, y := &a.Stages[i], &b.Stages[i]
		pool := &p.Pools[x.Pool]
		if x.Rate < y.Rate || pool.Memory > 0 && x.Need > y.Need {
			return false
		}
		if pool.Time {
			shared = true
			if x.Infer > y.Infer || x.Run > y.Run {
				return false
			}
			// A stage that is larger by itself may have its weights in memory already.
			if pool.Memory > 0 && pool.OneCopy && (x.First != y.First || x.Last != y.Last) {
				return false
			}
		}
	}
	return !shared || a.Latency+p.Models[a.Model].BuildTime(a.Batch) <= b.Latency+p.Models[b.Model].BuildTime(b.Batch)
}
