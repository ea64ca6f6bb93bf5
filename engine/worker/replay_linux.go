package worker

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"inferplan/engine"
	"inferplan/engine/replay"
)

// openReplay opens an engine for a worker that executes no models, by which a plan can be served on a machine without
// its models and devices. Answers are computed from the inputs (engine/replay). The times of runs are the plan's
// (StageSpec.InferNS), and are waited for by the bindings of this file, not by engine/replay, because Go's timers may
// be a millisecond late in an idle process. It sets the timer slack of the calling thread.
func openReplay(_ context.Context, h *Hello) (Loader, error) {
	// Without this the kernel may wake a sleeper late, by a slack of 50 us.
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set the timer slack: %w", err)
	}
	d := engine.Device{ID: fmt.Sprintf("replay:%d", h.Device.Index), Kind: h.Device.Kind, Name: "replay", Share: max(h.Device.Share, 1)}
	// engine/replay itself takes no time for a run.
	noTime := func(string, int, int, engine.Device, int) (time.Duration, error) { return 0, nil }
	return &replayLoader{replay.New(noTime, replay.Options{Devices: []engine.Device{d}}), d}, nil
}

// replayLoader is the engine that executes nothing, on one device. It implements Loader.
type replayLoader struct {
	*replay.Engine
	device engine.Device
}

func (r *replayLoader) Device() engine.Device { return r.device }

// Cut returns the description of a stage (a range of a model's blocks) as the plan gives it. Nothing is cut, because
// nothing is executed.
func (r *replayLoader) Cut(_ context.Context, s *StageSpec) (*engine.Submodel, error) {
	if len(s.InferNS) < s.MaxBatch {
		return nil, fmt.Errorf("%w: times for batches 1 to %d, expected 1 to %d", engine.ErrModel, len(s.InferNS), s.MaxBatch)
	}
	return &engine.Submodel{
		Model: s.Model, Identity: s.SHA256, From: s.From, To: s.To, Blocks: s.Blocks, Inputs: s.Inputs, Outputs: s.Outputs, WeightBytes: s.WeightBytes,
	}, nil
}

// Load takes the time that the plan gives for loading the stage, which is shorter if the model comes from the host's
// memory. s.LoadNS has both times in nanoseconds: from memory, and from the file. A model in memory has bytes.
func (r *replayLoader) Load(ctx context.Context, s *StageSpec, m *engine.Submodel) (engine.Block, error) {
	loadTime := s.LoadNS[1]
	if len(m.ONNX) > 0 {
		loadTime = s.LoadNS[0]
	}
	if err := sleepUntil(ctx, monotonic()+loadTime); err != nil {
		return nil, err
	}
	b, err := r.Engine.Load(ctx, m, r.device, engine.Options{})
	if err != nil {
		return nil, err
	}
	return &replayBlock{b, s.InferNS}, nil
}

// LoadBlock loads a block whose runs take no time.
func (r *replayLoader) LoadBlock(ctx context.Context, m *engine.Submodel, o engine.Options) (engine.Block, error) {
	return r.Engine.Load(ctx, m, r.device, o)
}

// ReplayMemoryEnv is a variable that, if it is 1, gives replayed devices memory that other processes can map. So
// the exchange of memory by CUDA IPC can be tested without a GPU.
const ReplayMemoryEnv = "INFERPLAN_REPLAY_DEVICE_MEMORY"

// ShareMemory makes memory that stands for a GPU's, if the variable ReplayMemoryEnv allows it: a file in memory,
// whose handle is its path.
func (r *replayLoader) ShareMemory(size int64) (DeviceMemory, []byte, error) {
	if os.Getenv(ReplayMemoryEnv) != "1" {
		return nil, nil, fmt.Errorf("%w: a replayed device", engine.ErrNoDevice)
	}
	s, err := NewSegment(0, size)
	if err != nil {
		return nil, nil, err
	}
	return replayMemory{s}, fmt.Appendf(nil, "/proc/%d/fd/%d", os.Getpid(), s.fd), nil
}

// MapMemory maps the memory that another process's ShareMemory has made, by its handle, the path of the file in
// memory.
func (r *replayLoader) MapMemory(handle []byte, size int64) (DeviceMemory, error) {
	fd, err := unix.Open(string(handle), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("map a replayed device's memory: %w", err)
	}
	s, err := mapSegment(0, fd, size)
	if err != nil {
		return nil, err
	}
	return replayMemory{s}, nil
}

// replayMemory is memory in place of a GPU's.
type replayMemory struct{ *Segment }

// Tensor returns a tensor in the memory, from an offset on.
func (m replayMemory) Tensor(spec engine.Spec, batch int, offset int64) (engine.Tensor, error) {
	list, err := m.hostTensors([]engine.Spec{spec}, batch, offset)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// replayBlock is a block whose runs take the plan's times.
type replayBlock struct {
	engine.Block
	runTimes []int64 // by batch size from 1 on, nanoseconds
}

// Bind returns a binding whose runs take the time of its batch size.
func (b *replayBlock) Bind(o engine.BindOptions) (engine.Binding, error) {
	if o.Batch > len(b.runTimes) {
		return nil, fmt.Errorf("%w: batch %d, expected 1 to %d", engine.ErrShape, o.Batch, len(b.runTimes))
	}
	x, err := b.Block.Bind(o)
	if err != nil {
		return nil, err
	}
	return &replayBinding{x, b.runTimes[o.Batch-1]}, nil
}

// replayBinding is a binding whose runs take a given time.
type replayBinding struct {
	engine.Binding
	runTime int64 // nanoseconds
}

// Run computes the answers and returns when the run's time has passed since its start.
func (b *replayBinding) Run(ctx context.Context) error {
	endAt := monotonic() + b.runTime
	if err := b.Binding.Run(ctx); err != nil {
		return err
	}
	return sleepUntil(ctx, endAt)
}

// RunN runs n times, and returns their time by the wall clock.
func (b *replayBinding) RunN(n int) (engine.Timing, error) {
	start := monotonic()
	for range n {
		if err := b.Run(context.Background()); err != nil {
			return engine.Timing{}, err
		}
	}
	return engine.Timing{Runs: n, Wall: time.Duration(monotonic() - start)}, nil
}
