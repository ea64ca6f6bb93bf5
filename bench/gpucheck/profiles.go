package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/profiler"
)

func readProfile(path string) (*formats.Profile, error) { return formats.ReadProfile(path) }

// served are the two models that most steps need a profile of.
var served = []string{"resnet50", "squeezenet"}

// besideProfile reads the profile of step profile and one that is to be set
// against it.
func (c *check) besideProfile(file string) (a, b *formats.Profile, err error) {
	if a, err = readProfile(c.out("profile.json")); err == nil {
		b, err = readProfile(c.out(file))
	}
	return a, b, err
}

// batches of the profile: eight sizes.
func (c *check) batches() []int {
	if c.Quick {
		return []int{1, 2}
	}
	return []int{1, 2, 4, 8, 16, 32, 48, 64}
}

func (c *check) blocks() int {
	if c.Quick {
		return 4
	}
	return 10
}

func join(list []int) string {
	var out []string
	for _, v := range list {
		out = append(out, strconv.Itoa(v))
	}
	return strings.Join(out, ",")
}

// measure runs plan profile on models into a file of the results.
func (c *check) measure(ctx context.Context, file string, budget time.Duration, names []string, batches []int, more ...string) (time.Duration, error) {
	return c.measureInto(ctx, c.out(file), budget, names, batches, c.blocks(), more...)
}

// measureInto does it with any file and number of blocks.
func (c *check) measureInto(ctx context.Context, path string, budget time.Duration, names []string, batches []int, blocks int, more ...string) (time.Duration, error) {
	paths, err := c.models(ctx, names...)
	if err != nil {
		return 0, err
	}
	args := append([]string{"profile"}, paths...)
	args = append(args, "--device", c.Device, "--batches", join(batches), "--blocks", strconv.Itoa(blocks), "--budget", budget.String(), "-o", path, "-q")
	if c.rehearsal() {
		args[slices.Index(args, "--device")+1] = "cpu"
	}
	begin := time.Now()
	_, err = c.plan(ctx, append(args, more...)...)
	return time.Since(begin), err
}

// profileOnce measures the served models, each on its own clock.
func profileOnce(ctx context.Context, c *check, r *StepResult) error {
	budget := 75 * time.Second
	if c.Quick {
		budget = 12 * time.Second
	}
	const what = "what it took, with loading and cutting"
	for _, name := range served {
		verdict := "seconds for " + name
		if r.judged(verdict) {
			continue
		}
		begun := c.measured("profile.json", name)
		took, err := c.measure(ctx, "profile.json", budget, []string{name}, c.batches())
		if err != nil {
			return err
		}
		if begun {
			r.note("%s: a call that was broken off had measured a part of it, whose seconds are not counted", name)
		}
		p, err := readProfile(c.out("profile.json"))
		if err != nil {
			return err
		}
		state := ""
		if s := p.Devices[0].State; s != nil {
			state = fmt.Sprintf("%.0f W (most %.0f), %d MHz (least %d), %d C, clocks lowered in %.0f %% of readings", s.WattsMedian, s.WattsMax, s.ClockMHzMedian, s.ClockMHzMin, s.CelsiusMax, 100*s.Throttled)
		}
		t := r.table(what, "model", "batches", "blocks", "seconds", "device state")
		t.Rows = append(t.Rows, []string{name, fmt.Sprint(len(c.batches())), fmt.Sprint(c.blocks()), fmt.Sprintf("%.1f", took.Seconds()), state})
		r.verdict(verdict, "<= 120", math.Round(10*took.Seconds())/10, took <= 2*time.Minute)
		if err := c.keep(r); err != nil {
			return err
		}
	}
	r.wrote("profile.json")
	p, err := readProfile(c.out("profile.json"))
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, additivity(p, "latency"))
	for _, n := range p.Notes {
		r.note("%s", n)
	}
	return nil
}

// measured tells whether a profile of the results holds numbers of a model.
func (c *check) measured(file, name string) bool {
	p, err := readProfile(c.out(file))
	return err == nil && slices.ContainsFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == name && len(m.Measurements) > 0 })
}

// additivity sets the chain of blocks against the whole.
func additivity(p *formats.Profile, title string) Table {
	t := Table{Title: title, Header: []string{"model", "share", "batch", "whole us", "half width", "p99 us", "host us", "chain us", "chain/whole"}}
	for _, m := range p.Models {
		for _, s := range m.Measurements {
			if s.Whole == nil {
				continue
			}
			chain := sum(s.Blocks)
			w := *s.Whole
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprintf("1/%d", s.Share), fmt.Sprint(s.Batch), micros(w.WallUS), fmt.Sprintf("%.1f %%", 100*float64(w.HalfWidthUS)/float64(w.WallUS)),
				micros(w.P99US), micros(w.HostUS), micros(chain), fmt.Sprintf("%.3f", float64(chain)/float64(w.WallUS))})
		}
	}
	return t
}

func sum(blocks []formats.Latency) (total formats.Micros) {
	for _, b := range blocks {
		total += b.WallUS
	}
	return total
}

func micros(m formats.Micros) string { return fmt.Sprintf("%.1f", float64(m.D())/1e3) }

// needsProfile says what to run first where models have not been measured.
func (c *check) needsProfile(names ...string) error {
	p, err := readProfile(c.out("profile.json"))
	if err != nil {
		return fmt.Errorf("run the step profile first: %w", err)
	}
	for _, n := range names {
		if !slices.ContainsFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == n }) {
			return fmt.Errorf("run the step profile first: %s lacks %s", c.out("profile.json"), n)
		}
	}
	return nil
}

