package worker

import (
	"context"
	"fmt"

	"inferplan/engine"
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
	return &onnx{Cutter: NewCutter(eng.Probe, h.Execution.FP16), eng: eng, device: dev, threads: h.Device.Threads, execution: h.Execution}, nil
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

// onnx is ONNX Runtime on one device. It implements Loader.
type onnx struct {
	*Cutter
	eng       *ort.Engine
	device    engine.Device
	threads   int
	execution Execution
}

func (o *onnx) Info() engine.Info     { return o.eng.Info() }
func (o *onnx) Device() engine.Device { return o.device }
func (o *onnx) Close() error          { return o.eng.Close() }
func (o *onnx) Loaded()               { o.Forget() }

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
