package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/planner/certify"
	"inferplan/planner/kind"
	"inferplan/sim"
	"inferplan/solver/highs"
	"inferplan/testkit/workflows"
)

// certified says how many of the splits that sustain most are certified.
const certified = 3

// solve plans an application with devices for models alone; auto: simulation chooses them.
func solve(ctx context.Context, a *workflows.RAG, dedicated string, margin any) (*formats.Plan, error) {
	options := planner.Options{Values: map[string]any{"dedicated": dedicated, "margin": margin}}
	res, err := planner.Solve(ctx, planner.Inputs{Profile: a.Profile(), Workload: a.Workload(), Cluster: a.Cluster()}, options, highs.Solver{}, nil)
	if err != nil {
		return nil, err
	}
	return res.Plan, nil
}

// partitions lists the ways to part models into groups. The first model of a group comes before those of later
// groups.
func partitions(models []string) (out [][][]string) {
	if len(models) == 0 {
		return [][][]string{nil}
	}
	last := models[len(models)-1]
	for _, groups := range partitions(models[:len(models)-1]) {
		for i := range groups {
			joined := slices.Clone(groups)
			joined[i] = append(slices.Clone(groups[i]), last)
			out = append(out, joined)
		}
		out = append(out, append(slices.Clone(groups), []string{last}))
	}
	return out
}

// shares lists the ways to give every one of so many groups some of the devices.
func shares(devices, groups int) (out [][]int) {
	if groups == 1 {
		return [][]int{{devices}}
	}
	for n := 1; n <= devices-groups+1; n++ {
		for _, rest := range shares(devices-n, groups-1) {
			out = append(out, append([]int{n}, rest...))
		}
	}
	return out
}

// others stands for all models of an application that are no language models.
const others = "embedder+reranker"

// splits lists every split of an application's devices, as the option dedicated has them. The group of the other
// models has the rest.
func splits(a *workflows.RAG) (out []string) {
	models := []string{others, "rewrite", "chat"}
	if a.Check.Output > 0 {
		models = append(models, "check")
	}
	for _, groups := range partitions(models) {
		for _, counts := range shares(a.Devices, len(groups)) {
			var entries []string
			for i, group := range groups[1:] {
				entries = append(entries, fmt.Sprintf("%s=%d", strings.Join(group, "+"), counts[i+1]))
			}
			out = append(out, strings.Join(entries, ","))
		}
	}
	return out
}

// split is a split with the rate that its plan sustains.
type split struct {
	dedicated string
	rate      float64
}

// best returns the best of all splits of an application, and how many there are: those that sustain most are certified.
func best(ctx context.Context, a *workflows.RAG) (out split, numSplits int, err error) {
	var list []split
	all := splits(a)
	for _, dedicated := range all {
		least := 0.0
		if len(list) >= certified {
			least = list[certified-1].rate
		}
		rate, err := sustained(ctx, a, dedicated, least)
		if err != nil {
			return out, 0, err
		}
		if rate == 0 {
			continue
		}
		list = append(list, split{dedicated, rate})
		slices.SortStableFunc(list, func(a, b split) int { return int(1e6 * (b.rate - a.rate)) })
		list = list[:min(len(list), certified)]
	}
	for _, s := range list {
		plan, err := solve(ctx, a, s.dedicated, planner.Auto)
		if _, infeasible := errors.AsType[*kind.InfeasibleError](err); infeasible {
			continue
		}
		if err != nil {
			return out, 0, err
		}
		if plan.Certificate != nil && plan.Objective.Value > out.rate {
			out = split{s.dedicated, plan.Objective.Value}
		}
	}
	return out, len(all), nil
}

// sustained returns the rate that a split sustains in short runs. If that is less than the least, it returns 0.
func sustained(ctx context.Context, a *workflows.RAG, dedicated string, least float64) (float64, error) {
	plan, err := solve(ctx, a, dedicated, .05)
	if _, infeasible := errors.AsType[*kind.InfeasibleError](err); infeasible {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	carried := plan.Objective.Value
	if carried < least {
		return 0, nil
	}
	test, err := certify.NewTest(plan, kind.TestSettings{})
	if err != nil {
		return 0, err
	}
	found, err := sim.FindModelLoads(ctx, test.Scenario, sim.ModelLoadSearch{Shares: test.Shares, Runs: 3, Step: certify.Step, MaxLoad: 1, SameLoad: true, MinLoads: []float64{least / carried}, StartLoads: []float64{.6}})
	if err != nil {
		return 0, fmt.Errorf("simulating: %w", err)
	}
	return found.Loads[0] * carried, nil
}
