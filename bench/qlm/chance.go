package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"inferplan/bench/instrument"
	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
	"inferplan/solver/stoch"
	"inferplan/testkit/queuetest"
)

// plans are objectives to plan by under random times: chance constraints, and the expected count at last.
var plans = []struct {
	name string
	vqueue.Objective
}{
	{"z 0 (means only)", vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4}},
	{"z 0.84", vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4, Z: 0.84, CommonSD: 0.08}},
	{"z 1.28", vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4, Z: 1.28, CommonSD: 0.08}},
	{"z 1.645", vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4, Z: 1.645, CommonSD: 0.08}},
	{"z 2.33", vqueue.Objective{LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4, Z: 2.33, CommonSD: 0.08}},
	{"expected count (smooth)", vqueue.RecommendedObjective},
}

// drawn counts the late requests of a plan: requests, and requests in groups that end late.
type drawn struct{ Mean, P95, Whole float64 }

const draws = 400

// draw plans by an objective and counts late requests under random times.
func (c queueCase) draw(ctx context.Context, o vqueue.Objective) (drawn, error) {
	p := queuetest.Instance(c.groups, c.queues, c.models, c.load, 11)
	queuetest.Vary(p, variation)
	p.Objective = o
	s := vqueue.NewAssignment(p)
	s.InsertGreedily()
	var x vqueue.Search
	x.Run(ctx, s, seeded.New(1, "search"), 10_000_000)
	var out drawn
	rng, late := seeded.New(1, "draws"), make([]float64, draws)
	for d := range late {
		var whole float64
		late[d], whole = lateIn(p, s, rng)
		out.Mean, out.Whole = out.Mean+late[d]/draws, out.Whole+whole/draws
	}
	slices.Sort(late)
	out.P95 = late[draws*95/100]
	return out, ctx.Err()
}

// lateIn is the number of late requests in one future, and of requests in groups
// that end late. Members of a group end evenly over its work.
func lateIn(p *vqueue.Problem, s *vqueue.Assignment, rng *rand.Rand) (late, whole float64) {
	future := stoch.SampleScenarios(rng, 1, len(p.Queues), 0.08, nil)
	for q := range p.Queues {
		def := &p.Queues[q]
		t, model := def.Start, def.Model
		for _, i := range s.AppendOrder(int32(q), nil) {
			g, c := &p.Groups[i], p.Cost(i, def.Kind)
			if g.Model != model {
				t, model = t+def.Setup[g.Model], g.Model
			}
			work := stoch.Normal{Mu: c.Work, Sigma: c.Work * variation / math.Sqrt(g.Size)}
			duration := max(0, work.Quantile(rng.Float64())) * future.QueueFactors[0][q]
			t += duration
			if after := t + c.Residence - g.Deadline[vqueue.Quantiles-1]; after > 0 {
				late += g.Size * min(after/duration, 1)
				whole += g.Size
			}
		}
	}
	return late, whole
}

func (b *bench) chance(r *instrument.Run, t *instrument.Table) error {
	t.Columns = []string{"groups x queues, load"}
	for _, o := range plans {
		t.Columns = append(t.Columns, o.name)
	}
	for _, c := range first(b, 1, []queueCase{{100, 8, 8, 0.6}, {100, 8, 8, 0.9}, {500, 50, 16, 0.6}, {500, 50, 16, 0.9}}) {
		row := []any{fmt.Sprintf("%dx%d, %g", c.groups, c.queues, c.load)}
		var means []float64
		for _, o := range plans {
			x, err := instrument.Measured(r, fmt.Sprint("chance/", c, "/", o.name), func() (drawn, error) { return c.draw(r.Ctx, o.Objective) })
			if err != nil {
				return err
			}
			row = append(row, fmt.Sprintf("%.0f (%.0f), %.0f", x.Mean, x.P95, x.Whole))
			means = append(means, x.Mean)
		}
		expected, constrained := means[len(plans)-1], slices.Min(means[:len(plans)-1])
		r.AtMost(fmt.Sprintf("%v: late requests planned by the expected count, of those by the best chance constraint", row[0]), "QLM, equation 12", 100, "%", 100*expected/constrained)
		t.Add(row...)
	}
	t.Note("A group's work varies by %.2f/sqrt(requests), a queue's throughput by 8 %%. Members of a group end evenly over its work; the last figure counts groups that end late as a whole, as the chance constraints do. Searches of 10 million positions.", variation)
	return nil
}
