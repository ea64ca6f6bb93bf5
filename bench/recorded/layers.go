package recorded

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// Layered returns a profile whose blocks are layers. Only blocks were measured at
// every batch and share; each block's time is spread over its layers as their
// times at batch 1 on the whole device are to each other.
func Layered(data string, profile *formats.Profile) (*formats.Profile, error) {
	out := &formats.Profile{Format: profile.Format, Devices: profile.Devices, Notes: []string{"times of blocks spread over their layers"}}
	for i := range profile.Models {
		of := &profile.Models[i]
		t, err := csvfile.OpenTable(filepath.Join(data, "ppipe", "layer_profile_"+of.Model+".csv"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // its layers were not measured
		}
		if err != nil {
			return nil, fmt.Errorf("opening layers: %w", err)
		}
		m, err := layersOf(t, of)
		if err := errors.Join(err, t.Close()); err != nil {
			return nil, fmt.Errorf("layers of %s: %w", of.Model, err)
		}
		out.Models = append(out.Models, *m)
	}
	return out, out.Validate()
}

// layersOf is a model with layers for blocks.
func layersOf(t *csvfile.Table, of *formats.ProfileModel) (*formats.ProfileModel, error) {
	out := &formats.ProfileModel{Model: of.Model}
	times := map[string][]float64{} // by device and layer
	for _, m := range of.Measurements {
		times[m.Device] = nil
	}
	last := -1
	first := []int{} // layers by block
	if err := t.EachRow(func() error {
		block := t.WholeNumber("block", max(0, last), min(last+1, len(of.Blocks)-1))
		if block > last {
			first, last = append(first, len(out.Blocks)), block
		}
		for device := range times {
			times[device] = append(times[device], t.Number("latency_us_"+device, 1e-9, 1e9))
		}
		out.Blocks = append(out.Blocks, formats.Block{Name: t.Text("layer"), CutBytesFP16: formats.CutBytes(t.WholeNumber("cut_bytes_fp16_batch1", 0, math.MaxInt))})
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
func spread(whole document.Micros, weights []float64) []document.Micros {
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
	out := make([]document.Micros, len(weights))
	at, done := 0.0, document.Micros(0)
	for i, v := range weights {
		if raised[i] {
			at += least
		} else {
			at += v / sum * left
		}
		out[i] = document.Micros(math.Round(at)) - done
		done += out[i]
	}
	return out
}
