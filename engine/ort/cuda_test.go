//go:build cgo && !noort

package ort

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/engine"
)

// builtDriver compiles the stand-in once.
func builtDriver(cc string) ([]byte, error) {
	buildOnce.Do(func() {
		var dir string
		if dir, buildOnce.err = os.MkdirTemp("", "fakecuda"); buildOnce.err != nil {
			return
		}
		defer os.RemoveAll(dir)
		so := filepath.Join(dir, "libfakecuda.so")
		if out, err := exec.Command(cc, "-shared", "-fPIC", "-Wall", "-o", so, "testdata/fakecuda.c", "-lpthread").CombinedOutput(); err != nil {
			buildOnce.err = fmt.Errorf("%w: %s", err, out)
			return
		}
		buildOnce.so, buildOnce.err = os.ReadFile(so)
	})
	return buildOnce.so, buildOnce.err
}

var buildOnce struct {
	sync.Once
	so  []byte
	err error
}

// fakeDriver builds the stand-in of testdata and puts it in the place of the
// driver and NVML. calls returns what was called since the last look.
func fakeDriver(t *testing.T) (calls func() []string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) to build a stand-in for the GPU driver with")
	}
	built, err := builtDriver(cc)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	so := filepath.Join(dir, "libfakecuda.so") // each test opens one of its own
	if err := os.WriteFile(so, built, 0o755); err != nil {
		t.Fatal(err)
	}
	wasDriver, wasNVML := driverLibrary, nvmlLibrary
	driverLibrary, nvmlLibrary = so, so
	t.Cleanup(func() { driverLibrary, nvmlLibrary = wasDriver, wasNVML })
	log := filepath.Join(dir, "log")
	t.Setenv("FAKECUDA_LOG", log)
	t.Setenv("FAKECUDA_FAIL", "")
	return func() []string {
		data, _ := os.ReadFile(log)
		os.Remove(log)
		return strings.Fields(string(data))
	}
}

func TestDriverReportsGPU(t *testing.T) {
	calls := fakeDriver(t)
	d, err := AboutGPU(0)
	if err != nil {
		t.Fatal(err)
	}
	want := Driver{CUDA: "13.1", Multiprocessors: 132, Architecture: "9.0", ClockMHz: 1980, BusBits: 5120, FreeBytes: 80 << 30, TotalBytes: 80 << 30}
	if d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
	if got := calls(); got[0] != "cuInit" || slices.Index(got, "cuCtxSetCurrent") < slices.Index(got, "cuDevicePrimaryCtxRetain") {
		t.Errorf("called %v", got)
	}
	if _, err := AboutGPU(0); err != nil {
		t.Error(err)
	}
	if got := calls(); slices.Contains(got, "cuInit") || slices.Contains(got, "cuDevicePrimaryCtxRetain") {
		t.Errorf("the second time the driver is started again: %v", got)
	}
	if _, err := AboutGPU(1); err == nil || !strings.Contains(err.Error(), "cuda:1") {
		t.Errorf("a GPU that is not there: %v", err)
	}
}

