package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"inferplan/bench/instrument"
	"inferplan/engine/models"
	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
	"inferplan/planner/stages"
	"inferplan/profiler"
)

// The models of the catalogue that are measured stand first in it: the nine CNNs and OCR's detector and recogniser. In all, they
// have some 200 ranges.
const (
	pictures = 11
	ranges   = 19 // of a model
	seed     = 1  // of their choice and of weights
)

// ocrDims are the sizes at which the OCR models are measured, whose files leave
// them open.
var ocrDims = map[string]map[string][]int64{"ocr_det": {"": {1, 3, 320, 640}}, "ocr_rec": {"": {1, 3, 48, 320}}}

// bench holds flags.
type bench struct {
	models string
	rounds int
}

func main() {
	b := &bench{}
	columns := []string{"batch", "ranges", "estimate: median %", "p95 %", "bias %", "sum of blocks: median %", "p95 %"}
	instrument.Main(&instrument.Instrument{
		Name:  "ranges",
		Parts: []instrument.Part{{Name: "ranges", Title: "Times of ranges, estimated against measured", Columns: columns, Measure: b.ranges}},
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&b.models, "models", strings.Join(models.Names()[:pictures], ","), "models of the catalogue")
			f.IntVar(&b.rounds, "rounds", 11, "samples of every time")
		},
		Begin: func(*instrument.Run) error {
			if b.rounds < 3 {
				return instrument.Usagef("-rounds: found %d, expected at least 3", b.rounds)
			}
			return nil
		},
	})
}

// ranges measures the models one after the other.
func (b *bench) ranges(r *instrument.Run, t *instrument.Table) error {
	if err := os.MkdirAll(r.Folder, 0o755); err != nil {
		return fmt.Errorf("making the folder of results: %w", err)
	}
	profile, err := b.measure(r.Ctx, filepath.Join(r.Folder, "ranges.json"), r.Log)
	if err != nil {
		return err
	}
	list, err := compare(profile)
	if err != nil {
		return err
	}
	report(r, t, list)
	return nil
}

// drawn returns n random ranges of a model of so many blocks: two or more blocks, but
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

// measure extends the profile in a file by random ranges of the models, each in at most its part of an hour.
func (b *bench) measure(ctx context.Context, path string, log io.Writer) (p *formats.Profile, err error) {
	dir, err := os.MkdirTemp("", "inferplan-ranges-")
	if err != nil {
		return nil, fmt.Errorf("a folder for models: %w", err)
	}
	defer os.RemoveAll(dir)
	engine, err := ort.Open("")
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	names := strings.Split(b.models, ",")
	for _, name := range names {
		paths, err := models.Write(dir, seed, name)
		if err != nil {
			return nil, err
		}
		dims := map[string]map[string][]int64{}
		if sizes := ocrDims[name]; sizes != nil {
			dims[name] = sizes
		}
		p, err = profiler.Run(ctx, profiler.Options{
			Models: paths, Device: "cpu", Batches: []int{1, 2, 4}, Engine: engine, Seed: seed, Dims: dims, FP16Samples: -1, OutPath: path,
			Budget: time.Hour / time.Duration(len(names)), Precision: profiler.Precision{HalfWidth: 0.01, MinRounds: b.rounds, MaxRounds: b.rounds},
			Ranges: profiler.Ranges{List: func(m *formats.ProfileModel, _ string, _, _ int) [][2]int {
				return drawn(m.Model, len(m.Blocks), ranges, seed)
			}},
			Progress: func(e profiler.Event) {
				if e.Stage == profiler.StageMeasured || e.Stage == profiler.StageWarning {
					fmt.Fprintf(log, "%s batch %d %s\n", e.Model, e.Batch, e.Text)
				}
			},
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return p, nil
}

// rangeErrors are the relative errors of the time of a range: of the estimate, and of the sum of its blocks.
type rangeErrors struct {
	batch         int
	estimate, sum float64
}

// compare estimates every measured range from the blocks and the whole alone, in CPU
// time.
func compare(p *formats.Profile) ([]rangeErrors, error) {
	cpu := p.WithTimes(func(int, *formats.Measurement) func(*formats.Latency) {
		return func(l *formats.Latency) { l.WallUS = l.CPUUS }
	})
	var out []rangeErrors
	for i := range cpu.Models {
		m := &cpu.Models[i]
		var measured [][]formats.RangeLatency
		for k := range m.Measurements {
			measured = append(measured, m.Measurements[k].Ranges)
			m.Measurements[k].Ranges = nil
		}
		costs, err := stages.MeasuredCosts(m, []formats.Pool{{Device: p.Devices[0].Device, MaxShares: 1}}, 0, "", "")
		if err != nil {
			return nil, err
		}
		for k := range m.Measurements {
			batch := &m.Measurements[k]
			for _, r := range measured[k] {
				took, sum := float64(r.Latency.CPUUS), document.Micros(0)
				for _, block := range batch.Blocks[r.Blocks[0]:r.Blocks[1]] {
					sum += block.WallUS
				}
				estimate := document.Micros(stages.MaxTime(&costs[0][0], batch.Batch, r.Blocks[0], r.Blocks[1]))
				out = append(out, rangeErrors{batch.Batch, float64(estimate)/took - 1, float64(sum)/took - 1})
			}
		}
	}
	return out, nil
}

// report adds a row and the figures of each batch size.
func report(r *instrument.Run, t *instrument.Table, list []rangeErrors) {
	slices.SortStableFunc(list, func(a, b rangeErrors) int { return a.batch - b.batch })
	for rest := list; len(rest) > 0; {
		var estimates, sums, bias []float64
		batch, n := rest[0].batch, 0
		for ; n < len(rest) && rest[n].batch == batch; n++ {
			estimates, sums, bias = append(estimates, math.Abs(rest[n].estimate)), append(sums, math.Abs(rest[n].sum)), append(bias, rest[n].estimate)
		}
		rest = rest[n:]
		quantile := func(q float64, values []float64) float64 {
			return stat.Quantile(q, stat.Empirical, slices.Sorted(slices.Values(values)), nil)
		}
		percent := func(q float64, values []float64) string { return fmt.Sprintf("%.1f", 100*quantile(q, values)) }
		t.Add(batch, n, percent(.5, estimates), percent(.95, estimates), percent(.5, bias), percent(.5, sums), percent(.95, sums))
		claim := fmt.Sprintf("batch %d: %d random ranges, estimated against measured, ", batch, n)
		r.AtMost(claim+"median error", "CPU time, interleaved samples", 0.05, "share", quantile(.5, estimates))
		r.AtMost(claim+"95th percentile of the error", "CPU time, interleaved samples", 0.12, "share", quantile(.95, estimates))
	}
}
