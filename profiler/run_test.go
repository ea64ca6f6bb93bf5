package profiler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"inferplan/engine"
	"inferplan/formats"
)

func TestMain(m *testing.M) {
	if os.Getenv(asShare) != "" {
		shareMain()
	}
	goleak.VerifyTestMain(m)
}

// quickRule is tight soon.
var quickRule = Precision{HalfWidth: 0.05, Floor: time.Microsecond, MinRounds: 6, MaxRounds: 12}

func mustRun(t *testing.T, o Options) *formats.Profile {
	t.Helper()
	if o.Precision == (Precision{}) {
		o.Precision = quickRule
	}
	p, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRunMeasuresBlocksAsCut(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 12, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath = 4, []int{2, 1}, filepath.Join(t.TempDir(), "profile.json")
	var est Estimate
	o.OnEstimate = func(e Estimate) error {
		est = e
		if len(eng.log) != 2 {
			t.Errorf("%d runs before the estimate: %v", len(eng.log), eng.log)
		}
		return nil
	}
	var stages []string
	o.Progress = func(e Event) {
		if s := string(e.Stage); len(stages) == 0 || stages[len(stages)-1] != s {
			stages = append(stages, s)
		}
		if e.DoneShare < 0 || e.DoneShare > 1 {
			t.Errorf("progress %v at %+v", e.DoneShare, e)
		}
	}
	p := mustRun(t, o)
	if eng.open != 0 {
		t.Errorf("%d blocks or bindings were not closed", eng.open)
	}
	if got := strings.Join(stages, " "); got != "open cut load fp16 warm-up sample measured sample measured sample" && !strings.HasPrefix(got, "open cut load fp16 warm-up") {
		t.Errorf("stages %s", got)
	}
	if est.Device != "cpu-1" || len(est.Models) != 1 || est.Models[0].WholeTime != 1200*time.Microsecond || est.Models[0].Measurements != 2 || est.ExpectedTime <= 0 || est.MaxTime < est.ExpectedTime {
		t.Errorf("estimate %+v", est)
	}
	m := p.Models[0]
	if m.Model != "net" || m.Source.Path != relativeTo(o.OutPath, "net.onnx") || len(m.Blocks) != 4 || len(m.Measurements) != 2 {
		t.Fatalf("model %+v", m)
	}
	if b := m.Blocks[1]; b.Nodes != 3 || b.Cut[0].Name != "t6" || b.CutBytesFP32 != 16 || b.CutBytesFP16 != 8 || b.WeightBytes != 3<<20 || b.FP16 == nil || b.FP16.Samples != 8 || b.FP16.Top1Agreement != 1 || b.FP16.MaxAbsDiff == 0 {
		t.Errorf("block 1: %+v", b)
	}
	if b := m.Blocks[3]; b.Cut != nil || b.FP16 != nil {
		t.Errorf("last block: %+v", b)
	}
	for i, batch := range []int{1, 2} {
		got := m.Measurements[i]
		if got.Batch != batch || got.Device != "cpu-1" || got.Share != 1 || len(got.Blocks) != 4 || got.MemoryBytes < 12<<20 {
			t.Fatalf("measurement %+v", got)
		}
		want := time.Duration(batch) * 300 * time.Microsecond
		for _, l := range got.Blocks {
			if l.WallUS.D() != want || l.CPUUS.D() != want*49/50 || l.Samples != quickRule.MinRounds || l.HalfWidthUS != 0 {
				t.Errorf("batch %d: %+v", batch, l)
			}
		}
		if got.WholeModel.WallUS.D() != 4*want {
			t.Errorf("whole: %+v", got.WholeModel)
		}
	}
	d := p.Devices[0]
	if d.Device != "cpu-1" || d.Engine != "fake" || d.EngineVersion != "1" || d.Name != "fake CPU 1" || d.CopyGbps <= 0 || d.CostSeconds <= 0 || !strings.HasPrefix(d.Date, "2026-11-21T12:00:0") {
		t.Errorf("device %+v", d)
	}
	onDisk, err := formats.ReadProfile(o.OutPath)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, onDisk); diff != "" {
		t.Errorf("the file differs:\n%s", diff)
	}
	if !slices.ContainsFunc(p.Notes, func(n string) bool {
		return strings.Contains(n, "its blocks together take 1.00 (batch 1), 1.00 (batch 2) times as long")
	}) {
		t.Errorf("notes %q", p.Notes)
	}
}

