package pooltest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
)

func ms(v float64) document.Micros { return document.Micros(math.Round(v * 1e6)) }

// Documents are those of two models on two kinds with a network, and one CPU
// pool that only the second model uses.
func Documents() kind.Documents {
	p := &formats.Profile{Format: formats.FormatProfile}
	add := func(model string, blocks []float64, speeds map[string]float64) {
		m := formats.ProfileModel{Model: model, Source: &formats.ModelSource{Path: model, SHA256: strings.Repeat("5", 64)}}
		for b := range blocks {
			blk := formats.Block{Name: fmt.Sprint(model, "/", b), WeightBytes: 1 << 20}
			if b+1 < len(blocks) {
				blk.Cut = []formats.TensorInfo{{Name: fmt.Sprint("t", b), DType: "FP32", Shape: []int64{-1, 9}}}
				blk.CutBytesFP32, blk.CutBytesFP16 = 300_000, 150_000
				blk.FP16 = &formats.FP16Check{Top1Agreement: 1, Samples: 100}
			}
			m.Blocks = append(m.Blocks, blk)
		}
		for _, device := range []string{"H", "L", "cpu-1"} {
			speed := speeds[device]
			for v := 1; v <= 2 && speed > 0; v++ {
				if v == 2 && device != "H" {
					break
				}
				for _, batch := range []int{1, 2, 4} {
					me := formats.Measurement{Device: device, Share: v, Batch: batch, MemoryBytes: 20 << 20}
					for _, t := range blocks {
						me.Blocks = append(me.Blocks, formats.Latency{WallUS: ms(t * speed * float64(v) * float64(batch+1) / 2)})
					}
					me.WholeModel = &formats.Latency{WallUS: ms(10 * speed * float64(v) * float64(batch+1) / 2)}
					m.Measurements = append(m.Measurements, me)
				}
			}
		}
		p.Models = append(p.Models, m)
	}
	add("resnet", []float64{1, 2, 1, 3}, map[string]float64{"H": 1, "L": 4})
	add("ocr", []float64{2, 2}, map[string]float64{"H": 1, "L": 3, "cpu-1": 4})
	return kind.Documents{
		Profile: p,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{
			{Device: "H", Count: 2, MaxShares: 2, PerNode: 1, NICGbps: 10, Memory: 64 << 20, USDPerHour: 2},
			{Device: "L", Count: 4, MaxShares: 1, PerNode: 2, NICGbps: 6, Memory: 64 << 20, USDPerHour: 0.5},
			{Device: "cpu-1", Count: 2, Sharing: formats.SharingTime},
		}},
		Workload: &formats.Workload{Format: formats.FormatWorkload, Section: formats.WorkloadModels{
			{Model: "resnet", SLO: document.SLO{Factor: 5}, Weight: 0.6, Percentile: "p99"},
			{Model: "ocr", SLO: document.SLO{Duration: 60 * time.Millisecond}, Weight: 0.4, Percentile: "p99"},
		}},
	}
}

// Slower multiplies the time of a block (-1: all) of a model everywhere, and adds
// what that is to what was measured in one piece.
func Slower(p *formats.Profile, model, block int, factor float64) {
	for j := range p.Models[model].Measurements {
		m := &p.Models[model].Measurements[j]
		for b := range m.Blocks {
			if block >= 0 && b != block {
				continue
			}
			was := m.Blocks[b].WallUS
			m.Blocks[b].WallUS = document.Micros(math.Round(float64(was) * factor))
			more := m.Blocks[b].WallUS - was
			if m.WholeModel != nil {
				m.WholeModel.WallUS += more
			}
			for r := range m.Ranges {
				if at := m.Ranges[r].Blocks; at[0] <= b && b < at[1] {
					m.Ranges[r].Latency.WallUS += more
				}
			}
		}
	}
}
