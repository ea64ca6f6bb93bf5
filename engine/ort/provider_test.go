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

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/graph/onnxpb"
	"inferplan/engine/models"
)

// The tests in this file run ONNX Runtime's own CUDA provider on stand-ins for
// NVIDIA's libraries (testdata/fakecuda.sh), in a process of their own, because
// the loader looks for libraries where a process was told to when it started. In
// the stand-ins, work of a stream is done as late as CUDA's rules allow, device
// addresses are none of the host's, and of kernels only products, Relu and Fill
// compute: enough for a perceptron's answers.

const standInEnv = "INFERPLAN_STAND_IN"

// TestProvider starts that process. It needs `make setup CUDA=1`.
func TestProvider(t *testing.T) {
	lib, err := FindLibrary()
	if err != nil {
		t.Skipf("ONNX Runtime is not set up: run `make setup` (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(lib), "libonnxruntime_providers_cuda.so")); err != nil {
		t.Skip("the CUDA provider is not set up: run `make setup CUDA=1`")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler (cc) to build stand-ins for the CUDA libraries with")
	}
	dir := t.TempDir()
	if out, err := exec.Command("testdata/fakecuda.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestOnProvider$", "-test.v")
	cmd.Env = append(os.Environ(), standInEnv+"="+dir, LibraryEnv+"="+lib, "LD_LIBRARY_PATH="+dir, "FAKECUDA_LOG="+filepath.Join(dir, "log"), "FAKECUDA_FAIL=", "FAKECUDA_MIB=4096")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// gpu is the device of the stand-ins, with what was called since the last look.
type gpu struct {
	e   *Engine
	d   engine.Device
	log string
}

func (g *gpu) calls() []string {
	data, _ := os.ReadFile(g.log)
	os.Remove(g.log)
	return strings.Split(string(data), "\n")
}

func count(calls []string, prefix string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func (g *gpu) load(t *testing.T, sub *engine.Submodel, o engine.Options) engine.Block {
	t.Helper()
	b, err := g.e.Load(ctx, sub, g.d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func bind(t *testing.T, b engine.Block, o engine.BindOptions) engine.Binding {
	t.Helper()
	x, err := b.Bind(o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// input is what fill puts into a tensor.
func input(t *testing.T, spec engine.Spec, batch int, seed uint64) []byte {
	t.Helper()
	h, err := engine.NewHostTensor(spec, batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(h, seed)
	return h.Bytes()
}

// read is what a tensor holds now.
func read(t *testing.T, x engine.Tensor) []byte {
	t.Helper()
	out := make([]byte, x.Spec().BytesAt(x.Batch()))
	if err := x.Read(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// same holds an answer against the CPU's.
func (g *gpu) same(t *testing.T, sub *engine.Submodel, in, got []byte, batch int) {
	t.Helper()
	b, err := g.e.Load(ctx, sub, engine.CPUDevice(0), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	x := bind(t, b, engine.BindOptions{Batch: batch})
	copy(x.Inputs()[0].Bytes(), in)
	if err := x.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if d := relative(floats(x.Outputs()[0].Bytes()), floats(got)); !(d < 1e-5) {
		t.Errorf("batch %d: the answer differs by %.2g of the largest value", batch, d)
	}
}

// TestOnProvider is what TestProvider runs in a process of its own.
func TestOnProvider(t *testing.T) {
	dir := os.Getenv(standInEnv)
	if dir == "" {
		t.Skip("TestProvider runs this on stand-ins for the CUDA libraries")
	}
	g := &gpu{e: open(t), d: engine.Device{ID: "cuda:0"}, log: filepath.Join(dir, "log")}
	for _, c := range []struct {
		name string
		f    func(*testing.T, *gpu)
	}{
		{"answers", answersOnProvider}, {"graphs", graphsOnProvider}, {"chain", chainOnProvider}, {"shared memory", memoryOnProvider},
		{"timing", timingOnProvider}, {"options", optionsOnProvider}, {"refused", refusedOnProvider}, {"shapes", shapesOnProvider},
		{"convolutions", convolutionsOnProvider}, {"threads", threadsOnProvider}, {"models", modelsOnProvider},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.f(t, g)
			for _, call := range g.calls() {
				if strings.Contains(call, "forbidden") || strings.Contains(call, "not on the device") || strings.Contains(call, "outside its memory") || strings.Contains(call, "not an allocation's") {
					t.Error(call)
				}
			}
		})
	}
	// What was closed is given back.
	if d, err := AboutGPU(0); err != nil || d.TotalBytes-d.FreeBytes > 1<<20 {
		t.Errorf("%d bytes of the GPU's memory are still taken (%v)", d.TotalBytes-d.FreeBytes, err)
	}
}

// Wherever the tensors lie, a run reads what was written last.
func answersOnProvider(t *testing.T, g *gpu) {
	sub := mlpSlice(t, g.e, 16)
	spec, result := sub.Inputs[0], sub.Outputs[0]
	b := g.load(t, sub, engine.Options{})
	for _, batch := range []int{1, 3} {
		given, err := engine.NewHostTensor(spec, batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := engine.NewHostTensor(result, batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		pinned, err := engine.NewHostTensor(result, batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		unpin, err := Pin(0, pinned.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name string
			o    engine.BindOptions
		}{
			{"on the device", engine.BindOptions{}},
			{"on the host", engine.BindOptions{HostIO: true}},
			{"the caller's", engine.BindOptions{Inputs: []engine.Tensor{given}, Outputs: []engine.Tensor{answer}}},
			{"pinned", engine.BindOptions{Inputs: []engine.Tensor{given}, Outputs: []engine.Tensor{pinned}}},
		} {
			t.Run(fmt.Sprint(c.name, " ", batch), func(t *testing.T) {
				c.o.Batch = batch
				x := bind(t, b, c.o)
				for seed := range uint64(3) {
					in := input(t, spec, batch, seed)
					if err := x.Inputs()[0].Write(in); err != nil {
						t.Fatal(err)
					}
					if err := x.Run(ctx); err != nil {
						t.Fatal(err)
					}
					g.same(t, sub, in, read(t, x.Outputs()[0]), batch)
				}
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		if err := unpin(); err != nil {
			t.Error(err)
		}
	}
}

// With CUDA graphs a batch size is captured once and replayed after, and a
// replay computes with what was written last.
func graphsOnProvider(t *testing.T, g *gpu) {
	sub := mlpSlice(t, g.e, 16)
	spec := sub.Inputs[0]
	for _, host := range []bool{false, true} {
		t.Run(fmt.Sprint("host ", host), func(t *testing.T) {
			// The provider keeps handles, workspaces and graphs by thread.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b := g.load(t, sub, engine.Options{CUDAGraph: true})
			g.calls()
			var all []engine.Binding
			for _, batch := range []int{1, 3, 1} {
				x := bind(t, b, engine.BindOptions{Batch: batch, HostIO: host})
				all = append(all, x)
			}
			const runs = 5
			for seed := range uint64(runs) {
				for _, x := range all {
					in := input(t, spec, x.Batch(), seed)
					if err := x.Inputs()[0].Write(in); err != nil {
						t.Fatal(err)
					}
					if err := x.Run(ctx); err != nil {
						t.Fatal(err)
					}
					g.same(t, sub, in, read(t, x.Outputs()[0]), x.Batch())
				}
			}
			calls := g.calls()
			captures := 3 // of tensors on the device each binding has its own
			if host {
				captures = 2 // those in the host's memory share one per batch size
			}
			if n := count(calls, "captured"); n != captures {
				t.Errorf("captured %d times, expected %d", n, captures)
			}
			// The first run of a graph warms up twice, captures and replays.
			if n := count(calls, "replay"); n != 3*runs {
				t.Errorf("replayed %d times in %d runs", n, 3*runs)
			}
			relu := slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return !strings.Contains(c, "OP_Relu") })
			if n := len(relu); n != 3*captures {
				t.Errorf("%d launches of the one rectifier outside of replays of %d graphs", n, captures)
			}
			// Timed runs of a graph are launched, too, and waited for by us.
			if tm, err := all[0].RunN(4); err != nil || tm.Wall <= 0 || !host && (tm.Host <= 0 || tm.Host > tm.Wall) {
				t.Errorf("%+v, %v", tm, err)
			}
			calls = g.calls()
			if n := count(calls, "replay"); n != 4 {
				t.Errorf("%d replays in 4 timed runs", n)
			}
			if n := count(calls, "cudaStreamSynchronize"); !host && n != 0 {
				t.Errorf("the provider waited %d times for replays that were to be launched only", n)
			}
		})
	}
}

// Two blocks pass tensors by address.
func chainOnProvider(t *testing.T, g *gpu) {
	m, err := graph.MLP(16, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := m.Chain(ctx, g.e.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	blocks, whole := c.EachAtom(), mlpSlice(t, g.e, 16)
	if blocks.Len() < 2 {
		t.Fatal("one block only")
	}
	for _, graphs := range []bool{false, true} {
		var tensors []engine.Tensor
		var line []engine.Binding
		for i := range blocks.Len() {
			sub, err := blocks.Slice(i, i+1, graph.SliceOptions{})
			if err != nil {
				t.Fatal(err)
			}
			x := bind(t, g.load(t, sub, engine.Options{CUDAGraph: graphs}), engine.BindOptions{Batch: 2, Inputs: tensors})
			line, tensors = append(line, x), x.Outputs()
		}
		for seed := range uint64(4) {
			in := input(t, whole.Inputs[0], 2, seed)
			if err := line[0].Inputs()[0].Write(in); err != nil {
				t.Fatal(err)
			}
			g.calls()
			for _, x := range line {
				if err := x.Run(ctx); err != nil {
					t.Fatal(err)
				}
			}
			if n := count(g.calls(), "copy"); n != 0 {
				t.Errorf("%d copies between blocks that pass tensors by address (graphs %v)", n, graphs)
			}
			g.same(t, whole, in, read(t, tensors[0]), 2)
		}
	}
}

// Inputs and outputs in memory that another process may have mapped.
func memoryOnProvider(t *testing.T, g *gpu) {
	sub := mlpSlice(t, g.e, 16)
	m, h, err := ShareMemory(0, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	there, err := Import(0, h, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	from, err := there.Tensor(sub.Inputs[0], 2, 256)
	if err != nil {
		t.Fatal(err)
	}
	to, err := m.Tensor(sub.Outputs[0], 2, 32<<10)
	if err != nil {
		t.Fatal(err)
	}
	for _, graphs := range []bool{false, true} {
		b := g.load(t, sub, engine.Options{CUDAGraph: graphs})
		x := bind(t, b, engine.BindOptions{Batch: 2, Inputs: []engine.Tensor{from}, Outputs: []engine.Tensor{to}})
		for seed := range uint64(4) {
			in := input(t, sub.Inputs[0], 2, seed)
			if err := from.Write(in); err != nil {
				t.Fatal(err)
			}
			if err := x.Run(ctx); err != nil {
				t.Fatal(err)
			}
			g.same(t, sub, in, read(t, to), 2)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(there.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

// Timed runs launch and wait; when they return, the outputs are there.
func timingOnProvider(t *testing.T, g *gpu) {
	sub := mlpSlice(t, g.e, 16)
	x := bind(t, g.load(t, sub, engine.Options{}), engine.BindOptions{Batch: 2})
	in := input(t, sub.Inputs[0], 2, 1)
	if err := x.Inputs()[0].Write(in); err != nil {
		t.Fatal(err)
	}
	if err := x.Run(ctx); err != nil { // warm up
		t.Fatal(err)
	}
	g.calls()
	tm, err := x.RunN(6)
	if err != nil || tm.Host <= 0 || tm.Host > tm.Wall {
		t.Errorf("%+v, %v", tm, err)
	}
	calls := g.calls()
	if n := count(calls, "cuCtxSynchronize"); n != 6 {
		t.Errorf("waited %d times for 6 runs", n)
	}
	if n := count(calls, "cudaMalloc") + count(calls, "cuMemAlloc") + count(calls, "copy"); n != 0 {
		t.Errorf("%d allocations and copies in timed runs", n)
	}
	g.same(t, sub, in, read(t, x.Outputs()[0]), 2)
}

// Options reach the provider; what it does not know is an error.
func optionsOnProvider(t *testing.T, g *gpu) {
	sub := mlpSlice(t, g.e, 16)
	for _, c := range []struct{ tf32, mode string }{{"1", "cublasSetMathMode 3"}, {"0", "cublasSetMathMode 2"}} {
		x := bind(t, g.load(t, sub, engine.Options{Provider: map[string]string{"use_tf32": c.tf32, "gpu_mem_limit": "67108864", "cudnn_conv_algo_search": "HEURISTIC", "prefer_nhwc": "1"}}), engine.BindOptions{Batch: 1})
		g.calls()
		if err := x.Run(ctx); err != nil {
			t.Fatal(err)
		}
		tf32 := count(g.calls(), "cublasSetMathMode 3") > 0
		if tf32 != (c.tf32 == "1") {
			t.Errorf("use_tf32 %s, and products in TF32: %v", c.tf32, tf32)
		}
	}
	for _, c := range []struct{ key, value, says string }{
		{"no_such_option", "1", "no_such_option"}, {"cudnn_conv_algo_search", "THOROUGH", "THOROUGH"}, {"gpu_mem_limit", "4096", "memory"},
	} {
		b, err := g.e.Load(ctx, mlpSlice(t, g.e, 256), g.d, engine.Options{Provider: map[string]string{c.key: c.value}})
		if err == nil {
			b.Close()
			t.Errorf("%s=%s is accepted", c.key, c.value)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s=%s: %v", c.key, c.value, err)
		}
	}
}

// An operator that the provider lacks is refused by name.
func refusedOnProvider(t *testing.T, g *gpu) {
	sub := shapeModel(t, func(g *onnxpb.Graph) {
		g.Node = append(g.Node, &onnxpb.Node{OpType: proto.String("Acosh"), Name: proto.String("lacking"), Input: []string{"y"}, Output: []string{"z"}})
		g.Output[0].Name = proto.String("z")
	})
	sub.Outputs[0].Name = "z"
	if b, err := g.e.Load(ctx, sub, g.d, engine.Options{}); err == nil {
		b.Close()
		t.Error("loaded")
	} else if !errors.Is(err, engine.ErrFallback) || !strings.Contains(err.Error(), "1 operators would run on the CPU: Acosh lacking") {
		t.Error(err)
	}
}

// shapeModel adds rows to a tensor, as many as its batch has: what computes the
// number has no kernel on a GPU, and need not have one where the batch is known.
func shapeModel(t *testing.T, change func(*onnxpb.Graph)) *engine.Submodel {
	t.Helper()
	dims := func(d ...any) *onnxpb.Shape {
		s := &onnxpb.Shape{}
		for _, v := range d {
			dim := &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimParam{DimParam: graph.BatchName}}
			if n, ok := v.(int); ok {
				dim.Value = &onnxpb.Shape_Dim_DimValue{DimValue: int64(n)}
			}
			s.Dim = append(s.Dim, dim)
		}
		return s
	}
	value := func(name string, s *onnxpb.Shape) *onnxpb.ValueInfo {
		return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(1), Shape: s}}}}
	}
	ints := func(name string, v ...int64) *onnxpb.Tensor {
		return &onnxpb.Tensor{Name: proto.String(name), DataType: proto.Int32(7), Dims: []int64{int64(len(v))}, Int64Data: v}
	}
	node := func(op, out string, in ...string) *onnxpb.Node {
		return &onnxpb.Node{OpType: proto.String(op), Name: proto.String(op), Input: in, Output: []string{out}}
	}
	gr := &onnxpb.Graph{
		Name:  proto.String("shapes"),
		Input: []*onnxpb.ValueInfo{value("x", dims("N", 4))}, Output: []*onnxpb.ValueInfo{value("y", dims("N", 4))},
		Initializer: []*onnxpb.Tensor{ints("first", 0), ints("four", 4), {Name: proto.String("row"), DataType: proto.Int32(1), Dims: []int64{1, 4}, FloatData: []float32{1, 2, 3, 4}}},
		Node: []*onnxpb.Node{node("Shape", "shape", "x"), node("Gather", "rows", "shape", "first"), node("Concat", "target", "rows", "four"),
			node("Expand", "more", "row", "target"), node("Add", "y", "x", "more")},
	}
	gr.Node[2].Attribute = []*onnxpb.Attribute{{Name: proto.String("axis"), Type: onnxpb.Attribute_INT.Enum(), I: proto.Int64(0)}}
	if change != nil {
		change(gr)
	}
	data, err := proto.Marshal(&onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Version: proto.Int64(13)}}, Graph: gr})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(name string) []engine.Spec {
		return []engine.Spec{{Name: name, Type: engine.F32, Shape: []int64{engine.BatchDim, 4}}}
	}
	return &engine.Submodel{Model: "shapes", To: 1, Blocks: 1, Inputs: spec("x"), Outputs: spec("y"), ONNX: data}
}

// A model that computes with its own shapes is executed, nothing of it on the
// CPU.
func shapesOnProvider(t *testing.T, g *gpu) {
	sub := shapeModel(t, nil)
	b := g.load(t, sub, engine.Options{CUDAGraph: true})
	for _, batch := range []int{3, 1, 2} {
		x := bind(t, b, engine.BindOptions{Batch: batch})
		for range 3 {
			if err := x.Run(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	nodes, err := g.e.Assignment(sub, g.d, engine.Options{})
	if err != nil || len(nodes[cpuProvider]) != 0 || len(nodes["CUDAExecutionProvider"]) == 0 {
		t.Errorf("%v, %v", nodes, err)
	}
}

// A convolution makes its plan once per session, because each batch size has its
// own, and runs on the stream.
func convolutionsOnProvider(t *testing.T, g *gpu) {
	m := model(t, "squeezenet")
	c, err := m.Chain(ctx, g.e.Probe, graph.ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options := func(key, value string) engine.Options {
		return engine.Options{Provider: map[string]string{key: value}}
	}
	for _, o := range []struct {
		slice      graph.SliceOptions
		load       engine.Options
		heuristics string // what the provider asks cuDNN
		engine     string // what it takes of its answer
	}{
		// What ONNX Runtime calls an exhaustive search is cuDNN's heuristics B: nothing
		// is timed. Heuristics A are 3, the fallback 2.
		{graph.SliceOptions{}, engine.Options{}, "cudnn heuristics 1", "engine 0"},
		{graph.SliceOptions{FP16: true}, engine.Options{}, "cudnn heuristics 1", "engine 0"},
		{graph.SliceOptions{}, engine.Options{CUDAGraph: true}, "cudnn heuristics 1", "engine 0"},
		{graph.SliceOptions{}, options("prefer_nhwc", "1"), "cudnn heuristics 1", "engine 0"},
		{graph.SliceOptions{}, options("cudnn_conv_algo_search", "HEURISTIC"), "cudnn heuristics 3", "engine 0"},
		{graph.SliceOptions{}, options("cudnn_conv_algo_search", "DEFAULT"), "cudnn heuristics 2", "engine 0"},
		// Without TF32 no engine with tensor cores is taken.
		{graph.SliceOptions{}, options("use_tf32", "0"), "cudnn heuristics 1", "engine 1"},
		{graph.SliceOptions{FP16: true}, options("use_tf32", "0"), "cudnn heuristics 1", "engine 1"},
	} {
		sub, err := c.WholeModel().Slice(0, 1, o.slice)
		if err != nil {
			t.Fatal(err)
		}
		b := g.load(t, sub, o.load)
		var all []engine.Binding
		for _, batch := range []int{1, 2} {
			all = append(all, bind(t, b, engine.BindOptions{Batch: batch, HostIO: true}))
		}
		g.calls()
		for i := range 4 {
			for _, x := range all {
				if err := x.Run(ctx); err != nil {
					t.Fatal(err)
				}
			}
			calls := g.calls()
			plans, runs := count(calls, "cudnn made a plan"), count(calls, "cudnn executes a plan")
			if i == 0 && (count(calls, o.heuristics) != 2*26 || count(calls, "cudnn made a plan with "+o.engine) != 2*26) {
				t.Errorf("%+v: %d times %s, %d times %s", o, count(calls, "cudnn heuristics"), calls[slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, "cudnn heuristics") })],
					count(calls, "cudnn made"), calls[slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, "cudnn made") })])
			}
			if i == 0 && plans != 2*26 || i == 3 && plans != 0 {
				t.Errorf("%+v: %d plans in round %d of 26 convolutions at two batch sizes", o, plans, i)
			}
			if n := count(calls, "cudaMalloc"); i == 3 && n != 0 {
				t.Errorf("%+v: %d allocations in round %d", o, n, i)
			}
			if want := 2 * 26; !o.load.CUDAGraph && runs != want || i == 3 && o.load.CUDAGraph && (runs != 0 || count(calls, "replay") != 2) {
				t.Errorf("%+v: %d convolutions ran in round %d", o, runs, i)
			}
		}
	}
}

// Blocks, and bindings of one block, on several threads at once.
func threadsOnProvider(t *testing.T, g *gpu) {
	sub := mlpSlice(t, g.e, 16)
	runAtOnce(t, g.load(t, sub, engine.Options{}))
	var all sync.WaitGroup
	for k := range 3 {
		x := bind(t, g.load(t, sub, engine.Options{}), engine.BindOptions{Batch: 1, HostIO: true})
		all.Go(func() {
			var first []byte
			for range 20 {
				fill(x.Inputs()[0], uint64(k))
				if err := x.Run(ctx); err != nil {
					t.Error(err)
					return
				}
				if first == nil {
					first = bytes.Clone(x.Outputs()[0].Bytes())
				} else if !bytes.Equal(first, x.Outputs()[0].Bytes()) {
					t.Errorf("thread %d: another answer", k)
				}
			}
		})
	}
	all.Wait()
}

// Every model that this project names loads whole and at each of its cuts, in
// float32 and float16, with no operator left on the CPU, and runs whole. What
// float16 cannot hold is refused before. All of them where INFERPLAN_LONG is set.
func modelsOnProvider(t *testing.T, g *gpu) {
	names := []string{"shufflenet", "ocr_rec", "digits-16"}
	if long() {
		names = models.Names()
	}
	for _, name := range names {
		m := model(t, name)
		c, err := m.Chain(ctx, g.e.Probe, graph.ChainOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cuts := c.EachAtom()
		if c.WholeModel().WeightBytes(0, 1) > 700<<20 {
			cuts = c.WholeModel()
		}
		for _, half := range []bool{false, true} {
			loaded, refused := 0, 0
			for k, blocks := range []*graph.Blocks{c.WholeModel(), cuts} {
				for i := range blocks.Len() {
					sub, err := blocks.Slice(i, i+1, graph.SliceOptions{FP16: half})
					if half && err != nil && strings.Contains(err.Error(), "float16 ends at") {
						refused++
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					b, err := g.e.Load(ctx, sub, g.d, engine.Options{})
					if err != nil {
						t.Errorf("float16 %v: %v", half, err)
						continue
					}
					loaded++
					if k == 0 {
						if err := bind(t, b, engine.BindOptions{Batch: 1}).Run(ctx); err != nil {
							t.Errorf("float16 %v: %v", half, err)
						}
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			t.Logf("%s, float16 %v: %d loaded, %d cannot be in float16", name, half, loaded, refused)
		}
	}
}
