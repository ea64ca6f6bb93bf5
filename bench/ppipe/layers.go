package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"inferplan/bench/recorded"
	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// granularity is where a model may be cut.
type granularity struct {
	name   string
	layers bool // the profile of layers, else that of the recorded blocks
	blocks int  // at most so many; 0 if the profile alone limits them
}

// granularities are held against the first.
func granularities() []granularity {
	out := []granularity{{name: "layers", layers: true}, {name: "the artifact's blocks"}}
	for _, n := range []int{5, 8, 10, 15, 20} {
		out = append(out, granularity{name: fmt.Sprint(n), layers: true, blocks: n})
	}
	return out
}

// blocks shows what few blocks cost against cuts after any layer, for the
// models whose layers were measured.
func (b *bench) blocks(ctx context.Context, w *tabwriter.Writer) error {
	layered, err := recorded.Layered(b.data, b.profile)
	if err != nil {
		return err
	}
	var names []string
	for i := range layered.Models {
		names = append(names, layered.Models[i].Model)
	}
	matches, err := b.matcher("^layers/HC[23]/all/")
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "case\tcuts between\tLP bound\tagainst layers\tplan\tagainst layers\tgap\tstopped by")
	found := false
	for _, cluster := range sortedKeys(setups) {
		for i, set := range append([]string{"all"}, names...) {
			models := names
			if i > 0 {
				models = []string{set}
			}
			for _, partitions := range []int{2, 3} {
				if name := fmt.Sprintf("layers/%s/%s/%d", cluster, set, partitions); matches(name) {
					found = true
					if err := blocksOf(b, ctx, w, name, cluster, models, partitions, layered); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
			}
		}
	}
	if !found {
		return fmt.Errorf("no case of the table matches -cases %s; a case is layers/, a cluster, all or one of %s, and 2 or 3 partitions, such as layers/HC2/all/2", b.cases, strings.Join(names, ", "))
	}
	return nil
}

func blocksOf(b *bench, ctx context.Context, w *tabwriter.Writer, name, cluster string, models []string, partitions int, layered *formats.Profile) error {
	weights := make([]float64, len(models))
	for i := range weights {
		weights[i] = 1
	}
	in, opt, err := b.made(name, "layers", "", cluster, models, weights, standard).inputs(ctx)
	if err != nil {
		return err
	}
	// The relaxation, which is exact, distinguishes granularities; three partitions
	// over thousands of layers take minutes for a closer plan.
	opt.Set("max-partitions", partitions)
	opt.Set("gap", 5e-3)
	if partitions > 2 {
		opt.Set("gap", 2e-2)
	}
	cuts := granularities()
	rows := make([]grained, len(cuts))
	if err := each(ctx, len(cuts), func(ctx context.Context, i int) (err error) {
		g, in, opt := &cuts[i], in, opt
		opt.Set("blocks", g.blocks)
		if in.Profile = b.profile; g.layers {
			in.Profile = layered
		}
		rows[i], err = keep(b.store, keyOf("blocks", in.Profile, in.Cluster, in.Workload, fmt.Sprintf("%+v", opt)), func() (grained, error) {
			res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
			if err != nil {
				return grained{}, err
			}
			return grained{res.Phases[0].Bound, res.Plan.Objective.Value, *res.Plan.Objective.Gap, res.StoppedBy}, ctx.Err()
		})
		return err
	}); err != nil {
		return err
	}
	for i, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%+.2f %%\t%.2f\t%+.2f %%\t%.2f %%\t%s\n", name, cuts[i].name, r.Bound, 100*(r.Bound/rows[0].Bound-1), r.Value, 100*(r.Value/rows[0].Value-1), 100*r.Gap, r.StoppedBy)
	}
	return w.Flush()
}

// grained holds the results of a solve at a granularity.
type grained struct {
	Bound, Value, Gap float64 // of the relaxation; of the plan
	StoppedBy         string
}
