package recorded

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/testkit/bundletest"
)

// Layers cost what their block does, at every batch and share, and none is so
// short that a planner would take it to cost more than it says.
func TestLayered(t *testing.T) {
	profile := bundletest.Profile(t)
	layered, err := Layered(strings.TrimSuffix(bundletest.Dir(t), "/ppipe"), profile)
	if err != nil {
		t.Fatal(err)
	}
	if len(layered.Models) != 3 {
		t.Fatalf("%d models with layers, expected 3", len(layered.Models))
	}
	for i := range layered.Models {
		m := &layered.Models[i]
		at := slices.IndexFunc(profile.Models, func(o formats.ProfileModel) bool { return o.Model == m.Model })
		of := &profile.Models[at]
		for k, row := range m.Measurements {
			want := of.Measurements[k]
			if row.Device != want.Device || row.Share != want.Share || row.Batch != want.Batch || len(row.Blocks) != len(m.Blocks) {
				t.Fatalf("%s: measurement %d is of %s 1/%d batch %d, %d layers of %d", m.Model, k, row.Device, row.Share, row.Batch, len(row.Blocks), len(m.Blocks))
			}
			// Sums of layers pass every sum of blocks.
			block, sum, due := 0, document.Micros(0), want.Blocks[0].WallUS
			for _, l := range row.Blocks {
				if l.WallUS < 1000 {
					t.Fatalf("%s: a layer of %v", m.Model, l.WallUS.D())
				}
				if sum += l.WallUS; sum == due && block < len(want.Blocks)-1 {
					block++
					due += want.Blocks[block].WallUS
				}
			}
			if sum != due || block != len(want.Blocks)-1 {
				t.Errorf("%s on %s 1/%d batch %d: layers take %v, %d blocks %v", m.Model, row.Device, row.Share, row.Batch, sum.D(), block+1, due.D())
			}
		}
	}
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(0.01, 100), 1, 30).Draw(t, "weights")
		whole := document.Micros(rapid.Int64Range(int64(len(weights))*1000, 1e7).Draw(t, "whole"))
		parts := spread(whole, weights)
		var sum document.Micros
		for i, p := range parts {
			if sum += p; p < 1000 {
				t.Fatalf("a part of %d ns", p)
			}
			for k := range i {
				if weights[k] > weights[i] && parts[k] < p-1 {
					t.Fatalf("weights %v have parts %v", weights, parts)
				}
			}
		}
		if sum != whole {
			t.Fatalf("parts %v of %d sum to %d", parts, whole, sum)
		}
	})
}

// Layers that do not make up the recorded blocks are told.
func TestLayersErrors(t *testing.T) {
	of := &formats.ProfileModel{
		Model:        "m",
		Blocks:       []formats.Block{{Name: "0", CutBytesFP16: 8}, {Name: "1"}},
		Measurements: []formats.Measurement{{Device: "L4", Share: 1, Batch: 1, Blocks: []formats.Latency{{WallUS: 4000}, {WallUS: 5000}}}},
	}
	read := func(text string) (*formats.ProfileModel, error) {
		tab, err := csvfile.ReadTable(strings.NewReader(text), "layers.csv")
		if err != nil {
			return nil, err
		}
		return layersOf(tab, of)
	}
	const header = "layer,block,cut_bytes_fp16_batch1,latency_us_L4\n"
	if m, err := read(header + "a,0,9,1\nb,0,8,3\nc,1,4,2\n"); err != nil || len(m.Blocks) != 3 || m.Measurements[0].Blocks[1].WallUS != 3000 || m.Blocks[0].CutBytesFP16 != 9 {
		t.Errorf("got %+v, %v", m, err)
	}
	for text, want := range map[string]string{
		"layer,block,cut_bytes_fp16_batch1\na,0,8\n": "found no column latency_us_L4",
		header + "a,1,8,1\n":                         `layers.csv:2:3: block: found the text "1"`,
		header + "a,0,8,1\nb,2,8,1\n":                `layers.csv:3:3: block: found the text "2"`,
		header + "a,0,8,1\n":                         "found layers of 1 blocks, expected 2",
		header + "a,0,7,1\nb,1,8,1\n":                "7 bytes cross the cut after the layers of block 0, 8 that after the block",
		header + "a,0,-8,1\n":                        `cut_bytes_fp16_batch1: found the text "-8"`,
		header + "a,0,8,0\n":                         `latency_us_L4: found the text "0"`,
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
