package search

import (
	"context"
	"testing"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/seeded"
	"inferplan/planner/gear/trials"
	"inferplan/policy/gear"
	"inferplan/sim"
)

// overloadGoodput runs a plan at a multiple of its largest rate for 20 s, then at half of it
// for as long. It returns the requests answered in time per second of the first part, in
// largest rates, and the shares in time of those that come in the first second that
// begins one SLO after it, and in all the time from then on.
func overloadGoodput(t *testing.T, plan *trials.Plan, load float64, shed bool) (goodput, soon, after float64) {
	const long = 20 * time.Second
	tab := plan.Tables()
	tab.Models[0].SLO = plan.Problem.SLO
	o := gear.DefaultOptions(tab)
	o.RefuseLate = shed
	pol, err := gear.New(tab, o)
	if err != nil {
		t.Fatal(err)
	}
	var list []arrivals.Request
	most := plan.Problem.RangeEdges[len(plan.Problem.RangeEdges)-1]
	for k, rate := range []float64{load * most, .5 * most} {
		src, err := arrivals.Process(&formats.Arrivals{Process: "poisson"}, seeded.New(uint64(k), "test/overload"), 0, rate, long)
		if err != nil {
			t.Fatal(err)
		}
		for r := (arrivals.Request{}); src.Next(&r); {
			r.ArrivedAt += time.Duration(k) * long
			list = append(list, r)
		}
	}
	slo := plan.Problem.SLO
	inTime, came := make([]float64, 3), make([]float64, 3)
	part := func(arrived time.Duration) []int {
		switch {
		case arrived < long:
			return []int{0}
		case arrived < long+slo:
			return nil
		case arrived < long+slo+time.Second:
			return []int{1, 2}
		}
		return []int{2}
	}
	for i := range list {
		for _, k := range part(list[i].ArrivedAt) {
			came[k]++
		}
	}
	_, err = sim.Run(context.Background(), sim.Config{Tables: tab, Policy: pol, Source: arrivals.Slice(list), NoReport: true, Verify: true, OnCompleted: func(arrived, at time.Duration) {
		for _, k := range part(arrived) {
			if at-arrived <= slo {
				inTime[k]++
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return inTime[0] / long.Seconds() / most, inTime[1] / came[1], inTime[2] / came[2]
}

// Under overload a cascade keeps its goodput and is itself again within one SLO; below
// its largest rate shedding costs next to nothing.
func TestShedding(t *testing.T) {
	for _, c := range []struct {
		f       *family
		devices int
	}{{&bert5, 1}, {&bert5, 2}, {&llama4, 4}, {&llama4, 8}} {
		if c.f == &bert5 && c.devices > 1 && !long {
			continue
		}
		plan := c.f.planOnce(t, c.devices)
		for _, load := range []float64{.9, 1, 1.2, 1.5, 2} {
			with, soon, after := overloadGoodput(t, plan, load, true)
			without, late, _ := overloadGoodput(t, plan, load, false)
			t.Logf("%d devices, %v times the largest rate: goodput %.3f of it, in time %.3f in the second from one SLO after, %.3f then; without shedding %.3f, %.3f", c.devices, load, with, soon, after, without, late)
			if with < min(.9, without-.03) || load > 1 && with < .95 || soon < .94 || after < .94 {
				t.Errorf("%d devices, %v times the largest rate: goodput %.3f (without shedding %.3f), in time %.3f, %.3f after", c.devices, load, with, without, soon, after)
			}
		}
	}
}
