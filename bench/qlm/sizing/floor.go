package sizing

import (
	"math"
	"time"

	"inferplan/bench/qlm/fleet"
	"inferplan/planner/queue/deploy"
	"inferplan/sim/llm"
)

// due is a request with the time of an instance that it takes at least.
type due struct {
	span
	run, figure int
	work        float64
}

// Floor is the number of GPUs that no order and no assignment does without. In every
// interval of every run the requests that come and are due in it take no more than
// the GPUs have of it, but for those that are late. Those are no more than may be.
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
	for i := range list {
		late[list[i].figure]++
	}
	for j := range late {
		late[j] = int(math.Floor((1 - Share) * float64(late[j]) * (1 + 1e-9)))
	}
	return least(list, late), nil
}

// least is the fewest GPUs that are not proven too few.
func least(list []due, late []int) int {
	f := newForced(list, late)
	n := 0
	for f.tooFew(float64(n)) {
		n++
	}
	return n
}

// ofModel is the requests of a model in all runs.
func ofModel(p *deploy.Problem, model int) []due {
	on, most := p.Models[model].ByKind[0], p.Caps[len(p.Caps)-1]
	var list []due
	var requests []llm.Request
	for run := range Seeds {
		for _, r := range p.Replay(run) {
			if p.Items[r.Model].Model != model {
				continue
			}
			class := &p.Classes[p.Items[r.Model].Class]
			list = append(list, due{span{From: r.ArrivedAt, To: r.ArrivedAt + class.SLO, Iterations: r.OutputTokens}, run, class.JudgeGroup, 0})
			requests = append(requests, llm.Request{Prompt: r.PromptTokens, Output: r.OutputTokens})
		}
	}
	m := llm.Model{Iteration: on.Iteration, KVTokens: on.KVTokens, MaxSequences: int32(most)}
	weigh(&m, list, requests)
	return list
}

// weigh gives the requests of a model their work. A GPU runs one model at a time, so
// that iterations are a model's own. They are counted in the way that makes most.
func weigh(m *llm.Model, list []due, requests []llm.Request) {
	marked := apart(list)
	highest := -1.0
	for way := range countings {
		for _, prompts := range []bool{false, true} {
			works, sum := make([]float64, len(list)), 0.0
			for i := range list {
				works[i] = deploy.MinRequestWork(&m.Iteration, requests[i], way.iterations(int(m.MaxSequences), m.KVTokens, requests[i], marked[i]), !prompts, false)
				sum += works[i]
			}
			if sum <= highest {
				continue
			}
			highest = sum
			for i := range list {
				list[i].work = works[i]
			}
		}
	}
}

// apart marks disjoint requests: those of different runs are laid one after the other.
func apart(list []due) []bool {
	last := time.Duration(0)
	for i := range list {
		last = max(last, list[i].To)
	}
	spans := make([]span, len(list))
	for i := range list {
		spans[i] = list[i].span
		spans[i].From += time.Duration(list[i].run) * last
		spans[i].To += time.Duration(list[i].run) * last
	}
	return disjoint(spans)
}
