package blocks

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/csvfile"
)

var (
	latencyHeader = []string{"model", "gpu", "vgpu_denominator", "block", "batch", "latency_us"}
	cutHeader     = []string{"model", "after_block", "bytes_fp16_batch1"}
)

// table reads a CSV file with a fixed header and hands each row to add. Errors
// of add are wrapped with file and line.
func table(r io.Reader, name string, header []string, add func(row []string) error) error {
	f, err := csvfile.New(r, name)
	if err != nil {
		return err
	}
	t, err := csvfile.NewTable(f)
	if err != nil {
		return err
	}
	if err := t.Expect(header...); err != nil {
		return err
	}
	for {
		err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := add(t.Row); err != nil {
			var bad *formats.Error
			if errors.As(err, &bad) {
				at := t.Fail(max(0, slices.Index(header, bad.Path)), bad.Path, bad.Found, bad.Expected)
				bad.File, bad.Line, bad.Column = at.File, at.Line, at.Column
			}
			return err
		}
	}
}

func whole(field, text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, &formats.Error{Path: field, Found: strconv.Quote(text), Expected: fmt.Sprintf("a whole number from %d to %d", least, most)}
	}
	return n, nil
}

type point struct {
	device       string
	share, batch int
}

type model struct {
	name   string
	points []point // in order of appearance
	cost   map[point]map[int]formats.Micros
	cuts   map[int]int64
	blocks int
}

// maxBlocks bounds what a file may ask us to hold.
const maxBlocks = 100_000

// Read makes a profile of the named models, in that order, or of all models of
// the latency file in order of appearance when none is named. source says where
// the numbers come from.
func Read(latency io.Reader, latencyName string, cuts io.Reader, cutsName string, models []string, source string) (*formats.Profile, error) {
	byName := map[string]*model{}
	var order []string
	var devices []string
	seen := map[string]bool{}
	wanted := func(name string) bool { return len(models) == 0 || slices.Contains(models, name) }

	err := table(latency, latencyName, latencyHeader, func(row []string) error {
		seen[row[0]] = true
		if !wanted(row[0]) {
			return nil
		}
		m := byName[row[0]]
		if m == nil {
			m = &model{name: row[0], cost: map[point]map[int]formats.Micros{}, cuts: map[int]int64{}}
			byName[row[0]] = m
			order = append(order, row[0])
		}
		share, err := whole("vgpu_denominator", row[2], 1, 1024)
		if err != nil {
			return err
		}
		block, err := whole("block", row[3], 0, maxBlocks-1)
		if err != nil {
			return err
		}
		batch, err := whole("batch", row[4], 1, 1<<20)
		if err != nil {
			return err
		}
		us, err := formats.ParseMicros(row[5])
		if err != nil || us < 0 {
			return &formats.Error{Path: "latency_us", Found: strconv.Quote(row[5]), Expected: "microseconds, not negative, at most three decimals"}
		}
		p := point{row[1], share, batch}
		if m.cost[p] == nil {
			m.cost[p] = map[int]formats.Micros{}
			m.points = append(m.points, p)
		}
		if _, twice := m.cost[p][block]; twice {
			return &formats.Error{Path: "block", Found: fmt.Sprintf("block %d of %s on %s 1/%d at batch %d again", block, m.name, p.device, share, batch), Expected: "each once"}
		}
		m.cost[p][block] = us
		m.blocks = max(m.blocks, block+1)
		if !slices.Contains(devices, row[1]) {
			devices = append(devices, row[1])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = table(cuts, cutsName, cutHeader, func(row []string) error {
		m := byName[row[0]]
		if m == nil {
			return nil // a model that is not imported
		}
		after, err := whole("after_block", row[1], 0, maxBlocks-1)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(row[2], 10, 64)
		if err != nil || n < 0 {
			return &formats.Error{Path: "bytes_fp16_batch1", Found: strconv.Quote(row[2]), Expected: "a count of bytes"}
		}
		if _, twice := m.cuts[after]; twice {
			return &formats.Error{Path: "after_block", Found: fmt.Sprintf("the cut of %s after block %d again", m.name, after), Expected: "each once"}
		}
		m.cuts[after] = n
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(models) > 0 {
		order = models
	}
	p := &formats.Profile{Format: "inferplan.profile/v1"}
	for _, d := range devices {
		p.Devices = append(p.Devices, formats.ProfileDevice{Device: d, Engine: "imported", Source: source})
	}
	for _, name := range order {
		m := byName[name]
		if m == nil {
			return nil, &formats.Error{File: latencyName, Path: "model", Found: "no row of " + strconv.Quote(name), Expected: "latencies of every model asked for", Hint: "the models there: " + strings.Join(slices.Sorted(maps.Keys(seen)), ", ")}
		}
		pm, err := m.profile(latencyName, cutsName)
		if err != nil {
			return nil, err
		}
		p.Models = append(p.Models, *pm)
	}
	return p, p.Validate()
}

func (m *model) profile(latencyName, cutsName string) (*formats.ProfileModel, error) {
	pm := &formats.ProfileModel{Model: m.name}
	for b := range m.blocks {
		block := formats.Block{Name: strconv.Itoa(b)}
		if b < m.blocks-1 {
			n, ok := m.cuts[b]
			if !ok {
				return nil, &formats.Error{File: cutsName, Path: "after_block", Found: fmt.Sprintf("no cut of %s after block %d", m.name, b), Expected: fmt.Sprintf("one after each of blocks 0 to %d", m.blocks-2)}
			}
			block.CutBytesFP16 = formats.KnownCut(n)
		}
		pm.Blocks = append(pm.Blocks, block)
	}
	for _, p := range m.points {
		row := formats.Measurement{Device: p.device, Share: p.share, Batch: p.batch}
		for b := range m.blocks {
			us, ok := m.cost[p][b]
			if !ok {
				return nil, &formats.Error{File: latencyName, Path: "block", Found: fmt.Sprintf("no latency of %s block %d on %s 1/%d at batch %d", m.name, b, p.device, p.share, p.batch), Expected: fmt.Sprintf("all blocks 0 to %d", m.blocks-1)}
			}
			row.Blocks = append(row.Blocks, formats.Latency{WallUS: us})
		}
		pm.Measurements = append(pm.Measurements, row)
	}
	return pm, nil
}
