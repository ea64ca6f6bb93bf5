package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"inferplan/bench/instrument"
	"inferplan/bench/ppipe/reactive"
	"inferplan/policy"
	"inferplan/policy/reserve"
)

// transfer compares reserving links with reacting to what arrives.
func (b *bench) transfer(_ *instrument.Run, t *instrument.Table) error {
	scenes, err := b.scenes("^ablation/", b.recorded(algorithms...))
	if err != nil {
		return err
	}
	policies := []string{reserve.Name, reactive.Name}
	rows, loads := make([][]any, len(scenes)*len(policies)), make([]float64, len(scenes)*len(policies))
	if err := b.ForEach(len(rows), func(ctx context.Context, i int) error {
		s, err := b.subject(ctx, &scenes[i/len(policies)], "PPipe", manner{policies[i%len(policies)], policy.TopologyNodes}, poisson)
		if err != nil {
			return err
		}
		f, err := s.find(ctx)
		if err != nil {
			return err
		}
		loads[i] = slices.Min(slices.Collect(maps.Values(f.loads)))
		p, err := s.simulate(ctx, everyone, gridSteps*9/10)
		if err != nil {
			return err
		}
		n := p.Transfers[0]
		rows[i] = []any{scenes[i/len(policies)].name, policies[i%len(policies)], fmt.Sprintf("%.2f", loads[i]), fmt.Sprintf("%.0f", n), fmt.Sprintf("%.2f", p.Transfers[1]/max(n, 1)), fmt.Sprintf("%.2f", p.Transfers[2]/max(n, 1))}
		return nil
	}); err != nil {
		return err
	}
	for i := range rows {
		t.Add(rows[i]...)
	}
	for k, name := range policies {
		sum := 0.0
		for i := k; i < len(loads); i += len(policies) {
			sum += loads[i]
		}
		t.Note("%s: highest load %.3f, mean of %d", name, sum/float64(len(scenes)), len(scenes))
	}
	return nil
}

// links compares, at the same plans under reserve, the highest load of every model
// beside the others: each pipeline with links of its own, and the cluster's network,
// where stages of several models share the NIC of a node.
func (b *bench) links(_ *instrument.Run, t *instrument.Table) error {
	scenes, err := b.scenes("^maf19/", b.recorded(algorithms...))
	if err != nil {
		return err
	}
	networks := []policy.Topology{policy.TopologyStages, policy.TopologyNodes}
	loads, names := make([][]float64, 2*len(scenes)), make([][]string, len(scenes))
	if err := b.ForEach(len(loads), func(ctx context.Context, i int) error {
		s, err := b.subject(ctx, &scenes[i/2], "PPipe", manner{reserve.Name, networks[i%2]}, poisson)
		if err != nil {
			return err
		}
		if i%2 == 0 {
			for m := range s.sc.Tables.Models {
				names[i/2] = append(names[i/2], s.sc.Tables.Models[m].Name)
			}
		}
		loads[i], err = s.modelLoads(ctx, .01)
		return err
	}); err != nil {
		return err
	}
	var lost, capped []float64
	least := 1.5
	for i := range scenes {
		for m, name := range names[i] {
			alone, shared := loads[2*i][m], loads[2*i+1][m]
			lost, capped = append(lost, alone-shared), append(capped, min(1, alone)-min(1, shared))
			if alone > .96-1e-9 {
				least = min(least, shared)
			}
			t.Add(scenes[i].name, name, fmt.Sprintf("%.2f", alone), fmt.Sprintf("%.2f", shared))
		}
	}
	note := fmt.Sprintf("recorded plans, %d models at once, %d runs of %v", len(lost), b.runs, b.duration)
	b.AtMost("highest load lost by shared NICs under reserve, mean of models", "own", .01, "", mean(capped)).Note = note + ", at most load 1"
	b.AtMost("highest load lost by shared NICs under reserve, loads beyond 1 too, mean of models", "own", .01, "", mean(lost)).Note = note
	b.AtLeast("least load with shared NICs of models that have .96 without", "own", .93, "", least).Note = note
	return nil
}
