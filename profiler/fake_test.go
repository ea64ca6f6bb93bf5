package profiler

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
)

// fakeClock is time that only the fake engine moves.
type fakeClock struct {
	mu sync.Mutex
	t  time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{t: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	c.t = c.t.Add(d)
	c.mu.Unlock()
}

// fakeModel has atoms of known cost.
type fakeModel struct {
	name, sha string
	cost      []time.Duration // of each atom at batch 1
	batch     int             // its only batch, 0 for any
	weights   int64           // per atom
}

func uniformModel(name string, atoms int, each time.Duration) *fakeModel {
	m := &fakeModel{name: name, sha: fmt.Sprintf("%064x", len(name)+1000*atoms), weights: 1 << 20}
	for range atoms {
		m.cost = append(m.cost, each)
	}
	return m
}

func (m *fakeModel) spec(i int) engine.Spec {
	first := engine.BatchDim
	if m.batch > 0 {
		first = int64(m.batch)
	}
	return engine.Spec{Name: fmt.Sprintf("t%d", i), Type: engine.F32, Shape: []int64{first, 4}}
}

func (m *fakeModel) info() modelInfo {
	n := len(m.cost)
	return modelInfo{
		name: m.name, path: m.name + ".onnx", sha256: m.sha, batch: m.batch, weightBytes: m.weights * int64(n),
		inputs: []engine.Spec{m.spec(0)}, outputs: []engine.Spec{m.spec(n)}, logits: []string{m.spec(n).Name},
	}
}

func (m *fakeModel) atomCount() int       { return len(m.cost) }
func (m *fakeModel) wholeModel() cutModel { return &fakeBlocks{m, []int{0, len(m.cost)}} }
func (m *fakeModel) eachAtom() cutModel   { return m.evenly(len(m.cost)) }

func (m *fakeModel) evenly(n int) *fakeBlocks {
	b := &fakeBlocks{m: m}
	for i := range n + 1 {
		b.bounds = append(b.bounds, i*len(m.cost)/n)
	}
	return b
}

func (m *fakeModel) partition(costs []float64, n int) (cutModel, error) {
	if len(costs) != len(m.cost) {
		return nil, fmt.Errorf("%d costs for %d atoms", len(costs), len(m.cost))
	}
	return m.evenly(n), nil
}

func (m *fakeModel) cutAt(cuts [][]string) (cutModel, error) {
	b := &fakeBlocks{m, []int{0}}
	for _, c := range cuts {
		var i int
		if _, err := fmt.Sscanf(c[0], "t%d", &i); err != nil || i <= 0 || i >= len(m.cost) {
			return nil, fmt.Errorf("no cut %v", c)
		}
		b.bounds = append(b.bounds, i)
	}
	b.bounds = append(b.bounds, len(m.cost))
	return b, nil
}

type fakeBlocks struct {
	m      *fakeModel
	bounds []int
}

func (b *fakeBlocks) Len() int                   { return len(b.bounds) - 1 }
func (b *fakeBlocks) WeightBytes(i, j int) int64 { return b.m.weights * int64(b.bounds[j]-b.bounds[i]) }
func (b *fakeBlocks) Nodes(i, j int) int         { return b.bounds[j] - b.bounds[i] }

func (b *fakeBlocks) Cut(i int) graph.Cut {
	return graph.Cut{Tensors: []engine.Spec{b.m.spec(b.bounds[i])}, Bytes: 16, HalfBytes: 8}
}

func (b *fakeBlocks) Slice(i, j int, _ graph.SliceOptions) (*engine.Submodel, error) {
	return &engine.Submodel{
		Model: b.m.name, From: i, To: j, Blocks: b.Len(), WeightBytes: b.WeightBytes(i, j), Nodes: b.Nodes(i, j),
		Inputs: b.Cut(i).Tensors, Outputs: b.Cut(j).Tensors, ONNX: fmt.Append(nil, b.bounds[i], " ", b.bounds[j]),
	}, nil
}

// fakeEngine executes fakeModels on a virtual clock. What it ran is in log.
type fakeEngine struct {
	clock   *fakeClock
	models  map[string]*fakeModel
	devices []engine.Device
	version string
	noise   func(at time.Time) float64 // factor on every run
	wait    func(atoms int) float64    // factor on the wall time alone
	loadErr func(m *engine.Submodel, d engine.Device) error
	onRun   func(run int)

	mu   sync.Mutex
	log  []string
	runs int
	open int // blocks and bindings not closed
}

func newFakeEngine(list ...*fakeModel) *fakeEngine {
	cpu := engine.CPUDevice(0)
	cpu.Name, cpu.Driver = "fake CPU 1", "linux 1"
	e := &fakeEngine{clock: newFakeClock(), models: map[string]*fakeModel{}, devices: []engine.Device{cpu}, version: "1"}
	for _, m := range list {
		e.models[m.name] = m
	}
	return e
}

// options are Options that use the fake.
func (e *fakeEngine) options(names ...string) Options {
	o := Options{Engine: e, Device: "cpu", now: e.clock.now, letIdle: func() { e.clock.advance(formats.IdleGap) }, Models: names, measureReference: func() time.Duration { return time.Millisecond }, hostCopy: func() float64 { return 80 }}
	o.open = func(_ context.Context, path string, _ *Options) (model, error) {
		m, ok := e.models[path]
		if !ok {
			return nil, inputError("%s: no such model", path)
		}
		return m, nil
	}
	return o
}

func (e *fakeEngine) Info() engine.Info                 { return engine.Info{Name: "fake", Version: e.version} }
func (e *fakeEngine) Devices() ([]engine.Device, error) { return e.devices, nil }
func (e *fakeEngine) Close() error                      { return nil }

func (e *fakeEngine) Load(ctx context.Context, m *engine.Submodel, d engine.Device, _ engine.Options) (engine.Block, error) {
	if e.loadErr != nil {
		if err := e.loadErr(m, d); err != nil {
			return nil, err
		}
	}
	var i, j int
	if _, err := fmt.Sscan(string(m.ONNX), &i, &j); err != nil {
		return nil, err
	}
	var cost time.Duration
	for _, c := range e.models[m.Model].cost[i:j] {
		cost += c
	}
	e.count(1)
	return &fakeBlock{e: e, sub: m, dev: d, cost: cost, atoms: j - i}, ctx.Err()
}

func (e *fakeEngine) count(n int) {
	e.mu.Lock()
	e.open += n
	e.mu.Unlock()
}

type fakeBlock struct {
	e      *fakeEngine
	sub    *engine.Submodel
	dev    engine.Device
	cost   time.Duration
	atoms  int
	closed bool
}

func (b *fakeBlock) Submodel() *engine.Submodel { return b.sub }
func (b *fakeBlock) Device() engine.Device      { return b.dev }

func (b *fakeBlock) Close() error {
	if !b.closed {
		b.e.count(-1)
	}
	b.closed = true
	return nil
}

func (b *fakeBlock) Bind(o engine.BindOptions) (engine.Binding, error) {
	x := &fakeBinding{b: b, batch: o.Batch}
	for k, specs := range [][]engine.Spec{b.sub.Inputs, b.sub.Outputs} {
		given := [][]engine.Tensor{o.Inputs, o.Outputs}[k]
		for i, s := range specs {
			var t engine.Tensor
			if i < len(given) {
				t = given[i]
			}
			if t == nil {
				var err error
				if t, err = engine.NewHostTensor(s, o.Batch, nil); err != nil {
					return nil, err
				}
			}
			x.t[k] = append(x.t[k], t)
		}
	}
	b.e.count(1)
	return x, nil
}

type fakeBinding struct {
	b      *fakeBlock
	batch  int
	t      [2][]engine.Tensor
	closed bool
}

func (x *fakeBinding) Batch() int               { return x.batch }
func (x *fakeBinding) Inputs() []engine.Tensor  { return x.t[0] }
func (x *fakeBinding) Outputs() []engine.Tensor { return x.t[1] }

// Run multiplies by 1.1 per atom, so that what goes in shows in what comes out.
func (x *fakeBinding) Run(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := x.RunN(1)
	return err
}

func (x *fakeBinding) RunN(n int) (engine.Timing, error) {
	if x.closed || x.b.closed {
		return engine.Timing{}, engine.ErrClosed
	}
	in, _, err := readFloats(x.t[0][0])
	if err != nil {
		return engine.Timing{}, err
	}
	out := x.t[1][0].(*engine.HostTensor).Bytes()
	for i, v := range in {
		v *= float32(math.Pow(1.1, float64(x.b.atoms)))
		putFloat(out[4*i:], v)
	}
	e := x.b.e
	e.mu.Lock()
	e.log = append(e.log, fmt.Sprintf("%s[%d,%d)/%d b%d", x.b.sub.Model, x.b.sub.From, x.b.sub.To, x.b.sub.Blocks, x.batch))
	e.runs++
	run := e.runs
	e.mu.Unlock()
	if e.onRun != nil {
		e.onRun(run)
	}
	factor := 1.0
	if e.noise != nil {
		factor = e.noise(e.clock.now())
	}
	d := time.Duration(float64(n*x.batch) * float64(x.b.cost) * factor)
	cpu := d - d/50
	if e.wait != nil {
		d = time.Duration(float64(d) * e.wait(x.b.atoms))
	}
	e.clock.advance(d)
	return engine.Timing{Runs: n, CPU: cpu, Wall: d}, nil
}

func (x *fakeBinding) Close() error {
	if x.b.closed {
		return errors.New("binding closed after its block")
	}
	if !x.closed {
		x.b.e.count(-1)
	}
	x.closed = true
	return nil
}

// jitter is a seeded multiplicative noise of the given spread.
func jitter(seed uint64, spread float64) func(time.Time) float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(time.Time) float64 { return math.Exp(spread * rng.NormFloat64()) }
}

func putFloat(b []byte, v float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(v)) }