// What is measured is not measured again: not by the same command, and only
// what is new by a larger one.
func TestRunResumes(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 12, 100*time.Microsecond), uniformModel("other", 5, time.Millisecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath = 4, []int{1, 2}, filepath.Join(t.TempDir(), "profile.json")
	first := mustRun(t, o)
	runs := len(eng.log)
	again := mustRun(t, o)
	if len(eng.log) != runs {
		t.Errorf("%d runs for what was measured already", len(eng.log)-runs)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("a run without work changed the profile:\n%s", diff)
	}

	o.Models, o.Batches = []string{"net", "other"}, []int{1, 2, 4}
	var sampled []string // what progress names
	o.Progress = func(e Event) {
		if e.Stage == StageSample {
			sampled = append(sampled, e.Model)
		}
	}
	defer func() {
		if slices.Contains(sampled, "") || !slices.Contains(sampled, "2 models") {
			t.Errorf("the progress of samples names %q, expected models or their number", sampled)
		}
	}()
	eng.log = nil
	more := mustRun(t, o)
	for _, l := range eng.log {
		if strings.HasPrefix(l, "net") && !strings.HasSuffix(l, "b4") && !strings.Contains(l, "/1 b1") {
			t.Errorf("ran %s", l)
		}
		if strings.HasPrefix(l, "net") && strings.Contains(l, "/12 ") {
			t.Errorf("timed atoms of a model that is cut already: %s", l)
		}
	}
	if diff := cmp.Diff(first.Models[0].Measurements, more.Models[0].Measurements[:2]); diff != "" {
		t.Errorf("measurements that were there changed:\n%s", diff)
	}
	if len(more.Models) != 2 || len(more.Models[0].Measurements) != 3 || len(more.Models[1].Measurements) != 3 {
		t.Errorf("models %+v", more.Models)
	}
	if more.Devices[0].CostSeconds < first.Devices[0].CostSeconds {
		t.Errorf("cost fell from %v to %v", first.Devices[0].CostSeconds, more.Devices[0].CostSeconds)
	}

	eng.log, o.Force, o.Batches, o.Models = nil, true, []int{2}, []string{"net"}
	eng.models["net"].cost[0] *= 2
	forced := mustRun(t, o)
	if len(eng.log) == 0 || len(forced.Models[0].Measurements) != 3 {
		t.Errorf("force: %d runs, %d measurements", len(eng.log), len(forced.Models[0].Measurements))
	}
	if l := forced.Models[0].Measurements[1].Blocks[0]; l.WallUS.D() != 800*time.Microsecond {
		t.Errorf("forced measurement: %+v", l)
	}
	if l := forced.Models[0].Measurements[0].Blocks[0]; l.WallUS.D() != 300*time.Microsecond {
		t.Errorf("measurement that was not asked for: %+v", l)
	}
}

