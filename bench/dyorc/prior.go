package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/bench/figures"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/policy"
	"inferplan/policy/flow"
	"inferplan/solver/highs"
	"inferplan/testkit/workflows"
)

// chances is the seed of the ways that a policy knows from the start. No run has it.
const chances = 1 << 40

// withWays returns the tables of a fleet with what a plan says of a scene's applications: the
// ways of requests by their chances, and rates; if the scene has no prior, it returns them as they are.
func (sc *scene) withWays(t *policy.Tables) *policy.Tables {
	if !sc.Prior {
		return t
	}
	flow.WorkflowTablesOf(t).Paths = workflows.Ways(flow.DrawnRequests, chances)
	for m := range t.Models {
		t.Models[m].RPS = sc.Rates.rps[m]
	}
	return t
}

// planned returns the networks that devices hold at the start in a plan of a scene's applications.
func (sc *scene) planned(ctx context.Context) ([][]int32, error) {
	profile := workflows.Profile("card")
	in := planner.Inputs{Profile: profile, Workload: workflows.Workload(5*time.Minute, sc.Rates.rps),
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: "card", Count: sc.Devices, PerNode: 8, NICGbps: 100, Memory: document.Bytes(int64(sc.Gigabytes * 1e9))}}}}
	list := in.Workload.Section.(formats.Applications)
	for i := range list {
		list[i].RPS = 0
	}
	res, err := planner.Solve(ctx, in, planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", sc.Name, err)
	}
	out := make([][]int32, sc.Devices)
	section := formats.FlowOf(res.Plan)
	for i := range section.Modules {
		s := slices.IndexFunc(profile.Models, func(m formats.ProfileModel) bool { return m.Model == section.Modules[i].Model })
		for _, d := range section.Modules[i].Resident {
			out[d] = append(out[d], int32(s))
		}
	}
	return out, nil
}

// column is a policy in a scene that is changed.
type column struct {
	name, policy   string
	prior, planned bool
	foresight      bool
}

// columnsOfPrior are policies by what they know when a server starts: ours first, greedy on demand second.
var columnsOfPrior = []column{
	{"dyorc on a plan", "dyorc", true, true, false},
	{"greedy", "greedy", false, false, false},
	{"dyorc, ways known", "dyorc", true, false, false},
	{"dyorc, nothing known", "dyorc", false, false, false},
	{"greedy on a plan", "greedy", false, true, false},
	{"each way told, on a plan", "dyorc", true, true, true},
}

// of is a scene as a column has it.
func (k *column) of(sc *scene) *scene {
	out := *sc
	out.Prior, out.Planned, out.Foresight = k.prior, k.planned, k.foresight
	return &out
}

// fleetGroup is the scenes of one fleet, and the share of cold cost that a plan under dyorc has to hide.
type fleetGroup struct {
	where  string
	scenes []*scene
	asked  float64 // % hidden
}

// fleetGroups returns fleets from their first minute on, and when they have run for a while.
func fleetGroups() []fleetGroup {
	first := scenesOf([]row{{0, []float64{3}}, {1, []float64{1, 3}}, {-1, []float64{1, 3}}}, 8, 24)
	for _, sc := range first {
		sc.Minutes, sc.Warmup = 10, 0
	}
	return []fleetGroup{
		{"the first ten minutes, 32 devices with 40 GB", starts(), 50}, {"the first ten minutes, 8 devices with 24 GB", first, 50},
		{"from the fifth minute on, 32 devices with 40 GB", scenesOf([]row{{1, []float64{4, 12}}, {-1, []float64{4, 12}}}, 32, 40), 65},
		{"from the fifth minute on, 8 devices with 24 GB", scenesOf([]row{{1, []float64{1, 3}}, {-1, []float64{1, 3}}}, 8, 24), 65},
	}
}

// priorTable compares what loads cost, by what a server knows when it starts.
func priorTable(b *bench) error {
	for _, one := range fleetGroups() {
		head, rows := []string{one.where + " (u1)"}, make([][]string, len(one.scenes))
		sums := make([]float64, len(columnsOfPrior))
		for k := range columnsOfPrior {
			col := &columnsOfPrior[k]
			head = append(head, col.name)
			var scenes []*scene
			for _, sc := range one.scenes {
				scenes = append(scenes, col.of(sc))
			}
			costs, offered, err := b.costs(scenes, []string{col.policy})
			if err != nil {
				return err
			}
			for s := range scenes {
				if k == 0 {
					rows[s] = append(rows[s], fmt.Sprintf("%s (%.2f)", scenes[s].Name, offered[s]))
				}
				m, _ := interval(costs[s][0])
				sums[k] += m
				rows[s] = append(rows[s], fmt.Sprintf("%.1f", m))
			}
		}
		b.header(head...)
		for _, cells := range rows {
			b.line(cells...)
		}
		fmt.Fprintln(b.out)
		for k := range columnsOfPrior {
			f := figures.Figure{Claim: "cost of cold starts hidden against greedy on demand, " + columnsOfPrior[k].name + ", " + one.where, Source: "own", Asked: "shown",
				Measured: 100 * (1 - sums[k]/sums[onDemand]), Unit: "%"}
			switch k {
			case onDemand:
				continue
			case 0:
				f.Asked, f.Holds = fmt.Sprintf(">= %.0f %%", one.asked), figures.If(f.Measured >= one.asked)
			}
			b.claim(f)
		}
	}
	return nil
}

// onDemand is the column that the others are held against.
const onDemand = 1
