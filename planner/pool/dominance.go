package pool

import (
	"cmp"
	"slices"

	"inferplan/planner/stages"
)

// enumerate lists the templates of one model, in a fixed order, less the
// dominated ones. tooBig counts stages left out for lack of memory.
func (p *Problem) enumerate(model int) (list []stages.Template, tooBig int, err error) {
	if list, tooBig, err = p.Templates(model); err != nil {
		return nil, 0, err
	}
	return p.undominated(list), tooBig, nil
}

// undominated keeps the templates that no other one replaces. One replaces
// another when both take the same device kinds and shares at the same
// positions and none of its stages is slower or larger: then any plan with the
// other stays a plan, and gets no worse, with this one in its place. On
// time-shared pools its longest inference must not be longer either, because
// it holds up other pipelines.
func (p *Problem) undominated(list []stages.Template) []stages.Template {
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
	var out []stages.Template
	for _, k := range keys {
		g := groups[k]
		// Where two are alike in all that counts, the earlier in this order stays.
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
			// What is larger by itself may have its weights in memory already.
			if pool.Memory > 0 && pool.OneCopy && (x.First != y.First || x.Last != y.Last) {
				return false
			}
		}
	}
	return !shared || a.Latency+p.Models[a.Model].BuildTime(a.Batch) <= b.Latency+p.Models[b.Model].BuildTime(b.Batch)
}
