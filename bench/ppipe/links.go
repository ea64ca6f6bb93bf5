package main

import (
	"context"
	"fmt"

	"inferplan/bench/instrument"
	"inferplan/bench/table"
	"inferplan/policy"
	"inferplan/policy/reserve"
)

// links compares, at the same plans under reserve, the highest load of every model
// beside the others: each pipeline with links of its own, and the cluster's network,
// where stages of several models share the NIC of a node.
func (b *bench) links(_ *instrument.Run, t *table.Table) error {
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
	b.state("highest load lost by shared NICs under reserve, mean of models", "own", "at most", .01, "", note+", at most load 1", mean(capped))
	b.state("highest load lost by shared NICs under reserve, loads beyond 1 too, mean of models", "own", "at most", .01, "", note, mean(lost))
	b.state("least load with shared NICs of models that have .96 without", "own", "at least", .93, "", note, least)
	return nil
}
