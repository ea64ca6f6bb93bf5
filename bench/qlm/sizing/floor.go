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
	from, to time.Duration
	work     float64
	figure   int
}

// steps is the number of times among which intervals are looked at.
const steps = 80

// Floor is the number of GPUs that no order and no assignment does without: in every
// interval the requests that come and are due in it take no more than the GPUs have
// of it. Those that may be late over all seeds are the ones with the most work.
func Floor(d *fleet.Data, c *Case) (int, error) {
	p, err := c.Problem(d)
	if err != nil {
		return 0, err
	}
	var list []due
	last, late := time.Duration(0), make([]int, 2)
	for run := range Seeds {
		for _, r := range p.Replay(run) {
			item := &p.Items[r.Model]
			class := &p.Classes[item.Class]
			on := p.Models[item.Model].On[0]
			w := deploy.LeastWork(&on.Iteration, p.Caps[len(p.Caps)-1], llm.Request{Prompt: r.PromptTokens, Output: r.OutputTokens}, false)
			list = append(list, due{r.At, r.At + class.SLO, w, class.Judged})
			last = max(last, r.At+class.SLO)
			late[class.Judged]++
		}
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
				if x.from < from || x.to > to {
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
