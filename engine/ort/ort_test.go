//go:build cgo && !noort

package ort

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/graph/onnxpb"
)

var ctx = context.Background()

// mlp is a whole tiny model, loaded.
func mlp(t testing.TB, e *Engine, hidden int) engine.Block {
	t.Helper()
	b, err := e.Load(ctx, mlpSlice(t, e, hidden), engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mlpSlice(t testing.TB, e *Engine, hidden int) *engine.Submodel {
	t.Helper()
	m, err := graph.MLP(hidden, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Chain(ctx, e.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := c.WholeModel().Slice(0, 1, graph.SliceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

func TestDevicesListEveryCPU(t *testing.T) {
	e := open(t)
	devices, err := e.Devices()
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := engine.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cpus {
		d := devices[i]
		if !d.IsCPU() || d.Kind != "cpu-1" || d.MemoryBytes <= 0 || len(d.CPUs) != 1 || d.CPUs[0] != c {
			t.Errorf("device %d is %+v", i, d)
		}
	}
	if _, err := engine.FindDevice(devices, "cuda:99"); !errors.Is(err, engine.ErrNoDevice) || !strings.Contains(err.Error(), "cpu:") {
		t.Errorf("an unknown device: %v", err)
	}
}

// What is asked for and what is there must match, and errors must say what.
func TestLoadAndBindRefuseMismatches(t *testing.T) {
	e := open(t)
	cpu := engine.CPUDevice(0)
	good := mlpSlice(t, e, 4)
	change := func(f func(m *onnxpb.Model)) *engine.Submodel {
		m := new(onnxpb.Model)
		if err := proto.Unmarshal(good.ONNX, m); err != nil {
			t.Fatal(err)
		}
		f(m)
		s := *good
		var err error
		if s.ONNX, err = proto.Marshal(m); err != nil {
			t.Fatal(err)
		}
		return &s
	}
	truncated := *good
	truncated.ONNX = good.ONNX[:len(good.ONNX)/2]
	empty := *good
	empty.ONNX = nil
	declared := *good
	declared.Inputs = []engine.Spec{{Name: "x", Type: engine.F32, Shape: []int64{engine.BatchDim, 783}}}
	for _, c := range []struct {
		name string
		sub  *engine.Submodel
		d    engine.Device
		o    engine.Options
		kind error
		says []string
	}{
		{"unknown operator", change(func(m *onnxpb.Model) { m.Graph.Node[1].OpType = proto.String("Frobnicate") }), cpu, engine.Options{}, engine.ErrModel, []string{"Frobnicate", "mlp-4"}},
		{"wrong type", change(func(m *onnxpb.Model) { m.Graph.Input[0].Type.GetTensorType().ElemType = proto.Int32(7) }), cpu, engine.Options{}, engine.ErrModel, []string{"int64"}},
		{"truncated", &truncated, cpu, engine.Options{}, engine.ErrModel, []string{"mlp-4"}},
		{"no data", &empty, cpu, engine.Options{}, engine.ErrModel, []string{"no ONNX bytes"}},
		{"other boundary", &declared, cpu, engine.Options{}, engine.ErrModel, []string{"x float32[N,784] in the model, declared is x float32[N,783]"}},
		{"no such level", good, cpu, engine.Options{Optimization: "most"}, nil, []string{"most", "extended"}},
		{"no such device", good, engine.Device{ID: "tpu:0"}, engine.Options{}, engine.ErrNoDevice, []string{"tpu:0", "cuda:0"}},
		{"graphs on a CPU", good, cpu, engine.Options{CUDAGraph: true}, nil, []string{"GPU"}},
	} {
		b, err := e.Load(ctx, c.sub, c.d, c.o)
		if err == nil {
			b.Close()
			t.Errorf("%s: loaded", c.name)
			continue
		}
		if c.kind != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: %v is no %v", c.name, err, c.kind)
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", c.name, err, s)
			}
		}
	}

	b := mlp(t, e, 4)
	tensor := func(typ engine.DType, batch int, data []byte, dims ...int64) engine.Tensor {
		x, err := engine.NewHostTensor(engine.Spec{Name: "x", Type: typ, Shape: append([]int64{engine.BatchDim}, dims...)}, batch, data)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	odd := make([]byte, 784*4+1)
	for name, o := range map[string]engine.BindOptions{
		"batch 0":       {},
		"other batch":   {Batch: 2, Inputs: []engine.Tensor{tensor(engine.F32, 1, nil, 784)}},
		"other shape":   {Batch: 1, Inputs: []engine.Tensor{tensor(engine.F32, 1, nil, 28, 28)}},
		"other type":    {Batch: 1, Inputs: []engine.Tensor{tensor(engine.F16, 1, nil, 784)}},
		"too many":      {Batch: 1, Inputs: []engine.Tensor{nil, nil}},
		"not aligned":   {Batch: 1, Inputs: []engine.Tensor{tensor(engine.F32, 1, odd[1:], 784)}},
		"output shape":  {Batch: 1, Outputs: []engine.Tensor{tensor(engine.F32, 1, nil, 11)}},
		"output's type": {Batch: 1, Outputs: []engine.Tensor{tensor(engine.I32, 1, nil, 10)}},
	} {
		if x, err := b.Bind(o); !errors.Is(err, engine.ErrShape) {
			t.Errorf("%s: %v %v", name, x, err)
		}
	}
	x, err := b.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Inputs()[0].Write(make([]byte, 5)); !errors.Is(err, engine.ErrShape) {
		t.Errorf("a short write: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := x.Run(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run: %v", err)
	}
	if _, err := x.RunN(0); err == nil {
		t.Error("0 runs pass")
	}
	in := x.Inputs()[0]
	if err := b.Close(); err != nil { // closes the binding too
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"run": x.Run(ctx), "write": in.Write(make([]byte, 784*4)), "bind": func() error { _, err := b.Bind(engine.BindOptions{Batch: 1}); return err }(),
	} {
		if !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
	if err := errors.Join(x.Close(), b.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}

// Without CUDA, asking for a GPU names every missing library.
func TestNoCUDA(t *testing.T) {
	e := open(t)
	absent := 0
	for _, r := range CUDA() {
		if r.Err != nil {
			absent++
		}
	}
	_, err := e.Load(ctx, mlpSlice(t, e, 4), engine.Device{ID: "cuda:0", Kind: "L4", Share: 1}, engine.Options{})
	if absent == 0 {
		t.Skip("this machine has CUDA: there is nothing missing to report")
	}
	var miss *engine.MissingError
	if !errors.As(err, &miss) || !errors.Is(err, engine.ErrNoDevice) || len(miss.Missing) != absent {
		t.Fatalf("%d libraries are missing, the error is %v", absent, err)
	}
	for _, r := range CUDA() {
		if r.Err != nil && !strings.Contains(err.Error(), filepath.Base(r.Name)) {
			t.Errorf("%q does not name %s", err, r.Name)
		}
	}
	if !strings.Contains(miss.Hint, "make setup CUDA=1") {
		t.Errorf("the hint is %q", miss.Hint)
	}
}

func TestFindLibrary(t *testing.T) {
	t.Setenv(LibraryEnv, filepath.Join(t.TempDir(), "nowhere.so"))
	if _, err := FindLibrary(); !errors.Is(err, engine.ErrNoLibrary) || !strings.Contains(err.Error(), "nowhere.so") || !strings.Contains(err.Error(), LibraryEnv) {
		t.Errorf("a wrong variable: %v", err)
	}
	t.Setenv(LibraryEnv, "")
	t.Chdir(t.TempDir())
	if _, err := FindLibrary(); !errors.Is(err, engine.ErrNoLibrary) || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("outside the source tree: %v", err)
	}
}

// NVML is tried against a library of our own, as no GPU is at hand.
func TestGPUs(t *testing.T) {
	if got, err := gpusOf("libno-such-thing.so.1"); err != nil || got != nil {
		t.Errorf("without NVML: %v, %v", got, err)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) to build a stand-in for NVML with")
	}
	build := func(source string) string {
		dir := t.TempDir()
		c, so := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "nvml.so")
		if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", so, c).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return so
	}
	const common = `
#include <string.h>
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, (long)d == 1 ? "NVIDIA H100 80GB HBM3" : "Tesla T4", n); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { strncpy(s, (long)d == 1 ? "GPU-1" : "GPU-2", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { m[0] = 80ull << 30; return (long)d == 1 ? 0 : 3; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.1", n); return 0; }
const char *nvmlErrorString(int e) { return e == 4 ? "no permission" : "other"; }
`
	got, err := gpusOf(build(common + "int nvmlInit_v2(void) { return 0; }"))
	if err != nil || len(got) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	if d := got[0]; d.ID != "cuda:0" || d.Kind != "H100" || d.MemoryBytes != 80<<30 || d.UUID != "GPU-1" || d.Driver != "580.1" || d.Share != 1 {
		t.Errorf("the first is %+v", d)
	}
	if d := got[1]; d.ID != "cuda:1" || d.Kind != "T4" || d.MemoryBytes != 0 {
		t.Errorf("the second is %+v", d)
	}
	if got, err := gpusOf(build(common + "int nvmlInit_v2(void) { return 9; }")); err != nil || got != nil {
		t.Errorf("without driver: %v, %v", got, err)
	}
	if _, err := gpusOf(build(common + "int nvmlInit_v2(void) { return 4; }")); err == nil || !strings.Contains(err.Error(), "no permission") {
		t.Errorf("without permission: %v", err)
	}
	if _, err := gpusOf(build("int nvmlInit_v2(void) { return 0; }")); err == nil {
		t.Error("a library without functions passes")
	}
}

func TestKindOfGPU(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "H100", "NVIDIA L4": "L4", "Tesla V100-SXM2-16GB": "V100-SXM2", "NVIDIA A100-SXM4-40GB": "A100-SXM4",
		"Tesla P4": "P4", "NVIDIA GeForce RTX 3090": "GeForce-RTX-3090", "NVIDIA H100 PCIe": "H100-PCIe",
	} {
		if got := kindOfGPU(name); got != want {
			t.Errorf("%q is of kind %q, want %q", name, got, want)
		}
	}
}

// A caller's memory is used in place: Go memory, and memory mapped from a file
// as two processes share it.
func TestCallersMemory(t *testing.T) {
	e := open(t)
	b := mlp(t, e, 16)
	const batch = 2
	ref, err := b.Bind(engine.BindOptions{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	fill(ref.Inputs()[0], 3)
	if err := ref.Run(ctx); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("tensors", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<16); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	in, err := engine.NewHostTensor(b.Submodel().Inputs[0], batch, mapped[4096:4096+batch*784*4])
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.NewHostTensor(b.Submodel().Outputs[0], batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.Bind(engine.BindOptions{Batch: batch, Inputs: []engine.Tensor{in}, Outputs: []engine.Tensor{out}})
	if err != nil {
		t.Fatal(err)
	}
	fill(in, 3)
	runtime.GC()
	if err := x.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if string(out.Bytes()) != string(ref.Outputs()[0].Bytes()) {
		t.Error("the answer in the caller's memory differs")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// Two bindings of one block run side by side.
func TestParallelBindings(t *testing.T) {
	e := open(t)
	b := mlp(t, e, 64)
	var wg sync.WaitGroup
	answers := make([]string, 4)
	for g := range answers {
		x, err := b.Bind(engine.BindOptions{Batch: 1})
		if err != nil {
			t.Fatal(err)
		}
		fill(x.Inputs()[0], uint64(g%2))
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				if err := x.Run(ctx); err != nil {
					t.Error(err)
					return
				}
			}
			answers[g] = string(x.Outputs()[0].Bytes())
			if g < 2 {
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if answers[0] != answers[2] || answers[1] != answers[3] || answers[0] == answers[1] {
		t.Error("answers do not follow the inputs")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	e := open(t)
	b := mlp(t, e, 16)
	x, err := b.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(200, func() {
		if err := x.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per run", n)
	}
}

// The clocks of RunN: a pinned thread's CPU time cannot exceed the wall time
// by more than the clocks' grain, and both grow with the number of runs.
func TestCPUTimeStaysWithinWallTime(t *testing.T) {
	e := open(t)
	cpus, err := engine.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	unpin, err := engine.PinThread(cpus[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unpin()
	b := mlp(t, e, 256)
	x, err := b.Bind(engine.BindOptions{Batch: 8})
	if err != nil {
		t.Fatal(err)
	}
	few, err := x.RunN(20)
	if err != nil {
		t.Fatal(err)
	}
	many, err := x.RunN(400)
	if err != nil {
		t.Fatal(err)
	}
	if few.Runs != 20 || few.CPU <= 0 || many.CPU < 4*few.CPU/2 || many.CPU > many.Wall*101/100+100_000 {
		t.Errorf("20 runs %+v, 400 runs %+v", few, many)
	}
	if cpu, wall := many.PerRun(); cpu != many.CPU/400 || wall != many.Wall/400 {
		t.Errorf("per run %v %v", cpu, wall)
	}
}

// resident is the process's memory in pages.
func resident(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc/self/statm to read the memory in use from")
	}
	var total, rss int64
	for i, f := range strings.Fields(string(data))[:2] {
		for _, c := range f {
			if i == 0 {
				total = total*10 + int64(c-'0')
			} else {
				rss = rss*10 + int64(c-'0')
			}
		}
	}
	return rss
}

// Loading, binding and closing over and over leaves nothing behind, on success
// and on failure.
func TestLeaksNothing(t *testing.T) {
	e := open(t)
	s0, b0, v0 := Live()
	sub := mlpSlice(t, e, 1024) // 3 MB of weights
	broken := *sub
	broken.ONNX = sub.ONNX[:len(sub.ONNX)-100]
	round := func() {
		b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for batch := 1; batch <= 64; batch *= 8 {
			x, err := b.Bind(engine.BindOptions{Batch: batch})
			if err != nil {
				t.Fatal(err)
			}
			if err := x.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if batch == 8 {
				if err := x.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := b.Bind(engine.BindOptions{Batch: 1, Outputs: make([]engine.Tensor, 3)}); err == nil {
			t.Fatal("three outputs pass")
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Load(ctx, &broken, engine.CPUDevice(0), engine.Options{}); err == nil {
			t.Fatal("a broken model loads")
		}
		if _, err := e.Probe(ctx, sub.ONNX, sub.Inputs, graph.ProbeRun{Batch: 3, Names: []string{"logits"}}); err != nil {
			t.Fatal(err)
		}
	}
	const rounds = 60
	grown := int64(0)
	for range 3 { // the allocators' pools fill first; a leak is there each time
		for range 10 {
			round()
		}
		runtime.GC()
		before := resident(t)
		for range rounds {
			round()
		}
		runtime.GC()
		if grown = (resident(t) - before) * int64(os.Getpagesize()); grown <= 16<<20 { // one session of each round would be 180 MB
			break
		}
	}
	if grown > 16<<20 {
		t.Errorf("%d rounds left %d bytes", rounds, grown)
	}
	if s, b, v := Live(); s != s0 || b != b0 || v != v0 {
		t.Errorf("%d sessions, %d bindings and %d tensors are left", s-s0, b-b0, v-v0)
	}
}

// Closing the engine closes what is loaded; a closed engine loads no more.
func TestEngineClose(t *testing.T) {
	open(t)
	e, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	sub := mlpSlice(t, e, 4)
	s0, b0, v0 := Live()
	b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Bind(engine.BindOptions{Batch: 1}); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if s, b, v := Live(); s != s0 || b != b0 || v != v0 {
		t.Errorf("%d sessions, %d bindings and %d tensors are left", s-s0, b-b0, v-v0)
	}
	if _, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("loading after close: %v", err)
	}
	if _, err := Open(os.Args[0]); err == nil {
		t.Error("a second library opens")
	}
}

func BenchmarkRun(b *testing.B) {
	e := open(b)
	for _, h := range []int{4, 16, 256} {
		x, err := mlp(b, e, h).Bind(engine.BindOptions{Batch: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.Run("mlp-"+strconv.Itoa(h)+"/Run", func(b *testing.B) {
			b.ReportAllocs()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cpu := engine.ThreadCPU()
			for range b.N {
				if err := x.Run(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(engine.ThreadCPU()-cpu)/float64(b.N), "cpu-ns/op")
		})
		b.Run("mlp-"+strconv.Itoa(h)+"/RunN", func(b *testing.B) {
			b.ReportAllocs()
			t, err := x.RunN(b.N)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(t.CPU)/float64(b.N), "cpu-ns/op")
		})
	}
}