func TestDriverMemory(t *testing.T) {
	calls := fakeDriver(t)
	m, err := Allocate(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("inferplan"), 4096/9+1)[:4096]
	if err := m.Write(data); err != nil {
		t.Fatal(err)
	}
	if got := calls(); !slices.Contains(got, "cuStreamSynchronize") {
		t.Errorf("a copy to the device does not wait for its arrival: %v", got)
	}
	back := make([]byte, len(data))
	if err := m.Read(back); err != nil || !bytes.Equal(back, data) {
		t.Errorf("what comes back differs (%v)", err)
	}
	if err := errors.Join(m.Write(data[:7]), m.Read(back[:7])); !errors.Is(err, engine.ErrShape) {
		t.Errorf("a piece of another length: %v", err)
	}

	// Another thread than the one that allocated: each sets its context first.
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- m.Read(back)
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}

	// Across a handle.
	h, err := m.Export()
	if err != nil {
		t.Fatal(err)
	}
	other, err := Import(0, h, 4096)
	if err != nil {
		t.Fatal(err)
	}
	clear(back)
	if err := other.Read(back); err != nil || !bytes.Equal(back, data) {
		t.Errorf("through a handle: %v", err)
	}
	mine, err := Allocate(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if each, err := mine.CopyTime(other, 4); err != nil || each != 500*time.Microsecond {
		t.Errorf("four copies of together 2 ms: %v each, %v", each, err)
	}
	calls()
	if err := errors.Join(other.Close(), other.Close(), mine.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if got := calls(); !slices.Contains(got, "cuIpcCloseMemHandle") || slices.Index(got, "cuMemFree_v2") < slices.Index(got, "cuIpcCloseMemHandle") {
		t.Errorf("closing called %v", got)
	}
	if _, err := Import(0, Handle{}, 16); err == nil {
		t.Error("an empty handle is mapped")
	}
	if _, err := Allocate(0, 1<<40); err == nil || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("more than there is: %v", err)
	}
	if d, err := AboutGPU(0); err != nil || d.FreeBytes != d.TotalBytes {
		t.Errorf("memory is lost: %+v, %v", d, err)
	}
}

