package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"inferplan/formats/csvfile"
)

// profile is a model's latency by measured batch, in milliseconds.
type profile struct {
	batches []int
	ms      []float64
}

// profiles reads the measured latencies of the three sources.
type profiles map[string]*profile

func readProfiles(dir string) (profiles, error) {
	out := profiles{}
	for _, f := range []struct {
		file, prefix, model, ms string
		keep                    func(cell func(string) string) bool
	}{
		{"proteus_variants.csv", "proteus/", "model", "p50_ms", func(c func(string) string) bool { return c("accel") == "onnxruntime_gpu_pascal" }},
		{"loki_pipeline_runtimes.csv", "loki/", "model", "p50_ms", func(func(string) string) bool { return true }},
		{"nexus_vgg_titanx.csv", "nexus/", "model", "latency_ms", func(func(string) string) bool { return true }},
	} {
		err := readRows(filepath.Join(dir, "dnn-profiles", f.file), func(cell func(string) string) error {
			if !f.keep(cell) {
				return nil
			}
			batch, err := strconv.Atoi(cell("batch"))
			if err != nil || cell(f.ms) == "" {
				return err
			}
			ms, err := strconv.ParseFloat(cell(f.ms), 64)
			if err != nil {
				return err
			}
			name := f.prefix + cell(f.model)
			if out[name] == nil {
				out[name] = &profile{}
			}
			out[name].batches, out[name].ms = append(out[name].batches, batch), append(out[name].ms, ms)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range out {
		p.sort()
	}
	return out, nil
}

// sort orders by batch and makes the times non-decreasing.
func (p *profile) sort() {
	at := make([]int, len(p.batches))
	for i := range at {
		at[i] = i
	}
	slices.SortFunc(at, func(a, b int) int { return p.batches[a] - p.batches[b] })
	batches, ms := make([]int, len(at)), make([]float64, len(at))
	for i, k := range at {
		batches[i], ms[i] = p.batches[k], p.ms[k]
		if i > 0 {
			ms[i] = max(ms[i], ms[i-1])
		}
	}
	p.batches, p.ms = batches, ms
}

// at is the time of a batch, linear between the measured ones.
func (p *profile) at(batch int) float64 {
	i, ok := slices.BinarySearch(p.batches, batch)
	switch {
	case ok:
		return p.ms[i]
	case i == 0:
		return p.ms[0]
	case i == len(p.batches):
		return math.NaN()
	}
	share := float64(batch-p.batches[i-1]) / float64(p.batches[i]-p.batches[i-1])
	return p.ms[i-1] + share*(p.ms[i]-p.ms[i-1])
}

// times returns a model's times by batch, up to 32. If there is no model of the name, it returns nil.
func (p profiles) times(name string) (ms []float64) {
	prof := p[name]
	if prof == nil {
		prof = p[name+"_checkpoint_150epochs"]
	}
	for b := 1; prof != nil && b <= 32; b++ {
		if x := prof.at(b); !math.IsNaN(x) {
			ms = append(ms, x)
		}
	}
	return ms
}

// readRows reads a CSV file row by row.
func readRows(path string, row func(cell func(string) string) error) error {
	f, err := csvfile.Open(path)
	if err != nil {
		return fmt.Errorf("reading measurements (-data or INFERPLAN_DATA): %w", err)
	}
	defer f.Close()
	t, err := csvfile.NewTable(f)
	if err != nil {
		return err
	}
	for {
		if err := t.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		cell := func(name string) string {
			if i := slices.Index(t.Header, name); i >= 0 {
				return t.Row[i]
			}
			return ""
		}
		if err := row(cell); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}
