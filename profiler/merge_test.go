package profiler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/document"
)

// drawProfile makes a profile over few models, devices and batches, so that
// two of them overlap. A model's file and cuts follow from its name.
func drawProfile(t *rapid.T, label string) *formats.Profile {
	p := &formats.Profile{Format: profileFormat}
	engineVersion := rapid.SampledFrom([]string{"1", "2"}).Draw(t, label+" engine")
	devices := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"L4", "P4", "cpu-1"}), 1, 3, rapid.ID).Draw(t, label+" devices")
	for _, d := range devices {
		p.Devices = append(p.Devices, formats.ProfileDevice{Device: d, EngineVersion: engineVersion})
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, label+" models") {
		m := formats.ProfileModel{
			Model: name, Source: &formats.ModelSource{Path: name + ".onnx", SHA256: strings.Repeat(name, 64)},
			Blocks: []formats.Block{{Name: "block0", Cut: []formats.TensorInfo{{Name: "t1"}}}, {Name: "block1"}},
		}
		for _, d := range devices {
			for _, batch := range rapid.SliceOfNDistinct(rapid.IntRange(1, 4), 1, 4, rapid.ID).Draw(t, label+" batches") {
				us := document.Micros(rapid.Int64Range(1, 1e6).Draw(t, label+" latency"))
				putMeasurement(&m, formats.Measurement{Device: d, Share: rapid.IntRange(1, 2).Draw(t, label+" share"), Batch: batch,
					Blocks: []formats.Latency{{WallUS: us}, {WallUS: us}}})
			}
		}
		p.Models = append(p.Models, m)
	}
	if len(p.Models) > 0 {
		p.Notes = []string{"precision of " + p.Models[0].Model + noteSep + label}
	}
	return p
}

// facts are what a profile says, apart from the order in which it does.
func facts(p *formats.Profile) map[string]string {
	out := map[string]string{}
	for _, d := range p.Devices {
		out["device "+d.Device] = fmt.Sprintf("%+v", d)
	}
	for _, m := range p.Models {
		out["model "+m.Model] = m.Source.SHA256
		for _, x := range m.Measurements {
			out[fmt.Sprintf("%s %s 1/%d b%d", m.Model, x.Device, x.Share, x.Batch)] = fmt.Sprintf("%+v", x)
		}
	}
	for _, n := range p.Notes {
		k, v, _ := strings.Cut(n, noteSep)
		out["note "+k] = v
	}
	return out
}

func clone(t *rapid.T, p *formats.Profile) *formats.Profile {
	c := &formats.Profile{}
	if err := Merge(c, p); err != nil {
		t.Fatal(err)
	}
	return c
}

// Merge holds everything that either profile says, src's word where both say
// something; it changes src not at all, and a second time dst not at all.
func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawProfile(t, "a"), drawProfile(t, "b")
		want := facts(a)
		for k, v := range facts(b) {
			want[k] = v
		}
		bytesOf := func(p *formats.Profile) string { return fmt.Sprintf("%+v", facts(p)) }
		before := bytesOf(b)
		got := clone(t, a)
		if err := Merge(got, b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, facts(got)); diff != "" {
			t.Fatalf("facts differ:\n%s", diff)
		}
		if bytesOf(b) != before {
			t.Fatal("src was changed")
		}
		once, _ := document.Marshal(got)
		if err := Merge(got, b); err != nil {
			t.Fatal(err)
		}
		if twice, _ := document.Marshal(got); string(once) != string(twice) {
			t.Fatalf("merging twice changed\n%s\ninto\n%s", once, twice)
		}
		for _, m := range got.Models {
			if !slices.IsSortedFunc(m.Measurements, func(x, y formats.Measurement) int {
				return strings.Compare(fmt.Sprintf("%s %d %02d", x.Device, x.Share, x.Batch), fmt.Sprintf("%s %d %02d", y.Device, y.Share, y.Batch))
			}) {
				t.Fatalf("measurements out of order: %+v", m.Measurements)
			}
		}
	})
}

func TestMergeOtherFileOrCuts(t *testing.T) {
	mk := func(sha, cut string) *formats.Profile {
		return &formats.Profile{Format: profileFormat, Models: []formats.ProfileModel{{
			Model: "net", Source: &formats.ModelSource{SHA256: sha},
			Blocks:       []formats.Block{{Name: "block0", Cut: []formats.TensorInfo{{Name: cut}}}, {Name: "block1"}},
			Measurements: []formats.Measurement{{Device: "cpu-1", Share: 1, Batch: len(sha)}},
		}}}
	}
	dst := mk("old", "t1")
	if err := Merge(dst, mk("newer", "t2")); err != nil {
		t.Fatal(err)
	}
	if m := dst.Models; len(m) != 1 || m[0].Source.SHA256 != "newer" || len(m[0].Measurements) != 1 || m[0].Measurements[0].Batch != 5 {
		t.Errorf("a changed file: %+v", m)
	}
	dst = mk("old", "t1")
	if err := Merge(dst, mk("old", "t2")); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "net") {
		t.Errorf("other cuts: %v", err)
	}
	if diff := cmp.Diff(mk("old", "t1"), dst); diff != "" {
		t.Errorf("a refused merge changed the profile:\n%s", diff)
	}
}
