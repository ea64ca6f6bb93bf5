package blocks

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

var (
	latencyHeader = []string{"model", "gpu", "vgpu_denominator", "block", "batch", "latency_us"}
	cutHeader     = []string{"model", "after_block", "bytes_fp16_batch1"}
)

// table reads a CSV file whose header must be exactly this one, and calls row for each of its rows.
func table(r io.Reader, name string, header []string, row func(t *csvfile.Table) error) error {
	t, err := csvfile.ReadTable(r, name)
	if err != nil {
		return err
	}
	if err := t.Expect(header...); err != nil {
		return err
	}
	return t.EachRow(func() error { return row(t) })
}

type measurementKey struct {
	device       string
	share, batch int
}

type model struct {
	name     string
	points   []measurementKey // points in order of appearance
	cost     map[measurementKey]map[int]document.Micros
	cutBytes map[int]int64
	blocks   int
}

// Limits of the memory that a file can make us allocate, and of the bytes at a cut.
const (
	maxBlocks = 100_000
	maxBytes  = 1 << 50
)

// Read makes a profile of the named models, in that order. If no model is named, it takes all models of the latency
// file in order of appearance. source says where the numbers are from. latency is a CSV file of block latencies in
// microseconds by device, share and batch size, and cutsReader one of the bytes that cross the cut after each block.
// The names of the files are for errors.
func Read(latency io.Reader, latencyName string, cutsReader io.Reader, cutsName string, models []string, source string) (*formats.Profile, error) {
	byName := map[string]*model{}
	var names []string
	var devices []string
	seenNames := map[string]bool{}
	isWanted := func(name string) bool { return len(models) == 0 || slices.Contains(models, name) }

	// Read the latencies.
	err := table(latency, latencyName, latencyHeader, func(t *csvfile.Table) error {
		name, device := t.Text("model"), t.Text("gpu")
		seenNames[name] = true
		if !isWanted(name) {
			return nil
		}
		m := byName[name]
		if m == nil {
			m = &model{name: name, cost: map[measurementKey]map[int]document.Micros{}, cutBytes: map[int]int64{}}
			byName[name] = m
			names = append(names, name)
		}
		p := measurementKey{device, t.WholeNumber("vgpu_denominator", 1, 1024), t.WholeNumber("batch", 1, 1<<20)}
		block := t.WholeNumber("block", 0, maxBlocks-1)
		latency, err := document.RoundMicros(t.Row[5])
		if err != nil || latency < 0 {
			return t.CellError(5, "microseconds, not negative")
		}
		if m.cost[p] == nil {
			m.cost[p] = map[int]document.Micros{}
			m.points = append(m.points, p)
		}
		if _, isDuplicate := m.cost[p][block]; isDuplicate {
			return t.Fail(3, "block", fmt.Sprintf("block %d of %s on %s 1/%d at batch %d again", block, m.name, p.device, p.share, p.batch), "each once")
		}
		m.cost[p][block] = latency
		m.blocks = max(m.blocks, block+1)
		if !slices.Contains(devices, device) {
			devices = append(devices, device)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	// Read the bytes at the cuts.
	err = table(cutsReader, cutsName, cutHeader, func(t *csvfile.Table) error {
		m := byName[t.Text("model")]
		if m == nil {
			return nil // a model that is not imported
		}
		block := t.WholeNumber("after_block", 0, maxBlocks-1)
		if _, isDuplicate := m.cutBytes[block]; isDuplicate {
			return t.Fail(1, "after_block", fmt.Sprintf("the cut of %s after block %d again", m.name, block), "each once")
		}
		m.cutBytes[block] = int64(t.WholeNumber("bytes_fp16_batch1", 0, maxBytes))
		return nil
	})
	if err != nil {
		return nil, err
	}

	// Make the profile.
	if len(models) > 0 {
		names = models
	}
	p := &formats.Profile{Format: "inferplan.profile/v1"}
	for _, d := range devices {
		p.Devices = append(p.Devices, formats.ProfileDevice{Device: d, Engine: "imported", Source: source})
	}
	for _, name := range names {
		m := byName[name]
		if m == nil {
			return nil, &document.Error{File: latencyName, Path: "model", Found: "no row of " + strconv.Quote(name), Expected: "latencies of every model asked for", Hint: "the models there: " + strings.Join(slices.Sorted(maps.Keys(seenNames)), ", ")}
		}
		pm, err := m.profile(latencyName, cutsName)
		if err != nil {
			return nil, err
		}
		p.Models = append(p.Models, *pm)
	}
	return p, p.Validate()
}

// profile returns the profile of a model whose rows were read: the cut after every block but the last, and at
// every measured point (device kind, share, batch size) the latency of each block. A missing cut or latency is an
// error that names the file that lacks it.
func (m *model) profile(latencyName, cutsName string) (*formats.ProfileModel, error) {
	pm := &formats.ProfileModel{Model: m.name}
	for b := range m.blocks {
		block := formats.Block{Name: strconv.Itoa(b)}
		if b < m.blocks-1 {
			n, ok := m.cutBytes[b]
			if !ok {
				return nil, &document.Error{File: cutsName, Path: "after_block", Found: fmt.Sprintf("no cut of %s after block %d", m.name, b), Expected: fmt.Sprintf("one after each of blocks 0 to %d", m.blocks-2)}
			}
			block.CutBytesFP16 = formats.KnownCut(n)
		}
		pm.Blocks = append(pm.Blocks, block)
	}
	for _, p := range m.points {
		row := formats.Measurement{Device: p.device, Share: p.share, Batch: p.batch}
		for b := range m.blocks {
			latency, ok := m.cost[p][b]
			if !ok {
				return nil, &document.Error{File: latencyName, Path: "block", Found: fmt.Sprintf("no latency of %s block %d on %s 1/%d at batch %d", m.name, b, p.device, p.share, p.batch), Expected: fmt.Sprintf("all blocks 0 to %d", m.blocks-1)}
			}
			row.Blocks = append(row.Blocks, formats.Latency{WallUS: latency})
		}
		pm.Measurements = append(pm.Measurements, row)
	}
	return pm, nil
}
