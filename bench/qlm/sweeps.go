package main

import (
	"time"

	"inferplan/bench/qlm/fleet"
)

// middle is the load of most sweeps, in requests a second on four A100s.
const middle = 10.71

// pointsOf makes points of values on W_A: change gives each its workload and fleet.
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

// workloads makes points of the first workloads, each at its rate on four A100s.
func workloads(rates ...float64) []point {
	var out []point
	for i, rps := range rates {
		w := &fleet.Workloads[i]
		out = append(out, point{label: w.Name, Case: fleet.Case{Workload: w, RPS: rps, Instances: 4}})
	}
	return out
}

// named are policies by name.
func named(names ...string) []*fleet.Policy {
	var out []*fleet.Policy
	for _, n := range names {
		out = append(out, fleet.Named(n))
	}
	return out
}

// pointersTo returns pointers to policies.
func pointersTo(list []fleet.Policy) []*fleet.Policy {
	var out []*fleet.Policy
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

// sweeps returns the ablations, and what the paper's figures vary, in their order.
func sweeps() []sweep {
	baselines := named("QLM", "FCFS", "EDF", "SHEPHERD-like", "partition", "gateway-like")
	var deltas []*fleet.Policy
	for _, delta := range []float64{1, 2, 4, 8, 16} {
		deltas = append(deltas, fleet.WithDelta(delta))
	}
	return append([]sweep{
		{
			name: "ablation", source: "QLM, figures 10 and 13: operations left out on W_A (10.71 rps), W_B (9.08) and W_C (10.71)", axis: "workload",
			points: workloads(middle, 9.08, middle), policies: pointersTo(fleet.Ablations), claims: ablationClaims,
		},
		{
			name: "published", source: "QLM, figures 10 and 13: operations left out, by the paper's readings (delta 4, groups behind, re-plans on violation), on W_A (10.71 rps) and W_B (9.08)", axis: "workload",
			points: workloads(middle, 9.08), policies: pointersTo(fleet.Published), claims: publishedClaims,
		},
		{
			name: "delta", source: "QLM, figure 18: W_A, size of groups in batches", axis: "requests/s",
			points: pointsOf([]float64{middle}, func(float64, *fleet.Case) {}), policies: deltas, claims: deltaClaims,
		},
		{
			name: "tail", source: "QLM, figure 8: W_A, share of requests for the four tail models", axis: "tail share",
			points:   pointsOf([]float64{0.05, 0.1, 0.25, 0.5, 0.75}, func(x float64, c *fleet.Case) { *c.Workload = c.Workload.WithTail(x) }),
			policies: baselines, claims: tailClaims,
		},
		{
			name: "interactive", source: "QLM, figure 9: W_A, share of requests of the 30 s class", axis: "interactive share",
			points: pointsOf([]float64{0.02, 0.05, 0.2, 0.4, 0.6, 0.8}, func(x float64, c *fleet.Case) {
				c.Workload.Shares = []float64{x, (1 - x) / 2, (1 - x) / 2}
			}),
			policies: baselines, claims: interactiveClaims,
		},
		{
			name: "scale", source: "QLM, figures 9 and 12: W_A, four to twelve instances, each some time after the decision", axis: "requests/s",
			points:   pointsOf([]float64{6.12, middle, 20}, func(x float64, c *fleet.Case) { c.RPS, c.Instances = x, 12 }),
			policies: []*fleet.Policy{fleet.Scaled(4, 30*time.Second), fleet.Scaled(4, 5*time.Second)}, claims: scaleClaims,
		},
		{
			name: "single", source: "QLM, figures 11, 12 and 16: W_B, load from none to a long queue", axis: "requests/s",
			points: pointsOf([]float64{3.63, 6.36, 9.08, 12, 18}, func(x float64, c *fleet.Case) {
				*c.Workload = fleet.Workloads[1]
				c.RPS = x
			}),
			policies: named("QLM", "FCFS", "EDF", "SHEPHERD-like", "gateway-like"), claims: singleClaims,
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
	}, laterSweeps(baselines)...)
}

// laterSweeps returns what the figures from 15 on vary.
func laterSweeps(baselines []*fleet.Policy) []sweep {
	return []sweep{
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
			policies: baselines, claims: sloClaims,
		},
		{
			name: "fleets", source: "QLM, section 8: W_A on 4 to 100 instances at the same load each", axis: "instances",
			points: pointsOf([]float64{4, 10, 25, 50, 100}, func(x float64, c *fleet.Case) {
				c.Instances, c.RPS = int(x), middle/4*x
			}),
			policies: named("QLM", "SHEPHERD-like", "partition", "gateway-like"), claims: fleetsClaims,
		},
		{
			name: "memory", source: "QLM, figure 21: W_A (10.71 rps) and W_B (9.08)", axis: "workload",
			points: workloads(middle, 9.08), policies: named("QLM", "FCFS", "EDF", "SHEPHERD-like"), claims: memoryClaims,
		},
		{
			name: "llama", source: "QLM, section 8: W_A with Llama-2-70B on four A100s, and lengths of ShareGPT", axis: "requests/s",
			points: pointsOf([]float64{4, 7, 10}, func(x float64, c *fleet.Case) {
				c.Workload.Models = []int{0, 1, 2, 3, 6, 7}
				c.Workload.Popularity = []float64{0.45, 0.2, 0.1, 0.05, 0.15, 0.05}
				c.Workload.ShareGPT, c.RPS, c.Instances, c.Big = true, x, 5, 1
			}),
			policies: baselines, claims: llamaClaims,
		},
	}
}
