package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/engine/worker"
	"inferplan/formats/seeded"
	"inferplan/profiler"
)

// device is the device under measurement, with the engine that runs models there.
type device struct {
	eng   *ort.Engine
	dev   engine.Device
	cpu   bool      // a rehearsal
	notes io.Writer // for what does not stop a step
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
func (c *device) chain(ctx context.Context, path string) (*graph.Chain, error) {
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
	sub, err = chain.WholeModel().Slice(0, 1, graph.SliceOptions{})
	return paths[0], sub, err
}

// logits makes the same with what goes into a closing softmax as a further
// output: softmax hides differences.
func (c *device) logits(ctx context.Context, path string) (*engine.Submodel, error) {
	chain, err := c.chain(ctx, path)
	if err != nil {
		return nil, err
	}
	sub, err := chain.WholeModel().Slice(0, 1, graph.SliceOptions{Extra: chain.Model.Logits()[:1]})
	if err != nil {
		return nil, err
	}
	if n := len(sub.Outputs); n > 1 && len(sub.Outputs[n-1].Shape) == 0 { // its shape is not known
		return chain.WholeModel().Slice(0, 1, graph.SliceOptions{})
	}
	return sub, nil
}

// ocrDims are the sizes at which the OCR models run here.
var ocrDims = map[string]map[string][]int64{"ocr_det": {"": {1, 3, 320, 640}}, "ocr_rec": {"": {1, 3, 48, 320}}}

// answer runs a submodel once at a batch size and returns its outputs.
func (c *device) answer(ctx context.Context, sub *engine.Submodel, d engine.Device, o engine.Options, batch int) ([][]float32, error) {
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

// hostBinding binds a block to memory as the executor gives it to a worker: of
// the host, and locked where the device copies from it.
func (c *device) hostBinding(blk engine.Block, batch int) (b engine.Binding, free func(), err error) {
	sub := blk.Submodel()
	seg, err := worker.NewSegment(1, worker.Span(sub.Inputs, batch)+worker.Span(sub.Outputs, batch))
	if err != nil {
		return nil, nil, err
	}
	unpin := func() error { return nil }
	if i, ierr := c.dev.Index(); ierr == nil && !c.cpu {
		if unpin, err = ort.Pin(i, seg.Data); err != nil {
			fmt.Fprintf(c.notes, "memory of the host cannot be locked: %v\n", err)
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

// hostRuns is the median time of a run between copies in and out.
func (c *device) hostRuns(ctx context.Context, blk engine.Block, batch int) (time.Duration, error) {
	b, free, err := c.hostBinding(blk, batch)
	if err != nil {
		return 0, err
	}
	defer free()
	defer b.Close()
	var took []time.Duration
	for begin := time.Now(); len(took) < 20 || len(took) < 400 && time.Since(begin) < 2*time.Second; {
		at := time.Now()
		if err := b.Run(ctx); err != nil {
			return 0, err
		}
		took = append(took, time.Since(at))
	}
	took = took[len(took)/10:] // the first ones warm up
	slices.Sort(took)
	return took[len(took)/2], nil
}

// kind returns the device's name in profiles and plans.
func (c *device) kind() string { return c.dev.Kind }

// openDevice opens the engine, and finds a device by name; in a rehearsal it is the
// last CPU.
func openDevice(name string, cpu bool, notes io.Writer) (d device, err error) {
	d.cpu, d.notes = cpu, notes
	if d.eng, err = ort.Open(""); err != nil {
		return d, err
	}
	if cpu {
		cpus, err := engine.CPUs()
		if err != nil {
			return d, err
		}
		d.dev = engine.CPUDevice(cpus[len(cpus)-1])
		return d, nil
	}
	all, err := d.eng.Devices()
	if err != nil {
		return d, err
	}
	d.dev, err = engine.FindDevice(all, name)
	return d, err
}
