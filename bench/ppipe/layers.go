package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"inferplan/formats"
	"inferplan/planner"
	"inferplan/solver/highs"
)

// granularity is where a model may be cut.
type granularity struct {
	name   string
	layers bool // the profile of layers, else that of the recorded blocks
	blocks int  // at most so many; 0: wherever the profile allows
	by     string
}

// granularities are held against the first.
func granularities() []granularity {
	out := []granularity{{name: "layers", layers: true}, {name: "the artifact's blocks"}}
	for _, n := range []int{5, 8, 10, 15, 20} {
		for _, by := range []string{"time", "bytes"} {
			out = append(out, granularity{name: fmt.Sprintf("%d by %s", n, by), layers: true, blocks: n, by: by})
		}
	}
	return out
}

// blocks shows what few blocks cost against cuts after any layer, for the
// models whose layers were measured.
func (b *bench) blocks(ctx context.Context, w *tabwriter.Writer) error {
	layered, err := b.layered()
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
	// The relaxation, which is exact, tells granularities apart; three partitions
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
		opt.Set("blocks-by", cmp.Or(g.by, "time"))
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

// grained is what a solve at a granularity came to.
type grained struct {
	Bound, Value, Gap float64 // of the relaxation; of the plan
	StoppedBy         string
}

// layered is a profile whose blocks are layers. Only blocks were measured at
// every batch and share; each block's time is spread over its layers as their
// times at batch 1 on the whole device are to each other.
func (b *records) layered() (*formats.Profile, error) {
	out := &formats.Profile{Format: b.profile.Format, Devices: b.profile.Devices, Notes: []string{"times of blocks spread over their layers"}}
	for i := range b.profile.Models {
		of := &b.profile.Models[i]
		name := "layer_profile_" + of.Model + ".csv"
		f, err := os.Open(filepath.Join(b.data, "ppipe", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // its layers were not measured
		}
		if err != nil {
			return nil, fmt.Errorf("opening layers: %w", err)
		}
		m, err := layersOf(f, of)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		out.Models = append(out.Models, *m)
	}
	return out, out.Validate()
}

// layersOf is a model with layers for blocks.
func layersOf(r io.Reader, of *formats.ProfileModel) (*formats.ProfileModel, error) {
	out := &formats.ProfileModel{Model: of.Model}
	devices := map[string]bool{}
	columns := []string{"layer", "block", "cut_bytes_fp16_batch1"}
	for _, m := range of.Measurements {
		if !devices[m.Device] {
			devices[m.Device] = true
			columns = append(columns, "latency_us_"+m.Device)
		}
	}
	last := -1
	first := []int{} // layers by block
	times := map[string][]float64{}
	if err := readTable(r, columns, func(cell map[string]string) error {
		block, err := strconv.Atoi(cell["block"])
		if err != nil || block < last || block > last+1 || block >= len(of.Blocks) {
			return fmt.Errorf("block: found %q after %d, expected that or the next of %d", cell["block"], last, len(of.Blocks))
		}
		if block > last {
			first, last = append(first, len(out.Blocks)), block
		}
		bytes, err := strconv.ParseInt(cell["cut_bytes_fp16_batch1"], 10, 64)
		if err != nil || bytes < 0 {
			return fmt.Errorf("cut_bytes_fp16_batch1: found %q, expected a count of bytes", cell["cut_bytes_fp16_batch1"])
		}
		for _, column := range columns[3:] {
			us, err := strconv.ParseFloat(cell[column], 64)
			if err != nil || !(us > 0) || math.IsInf(us, 0) {
				return fmt.Errorf("%s: found %q, expected a time", column, cell[column])
			}
			device := strings.TrimPrefix(column, "latency_us_")
			times[device] = append(times[device], us)
		}
		out.Blocks = append(out.Blocks, formats.Block{Name: cell["layer"], CutBytesFP16: formats.CutBytes(bytes)})
		return nil
	}); err != nil {
		return nil, err
	}
	if len(first) != len(of.Blocks) {
		return nil, fmt.Errorf("found layers of %d blocks, expected %d", len(first), len(of.Blocks))
	}
	out.Blocks[len(out.Blocks)-1].CutBytesFP16 = 0 // nothing crosses the end
	first = append(first, len(out.Blocks))
	for i, block := range of.Blocks {
		if got := out.Blocks[first[i+1]-1].CutBytesFP16; got != block.CutBytesFP16 {
			return nil, fmt.Errorf("%d bytes cross the cut after the layers of block %d, %d that after the block", got, i, block.CutBytesFP16)
		}
	}
	for _, m := range of.Measurements {
		row := formats.Measurement{Device: m.Device, Share: m.Share, Batch: m.Batch}
		for i, block := range m.Blocks {
			for _, t := range spread(block.WallUS, times[m.Device][first[i]:first[i+1]]) {
				row.Blocks = append(row.Blocks, formats.Latency{WallUS: t})
			}
		}
		out.Measurements = append(out.Measurements, row)
	}
	return out, nil
}

// spread parts a whole by weights, none below a microsecond, which a planner
// takes a block to cost at least: so layers cost what their block does.
func spread(whole formats.Micros, weights []float64) []formats.Micros {
	const least = float64(time.Microsecond)
	left, sum := float64(whole), 0.0
	for _, v := range weights {
		sum += v
	}
	raised := make([]bool, len(weights))
	for again := true; again; {
		again = false
		for i, v := range weights {
			if !raised[i] && v/sum*left < least {
				raised[i], again = true, true
				left, sum = left-least, sum-v
			}
		}
	}
	out := make([]formats.Micros, len(weights))
	at, done := 0.0, formats.Micros(0)
	for i, v := range weights {
		if raised[i] {
			at += least
		} else {
			at += v / sum * left
		}
		out[i] = formats.Micros(math.Round(at)) - done
		done += out[i]
	}
	return out
}
