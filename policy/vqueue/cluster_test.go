package vqueue_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats/seeded"
	"inferplan/policy/vqueue"
)

// mixedRequests draws requests of two models, three SLOs, and some mega prompts.
func mixedRequests(seed uint64, n int) []vqueue.RequestFeatures {
	rng := seeded.New(seed, "mixed")
	prompts, _ := conversations(rng, n)
	out := make([]vqueue.RequestFeatures, n)
	for i := range out {
		r := &out[i]
		*r = vqueue.RequestFeatures{Model: int32(rng.IntN(2)), SLO: []float64{30, 120, 300}[rng.IntN(3)], Prompt: prompts[i], Output: 200, ArrivedAt: float64(i)}
		if r.Model == 0 && rng.IntN(50) == 0 {
			r.Prompt = 16000 + 16000*rng.Float64()
		}
		r.Deadline = r.ArrivedAt + r.SLO
	}
	return out
}

func TestClustersSeparate(t *testing.T) {
	requests := mixedRequests(1, 4000)
	c, err := vqueue.NewClusters(requests, 3, vqueue.ClusterOptions{MegaFactor: 12}, seeded.New(1, "clusters"))
	if err != nil {
		t.Fatal(err)
	}
	slos := make([][]float64, c.Len())
	for i := range requests {
		r := &requests[i]
		k := c.ClusterOf(r)
		if c.Model(k) != r.Model {
			t.Fatalf("a request of model %d is in a cluster of model %d", r.Model, c.Model(k))
		}
		if c.IsMega(k) != (r.Prompt >= 16000) {
			t.Fatalf("a prompt of %g tokens: mega %v", r.Prompt, c.IsMega(k))
		}
		if !c.IsMega(k) {
			slos[k] = append(slos[k], r.SLO)
		}
	}
	pure, all := 0, 0
	for _, s := range slos {
		if len(s) == 0 {
			continue
		}
		slices.Sort(s)
		common := s[len(s)/2]
		for _, x := range s {
			all++
			if x == common {
				pure++
			}
		}
	}
	if float64(pure) < 0.9*float64(all) {
		t.Errorf("%d of %d requests are in a cluster of their SLO", pure, all)
	}
	if k := c.ClusterOf(&vqueue.RequestFeatures{Model: 2, SLO: 30, Prompt: 1}); k != -1 {
		t.Errorf("a model without requests has cluster %d", k)
	}
	if _, err := vqueue.NewClusters([]vqueue.RequestFeatures{{Model: 3}}, 3, vqueue.ClusterOptions{}, seeded.New(1, "clusters")); err == nil {
		t.Error("an unknown model: no error")
	}
}

// TestGroupsHoldEveryRequestOnce, within the limit, of one cluster, in order.
func TestGroupsHoldEveryRequestOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := mixedRequests(rapid.Uint64Range(0, 50).Draw(t, "seed"), rapid.IntRange(1, 400).Draw(t, "n"))
		c, err := vqueue.NewClusters(requests, 2, vqueue.ClusterOptions{MaxClusters: 3}, seeded.New(1, "clusters"))
		if err != nil {
			t.Fatal(err)
		}
		order, limit := vqueue.MemberOrder(rapid.IntRange(0, 1).Draw(t, "order")), rapid.IntRange(1, 100).Draw(t, "limit")
		seen := make([]bool, len(requests))
		for _, group := range c.FormGroups(requests, order, func(int32) int { return limit }) {
			if len(group) == 0 || len(group) > limit {
				t.Fatalf("a group of %d, the limit is %d", len(group), limit)
			}
			last := math.Inf(-1)
			for _, i := range group {
				r := &requests[i]
				at := r.ArrivedAt
				if order == vqueue.ByDeadline {
					at = r.Deadline
				}
				if seen[i] || at < last || c.ClusterOf(r) != c.ClusterOf(&requests[group[0]]) {
					t.Fatalf("request %d: twice, out of order, or of another cluster", i)
				}
				seen[i], last = true, at
			}
		}
		if slices.Contains(seen, false) {
			t.Fatal("a request is in no group")
		}
	})
}

func TestDeadlinesOf(t *testing.T) {
	if got := vqueue.QuantileDeadlines([]float64{1, 2, 3, 4, 5, 6, 7, 8}); got != [4]float64{2, 4, 6, 8} {
		t.Errorf("of eight members: %v", got)
	}
	if got := vqueue.QuantileDeadlines([]float64{5}); got != [4]float64{5, 5, 5, 5} {
		t.Errorf("of one member: %v", got)
	}
}
