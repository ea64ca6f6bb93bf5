package vqueue_test

import (
	"context"
	"math"
	"testing"

	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
	"inferplan/testkit/queuetest"
)

func thousand(judge vqueue.Objective) (*vqueue.Problem, *vqueue.Assignment) {
	p := queuetest.Instance(1000, 100, 16, 0.9, 11)
	queuetest.Vary(p, 0.77)
	p.Objective = judge
	s := vqueue.NewAssignment(p)
	s.InsertGreedily()
	return p, s
}

// BenchmarkPlace takes a group out of 1000 on 100 queues, looks at all places for
// it, and puts it back.
func BenchmarkPlace(b *testing.B) {
	for _, name := range []string{"means", "quantiles"} {
		b.Run(name, func(b *testing.B) {
			p, s := thousand(judges[name])
			b.ReportAllocs()
			groupIndex, before := int32(0), s.SearchWork()
			for b.Loop() {
				s.Remove(groupIndex)
				s.InsertBest(groupIndex)
				groupIndex = (groupIndex + 1) % int32(len(p.Groups))
			}
			b.ReportMetric(float64(b.Elapsed())/float64(s.SearchWork()-before), "ns/position")
		})
	}
}

// BenchmarkGreedy builds an order of 1000 groups on 100 queues.
func BenchmarkGreedy(b *testing.B) {
	for _, name := range []string{"means", "quantiles"} {
		b.Run(name, func(b *testing.B) {
			p, s := thousand(judges[name])
			b.ReportAllocs()
			for b.Loop() {
				s.Reset(p)
				s.InsertGreedily()
			}
		})
	}
}

// BenchmarkReplan plans 400,000 queued requests anew that are in 1000 groups on 100
// queues: a second has passed, 8,000 requests are new and are put into clusters, 20
// groups are gone, 20 are new, 200 have other sizes. It copies the state, takes the
// changes over, inserts what is new, and searches.
func BenchmarkReplan(b *testing.B) {
	p, s := thousand(vqueue.RecommendedObjective)
	total := queuetest.Requests(p)
	for i := range p.Groups { // 400 requests per group, at the same load
		p.Groups[i].Size *= 400_000 / total
	}
	fresh := mixedRequests(1, 8000)
	clusters, err := vqueue.NewClusters(fresh, 2, vqueue.ClusterOptions{}, seeded.New(1, "bench"))
	if err != nil {
		b.Fatal(err)
	}
	s.Refresh()
	var x vqueue.Search
	rng, plan := seeded.New(1, "bench"), vqueue.NewAssignment(p)
	counts := make([]int, clusters.Len())
	b.ReportAllocs()
	for b.Loop() {
		for i := range fresh {
			counts[clusters.ClusterOf(&fresh[i])]++
		}
		p.Now++
		for queueIndex := range p.Queues {
			p.Queues[queueIndex].Start = p.Now
		}
		plan.CopyFrom(s)
		for range 20 {
			groupIndex := int32(rng.IntN(len(p.Groups)))
			plan.Remove(groupIndex)
			for u := range p.Groups[groupIndex].Deadline {
				p.Groups[groupIndex].Deadline[u] = p.Now + 40 + 860*rng.Float64()
			}
		}
		for range 200 {
			g := &p.Groups[rng.IntN(len(p.Groups))]
			g.Size = math.Max(1, g.Size+20*(rng.Float64()-0.5))
		}
		plan.Refresh()
		plan.InsertGreedily()
		x.Run(context.Background(), plan, rng, 1_000_000)
		s.CopyOrder(plan)
	}
}