// blank copies a profile's models and cuts without its numbers, so that what is
// measured into the copy is cut at the same places.
func (c *check) blank(from, to string, only []string) error {
	p, err := readProfile(c.out(from))
	if err != nil {
		return fmt.Errorf("the step needs the profile of step profile: %w", err)
	}
	p.Devices, p.Notes, p.Records = []formats.ProfileDevice{}, nil, nil
	p.Models = slices.DeleteFunc(p.Models, func(m formats.ProfileModel) bool { return !slices.Contains(only, m.Model) })
	for i := range p.Models {
		p.Models[i].Measurements = []formats.Measurement{}
	}
	_, err = formats.WriteFile(c.out(to), p, formats.Force(true))
	return err
}

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

// againFile is what step repeat measures, only to compare it.
const againFile = "profile-again.json"

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
			if g == nil || s.Whole == nil || g.Whole == nil {
				continue
			}
			x, y := sum(s.Blocks), sum(g.Blocks)
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprint(s.Batch), micros(s.Whole.WallUS), micros(x), fmt.Sprintf("%.3f", float64(x)/float64(s.Whole.WallUS)),
				micros(g.Whole.WallUS), micros(y), fmt.Sprintf("%.3f", float64(y)/float64(g.Whole.WallUS)), fmt.Sprintf("%.2fx", float64(s.Whole.WallUS)/float64(g.Whole.WallUS))})
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
			if f == nil || f.Whole == nil || s.Whole == nil || m.FP16 == nil {
				continue
			}
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprint(s.Batch), micros(f.Whole.WallUS), micros(s.Whole.WallUS), fmt.Sprintf("%.2fx", float64(f.Whole.WallUS)/float64(s.Whole.WallUS)),
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
	rows := profiler.Roofline(p)
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
		if x.Far != "" {
			a.far++
			a.launch += count(x.Far == "launch")
		}
	}
	for _, k := range order {
		a := all[k]
		t.Rows = append(t.Rows, []string{k.model, fmt.Sprint(k.batch), pct(a.whole), a.bound, pct(a.lo), pct(a.hi), fmt.Sprint(a.far), fmt.Sprint(a.launch)})
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// shares measures 1/2, 1/3 and 1/4 of the device with as many copies at work.
func shares(ctx context.Context, c *check, r *StepResult) error {
	if c.rehearsal() {
		return c.rehearseShares(ctx, r)
	}
	err := c.withMPS(r, func() error {
		for _, name := range served {
			if _, err := c.measure(ctx, "profile.json", 70*time.Second, []string{name}, []int{1, 8}, "--shares", "2,3,4"); err != nil {
				return errors.Join(err, stopped(ctx))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p, err := readProfile(c.out("profile.json"))
	if err != nil {
		return err
	}
	r.note("shares by %s", p.Devices[0].ShareMethod)
	t := Table{Title: "whole model, all copies at work", Header: []string{"model", "batch", "share", "us", "times the whole device's", "samples/s of all copies together", "of the whole device's"}}
	for _, m := range p.Models {
		for _, s := range m.Measurements {
			one := find(p, m.Model, s.Device, 1, s.Batch)
			if s.Whole == nil || one == nil || one.Whole == nil || (s.Batch != 1 && s.Batch != 8) {
				continue
			}
			ratio := float64(s.Whole.WallUS) / float64(one.Whole.WallUS)
			rate := float64(s.Share*s.Batch) / s.Whole.WallUS.D().Seconds()
			t.Rows = append(t.Rows, []string{m.Model, fmt.Sprint(s.Batch), fmt.Sprintf("1/%d", s.Share), micros(s.Whole.WallUS), fmt.Sprintf("%.2f", ratio), fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f", float64(s.Share)/ratio)})
		}
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// rehearseShares starts two processes of shares on the CPU and lets them run
// side by side: everything but the division of a GPU.
func (c *check) rehearseShares(ctx context.Context, r *StepResult) error {
	_, sub, err := c.model(ctx, "squeezenet")
	if err != nil {
		return err
	}
	s, err := profiler.Processes{Command: []string{c.Self, "share"}, Stderr: c.log()}.Open(ctx, c.dev, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	var runs []func(int) (engine.Timing, error)
	for i, e := range s.Engines() {
		x := *sub
		blk, err := e.Load(ctx, &x, s.Device(i), engine.Options{})
		if err != nil {
			return err
		}
		b, err := blk.Bind(engine.BindOptions{Batch: 1})
		if err != nil {
			return err
		}
		runs = append(runs, b.RunN)
	}
	one, err := runs[0](5)
	if err != nil {
		return err
	}
	both, err := profiler.Together(runs)(5)
	if err != nil {
		return err
	}
	r.note("no shares on a CPU: two processes on one CPU, %s", s.Method())
	r.Tables = append(r.Tables, Table{Header: []string{"copies at work", "ms per run"}, Rows: [][]string{
		{"1", fmt.Sprintf("%.1f", one.Wall.Seconds()*1e3/5)}, {"2", fmt.Sprintf("%.1f", both.Wall.Seconds()*1e3/5)},
	}})
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

// exists tells whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (c *check) work(name string) string { return filepath.Join(c.Work, name) }
