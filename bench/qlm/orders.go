package main

import (
	"context"
	"fmt"

	"inferplan/bench/instrument"
	"inferplan/bench/qlm/latebound"
	"inferplan/cputime"
	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
	"inferplan/solver/highs"
	"inferplan/testkit/queuetest"
)

// queueCase is a problem of many groups.
type queueCase struct {
	groups, queues, models int
	load                   float64
}

// works are the positions that searches look at.
var works = []int64{2_000_000, 10_000_000, 40_000_000}

// ordered holds the results of a case.
type ordered struct {
	Requests, Bound, BoundSeconds float64
	EDF, Greedy, GreedySeconds    float64
	Late, Seconds                 []float64 // by work
}

// order bounds the late requests of a problem by the best of four bounds, and counts those of orders.
func (c queueCase) order(ctx context.Context) (out ordered, err error) {
	p := queuetest.Instance(c.groups, c.queues, c.models, c.load, 11)
	out.Requests = queuetest.Requests(p)
	for _, o := range []latebound.Options{{Times: 30}, {Times: 60}, {Times: 120}, {Times: 60, Nodes: 100}} {
		bound, err := latebound.Prove(ctx, highs.Solver{}, p, o)
		if err != nil {
			return out, err
		}
		out.Bound, out.BoundSeconds = max(out.Bound, bound.Late), out.BoundSeconds+bound.Stats.CPU.Seconds()
	}

	// The list by deadline, and greedy insertion.
	s := vqueue.NewAssignment(p)
	queuetest.AppendByDeadline(p, s)
	out.EDF = s.LateRequests()
	s.Reset(p)
	began := cputime.Used()
	s.InsertGreedily()
	out.GreedySeconds, out.Greedy = (cputime.Used() - began).Seconds(), s.LateRequests()

	// Searches from the greedy order on.
	greedy := vqueue.NewAssignment(p)
	greedy.CopyFrom(s)
	for _, work := range works {
		var x vqueue.Search
		s.CopyFrom(greedy)
		began := cputime.Used()
		x.Run(ctx, s, seeded.New(1, "search"), work)
		out.Seconds = append(out.Seconds, (cputime.Used() - began).Seconds())
		out.Late = append(out.Late, s.LateRequests())
	}
	return out, ctx.Err()
}

// orders holds the search on a large problem against the bound.
func (b *bench) orders(r *instrument.Run, t *instrument.Table) error {
	c := queueCase{1000, 100, 16, 0.9}
	x, err := instrument.Measured(r, fmt.Sprint("orders/", c), func() (ordered, error) { return c.order(r.Ctx) })
	if err != nil {
		return err
	}
	t.Columns = []string{"order", "late requests", "CPU s"}
	t.Add("bound", fmt.Sprintf("%.0f", x.Bound), fmt.Sprintf("%.2f", x.BoundSeconds))
	t.Add("by deadline", fmt.Sprintf("%.0f", x.EDF), "")
	t.Add("greedy", fmt.Sprintf("%.0f", x.Greedy), fmt.Sprintf("%.3f", x.GreedySeconds))
	best, seconds := x.Late[0], x.Seconds[0]
	for i, work := range works {
		t.Add(fmt.Sprintf("search, %d million positions", work/1e6), fmt.Sprintf("%.0f", x.Late[i]), fmt.Sprintf("%.1f", x.Seconds[i]))
		if x.Seconds[i] <= 5 && x.Late[i] <= best {
			best, seconds = x.Late[i], x.Seconds[i]
		}
	}
	t.Note("%.0f requests in %d groups on %d queues, %d models, load %g. The bound holds for every order and assignment.", x.Requests, c.groups, c.queues, c.models, c.load)
	r.AtMost("1000 groups on 100 queues, load .9: late requests above the bound, of all requests", "QLM, figure 19", 1.0, "%", 100*(best-x.Bound)/x.Requests)
	r.AtMost("the same: CPU time of the search", "QLM, figure 19", 5, "s", seconds)
	r.AtMost("the same: CPU time of greedy insertion", "QLM, figure 19", 0.1, "s", x.GreedySeconds)
	return nil
}
