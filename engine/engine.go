package engine

import (
	"context"
	"time"
)

// Engine executes submodels on the devices of this machine.
type Engine interface {
	// Info names the engine and its version, for a profile's provenance.
	Info() Info
	// Devices lists what this engine can execute on, CPU first. A machine
	// without GPU has no GPU devices: that is not an error.
	Devices() ([]Device, error)
	// Load makes a submodel ready on a device. It fails, and never falls back
	// to another device, where the device cannot execute every node.
	Load(ctx context.Context, m *Submodel, d Device, o Options) (Block, error)
	// Close frees all that is still loaded.
	Close() error
}

// Info names the software that executes.
type Info struct {
	Name    string // "onnxruntime", "replay"
	Version string // "1.29.0"
	Library string // path of the library in use; empty for engines without one
}

// Submodel is a runnable range of a model's blocks with its declared
// boundary. Outputs of the range [i,j) match the inputs of the range [j,k) by
// position; names are those of the model's own tensors, except that an input
// which is passed through unchanged has a suffix on the input's side.
type Submodel struct {
	Model    string // the model's name
	Identity string // hex SHA-256 that identifies the source (and its seed)
	// From and To are the half-open range [From, To) of the model's blocks, of which there are Blocks.
	From, To, Blocks int
	Inputs, Outputs  []Spec
	WeightBytes      int64
	Nodes            int      // operators inside, constants aside
	ONNX             []byte   // the stand-alone model; empty for the replay engine
	Folder           string   // folder of the files that hold its weights; empty if it has none
	WeightFiles      []string // the files there that its ONNX bytes name, with slashes
}

// Options are the options of Load. Profiles and plans assume the zero value.
type Options struct {
	// Threads is the number of threads that work on one operator on the CPU;
	// zero means the device's (one per CPU of its set).
	Threads int
	// Optimization is "all" (default), "extended", "basic" or "none".
	Optimization string
	// Provider holds options of the device's execution provider by its own
	// keys (for CUDA: cudnn_conv_algo_search, use_tf32, gpu_mem_limit, ...).
	Provider map[string]string
	// Session holds session configuration entries by the runtime's own keys.
	Session map[string]string
	// CUDAGraph captures one graph per batch size and replays it.
	CUDAGraph bool
	// TensorRT runs the submodel through TensorRT instead of plain CUDA.
	TensorRT bool
}

// Block is a submodel that is loaded on one device.
type Block interface {
	Submodel() *Submodel
	Device() Device
	Bind(o BindOptions) (Binding, error)
	Close() error
}

// BindOptions say for which batch size a block gets its tensors. Inputs and
// Outputs, where given, have one entry per input or output of the submodel; a
// nil entry, or a nil slice, lets the engine allocate on the block's device.
type BindOptions struct {
	Batch           int
	Inputs, Outputs []Tensor
	// HostIO puts the tensors that the engine allocates into host memory even
	// where the block runs on a GPU; each run then includes the copies.
	HostIO bool
}

// Binding is a block with its tensors for one batch size.
type Binding interface {
	Batch() int
	Inputs() []Tensor
	Outputs() []Tensor
	// Run executes once and returns when the outputs are complete. The context is checked before the run starts; a
	// run is short and is not interrupted. Run allocates nothing.
	Run(ctx context.Context) error
	// RunN executes n times in a loop outside Go with one synchronisation at
	// the end.
	RunN(n int) (Timing, error)
	Close() error
}

// Timing is the sum over all runs of a RunN. CPU is the CPU time of the calling thread: on a CPU device with one
// thread it is the cost of the block, on a GPU the cost of launching it. Host, on a GPU, is the wall time until
// the last run was launched, without waiting for the device. If it is not much shorter than Wall, the device waits
// for the host.
type Timing struct {
	Runs            int
	CPU, Wall, Host time.Duration
}

// PerRun returns the mean CPU time and wall time of one run, or zeros without runs.
func (t Timing) PerRun() (cpu, wall time.Duration) {
	if t.Runs == 0 {
		return 0, 0
	}
	return t.CPU / time.Duration(t.Runs), t.Wall / time.Duration(t.Runs)
}
