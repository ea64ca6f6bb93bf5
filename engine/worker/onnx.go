package worker

import (
	"context"
	"fmt"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
)

// openONNX opens ONNX Runtime on the device that the parent asks for (h), in the worker process, with its libraries
// of custom operators.
func openONNX(_ context.Context, h *Hello) (Loader, error) {
	eng, err := ort.Open(h.Library)
	if err != nil {
		return nil, err
	}
	dev, err := findDevice(eng, &h.Device)
	for _, l := range h.Operators {
		if err == nil {
			err = eng.UseOperators(l.Path)
		}
	}
	if err != nil {
		eng.Close()
		return nil, err
	}
	return &onnx{eng: eng, device: dev, threads: h.Device.Threads, execution: h.Execution, models: map[modelKey]*openModel{}}, nil
}

// findDevice returns the device that the plan asks for: a set of CPUs, or the device of this machine with the wanted
// number among those of its kind. Share v stands for 1/v of the device.
func findDevice(eng engine.Engine, wanted *Device) (engine.Device, error) {
	if len(wanted.CPUs) > 0 {
		return engine.CPUDevice(wanted.CPUs...), nil
	}
	devices, err := eng.Devices()
	if err != nil {
		return engine.Device{}, err
	}
	number := 0
	for _, d := range devices {
		if d.Kind != wanted.Kind && d.ID != wanted.Kind {
			continue
		}
		if number == wanted.Index {
			d.Share = max(wanted.Share, 1)
			return d, nil
		}
		number++
	}
	return engine.Device{}, fmt.Errorf("%w: the plan wants device %d of kind %s, this machine has %d of that kind", engine.ErrNoDevice, wanted.Index, wanted.Kind, number)
}

// modelKey identifies a model that is cut in one way.
type modelKey struct {
	path, model    string // one file may have several models, each with fixed sizes
	maxLiveTensors int
}

// openModel is a model that was read: a chain that can be cut into stages or, if its batch dimension cannot be made
// free, the whole file as one submodel (fixedModel).
type openModel struct {
	chain      *graph.Chain
	fixedModel *engine.Submodel
}

// onnx is ONNX Runtime on one device. It implements Loader.
type onnx struct {
	eng     *ort.Engine
	device  engine.Device
	threads int

	execution Execution
	// models holds the models read so far, because the stages of one model follow each other. They hold weights
	// and are dropped when the set-up is done.
	models map[modelKey]*openModel
}

func (o *onnx) Info() engine.Info     { return o.eng.Info() }
func (o *onnx) Device() engine.Device { return o.device }
func (o *onnx) Close() error          { return o.eng.Close() }
func (o *onnx) Loaded()               { o.models = map[modelKey]*openModel{} }

// Pin locks shared memory for copies by a GPU. On a CPU it does nothing.
func (o *onnx) Pin(data []byte) (unpin func() error, err error) {
	if o.device.IsCPU() {
		return nil, nil
	}
	i, err := o.device.Index()
	if err != nil {
		return nil, err
	}
	return ort.Pin(i, data)
}

// ShareMemory allocates memory of the GPU that other processes can map.
func (o *onnx) ShareMemory(size int64) (DeviceMemory, []byte, error) {
	i, err := o.gpu()
	if err != nil {
		return nil, nil, err
	}
	m, h, err := ort.ShareMemory(i, size)
	if err != nil {
		return nil, nil, err
	}
	return m, h[:], nil
}

// MapMemory maps size bytes of the GPU's memory that another process has allocated, by the handle that its
// ShareMemory returned.
func (o *onnx) MapMemory(handle []byte, size int64) (DeviceMemory, error) {
	i, err := o.gpu()
	if err != nil {
		return nil, err
	}
	var h ort.Handle
	if copy(h[:], handle) != len(handle) || len(handle) != len(h) {
		return nil, fmt.Errorf("%w: a handle of %d bytes, expected %d", ErrProtocol, len(handle), len(h))
	}
	m, err := ort.Import(i, h, int(size))
	if err != nil {
		return nil, err
	}
	return m, nil
}

