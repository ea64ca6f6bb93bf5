package replay

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"inferplan/engine"
)

// Cost returns how long the blocks [from,to) of a model take at a batch size on a device.
type Cost func(model string, from, to int, d engine.Device, batch int) (time.Duration, error)

// Options are the options of an Engine.
type Options struct {
	// Devices that the engine pretends to have.
	Devices []engine.Device
}

// Engine replays times.
type Engine struct {
	cost    Cost
	options Options
}

// New makes an engine that takes its times from cost.
func New(cost Cost, o Options) *Engine { return &Engine{cost, o} }

// Info names the engine.
func (e *Engine) Info() engine.Info { return engine.Info{Name: "replay", Version: "1"} }

// Devices lists what New was given.
func (e *Engine) Devices() ([]engine.Device, error) { return e.options.Devices, nil }

// Close does nothing: there is nothing to free.
func (e *Engine) Close() error { return nil }

// Load returns a block that computes nothing: its runs only take the time that e.cost has for it. It asks for the
// time at batch 1, so that a model or device that was never measured is refused here and not at its first request.
func (e *Engine) Load(ctx context.Context, m *engine.Submodel, d engine.Device, _ engine.Options) (engine.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := e.cost(m.Model, m.From, m.To, d, 1); err != nil {
		return nil, fmt.Errorf("load %s blocks [%d,%d): %w: %w", m.Model, m.From, m.To, engine.ErrModel, err)
	}
	if len(m.Inputs) == 0 || len(m.Outputs) == 0 {
		return nil, fmt.Errorf("load %s blocks [%d,%d): %w: it has no inputs or no outputs", m.Model, m.From, m.To, engine.ErrModel)
	}
	return &block{engine: e, sub: m, device: d}, nil
}

// block is a range of a model's blocks whose runs take the measured time.
type block struct {
	engine *Engine
	sub    *engine.Submodel
	device engine.Device

	mu       sync.Mutex
	isClosed bool
}

func (b *block) Submodel() *engine.Submodel { return b.sub }
func (b *block) Device() engine.Device      { return b.device }

// Close ends the use of the block: Bind then fails.
func (b *block) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isClosed = true
	return nil
}

// Bind asks for the block's time at the batch size, which every run will take, and returns a binding with the given
// tensors or new ones.
func (b *block) Bind(o engine.BindOptions) (engine.Binding, error) {
	action := fmt.Sprintf("bind %s blocks [%d,%d) at batch %d", b.sub.Model, b.sub.From, b.sub.To, o.Batch)
	b.mu.Lock()
	isClosed := b.isClosed
	b.mu.Unlock()
	if isClosed {
		return nil, fmt.Errorf("%s: block: %w", action, engine.ErrClosed)
	}
	if o.Batch < 1 {
		return nil, fmt.Errorf("%s: %w: the batch must be at least 1", action, engine.ErrShape)
	}
	d, err := b.engine.cost(b.sub.Model, b.sub.From, b.sub.To, b.device, o.Batch)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	x := &binding{block: b, batch: o.Batch, runTime: d, digests: make([]uint64, o.Batch)}
	if x.inputs, err = boundTensors("input", b.sub.Inputs, o.Inputs, o.Batch); err == nil {
		x.outputs, err = boundTensors("output", b.sub.Outputs, o.Outputs, o.Batch)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return x, nil
}

// boundTensors returns the tensors of one side (input or output) of a binding: the given ones, after a check that they
// fit the specs and lie in host memory, and new ones where none is given.
func boundTensors(sideName string, specs []engine.Spec, givenTensors []engine.Tensor, batch int) ([]engine.Tensor, error) {
	if givenTensors != nil && len(givenTensors) != len(specs) {
		return nil, fmt.Errorf("%w: %d %ss given, the block has %d", engine.ErrShape, len(givenTensors), sideName, len(specs))
	}
	out := make([]engine.Tensor, len(specs))
	for i, s := range specs {
		if givenTensors == nil || givenTensors[i] == nil {
			t, err := engine.NewHostTensor(s, batch, nil)
			if err != nil {
				return nil, err
			}
			out[i] = t
			continue
		}
		if err := engine.CheckFits(givenTensors[i], s, batch); err != nil {
			return nil, fmt.Errorf("%s %d: %w", sideName, i, err)
		}
		if givenTensors[i].Bytes() == nil {
			return nil, fmt.Errorf("%s %d: %w: not host memory", sideName, i, engine.ErrShape)
		}
		out[i] = givenTensors[i]
	}
	return out, nil
}

// binding is a block with its tensors for one batch size.
type binding struct {
	block           *block
	batch           int
	runTime         time.Duration // how long a run takes
	inputs, outputs []engine.Tensor
	digests         []uint64    // by sample: the number that its outputs will hold
	timer           *time.Timer // of the last run, used again so that runs allocate nothing
	isClosed        bool
}

func (x *binding) Batch() int               { return x.batch }
func (x *binding) Inputs() []engine.Tensor  { return x.inputs }
func (x *binding) Outputs() []engine.Tensor { return x.outputs }

func (x *binding) Close() error {
	x.isClosed = true
	return nil
}

// Run takes the block's time and fills the outputs. Unlike a real block it can be interrupted, so that a test need
// not wait for it.
func (x *binding) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if x.isClosed {
		return fmt.Errorf("run %s blocks [%d,%d): %w", x.block.sub.Model, x.block.sub.From, x.block.sub.To, engine.ErrClosed)
	}
	begin := time.Now()
	x.answer()
	return x.wait(ctx, begin)
}

