package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/stages"
)

// compared is a range whose time was measured and estimated from blocks and whole.
type compared struct {
	model             string
	batch             int
	blocks            [2]int
	estimate, sumUp   float64 // relative errors
	measured, planned document.Micros
}

// compare estimates every measured range from the blocks and the whole alone, in CPU
// time.
func compare(p *formats.Profile) ([]compared, error) {
	var out []compared
	for i := range p.Models {
		m := p.Models[i]
		m.Measurements = slices.Clone(m.Measurements)
		for k := range m.Measurements {
			m.Measurements[k] = inCPU(&m.Measurements[k])
		}
		costs, err := stages.MeasuredCosts(&m, []formats.Pool{{Device: p.Devices[0].Device, MaxShares: 1}}, 0, "", "")
		if err != nil {
			return nil, err
		}
		for k := range m.Measurements {
			ms := &m.Measurements[k]
			for _, r := range p.Models[i].Measurements[k].Ranges {
				took, sum := r.Latency.CPUUS, document.Micros(0)
				for _, b := range ms.Blocks[r.Blocks[0]:r.Blocks[1]] {
					sum += b.WallUS
				}
				est := document.Micros(stages.MaxTime(&costs[0][0], ms.Batch, r.Blocks[0], r.Blocks[1]))
				out = append(out, compared{m.Model, ms.Batch, r.Blocks, float64(est)/float64(took) - 1, float64(sum)/float64(took) - 1, took, est})
			}
		}
	}
	return out, nil
}

// inCPU is a measurement whose wall times are its CPU times, without ranges.
func inCPU(ms *formats.Measurement) formats.Measurement {
	out := *ms
	out.Ranges, out.Blocks = nil, slices.Clone(ms.Blocks)
	for b := range out.Blocks {
		out.Blocks[b].WallUS = out.Blocks[b].CPUUS
	}
	if ms.WholeModel != nil {
		w := *ms.WholeModel
		w.WallUS = w.CPUUS
		out.WholeModel = &w
	}
	return out
}

// row holds the figures of some ranges.
type row struct {
	Ranges int     `json:"ranges"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Bias   float64 `json:"bias"`
	SumMed float64 `json:"sum_of_blocks_median"`
	SumP95 float64 `json:"sum_of_blocks_p95"`
}

func summary(list []compared) row {
	var est, sum, bias []float64
	for _, c := range list {
		est, sum, bias = append(est, math.Abs(c.estimate)), append(sum, math.Abs(c.sumUp)), append(bias, c.estimate)
	}
	return row{len(list), quantile(est, .5), quantile(est, .95), quantile(bias, .5), quantile(sum, .5), quantile(sum, .95)}
}

// quantile is a nearest-rank quantile.
func quantile(v []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[max(0, int(math.Ceil(q*float64(len(s))))-1)]
}

// Asked of the estimates.
const (
	askedMedian = 0.05
	askedP95    = 0.12
)

type figure struct {
	Claim    string  `json:"claim"`
	Source   string  `json:"source"`
	Asked    float64 `json:"asked"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Holds    bool    `json:"holds"`
	Command  string  `json:"command"`
}

// report prints the table and returns the figures.
func report(w io.Writer, list []compared, command string) []figure {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "model\tbatch\tranges\testimate: median %\tp95 %\tbias %\tsum of blocks: median %\tp95 %\t")
	line := func(name string, batch int, of []compared) row {
		r := summary(of)
		fmt.Fprintf(t, "%s\t%d\t%d\t%.1f\t%.1f\t%+.1f\t%.1f\t%.1f\t\n", name, batch, r.Ranges, 100*r.Median, 100*r.P95, 100*r.Bias, 100*r.SumMed, 100*r.SumP95)
		return r
	}
	var figures []figure
	for len(list) > 0 {
		batch := slices.MinFunc(list, func(a, b compared) int { return a.batch - b.batch }).batch
		of := slices.DeleteFunc(slices.Clone(list), func(c compared) bool { return c.batch != batch })
		list = slices.DeleteFunc(list, func(c compared) bool { return c.batch == batch })
		for rest := of; len(rest) > 0; {
			n := slices.IndexFunc(rest, func(c compared) bool { return c.model != rest[0].model })
			if n < 0 {
				n = len(rest)
			}
			line(rest[0].model, batch, rest[:n])
			rest = rest[n:]
		}
		r := line("all", batch, of)
		claim := fmt.Sprintf("batch %d: %d random ranges, estimated against measured, ", batch, r.Ranges)
		figures = append(figures,
			figure{claim + "median error", "CPU time, interleaved samples", askedMedian, r.Median, "share", r.Median <= askedMedian, command},
			figure{claim + "95th percentile of the error", "CPU time, interleaved samples", askedP95, r.P95, "share", r.P95 <= askedP95, command})
	}
	t.Flush()
	return figures
}
