package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/graph/onnxpb"
	"inferplan/engine/ort"
	"inferplan/engine/worker"
	"inferplan/formats/seeded"
	"inferplan/profiler"
)

// cnns are the nine CNNs, those that steps need first.
var cnns = []string{"squeezenet", "resnet50", "shufflenet", "inception_v1", "inception_v2", "densenet121", "bvlc_alexnet", "zfnet512", "vgg19"}

// doctor asks the program what it finds.
func doctor(ctx context.Context, c *check, r *StepResult) error {
	text, err := c.plan(ctx, "doctor", "--json")
	var found []struct{ What, State, Found string }
	if jerr := json.Unmarshal([]byte(text), &found); jerr != nil {
		return errors.Join(err, jerr)
	}
	t := Table{Header: []string{"what", "state", "found"}}
	for _, f := range found {
		t.Rows = append(t.Rows, []string{f.What, f.State, f.Found})
	}
	r.Tables = append(r.Tables, t)
	if v := packageVersions(os.Getenv("LD_LIBRARY_PATH")); len(v) > 0 {
		r.note("CUDA's libraries: %s", strings.Join(v, ", "))
	}
	missing := slices.ContainsFunc(found, func(f struct{ What, State, Found string }) bool { return f.State == "missing" })
	r.verdict("things missing", "none", float64(count(missing)), !missing)
	if c.rehearsal() {
		return nil
	}
	i, err := c.dev.Index()
	if err != nil {
		return err
	}
	d, err := ort.AboutGPU(i)
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, Table{Header: []string{"GPU", "driver", "CUDA", "architecture", "multiprocessors", "memory GiB", "free GiB"}, Rows: [][]string{{
		c.dev.Name, c.dev.Driver, d.CUDA, d.Architecture, fmt.Sprint(d.Multiprocessors),
		fmt.Sprintf("%.1f", float64(d.TotalBytes)/(1<<30)), fmt.Sprintf("%.1f", float64(d.FreeBytes)/(1<<30)),
	}}})
	return nil
}

