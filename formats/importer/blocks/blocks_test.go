package blocks

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/formats"
)

const (
	goodLatency = `model,gpu,vgpu_denominator,block,batch,latency_us
a,L4,1,0,1,100
a,L4,1,1,1,200.5
a,L4,2,0,1,150
a,L4,2,1,1,310
b,L4,1,0,1,7
`
	goodCuts = `model,after_block,bytes_fp16_batch1
a,0,4096
`
)

func read(latency, cuts string, models ...string) (*formats.Profile, error) {
	return Read(strings.NewReader(latency), "l.csv", strings.NewReader(cuts), "c.csv", models, "test")
}

func TestReadJoinsLatenciesAndCuts(t *testing.T) {
	p, err := read(goodLatency, goodCuts)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Models) != 2 || p.Models[0].Model != "a" || len(p.Models[0].Blocks) != 2 || len(p.Models[1].Blocks) != 1 {
		t.Fatalf("models: %+v", p.Models)
	}
	a := p.Models[0]
	if a.Blocks[0].CutBytesFP16 != 4096 || a.Blocks[1].CutBytesFP16 != 0 {
		t.Errorf("cuts: %+v", a.Blocks)
	}
	if len(a.Measurements) != 2 || a.Measurements[1].Share != 2 || a.Measurements[0].Blocks[1].WallUS.D().Nanoseconds() != 200500 {
		t.Errorf("measurements: %+v", a.Measurements)
	}
	if p, err := read(goodLatency, strings.Replace(goodCuts, "4096", "0", 1)); err != nil || p.Models[0].Blocks[0].CutBytesFP16 != formats.NoBytes {
		t.Errorf("a cut that nothing crosses is not one: %+v, %v", p, err)
	}
	// Times that are more precise than ours are rounded.
	if p, err := read(strings.Replace(goodLatency, "200.5", "200.50049", 1), goodCuts); err != nil || p.Models[0].Measurements[0].Blocks[1].WallUS.D().Nanoseconds() != 200500 {
		t.Errorf("more decimals: %+v, %v", p, err)
	}
	p, err = read(goodLatency, goodCuts, "b")
	if err != nil || len(p.Models) != 1 || p.Models[0].Model != "b" {
		t.Errorf("only b: %+v, %v", p, err)
	}
}

func TestReadErrors(t *testing.T) {
	for name, c := range map[string]struct {
		latency, cuts string
		models        []string
		want          []string
	}{
		"empty":            {"", goodCuts, nil, []string{"l.csv", "empty"}},
		"header":           {"model,gpu\n", goodCuts, nil, []string{"l.csv:1", "expected model,gpu,vgpu_denominator"}},
		"negative":         {strings.Replace(goodLatency, "200.5", "-3", 1), goodCuts, nil, []string{"l.csv:3", "latency_us", "-3"}},
		"too many columns": {goodLatency + "a,L4,1,0,1,1,1\n", goodCuts, nil, []string{"l.csv:7", "another number of columns"}},
		"twice":            {goodLatency + "a,L4,1,0,1,1\n", goodCuts, nil, []string{"l.csv:7", "again"}},
		"block missing":    {strings.Replace(goodLatency, "a,L4,2,1,1,310\n", "", 1), goodCuts, nil, []string{"l.csv", "no latency of a block 1 on L4 1/2"}},
		"cut missing":      {goodLatency, "model,after_block,bytes_fp16_batch1\n", nil, []string{"c.csv", "no cut of a after block 0"}},
		"unknown model":    {goodLatency, goodCuts, []string{"c"}, []string{"l.csv", `"c"`, "a, b"}},
		"share":            {strings.Replace(goodLatency, "a,L4,2,0", "a,L4,0,0", 1), goodCuts, nil, []string{"l.csv:4", "vgpu_denominator"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.latency, c.cuts, c.models...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
}

// The published measurements: every row arrives.
func TestPublishedMeasurementsAreReadWhole(t *testing.T) {
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "..", "shared", "data")
	}
	open := func(name string) *os.File {
		f, err := os.Open(filepath.Join(dir, "ppipe", name))
		if errors.Is(err, os.ErrNotExist) {
			t.Skipf("no measurements at %s; set INFERPLAN_DATA to the folder that holds ppipe/", dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	p, err := Read(open("block_latency.csv"), "block_latency.csv", open("cut_sizes.csv"), "cut_sizes.csv", nil, "bundle")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, m := range p.Models {
		for _, x := range m.Measurements {
			rows += len(x.Blocks)
		}
	}
	if len(p.Models) != 18 || rows != 9856 {
		t.Errorf("found %d models with %d rows, expected 18 with 9856", len(p.Models), rows)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(goodLatency, goodCuts)
	f.Add("model,gpu,vgpu_denominator,block,batch,latency_us\na,L4,1,99999,1,1\n", "")
	f.Fuzz(func(t *testing.T, latency, cuts string) {
		p, err := read(latency, cuts)
		if err == nil && p.Validate() != nil {
			t.Fatal("an invalid profile without an error")
		}
	})
}
