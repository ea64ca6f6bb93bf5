package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"inferplan/bench/instrument"
	"inferplan/cputime"
	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
	"inferplan/testkit/queuetest"
)

// again holds the times of re-planning, in seconds of CPU.
type again struct {
	Groups       int
	Median, Most float64
	Before       float64 // objective per request without the search, mean
	After        float64 // with it
}

// rounds says how often the queue is planned anew, once per second.
const rounds = 30

// replans plans 400,000 queued requests anew each second. In it 2 % of the groups
// are gone and as many are new, and a fifth have other sizes.
func replans(ctx context.Context, groups int) (again, error) {
	rng := seeded.New(1, "replan")
	p := queuetest.Instance(groups, 100, 16, 0.9, 11)
	queuetest.Vary(p, variation)
	p.Objective = vqueue.RecommendedObjective
	scale := 400_000 / queuetest.Requests(p)
	for i := range p.Groups {
		p.Groups[i].Size *= scale
	}
	s := vqueue.NewAssignment(p)
	s.InsertGreedily()
	var x vqueue.Search
	plan, out := vqueue.NewAssignment(p), again{Groups: groups}
	var took []float64
	for range rounds {
		p.Now++
		for q := range p.Queues {
			p.Queues[q].Start = p.Now
		}
		began := cputime.Used()
		plan.CopyFrom(s)
		for range groups / 50 {
			g := int32(rng.IntN(groups))
			plan.Remove(g)
			for u := range p.Groups[g].Deadline {
				p.Groups[g].Deadline[u] = p.Now + 40 + 860*rng.Float64()
			}
		}
		for range groups / 5 {
			i := int32(rng.IntN(groups))
			g := &p.Groups[i]
			size := math.Max(1, g.Size+20*(rng.Float64()-0.5))
			for k := range p.Kinds {
				p.Cost(i, int32(k)).Work *= size / g.Size
			}
			g.Size = size
		}
		plan.Refresh()
		plan.InsertGreedily()
		out.Before += plan.Total() / rounds / 400_000
		x.Run(ctx, plan, rng, 1_000_000)
		out.After += plan.Total() / rounds / 400_000
		s.CopyOrder(plan)
		took = append(took, (cputime.Used() - began).Seconds())
	}
	slices.Sort(took)
	out.Median, out.Most = took[len(took)/2], took[len(took)-1]
	return out, ctx.Err()
}

func (b *bench) replan(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"groups on 100 queues", "CPU ms, median", "most", "objective per request, greedy", "after the search"}
	var results []again
	for _, groups := range first(b, 1, []int{1000, 4000}) {
		x, err := instrument.Measured(r, fmt.Sprint("replan/", groups), func() (again, error) { return replans(r.Ctx, groups) })
		if err != nil {
			return err
		}
		results = append(results, x)
		t.Add(groups, fmt.Sprintf("%.0f", 1000*x.Median), fmt.Sprintf("%.0f", 1000*x.Most), fmt.Sprintf("%.4f", x.Before), fmt.Sprintf("%.4f", x.After))
	}
	r.AtMost("400,000 queued requests in 1000 groups on 100 queues planned anew", "QLM, figure 19", 0.5, "s of CPU", results[0].Most)
	if !b.small {
		ratio := results[1].Median / results[0].Median
		r.Figure(claim("small groups cost more planning", "QLM, figure 18", "above 1", ratio, "times the CPU time of a re-plan, with groups of 100 requests against groups of 400",
			"400,000 requests in 4000 and in 1000 groups; both searches look at a million positions, so what grows is the rest", ratio > 1))
	}
	t.Note("Smooth objective, %d re-plans a second apart, a search of a million positions each: copy, changes, new groups, search.", rounds)
	return nil
}
