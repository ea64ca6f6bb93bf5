package sizing

import (
	"cmp"
	"math"
	"slices"
	"time"

	"inferplan/bench/qlm/fleet"
	"inferplan/planner/queue/deploy"
	"inferplan/sim/llm"
)

// due is a request with the time of an instance that it takes at least.
type due struct {
	deploy.Span
	work   float64
	figure int
}

// steps is the number of times among which intervals are looked at.
const steps = 80

// Floor is the number of GPUs that no order and no assignment does without: in every
// interval the requests that come and are due in it take no more than the GPUs have
// of it. Those that may be late over all seeds are the ones with the most work. A
// model's iterations are those of full batches, or those of its requests whose times
// do not overlap, whichever are more: a GPU runs one model at a time.
func Floor(d *fleet.Data, c *Case) (int, error) {
	p, err := c.Problem(d)
	if err != nil {
		return 0, err
	}
	var list []due
	late := make([]int, 2)
	for m := range p.Models {
		list = append(list, ofModel(p, m)...)
	}
	last := time.Duration(0)
	for i := range list {
		last = max(last, list[i].To)
		late[list[i].figure]++
	}
	for j := range late {
		late[j] = int(math.Floor((1 - Share) * float64(late[j]) * (1 + 1e-9)))
	}
	slices.SortFunc(list, func(a, b due) int { return cmp.Compare(b.work, a.work) })
	least := 0.0
	for i := range steps {
		for k := i + 1; k <= steps; k++ {
			from, to := last*time.Duration(i)/steps, last*time.Duration(k)/steps
			left, sum := slices.Clone(late), 0.0
			for n := range list {
				x := &list[n]
				if x.From < from || x.To > to {
					continue
				}
				if left[x.figure] > 0 {
					left[x.figure]--
					continue
				}
				sum += x.work
			}
			least = max(least, sum/Seeds/(to-from).Seconds())
		}
	}
	return int(math.Ceil(least - 1e-9)), nil
}

// ofModel is the requests of a model in all runs.
func ofModel(p *deploy.Problem, model int) []due {
	it, most := &p.Models[model].On[0].Iteration, p.Caps[len(p.Caps)-1]
	var full, apart []due
	fullSum, apartSum := 0.0, 0.0
	for run := range Seeds {
		var spans []deploy.Span
		var requests []llm.Request
		from := len(full)
		for _, r := range p.Replay(run) {
			if p.Items[r.Model].Model != model {
				continue
			}
			class := &p.Classes[p.Items[r.Model].Class]
			spans = append(spans, deploy.Span{From: r.At, To: r.At + class.SLO, Iterations: r.OutputTokens})
			requests = append(requests, llm.Request{Prompt: r.PromptTokens, Output: r.OutputTokens})
			full = append(full, due{spans[len(spans)-1], 0, class.Judged})
		}
		apart = append(apart, full[from:]...)
		for i, disjoint := range deploy.Disjoint(spans) {
			full[from+i].work, apart[from+i].work = deploy.LeastWork(it, most, requests[i], false), deploy.Apart(it, most, requests[i], disjoint)
			fullSum, apartSum = fullSum+full[from+i].work, apartSum+apart[from+i].work
		}
	}
	if apartSum > fullSum {
		return apart
	}
	return full
}