// What a GPU reaches at best is measured once per profile, and kept.
func TestCeilingsOfAGPUAreMeasuredOnce(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 12, 100*time.Microsecond))
	eng.devices = append(eng.devices, engine.Device{ID: "cuda:0", Kind: "L4", Name: "NVIDIA L4", Share: 1, MemoryBytes: 24 << 30, Driver: "580"})
	o := eng.options("net")
	o.Device, o.Blocks, o.Batches, o.OutPath = "cuda:0", 4, []int{1}, filepath.Join(t.TempDir(), "profile.json")
	measured := 0
	o.ceilings = func(context.Context, loadTarget) ceilings {
		measured++
		return ceilings{memoryGBps: 300, matmulGflops: 9000}
	}
	for batch := 1; batch <= 3; batch++ {
		o.Batches = []int{batch}
		p := mustRun(t, o)
		if d := p.Devices[0]; d.MemoryGBps != 300 || d.MatmulGflops != 9000 || len(p.Models[0].Measurements) != batch {
			t.Fatalf("batch %d: %+v", batch, d)
		}
	}
	if measured != 1 {
		t.Errorf("measured %d times", measured)
	}
	eng.version = "another"
	mustRun(t, o)
	if measured != 2 {
		t.Errorf("with another engine measured %d times in all", measured)
	}
}

// A second device kind gets the blocks that the first one was measured with,
// and numbers of the first stay.
func TestSecondDeviceTakesOverCuts(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 12, 100*time.Microsecond))
	gpu := engine.Device{ID: "cuda:0", Kind: "L4", Name: "NVIDIA L4", Share: 1, MemoryBytes: 24 << 30, Driver: "580"}
	eng.devices = append(eng.devices, gpu)
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath = 4, []int{1}, filepath.Join(t.TempDir(), "profile.json")
	first := mustRun(t, o)

	eng.log = nil
	o.Device = "auto"
	both := mustRun(t, o)
	if len(both.Devices) != 2 || both.Devices[1].Device != "L4" || both.Devices[1].Provider != "cuda" || both.Devices[1].Driver != "580" {
		t.Fatalf("devices %+v", both.Devices)
	}
	if diff := cmp.Diff(first.Models[0].Blocks, both.Models[0].Blocks); diff != "" {
		t.Errorf("blocks changed:\n%s", diff)
	}
	if m := both.Models[0].Measurements; len(m) != 2 || m[0].Device != "L4" || m[1].Device != "cpu-1" || m[0].Blocks[0].CPUUS != 0 {
		t.Errorf("measurements %+v", m)
	}
	for _, l := range eng.log {
		if strings.Contains(l, "/12 ") {
			t.Errorf("cut again: %s", l)
		}
	}

	o.Blocks = 6
	if _, err := Run(context.Background(), o); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "--blocks 4") {
		t.Errorf("other number of blocks: %v", err)
	}
	o.Force = true
	o.Precision = quickRule
	recut := mustRun(t, o)
	if m := recut.Models[0]; len(m.Blocks) != 6 || len(m.Measurements) != 1 {
		t.Errorf("cut anew by force: %d blocks, %d measurements", len(m.Blocks), len(m.Measurements))
	}
}

func TestChangedFileAndChangedEngine(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 12, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.OutPath = 4, []int{1, 2}, filepath.Join(t.TempDir(), "profile.json")
	mustRun(t, o)
	var warnings []string
	o.Progress = func(e Event) {
		if e.Stage == StageWarning {
			warnings = append(warnings, e.Text)
		}
	}

	eng.version, o.Batches = "2", []int{1}
	p := mustRun(t, o)
	if m := p.Models[0].Measurements; len(m) != 1 || p.Devices[0].EngineVersion != "2" || len(warnings) != 1 {
		t.Errorf("new engine: %d measurements, device %+v, warnings %q", len(m), p.Devices[0], warnings)
	}

	warnings = nil
	eng.models["net"].sha = strings.Repeat("ab", 32)
	p = mustRun(t, o)
	if m := p.Models; len(m) != 1 || m[0].Source.SHA256 != eng.models["net"].sha || len(m[0].Measurements) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0], "differs") {
		t.Errorf("new file: %+v, warnings %q", m, warnings)
	}
}