// packageVersions names the Python packages that CUDA's libraries on a path are of.
func packageVersions(path string) []string {
	var out []string
	for _, dir := range filepath.SplitList(path) {
		site, _, ok := strings.Cut(dir, "/nvidia/")
		if !ok {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(site, "nvidia_*.dist-info")) // the pattern is well formed
		for _, f := range found {
			name, version, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "nvidia_"), ".dist-info"), "-")
			switch name, _, _ = strings.Cut(name, "_cu1"); name {
			case "cublas", "cudnn", "cuda_runtime", "curand", "cufft", "cuda_nvrtc":
				if text := name + " " + version; ok && !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	return out
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// reference is the CPU that answers are compared with.
func reference() (engine.Device, error) {
	cpus, err := engine.CPUs()
	return engine.CPUDevice(cpus...), err
}

// chain opens a model's file.
func (c *check) chain(ctx context.Context, path string) (*graph.Chain, error) {
	m, err := graph.Open(path, graph.Options{Dims: ocrDims[profiler.ModelName(path)]})
	if err != nil {
		return nil, err
	}
	return m.Chain(ctx, c.eng.Probe, graph.ChainOptions{})
}

// model makes a model's file and one submodel of it.
func (c *check) model(ctx context.Context, name string) (path string, sub *engine.Submodel, err error) {
	paths, err := c.models(ctx, name)
	if err != nil {
		return "", nil, err
	}
	chain, err := c.chain(ctx, paths[0])
	if err != nil {
		return "", nil, err
	}
	sub, err = chain.Whole().Slice(0, 1, graph.SliceOptions{})
	return paths[0], sub, err
}

// logits makes the same with what goes into a closing softmax as a further
// output: softmax hides differences.
func (c *check) logits(ctx context.Context, path string) (*engine.Submodel, error) {
	chain, err := c.chain(ctx, path)
	if err != nil {
		return nil, err
	}
	sub, err := chain.Whole().Slice(0, 1, graph.SliceOptions{Extra: chain.Model.Logits()[:1]})
	if err != nil {
		return nil, err
	}
	if n := len(sub.Outputs); n > 1 && len(sub.Outputs[n-1].Shape) == 0 { // its shape is not known
		return chain.Whole().Slice(0, 1, graph.SliceOptions{})
	}
	return sub, nil
}

// ocrDims are the sizes at which the OCR models run here.
var ocrDims = map[string]map[string][]int64{"ocr_det": {"": {1, 3, 320, 640}}, "ocr_rec": {"": {1, 3, 48, 320}}}

// answer runs a submodel once at a batch size and returns its outputs.
func (c *check) answer(ctx context.Context, sub *engine.Submodel, d engine.Device, o engine.Options, batch int) ([][]float32, error) {
	s := *sub
	blk, err := c.eng.Load(ctx, &s, d, o)
	if err != nil {
		return nil, err
	}
	defer blk.Close()
	b, err := blk.Bind(engine.BindOptions{Batch: batch})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	for _, t := range b.Inputs() {
		if err := t.Write(input(t.Spec(), batch)); err != nil {
			return nil, err
		}
	}
	if err := b.Run(ctx); err != nil {
		return nil, err
	}
	var out [][]float32
	for _, t := range b.Outputs() {
		raw := make([]byte, t.Spec().BytesAt(batch))
		if err := t.Read(raw); err != nil {
			return nil, err
		}
		out = append(out, float32s(raw))
	}
	return out, nil
}

// input is a batch of smooth waves with some noise, another for each sample:
// white noise alone would be averaged away by pooling.
func input(spec engine.Spec, batch int) []byte {
	data := make([]byte, spec.BytesAt(batch))
	if spec.Type != engine.F32 {
		return data
	}
	per := len(data) / 4 / batch
	width := 64
	if n := len(spec.Shape); n > 0 && spec.Shape[n-1] > 0 {
		width = int(spec.Shape[n-1])
	}
	for s := range batch {
		rng := seeded.New(1, fmt.Sprintf("gpu-check/%s/%d", spec.Name, s))
		fx, fy, phase := 1+9*rng.Float64(), 1+9*rng.Float64(), 7*rng.Float64()
		for i := range per {
			x, y := float64(i%width)/float64(width), float64(i/width)/float64(width)
			v := math.Sin(2*math.Pi*fx*x+phase)*math.Cos(2*math.Pi*fy*y) + 0.2*(2*rng.Float64()-1)
			putFloat32(data[4*(s*per+i):], float32(v))
		}
	}
	return data
}

// outputs compares the device's answers with the CPU's. A rehearsal compares one
// thread without the graph optimisations that reorder sums.
func outputs(ctx context.Context, c *check, r *StepResult) error {
	names := slices.Concat(cnns, []string{"ocr_det", "ocr_rec"})
	if c.Quick {
		names = []string{"squeezenet", "shufflenet", "ocr_rec"}
	}
	var under engine.Options
	if c.rehearsal() {
		under.Optimization = "basic"
	} else {
		under.Provider = map[string]string{"use_tf32": "0"}
	}
	cpu, err := reference()
	if err != nil {
		return err
	}
	// What the CUDA provider keeps it keeps per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, name := range names {
		if r.judged(name+" batch 8") || r.judged(name+" runs") {
			continue
		}
		path, err := c.models(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the folder with all kernels comes without some
			r.note("%s is left out: %v", name, err)
			continue
		}
		sub, err := c.logits(ctx, path[0])
		if err != nil {
			return err
		}
		for _, batch := range []int{1, 8} {
			want, err := c.answer(ctx, sub, cpu, engine.Options{}, batch)
			if err != nil {
				return fmt.Errorf("%s on the CPU: %w", name, err)
			}
			got, err := c.answer(ctx, sub, c.dev, under, batch)
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if name == names[0] {
					return fmt.Errorf("not even %s runs: %w", name, err) // the others would not either
				}
				r.verdict(name+" runs", "an answer", 0, false)
				r.note("%s at batch %d: %v", name, batch, err)
				continue
			}
			worst, size, same, rows := difference(want[:1], got[:1], batch)
			r.verdict(fmt.Sprintf("%s batch %d", name, batch), "<= 1e-4", worst, worst <= 1e-4)
			row := []string{name, fmt.Sprint(batch), fmt.Sprintf("%.2g", worst), fmt.Sprintf("%.3g", size), fmt.Sprintf("%d of %d", same, rows), "-"}
			if len(want) > 1 {
				before, largest, _, _ := difference(want[1:], got[1:], batch)
				row[5] = fmt.Sprintf("%.2g", before/largest)
			}
			t := r.table("largest absolute difference of the outputs", "model", "batch", "difference", "largest output", "classes agree", "before softmax, of the largest")
			if !slices.ContainsFunc(t.Rows, func(have []string) bool { return slices.Equal(have[:2], row[:2]) }) {
				t.Rows = append(t.Rows, row)
			}
		}
		if name == names[0] {
			if err := c.freshInputs(ctx, sub, under, r); err != nil {
				return err
			}
		}
		if err := c.keep(r); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// freshInputs looks whether a run reads what stands in the host's memory then: it
// is where the executor puts requests.
func (c *check) freshInputs(ctx context.Context, sub *engine.Submodel, o engine.Options, r *StepResult) error {
	const batch, what = 2, "difference of runs that read inputs written after they were bound"
	want, err := c.answer(ctx, sub, c.dev, o, batch)
	if err != nil {
		return err
	}
	s := *sub
	blk, err := c.eng.Load(ctx, &s, c.dev, o)
	if err != nil {
		return err
	}
	defer blk.Close()
	b, free, err := c.hostBinding(blk, batch)
	if err != nil {
		return err
	}
	defer free()
	defer b.Close()
	if err := b.Run(ctx); err != nil { // on zeros
		return err
	}
	for _, t := range b.Inputs() {
		copy(t.Bytes(), input(t.Spec(), batch))
	}
	if err := b.Run(ctx); err != nil {
		return err
	}
	var got [][]float32
	for _, t := range b.Outputs() {
		got = append(got, float32s(t.Bytes()))
	}
	worst, _, _, _ := difference(want, got, batch)
	r.verdict(what, "<= 1e-4", worst, worst <= 1e-4)
	return nil
}

// hostBinding binds a block to memory as the executor gives it to a worker: of
// the host, and locked where the device copies from it.
func (c *check) hostBinding(blk engine.Block, batch int) (b engine.Binding, free func(), err error) {
	sub := blk.Submodel()
	seg, err := worker.NewSegment(1, worker.Span(sub.Inputs, batch)+worker.Span(sub.Outputs, batch))
	if err != nil {
		return nil, nil, err
	}
	unpin := func() error { return nil }
	if i, ierr := c.dev.Index(); ierr == nil && !c.rehearsal() {
		if unpin, err = ort.Pin(i, seg.Data); err != nil {
			fmt.Fprintf(c.log(), "memory of the host cannot be locked: %v\n", err)
			unpin = func() error { return nil }
		}
	}
	free = func() { _ = unpin(); _ = seg.Close() }
	o := engine.BindOptions{Batch: batch, HostIO: true}
	tensors := func(specs []engine.Spec, off int64) (list []engine.Tensor) {
		for i := range specs {
			t, terr := engine.NewHostTensor(specs[i], batch, seg.TensorAt(specs, i, batch, off))
			err = errors.Join(err, terr)
			list = append(list, t)
		}
		return list
	}
	err = nil
	o.Inputs = tensors(sub.Inputs, 0)
	o.Outputs = tensors(sub.Outputs, worker.Span(sub.Inputs, batch))
	if err == nil {
		b, err = blk.Bind(o)
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	return b, free, nil
}

// difference is the largest over all outputs; a value that is no number is the
// largest there is.
func difference(want, got [][]float32, batch int) (worst, size float64, same, rows int) {
	for k := range want {
		for i, w := range want[k] {
			d := math.Abs(float64(w) - float64(got[k][i]))
			if !(d <= math.MaxFloat32) {
				d = math.MaxFloat32
			}
			worst, size = max(worst, d), max(size, math.Abs(float64(w)))
		}
		per := len(want[k]) / batch
		for s := range batch {
			rows++
			if argmax(want[k][s*per:(s+1)*per]) == argmax(got[k][s*per:(s+1)*per]) {
				same++
			}
		}
	}
	return worst, size, same, rows
}

func argmax(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// lacking is a model of one operator, the determinant, for which ONNX Runtime's
// CUDA provider has no kernel.
func lacking() (*engine.Submodel, error) {
	value := func(name string, dims ...*onnxpb.Shape_Dim) *onnxpb.ValueInfo {
		return &onnxpb.ValueInfo{Name: proto.String(name), Type: &onnxpb.Type{Value: &onnxpb.Type_TensorType_{
			TensorType: &onnxpb.Type_TensorType{ElemType: proto.Int32(1), Shape: &onnxpb.Shape{Dim: dims}},
		}}}
	}
	n := &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimParam{DimParam: "N"}}
	four := &onnxpb.Shape_Dim{Value: &onnxpb.Shape_Dim_DimValue{DimValue: 4}}
	m := &onnxpb.Model{IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSet{{Domain: proto.String(""), Version: proto.Int64(17)}}, Graph: &onnxpb.Graph{
		Name: proto.String("lacking"), Input: []*onnxpb.ValueInfo{value("x", n, four, four)}, Output: []*onnxpb.ValueInfo{value("y", n)},
		Node: []*onnxpb.Node{
			{OpType: proto.String("Relu"), Name: proto.String("known"), Input: []string{"x"}, Output: []string{"r"}},
			{OpType: proto.String("Det"), Name: proto.String("unknown"), Input: []string{"r"}, Output: []string{"y"}},
		},
	}}
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &engine.Submodel{
		Model: "lacking", From: 0, To: 1, Blocks: 1, Nodes: 2, ONNX: data,
		Inputs:  []engine.Spec{{Name: "x", Type: engine.F32, Shape: []int64{engine.BatchDim, 4, 4}}},
		Outputs: []engine.Spec{{Name: "y", Type: engine.F32, Shape: []int64{engine.BatchDim}}},
	}, nil
}

// fallback loads a model that the provider cannot execute whole.
func fallback(ctx context.Context, c *check, r *StepResult) error {
	sub, err := lacking()
	if err != nil {
		return err
	}
	nodes, err := c.eng.Assignment(sub, c.dev, engine.Options{})
	if err != nil {
		return err
	}
	t := Table{Title: "which provider would execute what", Header: []string{"provider", "operators"}}
	for _, p := range slices.Sorted(mapsKeys(nodes)) {
		t.Rows = append(t.Rows, []string{p, strings.Join(nodes[p], ", ")})
	}
	r.Tables = append(r.Tables, t)
	blk, err := c.eng.Load(ctx, sub, c.dev, engine.Options{})
	if err == nil {
		blk.Close()
	}
	if c.rehearsal() {
		// The CPU has every operator; what can be seen here is that the operator is
		// known to run there.
		r.verdict("the operator runs on the CPU", "loads", float64(count(err == nil)), err == nil)
		return nil
	}
	refused := errors.Is(err, engine.ErrFallback)
	r.verdict("a model with an operator that the provider lacks is refused", "ErrFallback", float64(count(refused)), refused)
	named := err != nil && strings.Contains(err.Error(), "Det")
	r.verdict("the error names the operator", "Det", float64(count(named)), named)
	if err != nil {
		r.note("the error: %v", err)
	}
	return nil
}

// ceilings measures what the device reaches at best.
func ceilings(ctx context.Context, c *check, r *StepResult) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !c.rehearsal() {
		i, err := c.dev.Index()
		if err != nil {
			return err
		}
		t := Table{Title: "copies, 1e9 bytes a second (inside the device: read plus written)", Header: []string{"MiB", "to device pinned", "to host pinned", "to device paged", "to host paged", "inside"}}
		for _, size := range []int{1 << 20, 16 << 20, 256 << 20} {
			x, err := ort.MeasureCopies(i, size, 20)
			if err != nil {
				return err
			}
			g := func(v float64) string { return fmt.Sprintf("%.1f", v/1e9) }
			t.Rows = append(t.Rows, []string{fmt.Sprint(size >> 20), g(x.ToDevice), g(x.ToHost), g(x.ToDevicePaged), g(x.FromPaged), g(2 * x.InDevice)})
		}
		r.Tables = append(r.Tables, t)
	} else {
		r.Tables = append(r.Tables, Table{Header: []string{"copy, 1e9 bytes a second read plus written"}, Rows: [][]string{{fmt.Sprintf("%.1f", profiler.HostCopyGBps())}}})
	}
	t := Table{Title: "float32 matrix product", Header: []string{"TF32", "Tflop/s"}}
	modes := map[string]engine.Options{"-": {}}
	if !c.rehearsal() {
		modes = map[string]engine.Options{"on": {}, "off": {Provider: map[string]string{"use_tf32": "0"}}}
	}
	for _, name := range slices.Sorted(mapsKeys(modes)) {
		rate, err := profiler.MatmulRate(ctx, c.eng, c.dev, modes[name])
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.3f", rate/1e12)})
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// swap measures what it costs to bring a model onto the device and to take it
// off.
func swap(ctx context.Context, c *check, r *StepResult) error {
	names := cnns
	if c.Quick {
		names = []string{"squeezenet"}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	free := func() int64 {
		if i, err := c.dev.Index(); err == nil && !c.rehearsal() {
			if d, err := ort.AboutGPU(i); err == nil {
				return d.FreeBytes
			}
		}
		return 0
	}
	const title = "milliseconds at batch 8: cold loads the whole model, again loads it a second time in the same process"
	for _, name := range names {
		t := r.table(title, "model", "load", "first run", "second run", "unload", "load again", "first run again", "weights MB", "device memory MB")
		if slices.ContainsFunc(t.Rows, func(row []string) bool { return row[0] == name }) {
			continue
		}
		_, sub, err := c.model(ctx, name)
		if err != nil {
			return err
		}
		row := []string{name}
		ms := func(d time.Duration) { row = append(row, fmt.Sprintf("%.1f", d.Seconds()*1e3)) }
		used := int64(0)
		for turn := range 2 {
			before := free()
			s := *sub
			begin := time.Now()
			blk, err := c.eng.Load(ctx, &s, c.dev, engine.Options{})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			ms(time.Since(begin))
			b, err := blk.Bind(engine.BindOptions{Batch: 8})
			if err != nil {
				blk.Close()
				return err
			}
			runs := 2 - turn
			for range runs {
				x, err := b.RunN(1)
				if err != nil {
					blk.Close()
					return err
				}
				ms(x.Wall)
			}
			if turn == 0 {
				used = before - free()
			}
			begin = time.Now()
			if err := blk.Close(); err != nil {
				return err
			}
			if turn == 0 {
				ms(time.Since(begin))
			}
		}
		row = append(row, fmt.Sprintf("%.0f", float64(sub.WeightBytes)/1e6), fmt.Sprintf("%.0f", float64(used)/1e6))
		t.Rows = append(t.Rows, row)
		if err := errors.Join(c.keep(r), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) out(name string) string { return filepath.Join(c.Out, name) }