// gpu returns the number of the GPU, or an error if the device is none.
func (o *onnx) gpu() (int, error) {
	if o.device.IsCPU() {
		return 0, fmt.Errorf("%w: %s is no GPU", engine.ErrNoDevice, o.device.ID)
	}
	return o.device.Index()
}

// Cut cuts the stage out of its model's file: the blocks between the cuts whose tensors the plan names, or the whole
// model. Nothing is loaded yet.
func (o *onnx) Cut(ctx context.Context, s *StageSpec) (*engine.Submodel, error) {
	m, err := o.open(ctx, s)
	if err != nil {
		return nil, err
	}
	if m.fixedModel != nil {
		if o.execution.FP16 {
			return nil, fmt.Errorf("%w: %s: a model whose batch cannot be made free runs as its file is, not in float16", engine.ErrModel, s.Path)
		}
		sub := *m.fixedModel
		return &sub, nil
	}
	chain := m.chain
	// The plan names the tensors at its cuts. They define where the range of blocks begins and ends, whatever the
	// number of blocks that the model is cut into today.
	var cuts [][]string
	firstBlock, endBlock := 0, 1
	if s.From > 0 {
		if len(s.CutIn) == 0 {
			return nil, fmt.Errorf("%w: the plan names no tensors at the cut before block %d", engine.ErrModel, s.From)
		}
		cuts = append(cuts, s.CutIn)
		firstBlock, endBlock = 1, 2
	}
	if s.To < s.Blocks {
		if len(s.CutOut) == 0 {
			return nil, fmt.Errorf("%w: the plan names no tensors at the cut after block %d", engine.ErrModel, s.To-1)
		}
		cuts = append(cuts, s.CutOut)
	}
	blocks, err := chain.CutAt(cuts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrModel, err)
	}
	return blocks.Slice(firstBlock, endBlock, graph.SliceOptions{FP16In: s.FP16In, FP16Out: s.FP16Out, FP16: o.execution.FP16})
}

// Load loads a stage that Cut has cut.
func (o *onnx) Load(ctx context.Context, _ *StageSpec, sub *engine.Submodel) (engine.Block, error) {
	options := o.execution.Options
	options.Threads = o.threads
	if o.device.IsCPU() { // the options of the execution are about GPUs
		options = engine.Options{Threads: o.threads}
	}
	block, err := o.eng.Load(ctx, sub, o.device, options)
	sub.ONNX = nil // the engine has its own copy
	return block, err
}

// LoadBlock loads a block that the parent has cut.
func (o *onnx) LoadBlock(ctx context.Context, m *engine.Submodel, x engine.Options) (engine.Block, error) {
	return o.eng.Load(ctx, m, o.device, x)
}

// open reads a model as the profiler does: with a free batch dimension or, if the plan says that the model runs at
// fixed shapes, as its file is. A model that was read before is returned from o.models. A file with another hash than
// the plan's is an error.
func (o *onnx) open(ctx context.Context, s *StageSpec) (*openModel, error) {
	// A chain finds the cuts that at most maxLiveTensors tensors cross. It must find those at both ends of the stage.
	key := modelKey{s.Path, s.Model, max(1, len(s.CutIn), len(s.CutOut))}
	if m := o.models[key]; m != nil {
		return m, nil
	}
	m, err := graph.Open(s.Path, graph.Options{Name: s.Model, Seed: s.Seed, Dims: s.Dims, Values: s.Values})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrModel, err)
	}
	if s.SHA256 != "" && s.SHA256 != m.SHA256 {
		return nil, fmt.Errorf("%w: %s has SHA-256 %s, the plan was made for %s; profile and solve again, or serve the file of the plan", ErrHash, s.Path, m.SHA256, s.SHA256)
	}
	model := new(openModel)
	if s.FixedShapes {
		model.fixedModel, _, err = m.Fixed(ctx, o.eng.Probe)
	} else {
		model.chain, err = m.Chain(ctx, o.eng.Probe, graph.ChainOptions{MaxLive: key.maxLiveTensors})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrModel, err)
	}
	o.models[key] = model
	return model, nil
}
