package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"

	"inferplan/bench/figures"
	"inferplan/policy"
	"inferplan/policy/reserve"
	"inferplan/sim"
)

// links compares, at the same plans under reserve, the highest load of every model
// beside the others: each pipeline with links of its own, and the cluster's network,
// where stages of several models share the NIC of a node.
func (b *bench) links(ctx context.Context, w *tabwriter.Writer) error {
	all, err := b.scenes("^maf19/", b.recorded())
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "case\tmodel\tlinks of its own\tshared NICs")
	var lost, capped mean
	least := math.Inf(1)
	for i := range all {
		var loads [2][]float64
		var names []string
		for k, network := range []policy.Topology{policy.TopologyStages, policy.TopologyNodes} {
			of, err := b.subject(ctx, &all[i], "PPipe", reserve.Name, network, process{name: "poisson", spec: poisson})
			if err != nil {
				return err
			}
			of.sc.Arrivals = poisson
			found, err := sim.FindModelLoads(ctx, of.sc, sim.ModelLoadSearch{Shares: slices.Repeat([]float64{asked}, len(of.sc.Tables.Models)), Runs: b.runs, Step: .01, MaxLoad: 1.5})
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			loads[k], names = found.Loads, names[:0]
			for m := range of.sc.Tables.Models {
				names = append(names, of.sc.Tables.Models[m].Name)
			}
		}
		for m, name := range names {
			lost.add(loads[0][m] - loads[1][m])
			capped.add(min(1, loads[0][m]) - min(1, loads[1][m]))
			if loads[0][m] > .96-1e-9 {
				least = math.Min(least, loads[1][m])
			}
			fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\n", all[i].name, name, loads[0][m], loads[1][m])
		}
		w.Flush()
	}
	fmt.Fprintf(w, "lost, mean of %d\t\t\t%.4f\nat most load 1\t\t\t%.4f\n", lost.n, lost.value(), capped.value())
	note := fmt.Sprintf("recorded plans, %d models at once, %d runs of %v", lost.n, b.runs, b.duration)
	b.measured = append(b.measured,
		figures.Figure{Claim: "highest load lost by shared NICs under reserve, mean of models", Source: "own", Asked: "at most .01", Measured: capped.value(), Holds: figures.If(capped.value() <= .01), Note: note + ", at most load 1"},
		figures.Figure{Claim: "highest load lost by shared NICs under reserve, loads beyond 1 too, mean of models", Source: "own", Asked: "at most .01", Measured: lost.value(), Holds: figures.If(lost.value() <= .01), Note: note},
		figures.Figure{Claim: "least load with shared NICs of models that have .96 without", Source: "own", Asked: "at least .93", Measured: least, Holds: figures.If(least > .93-1e-9), Note: note},
	)
	return nil
}