func TestPinRegistersMemoryOnce(t *testing.T) {
	calls := fakeDriver(t)
	data := make([]byte, 1<<16)
	unpin, err := Pin(0, data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Pin(0, data); err == nil {
		t.Error("pinned twice")
	}
	if err := unpin(); err != nil {
		t.Error(err)
	}
	if err := unpin(); err == nil {
		t.Error("unpinned twice")
	}
	if none, err := Pin(0, nil); err != nil || none() != nil {
		t.Error(err)
	}
	if got := calls(); !slices.Contains(got, "cuMemHostRegister_v2") || !slices.Contains(got, "cuMemHostUnregister") {
		t.Errorf("called %v", got)
	}
}

func TestMeasureCopies(t *testing.T) {
	calls := fakeDriver(t)
	r, err := MeasureCopies(0, 1<<20, 4)
	if err != nil {
		t.Fatal(err)
	}
	want := float64(1<<20) / 500e-6 // by the stand-in's clock
	for name, got := range map[string]float64{"to the device": r.ToDevice, "to the host": r.ToHost, "paged": r.ToDevicePaged, "from paged": r.FromPaged, "inside": r.InDevice} {
		if got < 0.999*want || got > 1.001*want {
			t.Errorf("%s: %g bytes/s, want %g", name, got, want)
		}
	}
	got := calls()
	count := func(name string) (n int) {
		for _, c := range got {
			if c == name {
				n++
			}
		}
		return n
	}
	for _, pair := range [][2]string{{"cuStreamCreate", "cuStreamDestroy_v2"}, {"cuEventCreate", "cuEventDestroy_v2"}, {"cuMemAlloc_v2", "cuMemFree_v2"}, {"cuMemHostRegister_v2", "cuMemHostUnregister"}} {
		if a, b := count(pair[0]), count(pair[1]); a == 0 || a != b {
			t.Errorf("%d calls of %s, %d of %s", a, pair[0], b, pair[1])
		}
	}
	// Each direction: one copy to warm up and four that are timed.
	if a, b, c := count("cuMemcpyHtoDAsync_v2"), count("cuMemcpyDtoHAsync_v2"), count("cuMemcpyDtoDAsync_v2"); a != 10 || b != 10 || c != 5 {
		t.Errorf("%d, %d and %d copies", a, b, c)
	}
	// Whatever fails is said, and nothing is left behind.
	for _, fail := range []string{"cuMemAlloc_v2", "cuStreamCreate", "cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuMemHostRegister_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2"} {
		t.Setenv("FAKECUDA_FAIL", fail)
		if _, err := MeasureCopies(0, 1<<10, 2); err == nil || !strings.Contains(err.Error(), "unknown error") || !strings.Contains(err.Error(), "cuda:0") {
			t.Errorf("%s fails: %v", fail, err)
		}
	}
	t.Setenv("FAKECUDA_FAIL", "")
	if d, err := AboutGPU(0); err != nil || d.FreeBytes != d.TotalBytes {
		t.Errorf("memory is lost: %+v, %v", d, err)
	}
}

func TestDriverErrors(t *testing.T) {
	fakeDriver(t)
	so := driverLibrary
	driverLibrary = "libno-such-driver.so.1"
	if _, err := AboutGPU(0); !errors.Is(err, engine.ErrNoDevice) || !strings.Contains(err.Error(), "libno-such-driver.so.1") {
		t.Errorf("without a driver: %v", err)
	}
	driverLibrary = so
	t.Setenv("FAKECUDA_FAIL", "cuInit")
	if _, err := AboutGPU(0); !errors.Is(err, engine.ErrNoDevice) || !strings.Contains(err.Error(), "unknown error") {
		t.Errorf("a driver that does not start: %v", err)
	}
	t.Setenv("FAKECUDA_FAIL", "")
	// An old driver lacks a function: it is named.
	old := filepath.Join(t.TempDir(), "libold.so")
	source := filepath.Join(t.TempDir(), "old.c")
	if err := os.WriteFile(source, []byte("int cuInit(unsigned f) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", old, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	driverLibrary = old
	if _, err := AboutGPU(0); err == nil || !strings.Contains(err.Error(), "cuDriverGetVersion") {
		t.Errorf("an old driver: %v", err)
	}
}

func TestWatchReadsGPUState(t *testing.T) {
	calls := fakeDriver(t)
	w, err := OpenWatch(0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Read()
	if err != nil || got != (GPUState{Watts: 321.5, ClockMHz: 1980, MemoryMHz: 2619, Celsius: 55, Throttled: 4}) {
		t.Errorf("%+v, %v", got, err)
	}
	// What cannot be read is 0; when nothing can, that is an error.
	t.Setenv("FAKECUDA_FAIL", "nvmlDeviceGetPowerUsage")
	if got, err := w.Read(); err != nil || got.Watts != 0 || got.ClockMHz != 1980 {
		t.Errorf("without power: %+v, %v", got, err)
	}
	t.Setenv("FAKECUDA_FAIL", "")
	w.Close()
	w.Close()
	if got := calls(); got[len(got)-1] != "nvmlShutdown" {
		t.Errorf("called %v", got)
	}
	if _, err := OpenWatch(3); err == nil || !strings.Contains(err.Error(), "invalid argument") {
		t.Errorf("a GPU that is not there: %v", err)
	}
	gpus, err := GPUs()
	if err != nil || len(gpus) != 1 || gpus[0].Multiprocessors != 132 || gpus[0].Architecture != "9.0" || gpus[0].PowerLimitWatts != 700 {
		t.Errorf("%+v, %v", gpus, err)
	}
	nvmlLibrary = "libno-such-nvml.so.1"
	if _, err := OpenWatch(0); err == nil || !strings.Contains(err.Error(), "libno-such-nvml.so.1") {
		t.Errorf("without NVML: %v", err)
	}
}

// On a GPU a block has a session per batch size, because convolutions there keep
// the plan of one shape only. The same on the CPU, to be seen here.
func TestSessionPerBatch(t *testing.T) {
	e := open(t)
	e.perBatch = true
	sub := mlpSlice(t, e, 4)
	b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sub.ONNX = nil // callers let go of it after Load
	before, _, _ := Live()
	var first []engine.Binding
	outputs := map[int][]byte{}
	for range 2 {
		for _, batch := range []int{4, 1, 2} {
			x, err := b.Bind(engine.BindOptions{Batch: batch})
			if err != nil {
				t.Fatal(err)
			}
			fill(x.Inputs()[0], 5)
			if err := x.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if was := outputs[batch]; was != nil && !bytes.Equal(was, x.Outputs()[0].Bytes()) {
				t.Errorf("batch %d: another answer the second time", batch)
			}
			outputs[batch] = bytes.Clone(x.Outputs()[0].Bytes())
			first = append(first, x)
		}
	}
	if now, _, _ := Live(); now != before+2 {
		t.Errorf("%d sessions for three batch sizes", now-before+1)
	}
	for _, x := range first {
		x.Close()
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if now, _, _ := Live(); now != before-1 {
		t.Errorf("%d sessions are left", now-before+1)
	}
	if _, err := b.Bind(engine.BindOptions{Batch: 8}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("bound after Close: %v", err)
	}
}

// A timed run on a GPU waits for the device through the driver, each of them: what
// the runtime waits for by itself differs between its versions.
func TestRunsWaitForTheDevice(t *testing.T) {
	calls := fakeDriver(t)
	if err := openDriver(); err != nil {
		t.Fatal(err)
	}
	e := open(t)
	e.waits = true
	b, err := e.Load(ctx, mlpSlice(t, e, 4), engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	x, err := b.Bind(engine.BindOptions{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	calls()
	got, err := x.RunN(5)
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	for _, c := range calls() {
		if c == "cuCtxSynchronize" {
			waits++
		}
	}
	if waits != 5 {
		t.Errorf("waited %d times for 5 runs", waits)
	}
	if got.Host <= 0 || got.Host > got.Wall {
		t.Errorf("host time %v of %v", got.Host, got.Wall)
	}
	t.Setenv("FAKECUDA_FAIL", "cuCtxSynchronize")
	if _, err := x.RunN(1); err == nil || !strings.Contains(err.Error(), "wait for the GPU") {
		t.Errorf("a device that fails: %v", err)
	}
}

// A block whose tensors have addresses of their own, as with CUDA graphs: many
// bindings to memory of callers share one per batch size, and answer the same.
func TestStagedBindingsAnswerTheSame(t *testing.T) {
	e := open(t)
	sub := mlpSlice(t, e, 4)
	b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := map[int][]byte{}
	for _, batch := range []int{1, 3} {
		x, err := b.Bind(engine.BindOptions{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		fill(x.Inputs()[0], 5)
		if err := x.Run(ctx); err != nil {
			t.Fatal(err)
		}
		want[batch] = bytes.Clone(x.Outputs()[0].Bytes())
	}
	e.staged = true
	s, err := e.Load(ctx, mlpSlice(t, e, 4), engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, before, _ := Live()
	for _, batch := range []int{1, 3, 1, 3} {
		in, err := engine.NewHostTensor(sub.Inputs[0], batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.Bind(engine.BindOptions{Batch: batch, Inputs: []engine.Tensor{in}, HostIO: true})
		if err != nil {
			t.Fatal(err)
		}
		fill(in, 5)
		if tm, err := x.RunN(2); err != nil || tm.Runs != 2 || tm.Wall <= 0 {
			t.Fatalf("%+v, %v", tm, err)
		}
		if got := x.Outputs()[0].Bytes(); !bytes.Equal(got, want[batch]) {
			t.Errorf("batch %d: another answer", batch)
		}
		if err := errors.Join(x.Close(), x.Close()); err != nil {
			t.Error(err)
		}
		if err := x.Run(ctx); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("run after Close: %v", err)
		}
	}
	if _, now, _ := Live(); now != before+2 {
		t.Errorf("%d bindings for two batch sizes", now-before)
	}
	if _, err := s.Bind(engine.BindOptions{Batch: 2, Inputs: []engine.Tensor{}}); !errors.Is(err, engine.ErrShape) {
		t.Errorf("no input given: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, now, _ := Live(); now != before {
		t.Errorf("%d bindings are left", now-before)
	}
}

// Tensors in a piece of the device's memory, which another process may have
// mapped: at their offsets, and gone with it.
func TestMemoryTensors(t *testing.T) {
	fakeDriver(t)
	open(t)
	m, h, err := ShareMemory(0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	there, err := Import(0, h, 4096)
	if err != nil {
		t.Fatal(err)
	}
	spec := engine.Spec{Name: "x", Type: engine.F32, Shape: []int64{engine.BatchDim, 16}}
	_, _, before := Live()
	a, err := m.Tensor(spec, 2, 1024)
	if err != nil {
		t.Fatal(err)
	}
	b, err := there.Tensor(spec, 2, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if a.Bytes() != nil {
		t.Error("memory of a device is handed out as the host's")
	}
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 32)
	back := make([]byte, len(data))
	if err := errors.Join(a.Write(data), b.Read(back)); err != nil || !bytes.Equal(data, back) {
		t.Errorf("through the handle: %v", err)
	}
	if _, err := m.Tensor(spec, 100, 0); !errors.Is(err, engine.ErrShape) {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := m.Tensor(spec, 1, -64); !errors.Is(err, engine.ErrShape) {
		t.Errorf("before the beginning: %v", err)
	}
	if err := errors.Join(there.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if _, _, now := Live(); now != before {
		t.Errorf("%d tensors are left", now-before)
	}
	if _, err := m.Tensor(spec, 1, 0); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := a.Read(back); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("a tensor of memory that is gone: %v", err)
	}
}

// Without NVML the driver lists the GPUs.
func TestGPUsOfTheDriver(t *testing.T) {
	fakeDriver(t)
	got, err := gpusOf("libno-such-nvml.so.1")
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	want := engine.Device{ID: "cuda:0", Kind: "H100", Name: "NVIDIA H100 80GB HBM3", Share: 1, MemoryBytes: 80 << 30, Architecture: "9.0", Multiprocessors: 132}
	if fmt.Sprint(got[0]) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got[0], want)
	}
}

// Which provider executes what can be asked; on the CPU it is the CPU's.
func TestAssignmentNamesProviderOfOperators(t *testing.T) {
	e := open(t)
	got, err := e.Assignment(mlpSlice(t, e, 4), engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got[cpuProvider]); len(got) != 1 || n < 2 || !strings.HasPrefix(strings.Join(got[cpuProvider], ","), "Gemm") && !strings.Contains(strings.Join(got[cpuProvider], ","), "MatMul") {
		t.Errorf("%v", got)
	}
}

func TestProviderOptions(t *testing.T) {
	gpu := engine.Device{ID: "cuda:1"}
	got := providerOptions(gpu, engine.Options{CUDAGraph: true, Provider: map[string]string{"use_tf32": "0", "gpu_mem_limit": "1073741824"}})
	for k, want := range map[string]string{"device_id": "1", "cudnn_conv_algo_search": "EXHAUSTIVE", "use_tf32": "0", "enable_cuda_graph": "1", "gpu_mem_limit": "1073741824", "arena_extend_strategy": "kSameAsRequested"} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
	if got := providerOptions(gpu, engine.Options{}); got["use_tf32"] != "1" || got["enable_cuda_graph"] != "" {
		t.Errorf("defaults %v", got)
	}
	if got := providerOptions(gpu, engine.Options{TensorRT: true, CUDAGraph: true}); got["trt_cuda_graph_enable"] != "1" || got["use_tf32"] != "" {
		t.Errorf("TensorRT %v", got)
	}
	if got := providerOptions(engine.CPUDevice(0), engine.Options{}); len(got) != 0 {
		t.Errorf("on a CPU %v", got)
	}
}

// The runtime takes an input of the host's memory to a GPU when it is bound. What
// is written there later must be read all the same.
func TestInputsWrittenAfterBindAreRead(t *testing.T) {
	e := open(t)
	sub := mlpSlice(t, e, 4)
	b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	answer := func(batch int, seed uint64) []byte {
		x, err := b.Bind(engine.BindOptions{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		fill(x.Inputs()[0], seed)
		if err := x.Run(ctx); err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(x.Outputs()[0].Bytes())
	}
	e.fed = true
	f, err := e.Load(ctx, mlpSlice(t, e, 4), engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, values := Live()
	for _, given := range []bool{true, false} {
		for _, batch := range []int{1, 3} {
			o := engine.BindOptions{Batch: batch, HostIO: true}
			if given {
				in, err := engine.NewHostTensor(sub.Inputs[0], batch, nil)
				if err != nil {
					t.Fatal(err)
				}
				out, err := engine.NewHostTensor(sub.Outputs[0], batch, nil)
				if err != nil {
					t.Fatal(err)
				}
				o.Inputs, o.Outputs = []engine.Tensor{in}, []engine.Tensor{out}
			}
			x, err := f.Bind(o)
			if err != nil {
				t.Fatal(err)
			}
			s, ok := x.(*stagedBinding)
			if !ok || s.core.inputs[0] == s.inputs[0] {
				t.Fatalf("a binding of type %T, whose engine reads the caller's memory", x)
			}
			if given && x.Outputs()[0] != o.Outputs[0] {
				t.Error("the output is not where it was asked for")
			}
			for _, seed := range []uint64{3, 4} {
				fill(x.Inputs()[0], seed)
				if err := x.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(x.Outputs()[0].Bytes(), answer(batch, seed)) {
					t.Errorf("batch %d, inputs given %v, input %d: not the answer to what was written last", batch, given, seed)
				}
			}
			if err := errors.Join(x.Close(), x.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	if _, _, now := Live(); now != values+2 {
		t.Errorf("%d tensors are left, expected an input for each of two batch sizes", now-values)
	}
	if _, err := f.Bind(engine.BindOptions{Batch: 2, HostIO: true, Inputs: []engine.Tensor{}}); !errors.Is(err, engine.ErrShape) {
		t.Errorf("no input given: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, now := Live(); now != values {
		t.Errorf("%d tensors are left", now-values)
	}
}

// Bindings of one batch size share the tensors into which inputs are copied, and
// may run at the same time all the same.
func TestFedAtOnce(t *testing.T) {
	e := open(t)
	sub := mlpSlice(t, e, 4)
	for _, staged := range []bool{false, true} {
		e.fed, e.staged = !staged, staged
		b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		runAtOnce(t, b)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// runAtOnce runs bindings of a block to memory of the host in goroutines of their
// own, each with inputs of its own, whose answers must stay the same.
func runAtOnce(t *testing.T, b engine.Block) {
	t.Helper()
	var all sync.WaitGroup
	var answers [4][]byte
	for k := range answers {
		x, err := b.Bind(engine.BindOptions{Batch: 2, HostIO: true})
		if err != nil {
			t.Fatal(err)
		}
		fill(x.Inputs()[0], uint64(10*k))
		if err := x.Run(ctx); err != nil { // alone
			t.Fatal(err)
		}
		answers[k] = bytes.Clone(x.Outputs()[0].Bytes())
		all.Go(func() {
			for range 50 {
				if err := x.Run(ctx); err != nil {
					t.Error(err)
				}
				if !bytes.Equal(answers[k], x.Outputs()[0].Bytes()) {
					t.Errorf("binding %d: another answer than alone", k)
					return
				}
			}
		})
		defer all.Wait()
	}
	all.Wait()
	for k := range answers[1:] {
		if bytes.Equal(answers[k], answers[k+1]) {
			t.Error("two inputs with one answer")
		}
	}
}

// A model that computes with its own shapes is loaded on a GPU at one batch size
// per session. The same on the CPU, to be seen here: the answers are those of a
// session of any batch size, and what Load made for the check is not kept beside.
func TestFixedBatchSessionsAnswerTheSame(t *testing.T) {
	e := open(t)
	sub := mlpSlice(t, e, 4)
	free, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	e.static = true
	before, _, _ := Live()
	b, err := e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(b engine.Block, batch int) []byte {
		x, err := b.Bind(engine.BindOptions{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		fill(x.Inputs()[0], 5)
		if err := x.Run(ctx); err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(x.Outputs()[0].Bytes())
	}
	for i, batch := range []int{3, 1, 3, 2} {
		if !bytes.Equal(answer(b, batch), answer(free, batch)) {
			t.Errorf("batch %d: another answer", batch)
		}
		if now, _, _ := Live(); now != before+int64([]int{1, 2, 2, 3}[i]) {
			t.Errorf("%d sessions after batch %d", now-before, batch)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if now, _, _ := Live(); now != before {
		t.Errorf("%d sessions are left", now-before)
	}
}
