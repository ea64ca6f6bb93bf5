package latebound_test

import (
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"inferplan/bench/qlm/latebound"
	"inferplan/policy/vqueue"
	"inferplan/solver/highs"
	"inferplan/testkit/queuetest"
)

// TestBoundBelowEveryOrder tries all orders of small random problems.
func TestBoundBelowEveryOrder(t *testing.T) {
	tight := 0
	rapid.Check(t, func(t *rapid.T) {
		groups, queues := rapid.IntRange(1, 5).Draw(t, "groups"), rapid.IntRange(1, 3).Draw(t, "queues")
		p := queuetest.Instance(groups, queues, rapid.IntRange(3, 5).Draw(t, "models"), rapid.Float64Range(0.1, 1.5).Draw(t, "load"), rapid.Uint64().Draw(t, "seed"))
		for q := range p.Queues {
			p.Queues[q].Start = rapid.Float64Range(0, 60).Draw(t, "start")
		}
		best := math.Inf(1)
		s := vqueue.NewAssignment(p)
		queuetest.Orders(p, s, 0, func() { best = min(best, s.LateRequests()) })
		if math.IsInf(best, 1) { // some group can run nowhere
			s.InsertGreedily()
			best = s.LateRequests()
		}
		for _, o := range []latebound.Options{{}, {Times: 3}, {Nodes: 50}} {
			b, err := latebound.Prove(context.Background(), highs.Solver{}, p, o)
			if err != nil {
				t.Fatal(err)
			}
			if b.Late > best+1e-6 {
				t.Fatalf("the bound with %+v is %.4f, an order has %.4f late", o, b.Late, best)
			}
			if best > 0 && b.Late > 0.99*best {
				tight++
			}
		}
	})
	if tight == 0 {
		t.Error("the bound is never tight: it says nothing")
	}
}

// TestBoundIsReached: an order with 801 late requests is known for this problem, so
// the bound is as high as it can be. The search comes near it.
func TestBoundIsReached(t *testing.T) {
	p := queuetest.Instance(100, 8, 8, 0.9, 11)
	b, err := latebound.Prove(context.Background(), highs.Solver{}, p, latebound.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(b.Late-801) > 0.1 {
		t.Errorf("the bound is %.2f, expected 801", b.Late)
	}
	if late := queuetest.Searched(p, 2_000_000).LateRequests(); late < b.Late-0.1 || late > 1.1*b.Late {
		t.Errorf("the search leaves %g late, the bound is %.1f", late, b.Late)
	}
}

func TestBoundRefusesOtherJudges(t *testing.T) {
	p := queuetest.Instance(6, 2, 3, 0.9, 11)
	p.Objective = vqueue.RecommendedObjective
	if _, err := latebound.Prove(context.Background(), highs.Solver{}, p, latebound.Options{}); err == nil {
		t.Error("no error for an objective that the bound does not bound")
	}
}