// Ctrl-C keeps what was measured, in memory and on disk, and closes everything. What was interrupted early is noted and
// measured again.
func TestInterruptKeepsFinishedMeasurements(t *testing.T) {
	for _, after := range []int{1, 30, 120, 150, 180, 210, 260, 400} {
		eng := newFakeEngine(uniformModel("net", 6, 100*time.Microsecond), uniformModel("big", 6, 30*time.Second))
		ctx, cancel := context.WithCancel(context.Background())
		eng.onRun = func(run int) {
			if run == after {
				cancel()
			}
		}
		o := eng.options("net", "big")
		o.Blocks, o.Batches, o.Precision, o.FP16Samples = 3, []int{1, 2}, quickRule, -1
		o.OutPath = filepath.Join(t.TempDir(), "profile.json")
		p, err := Run(ctx, o)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d runs: %v", after, err)
		}
		if eng.open != 0 {
			t.Errorf("after %d runs: %d blocks or bindings were not closed", after, eng.open)
		}
		n := 0
		for _, m := range p.Models {
			n += len(m.Measurements)
			for _, x := range m.Measurements {
				if len(x.Blocks) != 3 || x.WholeModel == nil {
					t.Errorf("half a measurement: %+v", x)
				}
			}
		}
		if onDisk, rerr := formats.ReadProfile(o.OutPath); rerr == nil {
			if diff := cmp.Diff(p, onDisk); diff != "" {
				t.Errorf("after %d runs the file differs:\n%s", after, diff)
			}
			if n == 0 {
				t.Errorf("after %d runs: a file without a measurement", after)
			}
		} else if n > 0 {
			t.Errorf("after %d runs: %d measurements, and no file: %v", after, n, rerr)
		}
		// The next run makes the rest.
		if after == 400 && (n == 0 || !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.HasSuffix(n, partialEnd) })) {
			t.Errorf("after %d runs: %d measurements and the notes %q, expected one of what was interrupted", after, n, p.Notes)
		}
		eng.onRun = nil
		full := mustRun(t, o)
		if slices.ContainsFunc(full.Notes, func(n string) bool { return strings.HasSuffix(n, partialEnd) }) {
			t.Errorf("after %d runs, resumed: %q", after, full.Notes)
		}
		if len(full.Models) != 2 || len(full.Models[0].Measurements) != 2 || len(full.Models[1].Measurements) != 2 {
			t.Errorf("after %d runs, resumed: %+v", after, full.Models)
		}
		t.Logf("after %d runs: %d measurements kept, error %v", after, n, err)
	}
}

func TestBudgetNotesLooseNumbers(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 12, 100*time.Microsecond), uniformModel("big", 12, time.Millisecond))
	eng.noise = jitter(1, 0.4)
	o := eng.options("net", "big")
	o.Blocks, o.Batches, o.Budget, o.Precision = 4, []int{1, 2}, 2*time.Second, DefaultPrecision
	o.OutPath = filepath.Join(t.TempDir(), "profile.json")
	begin := eng.clock.now()
	var est Estimate
	o.OnEstimate = func(e Estimate) error { est = e; return nil }
	p := mustRun(t, o)
	if took := eng.clock.now().Sub(begin); took > 2500*time.Millisecond {
		t.Errorf("a budget of 2 s took %v", took)
	}
	if est.ExpectedTime > o.Budget || est.MaxTime > o.Budget || est.Budget != o.Budget {
		t.Errorf("estimate %+v", est)
	}
	samples := map[int]bool{}
	for _, m := range p.Models {
		for _, x := range m.Measurements {
			samples[x.Blocks[0].Samples] = true
			if x.Blocks[0].Samples < budgetRounds || x.Blocks[0].HalfWidthUS == 0 {
				t.Errorf("%s batch %d: %+v", m.Model, x.Batch, x.Blocks[0])
			}
			subject := fmt.Sprintf("precision of %s on cpu-1 at share 1/1, batch %d", m.Model, x.Batch)
			if !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.HasPrefix(n, subject) && strings.Contains(n, "budget") }) {
				t.Errorf("no note that starts with %q in %q", subject, p.Notes)
			}
		}
	}
	lo, hi := 1<<30, 0
	for n := range samples {
		lo, hi = min(lo, n), max(hi, n)
	}
	if hi > maxTurns*(lo+1) {
		t.Errorf("samples differ: %v", samples)
	}

	// With more time and less noise the notes go.
	eng.noise, o.Budget, o.Force = nil, 0, true
	p = mustRun(t, o)
	if slices.ContainsFunc(p.Notes, func(n string) bool { return strings.HasPrefix(n, "loose") }) {
		t.Errorf("notes %q", p.Notes)
	}
}

