package vqueue_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
	"inferplan/testkit/queuetest"
)

// judges are objectives to test with, on work that varies.
var judges = map[string]vqueue.Objective{
	"quantiles":  vqueue.RecommendedObjective,
	"means":      {LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4},
	"chance":     {LatenessRule: vqueue.ByMeans, LateWeight: 1, TardyWeight: 1e-3, EndWeight: 1e-4, Z: 1.645, CommonSD: 0.08},
	"completion": {LatenessRule: vqueue.ByCompletion, LateWeight: 1e5},
}

func judgeNames() []string {
	names := []string{}
	for name := range judges {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func drawProblem(t *rapid.T, groups int) *vqueue.Problem {
	n := rapid.IntRange(1, groups).Draw(t, "groups")
	p := queuetest.Instance(n, rapid.IntRange(1, 4).Draw(t, "queues"), rapid.IntRange(3, 6).Draw(t, "models"), rapid.Float64Range(0.2, 1.3).Draw(t, "load"), rapid.Uint64().Draw(t, "seed"))
	queuetest.Vary(p, 0.77)
	p.Objective = judges[rapid.SampledFrom(judgeNames()).Draw(t, "judge")]
	return p
}

// rebuiltAssignment is a state with the same order, from scratch.
func rebuiltAssignment(p *vqueue.Problem, s *vqueue.Assignment) *vqueue.Assignment {
	out := vqueue.NewAssignment(p)
	for queueIndex := range p.Queues {
		for position, groupIndex := range s.AppendOrder(int32(queueIndex), nil) {
			out.Insert(groupIndex, int32(queueIndex), position)
		}
	}
	return out
}

func runSearch(s *vqueue.Assignment, seed uint64, work int64) {
	var x vqueue.Search
	x.Run(context.Background(), s, seeded.New(seed, "test"), work)
}

// TestSearchKeepsBooks: after a search every group is in one place, where it can
// run, the total is that of the order, and it is no worse than before.
func TestSearchKeepsBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 30)
		s := vqueue.NewAssignment(p)
		s.InsertGreedily()
		before := s.Total()
		runSearch(s, rapid.Uint64().Draw(t, "search"), 3000)
		if s.Total() > before+1e-6 {
			t.Fatalf("the search went from %g to %g", before, s.Total())
		}
		if again := rebuiltAssignment(p, s).Total(); math.Abs(again-s.Total()) > 1e-6*(1+math.Abs(again)) {
			t.Fatalf("the total is %.9g, of the same order from scratch %.9g", s.Total(), again)
		}
		seen := map[int32]bool{}
		for queueIndex := range p.Queues {
			for _, groupIndex := range s.AppendOrder(int32(queueIndex), nil) {
				if seen[groupIndex] || s.QueueOf(groupIndex) != int32(queueIndex) || math.IsInf(p.Cost(groupIndex, p.Queues[queueIndex].Kind).Work, 1) {
					t.Fatalf("group %d in queue %d: twice, elsewhere (%d), or where it cannot run", groupIndex, queueIndex, s.QueueOf(groupIndex))
				}
				seen[groupIndex] = true
			}
		}
		for i := range p.Groups {
			if s.QueueOf(int32(i)) >= 0 != seen[int32(i)] {
				t.Fatalf("group %d is said to be in queue %d", i, s.QueueOf(int32(i)))
			}
		}
	})
}

// TestBestTellsTheRise: what an insertion is said to cost is what it costs.
func TestBestTellsTheRise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t, 25)
		s := vqueue.NewAssignment(p)
		for i := range p.Groups {
			before := s.Total()
			queueIndex, position, delta := s.BestPlace(int32(i))
			if queueIndex < 0 {
				continue
			}
			free := vqueue.NewAssignment(p) // what the group costs in no queue
			free.Insert(int32(i), queueIndex, 0)
			s.Insert(int32(i), queueIndex, position)
			unplaced := p.Groups[i].Size * (p.LateWeight + p.TardyWeight*3600)
			if p.LatenessRule == vqueue.ByCompletion {
				unplaced = p.LateWeight + 3600
			}
			rise := s.Total() - before + unplaced
			// Slack is computed with variances, so small parts of them are left out.
			tolerance := 1e-6 * (1 + math.Abs(rise))
			switch {
			case p.LatenessRule == vqueue.ByQuantiles:
				tolerance = 1e-3*math.Abs(rise) + 0.2
			case p.Z > 0: // the root grows a little less than computed
				tolerance = 0.1*math.Abs(rise) + 0.2
			}
			if math.Abs(rise-delta) > tolerance {
				t.Fatalf("group %d of %d: said to cost %.6f, costs %.6f", i, len(p.Groups), delta, rise)
			}
		}
	})
}

// TestSearchFindsTheBestOfAllOrders tries every order of five groups.
func TestSearchFindsTheBestOfAllOrders(t *testing.T) {
	for _, name := range judgeNames() {
		for seed := range uint64(4) {
			p := queuetest.Instance(5, 2, 3, 0.9, seed)
			queuetest.Vary(p, 0.77)
			p.Objective = judges[name]
			best, s := math.Inf(1), vqueue.NewAssignment(p)
			var try func(groupIndex int32)
			try = func(groupIndex int32) {
				if int(groupIndex) == len(p.Groups) {
					best = min(best, s.Total())
					return
				}
				for queueIndex := range p.Queues {
					if math.IsInf(p.Cost(groupIndex, p.Queues[queueIndex].Kind).Work, 1) {
						continue
					}
					for position := range s.Len(int32(queueIndex)) + 1 {
						s.Insert(groupIndex, int32(queueIndex), position)
						try(groupIndex + 1)
						s.Remove(groupIndex)
					}
				}
			}
			try(0)
			s.InsertGreedily()
			runSearch(s, 1, 5000)
			if s.Total() > best+1e-6*math.Abs(best) {
				t.Errorf("%s, seed %d: the search found %.6f, the best of all orders is %.6f", name, seed, s.Total(), best)
			}
		}
	}
}

