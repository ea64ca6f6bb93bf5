package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/profiler"
)

// repeatProfile measures again what step profile measured.
func repeatProfile(ctx context.Context, c *check, r *StepResult) error {
	const again = againFile
	if err := c.blank("profile.json", again, served); err != nil {
		return err
	}
	defer os.Remove(c.out(again))
	budget := 50 * time.Second
	if c.Quick {
		budget = 10 * time.Second
	}
	for _, name := range served {
		if _, err := c.measure(ctx, again, budget, []string{name}, c.batches()); err != nil {
			return err
		}
	}
	a, b, err := c.besideProfile(again)
	if err != nil {
		return err
	}
	d := differences(a, b, 50*time.Microsecond)
	if len(d) == 0 {
		return errors.New("no block above 50 us stands in both profiles")
	}
	mid := quantile(d, 0.5)
	r.verdict(fmt.Sprintf("median difference of %d blocks above 50 us, %%", len(d)), "<= 2", math.Round(1e4*mid)/100, mid <= 0.02)
	r.Tables = append(r.Tables, Table{Title: "difference of the same block in two profiles", Header: []string{"blocks", "median %", "p90 %", "p99 %", "largest %"}, Rows: [][]string{{
		fmt.Sprint(len(d)), pct(mid), pct(quantile(d, 0.9)), pct(quantile(d, 0.99)), pct(d[len(d)-1]),
	}}})
	return nil
}

// againFile has the measurements of step repeat, which are only compared.
const againFile = "profile-again.json"