func TestFixedBatch(t *testing.T) {
	m := uniformModel("fixed", 1, time.Millisecond)
	m.batch = 3
	eng := newFakeEngine(m)
	o := eng.options("fixed")
	o.Batches = []int{1, 2, 4, 8}
	p := mustRun(t, o)
	if x := p.Models[0].Measurements; len(x) != 1 || x[0].Batch != 3 || len(x[0].Blocks) != 1 || x[0].Blocks[0].WallUS.D() != 3*time.Millisecond {
		t.Errorf("%+v", x)
	}
}

func TestBadInput(t *testing.T) {
	good := func() (*fakeEngine, Options) {
		eng := newFakeEngine(uniformModel("net", 4, time.Millisecond), uniformModel("other", 4, time.Millisecond))
		return eng, eng.options("net")
	}
	for _, c := range []struct {
		name   string
		change func(*fakeEngine, *Options)
		is     error
		says   string
	}{
		{"no model", func(_ *fakeEngine, o *Options) { o.Models = nil }, ErrInput, "no model given"},
		{"no such model", func(_ *fakeEngine, o *Options) { o.Models = []string{"nix"} }, ErrInput, "nix"},
		{"batch 0", func(_ *fakeEngine, o *Options) { o.Batches = []int{0, 1} }, ErrInput, "batches"},
		{"share 0", func(_ *fakeEngine, o *Options) { o.Shares = []int{-1} }, ErrInput, "shares"},
		{"blocks", func(_ *fakeEngine, o *Options) { o.Blocks = -4 }, ErrInput, "blocks: -4"},
		{"budget", func(_ *fakeEngine, o *Options) { o.Budget = -time.Second }, ErrInput, "budget"},
		{"shares on a CPU", func(_ *fakeEngine, o *Options) { o.Shares = []int{1, 2} }, ErrInput, "shares exist on GPUs only"},
		{"too many CPUs", func(_ *fakeEngine, o *Options) { o.Device = "cpu-4096" }, ErrInput, "cpu-4096"},
		{"no number of CPUs", func(_ *fakeEngine, o *Options) { o.Device = "cpu-x" }, ErrInput, "cpu-x"},
		{"unknown device", func(_ *fakeEngine, o *Options) { o.Device = "tpu:0" }, engine.ErrNoDevice, "cpu:0"},
		{"same name", func(e *fakeEngine, o *Options) {
			e.models["copy/net"] = uniformModel("net", 5, time.Millisecond)
			o.Models = []string{"net", "copy/net"}
		}, ErrInput, "two models are called net"},
		{"cuda without CUDA", func(e *fakeEngine, o *Options) {
			o.Device = "cuda:0"
			e.loadErr = func(_ *engine.Submodel, d engine.Device) error {
				return &engine.MissingError{Target: "device " + d.ID, Missing: []string{"libcuda.so.1"}, Kind: engine.ErrNoDevice}
			}
		}, engine.ErrNoDevice, "device cuda:0: missing libcuda.so.1"},
		{"fallback", func(e *fakeEngine, _ *Options) {
			e.loadErr = func(m *engine.Submodel, _ engine.Device) error {
				return fmt.Errorf("%w: node NonZero_3", engine.ErrFallback)
			}
		}, engine.ErrFallback, "net.onnx"},
		{"unknown operator", func(e *fakeEngine, _ *Options) {
			e.loadErr = func(m *engine.Submodel, _ engine.Device) error {
				return fmt.Errorf("%w: no operator Frobnicate (node frob_1)", engine.ErrModel)
			}
		}, ErrInput, "net.onnx: load net"},
		{"no folder", func(_ *fakeEngine, o *Options) { o.OutPath = filepath.Join("nowhere", "at", "all.json") }, ErrInput, "nowhere/at"},
		{"bad file", func(_ *fakeEngine, o *Options) {
			o.OutPath = filepath.Join(t.TempDir(), "profile.json")
			if err := os.WriteFile(o.OutPath, []byte(`{"format": "inferplan.profile/v1", "device": []}`), 0o644); err != nil {
				t.Fatal(err)
			}
		}, nil, "profile to extend"},
		{"estimate refused", func(_ *fakeEngine, o *Options) {
			o.OnEstimate = func(Estimate) error { return errors.New("too long for me") }
		}, nil, "too long for me"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng, o := good()
			c.change(eng, &o)
			p, err := Run(context.Background(), o)
			if err == nil {
				t.Fatalf("no error; profile %+v", p)
			}
			if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %q, expected one with %q that is %v", err, c.says, c.is)
			}
			if eng.open != 0 {
				t.Errorf("%d blocks or bindings were not closed", eng.open)
			}
		})
	}
}

