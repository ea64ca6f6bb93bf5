package main

import (
	"time"

	"inferplan/bench/qlm/fleet"
)

// middle is the load of most sweeps, in requests a second on four A100s.
const middle = 10.71

// pointsOf makes points of values: change gives each its workload and fleet.
func pointsOf(values []float64, change func(x float64, c *fleet.Case)) []point {
	var out []point
	for _, x := range values {
		w := fleet.Workloads[0]
		p := point{x: x, Case: fleet.Case{Workload: &w, RPS: middle, Instances: 4}}
		change(x, &p.Case)
		out = append(out, p)
	}
	return out
}

// rivals are the paper's baselines, and two of later practice.
var rivals = []string{"QLM", "FCFS", "EDF", "SHEPHERD-like", "partition", "gateway-like"}

// sweeps are the paper's, in the order of its figures.
var sweeps = []sweep{
	{
		name: "tail", source: "QLM, figure 8: W_A, share of requests for the four tail models", axis: "tail share",
		points:   pointsOf([]float64{0.05, 0.1, 0.25, 0.5, 0.75}, func(x float64, c *fleet.Case) { *c.Workload = c.Workload.WithTail(x) }),
		policies: named(rivals...), claims: tailClaims,
	},
	{
		name: "interactive", source: "QLM, figure 9: W_A, share of requests of the 30 s class", axis: "interactive share",
		points: pointsOf([]float64{0.02, 0.05, 0.2, 0.4, 0.6, 0.8}, func(x float64, c *fleet.Case) {
			c.Workload.Shares = []float64{x, (1 - x) / 2, (1 - x) / 2}
		}),
		policies: named(rivals...), claims: interactiveClaims,
	},
	{
		name: "scale", source: "QLM, figures 9 and 12: W_A, four to twelve instances, each some time after the decision", axis: "requests/s",
		points:   pointsOf([]float64{6.12, 10.71, 20}, func(x float64, c *fleet.Case) { c.RPS, c.Instances = x, 12 }),
		policies: []*fleet.Policy{fleet.Scaled(4, 30*time.Second), fleet.Scaled(4, 5*time.Second)}, claims: scaleClaims,
	},
	{
		name: "single", source: "QLM, figures 11, 12 and 16: W_B, load from none to a long queue", axis: "requests/s",
		points: pointsOf([]float64{3.63, 6.36, 9.08, 12, 18}, func(x float64, c *fleet.Case) {
			*c.Workload = fleet.Workloads[1]
			c.RPS = x
		}),
		policies: named("QLM", "FCFS", "EDF", "priority", "SHEPHERD-like", "gateway-like"), claims: singleClaims,
	},
	{
		name: "hardware", source: "QLM, figure 14: W_A's models of Mistral-7B on eight instances, some of them A10s", axis: "A10s of 8",
		points: pointsOf([]float64{0, 2, 4, 6, 8}, func(x float64, c *fleet.Case) {
			c.Workload.Models, c.Workload.Popularity = []int{0, 2, 4}, []float64{0.7, 0.2, 0.1}
			// The rate is 1.2 times what the fleet can do, so that queues drain at the end.
			c.Instances, c.A10 = 8, int(x)
			c.RPS = 7.5 * (8 - 0.5*x)
		}),
		policies: named("QLM", "round robin", "random"), claims: hardwareClaims,
	},
	{
		name: "mega", source: "QLM, figure 15: W_C, share of mega prompts", axis: "mega share",
		points: pointsOf([]float64{0, 0.01, 0.02, 0.05, 0.1}, func(x float64, c *fleet.Case) {
			*c.Workload = fleet.Workloads[2]
			c.Workload.MegaShare = x
		}),
		policies: named("QLM", "EDF", "SHEPHERD-like", "partition", "gateway-like"), claims: megaClaims,
	},
	{
		name: "burst", source: "QLM, section 8.3: W_A, gaps of a gamma distribution", axis: "coefficient of variation",
		points:   pointsOf([]float64{1, 2, 4, 8}, func(x float64, c *fleet.Case) { c.Workload.Burst = x }),
		policies: named("QLM", "EDF", "SHEPHERD-like", "partition", "gateway-like"), claims: burstClaims,
	},
	{
		name: "slo", source: "QLM, figure 20: W_A, all SLOs longer", axis: "SLO scale",
		points: pointsOf([]float64{1, 2, 3, 5, 8, 11}, func(x float64, c *fleet.Case) {
			c.Workload.SLOScale, c.RPS = x, 6.12
		}),
		policies: named(rivals...), claims: sloClaims,
	},
	{
		name: "fleets", source: "QLM, section 8: W_A on 4 to 100 instances at the same load each", axis: "instances",
		points: pointsOf([]float64{4, 10, 25, 50, 100}, func(x float64, c *fleet.Case) {
			c.Instances, c.RPS = int(x), middle/4*x
		}),
		policies: named("QLM", "SHEPHERD-like", "partition", "gateway-like"), claims: fleetsClaims,
	},
	{
		name: "memory", source: "QLM, figure 21: W_A (10.71 rps) and W_B (9.08)", axis: "workload (A, B)",
		points: []point{
			{x: 1, Case: fleet.Case{Workload: &fleet.Workloads[0], RPS: middle, Instances: 4}},
			{x: 2, Case: fleet.Case{Workload: &fleet.Workloads[1], RPS: 9.08, Instances: 4}},
		},
		policies: named("QLM", "FCFS", "EDF", "SHEPHERD-like"), claims: memoryClaims,
	},
	{
		name: "off", source: "estimators that are off, W_A: planned times the true work", axis: "work planned by the true",
		points:   pointsOf([]float64{0.5, 0.75, 1, 1.5, 2}, func(x float64, c *fleet.Case) { c.Off = x }),
		policies: named("QLM", "no following"), claims: offClaims,
	},
	{
		name: "llama", source: "QLM, section 8: W_A with Llama-2-70B on four A100s, and lengths of ShareGPT", axis: "requests/s",
		points: pointsOf([]float64{4, 7, 10}, func(x float64, c *fleet.Case) {
			c.Workload.Models = []int{0, 1, 2, 3, 6, 7}
			c.Workload.Popularity = []float64{0.45, 0.2, 0.1, 0.05, 0.15, 0.05}
			c.Workload.ShareGPT, c.RPS, c.Instances, c.Big = true, x, 5, 1
		}),
		policies: named(rivals...), claims: llamaClaims,
	},
}