// differences of the blocks' medians of two profiles over a floor, as shares.
func differences(a, b *formats.Profile, floor time.Duration) []float64 {
	var out []float64
	for _, m := range a.Models {
		k := slices.IndexFunc(b.Models, func(x formats.ProfileModel) bool { return x.Model == m.Model })
		if k < 0 || len(b.Models[k].Blocks) != len(m.Blocks) {
			continue
		}
		for _, s := range m.Measurements {
			j := slices.IndexFunc(b.Models[k].Measurements, func(x formats.Measurement) bool {
				return x.Device == s.Device && x.Share == s.Share && x.Batch == s.Batch
			})
			if j < 0 {
				continue
			}
			for i, x := range s.Blocks {
				y := b.Models[k].Measurements[j].Blocks[i]
				if x.WallUS.D() > floor && y.WallUS > 0 {
					out = append(out, math.Abs(float64(y.WallUS)/float64(x.WallUS)-1))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func pct(x float64) string { return fmt.Sprintf("%.2f", 100*x) }

// graphs measures the same blocks with CUDA graphs.
func graphs(ctx context.Context, c *check, r *StepResult) error {
	const file = "profile-graphs.json"
	if err := c.blank("profile.json", file, served); err != nil {
		return err
	}
	more := []string{"--cuda-graph"}
	if c.rehearsal() {
		more = nil
		r.note("on a CPU there are no CUDA graphs: both columns are plain runs")
	}
	budget := 50 * time.Second
	if c.Quick {
		budget = 10 * time.Second
	}
	for _, name := range served {
		if _, err := c.measure(ctx, file, budget, []string{name}, c.batches(), more...); err != nil {
			return err
		}
	}
	r.wrote(file)
	a, b, err := c.besideProfile(file)
	if err != nil {
		return err
	}
	t := Table{Title: "microseconds, medians", Header: []string{"model", "batch", "whole", "chain", "chain/whole", "whole with graphs", "chain with graphs", "chain/whole", "whole gains"}}
	for _, m := range a.Models {
		for _, s := range m.Measurements {
			g := find(b, m.Model, s.Device, s.Share, s.Batch)
			if g == nil || s.WholeModel == nil || g.WholeModel == nil {
				continue
			}
			x, y := sum(s.Blocks), sum(g.Blocks)
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprint(s.Batch), micros(s.WholeModel.WallUS), micros(x), fmt.Sprintf("%.3f", float64(x)/float64(s.WholeModel.WallUS)),
				micros(g.WholeModel.WallUS), micros(y), fmt.Sprintf("%.3f", float64(y)/float64(g.WholeModel.WallUS)), fmt.Sprintf("%.2fx", float64(s.WholeModel.WallUS)/float64(g.WholeModel.WallUS))})
		}
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// half measures the served models in float16 and sets them against float32.
func half(ctx context.Context, c *check, r *StepResult) error {
	const file = "profile-fp16.json"
	if err := c.needsProfile(served...); err != nil {
		return err
	}
	if err := c.blank("profile.json", file, served); err != nil {
		return err
	}
	batches, budget := []int{1, 8, 64}, 25*time.Second
	if c.Quick {
		batches, budget = []int{1, 2}, 8*time.Second
	}
	for _, name := range served {
		if _, err := c.measure(ctx, file, budget, []string{name}, batches, "--fp16"); err != nil {
			return err
		}
	}
	r.wrote(file)
	a, b, err := c.besideProfile(file)
	if err != nil {
		return err
	}
	t := Table{Title: "whole models, medians in microseconds", Header: []string{"model", "batch", "float32", "float16", "gains", "first class agrees, of samples", "largest difference before softmax"}}
	for _, m := range b.Models {
		for _, s := range m.Measurements {
			f := find(a, m.Model, s.Device, s.Share, s.Batch)
			if f == nil || f.WholeModel == nil || s.WholeModel == nil || m.FP16 == nil {
				continue
			}
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprint(s.Batch), micros(f.WholeModel.WallUS), micros(s.WholeModel.WallUS), fmt.Sprintf("%.2fx", float64(f.WholeModel.WallUS)/float64(s.WholeModel.WallUS)),
				fmt.Sprintf("%.0f %% of %d", 100*m.FP16.Top1Agreement, m.FP16.Samples), fmt.Sprintf("%.2g", m.FP16.MaxAbsDiff)})
		}
	}
	r.Tables = append(r.Tables, t)
	return nil
}

func find(p *formats.Profile, model, device string, share, batch int) *formats.Measurement {
	for i := range p.Models {
		if p.Models[i].Model != model {
			continue
		}
		for k := range p.Models[i].Measurements {
			if s := &p.Models[i].Measurements[k]; s.Device == device && s.Share == share && s.Batch == batch {
				return s
			}
		}
	}
	return nil
}

// roofline lists how far blocks are from what the device can do.
func roofline(_ context.Context, c *check, r *StepResult) error {
	p, err := readProfile(c.out("profile.json"))
	if err != nil {
		return fmt.Errorf("the step needs the profile of step profile: %w", err)
	}
	rows := profiler.RooflineRows(p)
	if len(rows) == 0 {
		return errors.New("the profile holds no ceilings of the device, or no work of the blocks")
	}
	d := p.Devices[0]
	r.note("ceilings: %.0f GB/s, %.0f Gflop/s in a float32 matrix product", d.MemoryGBps, d.MatmulGflops)
	t := Table{Title: "share of the roofline reached", Header: []string{"model", "batch", "whole %", "bound by", "blocks from %", "to %", "far off", "of them waiting for the host"}}
	type key struct {
		model string
		batch int
	}
	type agg struct {
		whole, lo, hi float64
		bound         string
		far, launch   int
	}
	all := map[key]*agg{}
	var order []key
	for _, x := range rows {
		k := key{x.Model, x.Batch}
		a := all[k]
		if a == nil {
			a = &agg{lo: math.Inf(1)}
			all[k] = a
			order = append(order, k)
		}
		if x.Block < 0 {
			a.whole, a.bound = x.Fraction, x.Bound
			continue
		}
		a.lo, a.hi = min(a.lo, x.Fraction), max(a.hi, x.Fraction)
		if x.Reason != "" {
			a.far++
			a.launch += count(x.Reason == "launch")
		}
	}
	for _, k := range order {
		a := all[k]
		t.Rows = append(t.Rows, []string{k.model, fmt.Sprint(k.batch), pct(a.whole), a.bound, pct(a.lo), pct(a.hi), fmt.Sprint(a.far), fmt.Sprint(a.launch)})
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// allCNNs measures every CNN, one after the other; the next call goes on.
func allCNNs(ctx context.Context, c *check, r *StepResult) error {
	names, batches, budget := cnns, []int{1, 2, 4, 8, 16, 32, 64}, 25*time.Second
	if c.Quick {
		names, batches, budget = []string{"squeezenet", "shufflenet"}, []int{1, 2}, 8*time.Second
	}
	var err error
	done := 0
	for _, name := range names {
		// What is measured already costs nothing again.
		if _, err = c.measure(ctx, "profile.json", budget, []string{name}, batches); err != nil {
			break
		}
		done++
	}
	p, perr := readProfile(c.out("profile.json"))
	if perr != nil {
		return errors.Join(err, perr)
	}
	r.Tables = append(r.Tables, additivity(p, fmt.Sprintf("%d of %d CNNs", done, len(names))))
	r.wrote("profile.json")
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %d of %d models", errMore, done, len(names))
	}
	return err
}