// fakeSharer hands out engines that are slower by a factor, as shares are.
type fakeSharer struct {
	eng    *fakeEngine
	opened []int
	closed int
}

func (s *fakeSharer) Open(_ context.Context, d engine.Device, v int) (SharedDevice, error) {
	s.opened = append(s.opened, v)
	f := &fakeShares{s: s, d: d, v: v}
	for range v {
		m := *s.eng.models["net"]
		m.cost = nil
		for _, c := range s.eng.models["net"].cost {
			m.cost = append(m.cost, c*time.Duration(v))
		}
		e := newFakeEngine(&m)
		e.clock = s.eng.clock
		f.engines = append(f.engines, e)
	}
	return f, nil
}

type fakeShares struct {
	s       *fakeSharer
	d       engine.Device
	v       int
	engines []engine.Engine
}

func (f *fakeShares) Engines() []engine.Engine { return f.engines }
func (f *fakeShares) Method() string           { return "mps" }
func (f *fakeShares) Device(int) engine.Device { d := f.d; d.Share = f.v; return d }

func (f *fakeShares) Close() error {
	f.s.closed++
	for _, e := range f.engines {
		if n := e.(*fakeEngine).open; n != 0 {
			return fmt.Errorf("%d open on a share that is closed", n)
		}
	}
	return nil
}

func TestSharesAreMeasuredWithConcurrentProcesses(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 6, time.Millisecond))
	eng.devices = append(eng.devices, engine.Device{ID: "cuda:0", Kind: "L4", Name: "NVIDIA L4", Share: 1, MemoryBytes: 24 << 30, Driver: "580"})
	sharer := &fakeSharer{eng: eng}
	o := eng.options("net")
	o.Device, o.Shares, o.Batches, o.Blocks, o.Sharer = "cuda:0", []int{3, 1, 2}, []int{1, 4}, 3, sharer
	p := mustRun(t, o)
	m := p.Models[0].Measurements
	if len(m) != 6 || p.Devices[0].ShareMethod != "mps" || !slices.Equal(sharer.opened, []int{2, 3}) || sharer.closed != 2 {
		t.Fatalf("%d measurements, device %+v, opened %v, closed %d", len(m), p.Devices[0], sharer.opened, sharer.closed)
	}
	for _, x := range m {
		want := time.Duration(2*x.Share*x.Batch) * time.Millisecond
		if x.Blocks[1].WallUS.D() != want {
			t.Errorf("share 1/%d batch %d: %v, expected %v", x.Share, x.Batch, x.Blocks[1].WallUS, want)
		}
	}
	o.Shares, o.Sharer = []int{4}, nil
	if _, err := Run(context.Background(), o); !errors.Is(err, ErrInput) {
		t.Errorf("shares without a sharer: %v", err)
	}
}