// published is the ablation of the policy as the paper has it, with groups of four
// batches that enter behind and re-plans on violation.
func published() *sweep {
	s := &sweep{name: "published", source: "QLM, figures 10 and 13: operations left out, by the paper's readings (delta 4, groups behind, re-plans on violation), on W_A (10.71 rps) and W_B (9.08)", axis: "workload (A, B)", claims: publishedClaims}
	for i, rps := range []float64{10.71, 9.08} {
		s.points = append(s.points, point{x: float64(i + 1), Case: fleet.Case{Workload: &fleet.Workloads[i], RPS: rps, Instances: 4}})
	}
	for i := range fleet.Published {
		s.policies = append(s.policies, &fleet.Published[i])
	}
	return s
}

// deltas is figure 18: the size of groups.
func deltas() *sweep {
	s := &sweep{name: "delta", source: "QLM, figure 18: W_A, size of groups in batches", axis: "requests/s", claims: deltaClaims}
	s.points = pointsOf([]float64{middle}, func(float64, *fleet.Case) {})
	for _, delta := range []float64{1, 2, 4, 8, 16} {
		s.policies = append(s.policies, fleet.WithDelta(delta))
	}
	return s
}

// ablation leaves one operation out at a time.
func ablation() *sweep {
	s := &sweep{name: "ablation", source: "QLM, figures 10 and 13: operations left out on W_A (10.71 rps), W_B (9.08) and W_C (10.71)", axis: "workload (A, B, C)", claims: ablationClaims}
	for i, rps := range []float64{10.71, 9.08, 10.71} {
		s.points = append(s.points, point{x: float64(i + 1), Case: fleet.Case{Workload: &fleet.Workloads[i], RPS: rps, Instances: 4}})
	}
	for i := range fleet.Ablations {
		s.policies = append(s.policies, &fleet.Ablations[i])
	}
	return s
}