func TestPrioritiesAreKept(t *testing.T) {
	p := queuetest.Instance(60, 3, 4, 1, 5)
	for i := range p.Groups {
		p.Groups[i].Priority = int32(i % 3)
	}
	s := vqueue.NewAssignment(p)
	s.InsertGreedily()
	runSearch(s, 1, 50_000)
	for queueIndex := range p.Queues {
		last := int32(0)
		for _, groupIndex := range s.AppendOrder(int32(queueIndex), nil) {
			if p.Groups[groupIndex].Priority < last {
				t.Fatalf("queue %d: group %d of priority %d behind one of %d", queueIndex, groupIndex, p.Groups[groupIndex].Priority, last)
			}
			last = p.Groups[groupIndex].Priority
		}
	}
}

func TestSameWorkSameOrder(t *testing.T) {
	p := queuetest.Instance(200, 16, 12, 0.9, 11)
	order := func(work int64) string {
		s := vqueue.NewAssignment(p)
		s.InsertGreedily()
		runSearch(s, 7, work)
		text := ""
		for queueIndex := range p.Queues {
			text += fmt.Sprint(s.AppendOrder(int32(queueIndex), nil))
		}
		return text
	}
	if first, second := order(200_000), order(200_000); first != second {
		t.Error("the same work gives another order")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := vqueue.NewAssignment(p)
	s.InsertGreedily()
	var x vqueue.Search
	before := s.SearchWork()
	x.Run(ctx, s, seeded.New(7, "test"), 1e12)
	if s.SearchWork()-before > 1e6 {
		t.Errorf("a cancelled search looked at %d positions", s.SearchWork()-before)
	}
}

// TestReachesKnownOrders holds the search against late requests that were reached
// on the same problems before, and counts its requests: the generator is the same.
func TestReachesKnownOrders(t *testing.T) {
	for _, c := range []struct {
		groups, queues, models int
		load, requests, edf    float64
		late                   float64
		work                   int64
	}{
		{50, 4, 6, 0.6, 2971, 406, 153, 300_000},
		{100, 8, 8, 0.9, 9356, 3976, 1007, 500_000},
		{200, 16, 12, 0.9, 16977, 8458, 2052, 500_000},
		{1000, 100, 16, 0.9, 102997, 43812, 11620, 1_000_000},
	} {
		p := queuetest.Instance(c.groups, c.queues, c.models, c.load, 11)
		if n := queuetest.Requests(p); n != c.requests {
			t.Fatalf("%dx%d: %g requests, expected %g", c.groups, c.queues, n, c.requests)
		}
		s := vqueue.NewAssignment(p)
		queuetest.AppendByDeadline(p, s)
		edf := s.LateRequests()
		s.Reset(p)
		s.InsertGreedily()
		greedy := s.LateRequests()
		runSearch(s, 1, c.work)
		t.Logf("%dx%d: EDF %g, greedy %g, search %g late of %g", c.groups, c.queues, edf, greedy, s.LateRequests(), c.requests)
		if s.LateRequests() > c.late || greedy > 0.6*edf {
			t.Errorf("%dx%d: the search leaves %g late, expected at most %g; greedy %g, EDF %g", c.groups, c.queues, s.LateRequests(), c.late, greedy, edf)
		}
	}
}

func TestProblemIsChecked(t *testing.T) {
	for name, spoil := range map[string]func(p *vqueue.Problem){
		"model":    func(p *vqueue.Problem) { p.Groups[1].Model = 9 },
		"size":     func(p *vqueue.Problem) { p.Groups[1].Size = math.NaN() },
		"deadline": func(p *vqueue.Problem) { p.Groups[0].Deadline[2] = math.NaN() },
		"work":     func(p *vqueue.Problem) { p.Costs[3].Work = -1 },
		"variance": func(p *vqueue.Problem) { p.Costs[3].Variance = math.Inf(1) },
		"costs":    func(p *vqueue.Problem) { p.Costs = p.Costs[1:] },
		"kind":     func(p *vqueue.Problem) { p.Queues[0].Kind = 2 },
		"start":    func(p *vqueue.Problem) { p.Queues[0].Start = math.Inf(1) },
		"setup":    func(p *vqueue.Problem) { p.Queues[0].Setup = nil },
		"loaded":   func(p *vqueue.Problem) { p.Queues[0].Model = 3 },
	} {
		p := queuetest.Instance(6, 2, 3, 0.9, 11)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(p)
		if p.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestEvaluationAllocatesNothing also covers whole steps of the search.
func TestEvaluationAllocatesNothing(t *testing.T) {
	p := queuetest.Instance(200, 16, 12, 0.9, 11)
	p.Objective = vqueue.RecommendedObjective
	s, copied := vqueue.NewAssignment(p), vqueue.NewAssignment(p)
	s.InsertGreedily()
	var x vqueue.Search
	rng := seeded.New(1, "test")
	step := func() {
		copied.CopyFrom(s)
		groupIndex := int32(rng.IntN(len(p.Groups)))
		copied.Remove(groupIndex)
		copied.InsertBest(groupIndex)
		x.Run(context.Background(), copied, rng, 20_000)
	}
	for range 5 {
		step()
	}
	if n := testing.AllocsPerRun(20, step); n > 0.5 {
		t.Errorf("%g allocations", n)
	}
}