func TestGroupsFitMemoryAndTime(t *testing.T) {
	mk := func(weights int64, expect time.Duration) *modelJob {
		return &modelJob{info: modelInfo{weightBytes: weights}, expectedTime: expect}
	}
	r := &runner{dev: engine.Device{ID: "cpu:0", MemoryBytes: 12 << 30}, options: &Options{}}
	jobs := []*modelJob{mk(1<<20, time.Minute), mk(1<<20, time.Minute), mk(900<<20, time.Minute), mk(1<<20, time.Minute), mk(1<<20, 4*time.Minute), mk(8<<30, time.Second)}
	var sizes []int
	for _, g := range r.groupJobs(jobs) {
		sizes = append(sizes, len(g))
	}
	if !slices.Equal(sizes, []int{4, 1, 1}) {
		t.Errorf("groups of %v", sizes)
	}
	r.dev.ID = "cuda:0" // on a GPU, every model has it to itself
	if n := len(r.groupJobs(jobs)); n != len(jobs) {
		t.Errorf("%d groups of %d models on a GPU", n, len(jobs))
	}
}

// An interrupt early in a run that measures again leaves what the profile has, and its notes.
func TestInterruptedForceKeepsFinishedMeasurements(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 6, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.Precision, o.FP16Samples = 3, []int{1}, quickRule, -1
	o.OutPath = filepath.Join(t.TempDir(), "profile.json")
	before := mustRun(t, o)
	for _, after := range []int{5, 40} {
		ctx, cancel := context.WithCancel(context.Background())
		first := len(eng.log)
		eng.onRun = func(int) {
			if len(eng.log)-first >= after {
				cancel()
			}
		}
		o.Force = true
		_, err := Run(ctx, o)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d runs: error %v", after, err)
		}
		p, err := formats.ReadProfile(o.OutPath)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before.Models, p.Models); diff != "" || slices.ContainsFunc(p.Notes, func(n string) bool { return strings.HasSuffix(n, partialEnd) }) {
			t.Errorf("after %d runs: notes %q, %s", after, p.Notes, diff)
		}
	}
}

// Ranges that are measured later do not hide that the blocks beside them were interrupted.
func TestRangesKeepTheNoteOfInterruptedBlocks(t *testing.T) {
	eng := newFakeEngine(uniformModel("net", 6, 100*time.Microsecond))
	o := eng.options("net")
	o.Blocks, o.Batches, o.Precision, o.FP16Samples = 3, []int{1}, quickRule, -1
	o.OutPath = filepath.Join(t.TempDir(), "profile.json")
	ctx, cancel := context.WithCancel(context.Background())
	warmUpBegin := math.MaxInt
	o.Progress = func(e Event) {
		if e.Stage == StageWarmUp {
			warmUpBegin = len(eng.log)
		}
	}
	eng.onRun = func(int) {
		if len(eng.log)-30 > warmUpBegin { // in the samples that follow
			cancel()
		}
	}
	isPartial := func(n string) bool { return strings.HasSuffix(n, partialEnd) }
	p, err := Run(ctx, o)
	cancel()
	if !errors.Is(err, context.Canceled) || !slices.ContainsFunc(p.Notes, isPartial) {
		t.Fatalf("error %v, notes %q, expected one of what was interrupted", err, p.Notes)
	}
	eng.onRun, o.Progress, o.Ranges = nil, nil, AllRanges()
	o.Ranges.OnlyRanges = true
	if p = mustRun(t, o); len(p.Models[0].Measurements[0].Ranges) != 2 || !slices.ContainsFunc(p.Notes, isPartial) {
		t.Errorf("after ranges: %+v, notes %q", p.Models[0].Measurements[0].Ranges, p.Notes)
	}
}
