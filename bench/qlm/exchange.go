package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"inferplan/bench/figures"
	"inferplan/bench/table"
	"inferplan/formats/csvfile"
	"inferplan/formats/importer/llmruns"
)

// network is a number of GPUs on a network, some of them in a node.
type network struct {
	name          string
	gpus, perNode int
}

// measuredRing is an all-reduce that was measured.
type measuredRing struct {
	bytes float64
	took  time.Duration
}

// rings holds the term of a ring against measured all-reduces, and iterations with and without it against
// measured servers of two, four and eight GPUs.
func rings(b *bench, t *table.Table) error {
	measured, err := allReduces(filepath.Join(b.data, "llm-profiles", "vidur_all_reduce.csv.gz"))
	if err != nil {
		return err
	}
	t.Columns = []string{"network", "GPUs", "a node", "GB/s", "a step", "mean error", "95 % below"}
	links, worst := map[network]llmruns.LinkSpecs{}, 0.0
	for _, n := range slices.SortedFunc(maps.Keys(measured), byNetwork) {
		list := measured[n]
		var fitted, tested []measuredRing
		for i, m := range list {
			if i%2 == 0 {
				fitted = append(fitted, m)
			} else {
				tested = append(tested, m)
			}
		}
		links[n] = fitRing(n.gpus, fitted)
		var offs []float64
		for _, m := range tested {
			off := math.Abs(float64(links[n].Ring(n.gpus, m.bytes))/float64(m.took) - 1)
			offs = append(offs, off)
		}
		slices.Sort(offs)
		mean := meanOf(offs)
		if n.gpus == n.perNode {
			worst = max(worst, mean)
		}
		t.Add(n.name, n.gpus, n.perNode, fmt.Sprintf("%.3g", links[n].GBps), links[n].Latency.Round(10*time.Nanosecond), percent(mean), percent(offs[len(offs)*95/100]))
	}
	b.figures = append(b.figures, figures.Figure{Claim: "ring all-reduce within a node: largest mean error against measured ones, fitted to every second size", Source: "vidur, data/profiling/network; its sizes read as bytes",
		Asked: "shown", Measured: worst, Unit: "share off"})
	return exchanged(b, links)
}

// exchanged holds iterations of Llama-2-70B on A100s, put together from kernels, against a measured server.
func exchanged(b *bench, links map[network]llmruns.LinkSpecs) error {
	var kernels, servers llmruns.Set
	for file, set := range map[string]*llmruns.Set{"vidur_dense_part.csv.gz": &kernels, "splitwise_measured.csv": &servers} {
		path := filepath.Join(b.data, "llm-profiles", file)
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(set.Read(f, path), f.Close()); err != nil {
			return err
		}
	}
	layers := llmruns.Layers{Count: 80, TokenBytes: 2 * 8192}
	for _, gpus := range []int{2, 4, 8} {
		link, ok := links[network{"a100_dgx", gpus, gpus}]
		if !ok {
			return fmt.Errorf("no all-reduces of %d A100s in a node", gpus)
		}
		for _, phase := range []llmruns.Phase{llmruns.Prefill, llmruns.Decode} {
			name := map[llmruns.Phase]string{llmruns.Prefill: "prompts", llmruns.Decode: "decoding"}[phase]
			var without, with []float64
			for _, m := range servers.Steps {
				if m.Model != "llama2-70b" || m.Device != "A100" || m.TensorParallel != gpus || m.Phase != phase {
					continue
				}
				tokens := m.Batch
				if phase == llmruns.Prefill {
					tokens *= m.Tokens
				}
				dense, ok := denseOf(kernels.Steps, gpus, tokens)
				if !ok {
					continue
				}
				dense += time.Duration(float64(m.Batch) * m.Context * contextBytes / float64(gpus) / a100GBps)
				exchange := link.AllReduce(layers, gpus, tokens)
				without, with = append(without, float64(dense)/float64(m.Elapsed)-1), append(with, float64(dense+exchange)/float64(m.Elapsed)-1)
			}
			if len(with) == 0 {
				return fmt.Errorf("no measurement of Llama-2-70B on %d A100s", gpus)
			}
			b.figures = append(b.figures, figures.Figure{
				Claim:  fmt.Sprintf("iterations of Llama-2-70B on %d A100s with their all-reduces, %s: mean error against a measured server", gpus, name),
				Source: "kernels and all-reduces of vidur, context read at 2,039 GB/s, prompts without attention, against Splitwise, whose stack of 2023 has much CPU time in it", Asked: "shown", Measured: meanOf(with), Unit: "share off",
				Note: fmt.Sprintf("%+.1f %% without, %d measurements", 100*meanOf(without), len(with))})
		}
	}
	return nil
}

// What a token of context of Llama-2-70B takes in memory, and how fast an A100 reads it: bytes a nanosecond.
const (
	contextBytes = 2 * 80 * 8 * 128 * 2
	a100GBps     = 2039
)

// denseOf returns what an iteration of so many tokens takes without attention: of the next larger number measured.
func denseOf(list []llmruns.MeasuredStep, gpus, tokens int) (took time.Duration, ok bool) {
	least := math.MaxInt
	for _, m := range list {
		if m.Model == "Llama-2-70b-hf" && m.Device == "A100" && m.TensorParallel == gpus && m.Batch >= tokens && m.Batch < least {
			least, took, ok = m.Batch, m.Elapsed, true
		}
	}
	return took, ok
}

// allReduces reads measured all-reduces by network, by rising size.
func allReduces(path string) (map[network][]measuredRing, error) {
	f, err := csvfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := csvfile.NewTable(f)
	if err != nil {
		return nil, err
	}
	out := map[network][]measuredRing{}
	for _, column := range []string{"network", "num_workers", "devices_per_node", "size_field", "latency_ms"} {
		if !slices.Contains(t.Header, column) {
			return nil, fmt.Errorf("%s: no column %s", path, column)
		}
	}
	err = t.EachRow(func() error {
		var x [4]float64
		for i, column := range []string{"num_workers", "devices_per_node", "size_field", "latency_ms"} {
			value, err := strconv.ParseFloat(t.Row[slices.Index(t.Header, column)], 64)
			if err != nil {
				return err
			}
			x[i] = value
		}
		n := network{t.Row[slices.Index(t.Header, "network")], int(x[0]), int(x[1])}
		out[n] = append(out[n], measuredRing{x[2], time.Duration(x[3] * 1e6)})
		return nil
	})
	for n := range out {
		slices.SortFunc(out[n], func(a, b measuredRing) int { return cmp.Compare(a.bytes, b.bytes) })
	}
	return out, err
}

// fitRing returns the links with the least squares of relative errors.
func fitRing(gpus int, list []measuredRing) llmruns.LinkSpecs {
	steps := float64(2 * (gpus - 1))
	var ll, lb, bb, l, c float64
	for _, m := range list {
		took := float64(m.took)
		x, y := steps/took, steps*m.bytes/float64(gpus)/took
		ll, lb, bb, l, c = ll+x*x, lb+x*y, bb+y*y, l+x, c+y
	}
	d := ll*bb - lb*lb
	return llmruns.LinkSpecs{Latency: time.Duration((l*bb - c*lb) / d), GBps: d / (c*ll - l*lb)}
}

func byNetwork(a, b network) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.perNode, b.perNode))
}

func meanOf(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}
