package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/formats/seeded"
	"inferplan/profiler"
)

// device is the device under measurement, with the engine that runs models there.
type device struct {
	ctx    context.Context // never ends: gpu-check.sh ends the whole group of processes
	engine *ort.Engine
	target engine.Device
	cpu    engine.Device // all CPUs: the reference for answers
}

// openDevice opens the engine and finds the device; in a rehearsal it is the last CPU.
func (c *run) openDevice() {
	runtime.LockOSThread() // what the CUDA provider keeps it keeps per thread
	cpus, err := engine.CPUs()
	c.check(err)
	if c.engine, err = ort.Open(""); !c.check(err) {
		return
	}
	c.ctx, c.cpu = context.Background(), engine.CPUDevice(cpus...)
	if c.rehearsal {
		c.target = engine.CPUDevice(cpus[len(cpus)-1])
		return
	}
	devices, err := c.engine.Devices()
	c.check(err)
	c.target, err = engine.FindDevice(devices, c.options.device)
	c.check(err)
}

// load loads a whole model onto a device, and binds it to tensors in the host's memory.
func (c *run) load(name string, d engine.Device, o engine.Options, batch int) (block engine.Block, b engine.Binding) {
	sizes := map[string]map[string][]int64{"ocr_det": {"": {1, 3, 320, 640}}, "ocr_rec": {"": {1, 3, 48, 320}}}
	m, err := graph.Open(c.model(c.workPath("models"), name), graph.Options{Dims: sizes[name]})
	if err == nil {
		var chain *graph.Chain
		if chain, err = m.Chain(c.ctx, c.engine.Probe, graph.ChainOptions{}); err == nil {
			var sub *engine.Submodel
			if sub, err = chain.WholeModel().Slice(0, 1, graph.SliceOptions{}); err == nil {
				block, err = c.engine.Load(c.ctx, sub, d, o)
			}
		}
	}
	if err == nil {
		b, err = block.Bind(engine.BindOptions{Batch: batch, HostIO: true})
	}
	c.check(err)
	return block, b
}

// answer runs a whole model once on a device and returns its first input and output.
func (c *run) answer(name string, d engine.Device, o engine.Options, batch int) (in engine.Spec, out []float32) {
	block, b := c.load(name, d, o, batch)
	if c.err != nil {
		return in, nil
	}
	for _, t := range b.Inputs() {
		copy(t.Bytes(), input(t.Spec(), batch))
	}
	c.check(b.Run(c.ctx))
	in, out = b.Inputs()[0].Spec(), float32s(b.Outputs()[0].Bytes())
	c.check(errors.Join(b.Close(), block.Close()))
	return in, out
}

// input is a batch of waves, of another length for each sample, with some noise: noise alone would be averaged away by pooling.
func input(spec engine.Spec, batch int) []byte {
	data, rng := make([]byte, spec.BytesAt(batch)), seeded.New(1, "gpu-check/"+spec.Name)
	for i := range len(data) / 4 {
		sample := i * batch * 4 / len(data)
		wave := math.Sin(float64(i)/float64(3+4*sample)) + .4*rng.Float64()
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(wave)))
	}
	return data
}

func float32s(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// difference returns the largest absolute difference of two outputs. A value that is no number, or is not there, differs by the largest there is.
func difference(want, got []float32) (worst float64) {
	for i, w := range want {
		d := math.Inf(1)
		if i < len(got) {
			d = math.Abs(float64(w) - float64(got[i]))
		}
		if !(d <= math.MaxFloat32) {
			d = math.MaxFloat32
		}
		worst = max(worst, d)
	}
	return worst
}

// outputs compares the device's answers with the CPU's. A rehearsal compares an engine without the optimisations that reorder sums.
func outputs(c *run) {
	options := engine.Options{Provider: map[string]string{"use_tf32": "0"}}
	if c.rehearsal {
		options = engine.Options{Optimization: "basic"}
	}
	for _, batch := range []int{1, 8} {
		_, want := c.answer(c.name(), c.cpu, engine.Options{}, batch)
		_, got := c.answer(c.name(), c.target, options, batch)
		worst := difference(want, got)
		c.judge(fmt.Sprintf("largest difference at batch %d", batch), "<= 1e-4", worst, worst <= 1e-4)
	}
}

// ceilings measures what the device reaches at best: copies at three sizes, and a matrix product with TF32 and without.
func ceilings(c *run) {
	modes, sizes := []map[string]string{{"use_tf32": "0"}, {"use_tf32": "1"}}, []int{1, 16, 256}
	if c.rehearsal {
		modes, sizes = []map[string]string{nil}, nil
		c.say("copy by a core, read plus written: %.1f GB/s", profiler.HostCopyGBps())
	}
	for _, mib := range sizes {
		i, err := c.target.Index()
		c.check(err)
		x, err := ort.MeasureCopies(i, mib<<20, 20)
		c.check(err)
		c.say("%d MiB, GB/s: pinned %.1f to the device, %.1f to the host; paged %.1f and %.1f; inside, read plus written, %.1f",
			mib, x.ToDevice/1e9, x.ToHost/1e9, x.ToDevicePaged/1e9, x.FromPaged/1e9, 2*x.InDevice/1e9)
	}
	for _, mode := range modes {
		rate, err := profiler.MatmulRate(c.ctx, c.engine, c.target, engine.Options{Provider: mode})
		c.check(err)
		c.say("float32 matrix product, %v: %.3f Tflop/s", mode, rate/1e12)
	}
}

// swap measures what it costs to bring a model onto the device and to take it off, twice in one process.
func swap(c *run) {
	c.model(c.workPath("models"), c.name())
	for range 2 {
		begin := time.Now()
		block, b := c.load(c.name(), c.target, engine.Options{}, 8)
		loaded := time.Since(begin)
		if c.err != nil {
			return
		}
		first, err := b.RunN(1)
		second, serr := b.RunN(1)
		begin = time.Now()
		c.check(errors.Join(err, serr, b.Close(), block.Close()))
		c.say("read and load %v, first run at batch 8 %v, second %v, unload %v", loaded, first.Wall, second.Wall, time.Since(begin))
	}
}
