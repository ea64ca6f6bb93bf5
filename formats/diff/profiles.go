package diff

import (
	"fmt"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/formats/document"
)

// WholeModel is the Block of a BlockChange about the whole model.
const Whole = -1

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

func (c *BlockChange) path() string {
	what := "whole"
	if c.Block != Whole {
		what = fmt.Sprintf("block %d", c.Block)
		if c.Name != "" && c.Name != fmt.Sprint(c.Block) {
			what += " (" + c.Name + ")"
		}
	}
	return fmt.Sprintf("model %s %s on %s share 1/%d batch %d", c.Model, what, c.Device, c.Share, c.Batch)
}

// Profiles returns the changes from profile a to profile b: added and removed models, devices and measurements,
// changed blocks and bytes, and every latency that changed by more than tolerance (0.02 is 2 %) relative to the
// old one. Result.Blocks holds these latencies as numbers.
func Profiles(a, b *formats.Profile, tolerance float64) *Result {
	r := &Recorder{Result: Result{Kind: formats.KindProfile, Changes: []Change{}}}
	matched(r, "devices", a.Devices, b.Devices, func(d *formats.ProfileDevice) string { return d.Device }, "device ", untold, func(n string, x, y *formats.ProfileDevice) {
		r.text(n+" name", x.Name, y.Name)
		r.text(n+" driver", x.Driver, y.Driver)
		r.text(n+" engine", x.Engine, y.Engine)
		r.text(n+" engine_version", x.EngineVersion, y.EngineVersion)
		r.text(n+" provider", x.Provider, y.Provider)
	})
	matched(r, "models", a.Models, b.Models, func(m *formats.ProfileModel) string { return m.Model }, "model ", untold, func(_ string, x, y *formats.ProfileModel) {
		r.profileModel(x, y, tolerance)
	})
	return &r.Result
}

func (r *Recorder) profileModel(a, b *formats.ProfileModel, tolerance float64) {
	at := "model " + a.Model
	if a.Source != nil && b.Source != nil {
		r.text(at+" file", short(a.Source.SHA256), short(b.Source.SHA256))
	}
	r.count(at+" blocks", len(a.Blocks), len(b.Blocks), neutral)
	sameBlocks := len(a.Blocks) == len(b.Blocks)
	if sameBlocks {
		for i := range a.Blocks {
			x, y := &a.Blocks[i], &b.Blocks[i]
			where := fmt.Sprintf("%s block %d", at, i)
			r.text(where+" name", x.Name, y.Name)
			r.figure(where+" cut_bytes_fp32", float64(x.CutBytesFP32.Bytes()), float64(y.CutBytesFP32.Bytes()), "", neutral)
			r.figure(where+" cut_bytes_fp16", float64(x.CutBytesFP16.Bytes()), float64(y.CutBytesFP16.Bytes()), "", neutral)
			r.figure(where+" weight_bytes", float64(x.WeightBytes), float64(y.WeightBytes), "", neutral)
		}
	}
	point := func(m *formats.Measurement) string {
		return fmt.Sprintf("%s share 1/%d batch %d", m.Device, m.Share, m.Batch)
	}
	before := len(r.Blocks)
	matched(r, "measurements", a.Measurements, b.Measurements, point, at+" on ", untold, func(_ string, x, y *formats.Measurement) {
		if x.Whole != nil && y.Whole != nil {
			r.latency(a, x, Whole, x.Whole, y.Whole, tolerance)
		}
		for n := range x.Blocks {
			if sameBlocks && n < len(y.Blocks) {
				r.latency(a, x, n, &x.Blocks[n], &y.Blocks[n], tolerance)
			}
		}
	})
	r.latencies(r.Blocks[before:])
}

func (r *Recorder) latency(m *formats.ProfileModel, p *formats.Measurement, block int, a, b *formats.Latency, tolerance float64) {
	rel := relative(float64(a.WallUS), float64(b.WallUS))
	if rel == nil || math.Abs(*rel) <= tolerance {
		return
	}
	c := BlockChange{Model: m.Model, Device: p.Device, Share: p.Share, Batch: p.Batch, Block: block, OldUS: a.WallUS, NewUS: b.WallUS, Relative: *rel}
	if block != Whole && block < len(m.Blocks) {
		c.Name = m.Blocks[block].Name
	}
	r.Blocks = append(r.Blocks, c)
}

// fewLatencies is the number of latencies of one model on one kind of device that are listed separately. More have
// a common cause, and are listed as one change.
const fewLatencies = 4

// addLatencies adds the changed latencies of one model, device by device.
func (r *Recorder) latencies(moved []BlockChange) {
	var kinds []string
	by := map[string][]BlockChange{}
	for _, c := range moved {
		if by[c.Device] == nil {
			kinds = append(kinds, c.Device)
		}
		by[c.Device] = append(by[c.Device], c)
	}
	r.section = "blocks"
	for _, kind := range kinds {
		list := by[kind]
		if len(list) <= fewLatencies {
			for i := range list {
				c := &list[i]
				r.add(Changed, c.path(), spanText(c.OldUS), spanText(c.NewUS), &c.Relative, judge(float64(c.OldUS), float64(c.NewUS), lessIsBetter))
			}
			continue
		}
		moves := make([]float64, len(list))
		for i := range list {
			moves[i] = list[i].Relative
		}
		slices.Sort(moves)
		low, high := moves[0], moves[len(moves)-1]
		note := ""
		if low > 0 || high < 0 {
			note = judge(0, low, lessIsBetter)
		}
		r.add(Changed, fmt.Sprintf("model %s on %s: %d latencies by %s to %s, median %s", list[0].Model, kind, len(list), percent(low), percent(high), percent(moves[len(moves)/2])), "", "", nil, note)
	}
}
