package main

import (
	"context"
	"fmt"

	"inferplan/bench/instrument"
	"inferplan/bench/recorded"
	"inferplan/bench/table"
)

// granularities are the places where a model may be cut: numbers of blocks of layers; all layers are 0, the blocks of the artifact -1.
// They are held against the first.
var granularities = []int{0, -1, 5, 8, 10, 15, 20}

// granularityName returns the name of a granularity.
func granularityName(blocks int) string {
	switch blocks {
	case 0:
		return "layers"
	case -1:
		return "the artifact's blocks"
	}
	return fmt.Sprint(blocks)
}

// blocks shows what few blocks cost against cuts after any layer, for the
// models whose layers were measured, in up to two or three partitions.
func (b *bench) blocks(r *instrument.Run, t *table.Table) error {
	layered, err := recorded.Layered(r.Data, b.profile)
	if err != nil {
		return err
	}
	var names []string
	for i := range layered.Models {
		names = append(names, layered.Models[i].Model)
	}
	var all []scene
	for _, cluster := range clusters {
		for _, partitions := range []string{"2", "3"} {
			all = append(all, b.made("layers/"+cluster+"/all/"+partitions, partitions, "", cluster, names, []float64{1, 1, 1}, standard))
			for _, name := range names {
				all = append(all, b.made("layers/"+cluster+"/"+name+"/"+partitions, partitions, "", cluster, []string{name}, []float64{1}, standard))
			}
		}
	}
	if all, err = b.scenes("^layers/HC[23]/all/", all); err != nil {
		return err
	}
	for i := range all {
		s := &all[i]
		in, opt, err := s.inputs(r.Ctx, "PPipe")
		if err != nil {
			return err
		}
		// The relaxation, which is exact, distinguishes granularities; three partitions
		// over thousands of layers take minutes for a closer plan.
		opt.Set("max-partitions", 2)
		opt.Set("gap", 5e-3)
		if s.family == "3" {
			opt.Set("max-partitions", 3)
			opt.Set("gap", 2e-2)
		}
		rows := make([]*solution, len(granularities))
		if err := r.ForEach(len(rows), func(ctx context.Context, i int) (err error) {
			in, opt := in, opt
			if opt.Set("blocks", max(0, granularities[i])); granularities[i] >= 0 {
				in.Profile = layered
			}
			rows[i], err = b.solve(ctx, s.name+" "+granularityName(granularities[i]), in, opt)
			return err
		}); err != nil {
			return err
		}
		for i, row := range rows {
			o, layers := &row.Plan.Objective, rows[0]
			t.Add(s.name, granularityName(granularities[i]), fmt.Sprintf("%.2f", row.Relaxation), fmt.Sprintf("%+.2f %%", 100*(row.Relaxation/layers.Relaxation-1)),
				fmt.Sprintf("%.2f", o.Value), fmt.Sprintf("%+.2f %%", 100*(o.Value/layers.Plan.Objective.Value-1)), fmt.Sprintf("%.2f %%", 100**o.Gap), row.Plan.StoppedBy)
		}
	}
	return nil
}
