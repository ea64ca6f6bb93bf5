package diff

import (
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// WholeModel is the Block of a BlockChange about the whole model.
const WholeModel = -1

// BlockChange is a block, or a whole model, whose latency changed.
type BlockChange struct {
	Model    string          `json:"model"`
	Device   string          `json:"device"`
	Share    int             `json:"share"`
	Batch    int             `json:"batch"`
	Block    int             `json:"block"` // index, or -1 for the whole model
	Name     string          `json:"name,omitempty"`
	OldUS    document.Micros `json:"old_us"`
	NewUS    document.Micros `json:"new_us"`
	Relative float64         `json:"relative"` // (new - old) / old
}

// String names the block and its latencies.
func (c *BlockChange) String() string {
	return fmt.Sprintf("%s: %s -> %s (%s)", c.path(), spanText(c.OldUS), spanText(c.NewUS), percent(c.Relative))
}

// path returns which latency changed, as text: model, whole or block, device kind, share of the device, and batch
// size.
func (c *BlockChange) path() string {
	part := "whole"
	if c.Block != WholeModel {
		part = fmt.Sprintf("block %d", c.Block)
		if c.Name != "" && c.Name != fmt.Sprint(c.Block) {
			part += " (" + c.Name + ")"
		}
	}
	return fmt.Sprintf("model %s %s on %s share 1/%d batch %d", c.Model, part, c.Device, c.Share, c.Batch)
}

// Profiles returns the changes from profile a to profile b: added and removed models, devices and measurements,
// changed blocks and bytes, and every latency that changed by more than tolerance (0.02 is 2 %) relative to the
// old one. Result.Blocks holds these latencies as numbers.
func Profiles(a, b *formats.Profile, tolerance float64) *Result {
	r := &Recorder{Result: Result{Kind: formats.KindProfile, Changes: []Change{}}}
	eachPair(r, "devices", a.Devices, b.Devices, func(d *formats.ProfileDevice) string { return d.Device }, "device ", isUnstated, func(n string, x, y *formats.ProfileDevice) {
		r.addText(n+" name", x.Name, y.Name)
		r.addText(n+" driver", x.Driver, y.Driver)
		r.addText(n+" engine", x.Engine, y.Engine)
		r.addText(n+" engine_version", x.EngineVersion, y.EngineVersion)
		r.addText(n+" provider", x.Provider, y.Provider)
	})
	eachPair(r, "models", a.Models, b.Models, func(m *formats.ProfileModel) string { return m.Model }, "model ", isUnstated, func(_ string, x, y *formats.ProfileModel) {
		r.profileModel(x, y, tolerance)
	})
	return &r.Result
}

// profileModel records what changed between two profiles of a model: file, blocks, and the latencies of every
// measured device kind, share and batch size that differ by more than tolerance, a part of the old one. The
// latencies of blocks are compared only if both have the same number of blocks.
func (r *Recorder) profileModel(a, b *formats.ProfileModel, tolerance float64) {
	path := "model " + a.Model
	if a.Source != nil && b.Source != nil {
		r.addText(path+" file", formatShort(a.Source.SHA256), formatShort(b.Source.SHA256))
	}
	r.addCount(path+" blocks", len(a.Blocks), len(b.Blocks), neutral)
	sameBlocks := len(a.Blocks) == len(b.Blocks)
	if sameBlocks {
		for i := range a.Blocks {
			x, y := &a.Blocks[i], &b.Blocks[i]
			measurementPath := fmt.Sprintf("%s block %d", path, i)
			r.addText(measurementPath+" name", x.Name, y.Name)
			r.addFigure(measurementPath+" cut_bytes_fp32", float64(x.CutBytesFP32.Bytes()), float64(y.CutBytesFP32.Bytes()), "", neutral)
			r.addFigure(measurementPath+" cut_bytes_fp16", float64(x.CutBytesFP16.Bytes()), float64(y.CutBytesFP16.Bytes()), "", neutral)
			r.addFigure(measurementPath+" weight_bytes", float64(x.WeightBytes), float64(y.WeightBytes), "", neutral)
		}
	}

	// Compare the latencies at every measured point.
	point := func(m *formats.Measurement) string {
		return fmt.Sprintf("%s share 1/%d batch %d", m.Device, m.Share, m.Batch)
	}
	changesBefore := len(r.Blocks)
	eachPair(r, "measurements", a.Measurements, b.Measurements, point, path+" on ", isUnstated, func(_ string, x, y *formats.Measurement) {
		if x.WholeModel != nil && y.WholeModel != nil {
			r.addLatency(a, x, WholeModel, x.WholeModel, y.WholeModel, tolerance)
		}
		for n := range x.Blocks {
			if sameBlocks && n < len(y.Blocks) {
				r.addLatency(a, x, n, &x.Blocks[n], &y.Blocks[n], tolerance)
			}
		}
	})
	r.addLatencies(r.Blocks[changesBefore:])
}

// addLatency records the change of a latency if it is more than tolerance, a part of the old one. block is an
// index into the blocks of m, or WholeModel. m is the model, and at the measurement: device kind, share and batch size.
func (r *Recorder) addLatency(m *formats.ProfileModel, at *formats.Measurement, block int, a, b *formats.Latency, tolerance float64) {
	rel := relative(float64(a.WallUS), float64(b.WallUS))
	if rel == nil || math.Abs(*rel) <= tolerance {
		return
	}
	c := BlockChange{Model: m.Model, Device: at.Device, Share: at.Share, Batch: at.Batch, Block: block, OldUS: a.WallUS, NewUS: b.WallUS, Relative: *rel}
	if block != WholeModel && block < len(m.Blocks) {
		c.Name = m.Blocks[block].Name
	}
	r.Blocks = append(r.Blocks, c)
}

// fewLatencies is the number of latencies of one model on one kind of device that are listed separately. More have
// a common cause, and are listed as one change.
const fewLatencies = 4

// addLatencies records the changed latencies of one model, by device kind: one by one if they are few, and
// otherwise the range of their changes.
func (r *Recorder) addLatencies(blockChanges []BlockChange) {
	var kinds []string
	byDevice := map[string][]BlockChange{}
	for _, c := range blockChanges {
		if byDevice[c.Device] == nil {
			kinds = append(kinds, c.Device)
		}
		byDevice[c.Device] = append(byDevice[c.Device], c)
	}

	// Record few changes one by one, and many as a range.
	r.section = "blocks"
	for _, kind := range kinds {
		list := byDevice[kind]
		if len(list) <= fewLatencies {
			for i := range list {
				c := &list[i]
				r.addChange(Changed, c.path(), spanText(c.OldUS), spanText(c.NewUS), &c.Relative, verdictOf(float64(c.OldUS), float64(c.NewUS), lessIsBetter))
			}
			continue
		}
		moves := document.Map(list, func(c *BlockChange) float64 { return c.Relative })
		slices.Sort(moves)
		minRatio, maxRatio := moves[0], moves[len(moves)-1]
		// A range is better or worse only if all its changes are.
		note := ""
		if minRatio > 0 || maxRatio < 0 {
			note = verdictOf(0, minRatio, lessIsBetter)
		}
		r.addChange(Changed, fmt.Sprintf("model %s on %s: %d latencies by %s to %s, median %s", list[0].Model, kind, len(list), percent(minRatio), percent(maxRatio), percent(moves[len(moves)/2])), "", "", nil, note)
	}
}
