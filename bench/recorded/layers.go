package recorded

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// ReadTable reads a CSV file's named columns, row by row.
func ReadTable(r io.Reader, names []string, row func(cell map[string]string) error) error {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("found no header")
	}
	for _, name := range names {
		if !slices.Contains(rows[0], name) {
			return fmt.Errorf("found the columns %v, expected one called %s", rows[0], name)
		}
	}
	for i, cells := range rows[1:] {
		cell := map[string]string{}
		for k, name := range rows[0] {
			cell[name] = cells[k]
		}
		if err := row(cell); err != nil {
			return fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	return nil
}

// Layered returns a profile whose blocks are layers. Only blocks were measured at
// every batch and share; each block's time is spread over its layers as their
// times at batch 1 on the whole device are to each other.
func Layered(data string, profile *formats.Profile) (*formats.Profile, error) {
	out := &formats.Profile{Format: profile.Format, Devices: profile.Devices, Notes: []string{"times of blocks spread over their layers"}}
	for i := range profile.Models {
		of := &profile.Models[i]
		name := "layer_profile_" + of.Model + ".csv"
		f, err := os.Open(filepath.Join(data, "ppipe", name))
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
	if err := ReadTable(r, columns, func(cell map[string]string) error {
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