// wait returns when a run that started at begin has taken its time, or when the context ends. It sleeps, as if it
// waited for a GPU.
func (x *binding) wait(ctx context.Context, begin time.Time) error {
	remaining := x.runTime - time.Since(begin)
	if remaining <= 0 {
		return nil
	}
	if ctx.Done() == nil {
		time.Sleep(remaining)
		return nil
	}
	if x.timer == nil {
		x.timer = time.NewTimer(remaining)
	} else {
		x.timer.Reset(remaining)
	}
	select {
	case <-x.timer.C:
		return nil
	case <-ctx.Done():
		x.timer.Stop()
		return ctx.Err()
	}
}

// RunN runs n times, and returns the sum of the CPU times of this thread and of the times by the wall clock.
func (x *binding) RunN(n int) (engine.Timing, error) {
	if n < 1 {
		return engine.Timing{}, fmt.Errorf("%d runs: expected at least 1", n)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpu, begin := engine.ThreadCPU(), time.Now()
	for range n {
		if err := x.Run(context.Background()); err != nil {
			return engine.Timing{}, err
		}
	}
	return engine.Timing{Runs: n, CPU: engine.ThreadCPU() - cpu, Wall: time.Since(begin)}, nil
}

// answer writes each sample's digest, a number that follows from the sample's inputs, into its outputs. So a test
// can tell that an answer belongs to its request. The first block of a model computes the digest, the later ones
// pass it on.
func (x *binding) answer() {
	if x.block.sub.From > 0 {
		for s := range x.digests {
			x.digests[s] = readDigest(x.inputs[0], x.batch, s)
		}
	} else {
		for s := range x.digests {
			x.digests[s] = sampleDigest(x.inputs, x.batch, s)
		}
	}
	for _, t := range x.outputs {
		data := t.Bytes()
		bytesPerSample := len(data) / x.batch
		for s, d := range x.digests {
			writeDigest(data[s*bytesPerSample:(s+1)*bytesPerSample], t.Spec().Type, d)
		}
	}
}

// sampleDigest computes a digest of one sample of the inputs, from a few hundred bytes spread over each tensor, so
// that a large image does not cost more than the block.
func sampleDigest(in []engine.Tensor, batch, sample int) uint64 {
	h := uint64(14695981039346656037) // FNV-1a: its start, and below its factor
	for _, t := range in {
		data := t.Bytes()
		bytesPerSample := len(data) / batch
		part := data[sample*bytesPerSample : (sample+1)*bytesPerSample]
		step := max(1, len(part)/512)
		for i := 0; i < len(part); i += step {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
	}
	return (h ^ h>>32) & (1<<(bitsEach*digestElements) - 1) // folded to the bits that outputs hold
}

// Every output element holds 7 bits of the digest, the lowest first and then repeated, as a number that survives
// any element type and float16.
const bitsEach = 7

// digestElements is the number of elements that hold a whole digest of 28 bits.
const digestElements = 4

// writeDigest fills one sample's output with its digest, as readDigest reads it. Element i holds bitsEach of its
// bits, the same again after digestElements elements.
func writeDigest(data []byte, t engine.DType, d uint64) {
	size := t.Size()
	n := len(data) / size
	for i := range n {
		v := byte(d >> (bitsEach * (i % digestElements)) & (1<<bitsEach - 1))
		putValue(data[i*size:], t, v)
	}
}

// readDigest reads the digest of a sample from the input of a block behind the first, where the block before has
// written it. Inputs with fewer elements than a digest needs hold its low bits.
func readDigest(t engine.Tensor, batch, sample int) uint64 {
	data := t.Bytes()
	bytesPerSample := len(data) / batch
	return readSample(data[sample*bytesPerSample:(sample+1)*bytesPerSample], t.Spec().Type)
}

// readSample reads the digest from one sample's bytes of element type t.
func readSample(data []byte, t engine.DType) uint64 {
	d, size := uint64(0), t.Size()
	for i := 0; i < digestElements && (i+1)*size <= len(data); i++ {
		d |= uint64(getValue(data[i*size:], t)) << (bitsEach * i)
	}
	return d
}

// putValue writes a number from 0 to 127 as an element of type t, little endian. Types of one byte, and others that are
// not listed, get it as a byte.
func putValue(p []byte, t engine.DType, v byte) {
	switch t {
	case engine.F32:
		binary.LittleEndian.PutUint32(p, math.Float32bits(float32(v)))
	case engine.F64:
		binary.LittleEndian.PutUint64(p, math.Float64bits(float64(v)))
	case engine.F16:
		binary.LittleEndian.PutUint16(p, toFP16(v))
	case engine.I32:
		binary.LittleEndian.PutUint32(p, uint32(v))
	case engine.I64:
		binary.LittleEndian.PutUint64(p, uint64(v))
	default:
		p[0] = v
	}
}

// getValue reads a number that putValue has written.
func getValue(p []byte, t engine.DType) byte {
	switch t {
	case engine.F32:
		return byte(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	case engine.F64:
		return byte(math.Float64frombits(binary.LittleEndian.Uint64(p)))
	case engine.F16:
		return fromFP16(binary.LittleEndian.Uint16(p))
	}
	return p[0] &^ 0x80 // the lowest byte comes first, and has the seven bits of the number
}

// toFP16 converts a number from 0 to 127 to float16, exactly.
func toFP16(v byte) uint16 {
	if v == 0 {
		return 0
	}
	exponent := 0
	for v>>(exponent+1) != 0 {
		exponent++
	}
	return uint16(exponent+15)<<10 | uint16(v)<<(10-exponent)&0x3ff
}

// fromFP16 converts the bits of a float16 to a whole number, and those of one beyond 0 to 127 to 0.
func fromFP16(h uint16) byte {
	if h == 0 {
		return 0
	}
	exponent := int(h>>10) - 15
	if exponent < 0 || exponent > 6 {
		return 0
	}
	return byte((h&0x3ff | 0x400) >> (10 - exponent))
}
