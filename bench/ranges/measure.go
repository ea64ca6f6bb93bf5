package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/seeded"
	"inferplan/profiler"
)

// ocrDims are the sizes at which the OCR models are measured, whose files leave
// them open.
var ocrDims = map[string]map[string][]int64{"ocr_det": {"": {1, 3, 320, 640}}, "ocr_rec": {"": {1, 3, 48, 320}}}

// drawn are n random ranges of a model of so many blocks: two or more blocks, but
// not all.
func drawn(model string, blocks, n int, seed uint64) [][2]int {
	var all [][2]int
	for i := range blocks {
		for j := i + 2; j <= blocks; j++ {
			if j-i < blocks {
				all = append(all, [2]int{i, j})
			}
		}
	}
	r := seeded.New(seed, "ranges of "+model)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// measure extends the profile in a file by random ranges of the named models.
func measure(ctx context.Context, o *options, log io.Writer) (*formats.Profile, error) {
	dir, err := os.MkdirTemp("", "inferplan-ranges-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	eng, err := ort.Open("")
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	each := (o.ranges + len(o.models) - 1) / len(o.models)
	var p *formats.Profile
	for _, name := range o.models {
		paths, err := models.Write(dir, o.seed, name)
		if err != nil {
			return nil, err
		}
		p, err = profiler.Run(ctx, profiler.Options{
			Models: paths, Device: "cpu", Batches: o.batches, Engine: eng, Seed: o.seed, Dims: ocrDims, FP16Samples: -1, OutPath: o.out,
			Budget: o.budget / time.Duration(len(o.models)), Precision: profiler.Precision{HalfWidth: 0.01, MinRounds: o.rounds, MaxRounds: o.rounds},
			Ranges: profiler.Ranges{List: func(m *formats.ProfileModel, _ string, _, _ int) [][2]int {
				return drawn(m.Model, len(m.Blocks), each, o.seed)
			}},
			Progress: func(e profiler.Event) {
				if slices.Contains([]profiler.Stage{profiler.StageMeasured, profiler.StageWarning}, e.Stage) {
					fmt.Fprintf(log, "%s batch %d %s\n", e.Model, e.Batch, e.Text)
				}
			},
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		os.Remove(paths[0])
	}
	return p, nil
}
