package worker

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats/modelfile"
)

// Hello is the parent's first frame.
type Hello struct {
	Engine string `json:"engine"` // name in the worker's engine table
	// Device.CPUs, if given, are the CPUs that the worker's thread is pinned to.
	Device  Device `json:"device"`
	Library string `json:"library,omitempty"` // path of the engine's library; if empty, the engine searches

	Execution Execution `json:"execution"`
	// Operators are libraries of custom operators that the stages need.
	Operators []modelfile.OperatorLibrary `json:"operators,omitempty"`
	// Memory is the number of bytes that swapped stages may take on the device. 0 means no limit.
	Memory int64 `json:"memory,omitempty"`
}

// Env returns the variables that the worker's process needs in its environment for its device: its share of a GPU,
// and its way of execution.
func (h *Hello) Env() []string {
	// As formats.IsCPU: engines import no documents.
	if strings.HasPrefix(h.Device.Kind, "cpu-") {
		return nil
	}
	return slices.Concat(ShareEnv(h.Device.Share), h.Execution.Env())
}

// ShareEnv returns the variable that limits a process to 1/v of a GPU's multiprocessors, where CUDA's Multi-Process
// Service runs. The whole GPU (v 1) needs none.
func ShareEnv(v int) []string {
	if v < 2 {
		return nil
	}
	return []string{fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", max(1, 100/v))}
}

// Device is the device that a worker executes on.
type Device struct {
	Kind  string `json:"kind"`  // the plan's name (L4, cpu-1), or the engine's (cuda:0)
	Index int    `json:"index"` // number among the devices of that kind on this machine, from 0
	Share int    `json:"share"` // v, for a share 1/v of the device
	CPUs  []int  `json:"cpus,omitempty"`
	// Threads work on one operator on a CPU. 0 means one per CPU.
	Threads int `json:"threads,omitempty"`
}

// Welcome answers Hello.
type Welcome struct {
	PID     int    `json:"pid"`
	Engine  string `json:"engine"`
	Version string `json:"version"`
	Device  string `json:"device"` // the engine's name of the device
}

// StageSpec describes a stage to load.
type StageSpec struct {
	ID     uint32 `json:"id"`
	Model  string `json:"model"`
	File   string `json:"file,omitempty"` // name of the model's file without extension; if empty, Model
	Path   string `json:"path,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // the digest of the file; if empty, it is not checked
	// From and To are the half-open range [From, To) of the model's blocks, of which there are Blocks.
	From     int `json:"from"`
	To       int `json:"to"`
	Blocks   int `json:"blocks"`
	MaxBatch int `json:"max_batch"`
	// Sizes are the batch sizes that are made ready, ascending, the last MaxBatch; if empty, all. A smaller batch
	// runs at the next larger size. That saves sessions and memory on devices on which every size needs its own,
	// as on a GPU.
	Sizes   []int `json:"sizes,omitempty"`
	FP16In  bool  `json:"fp16_in,omitempty"`  // floats arrive as float16
	FP16Out bool  `json:"fp16_out,omitempty"` // floats leave as float16
	// CutIn and CutOut, if known, are the names of the tensors at the cuts before and after the stage. The engine
	// has to find the same.
	CutIn  []string `json:"cut_in,omitempty"`
	CutOut []string `json:"cut_out,omitempty"`
	// FixedShapes says that every run takes inputs of exactly the shapes of Dims, first dimension included. It is
	// set for a model whose batch dimension cannot be made free.
	FixedShapes bool `json:"whole,omitempty"`
	// Seed, Dims and Values are options of reading the model (engine/graph). An input that has a value and
	// dimensions is warmed up with that value.
	Seed   uint64                   `json:"seed,omitempty"`
	Dims   map[string][]int64       `json:"dims,omitempty"`
	Values map[string]graph.Literal `json:"values,omitempty"`
	// InferNS, Inputs and Outputs are for engines that execute nothing: the time of each batch from 1 on, and
	// tensors.
	InferNS []int64       `json:"infer_ns,omitempty"`
	Inputs  []engine.Spec `json:"inputs,omitempty"`
	Outputs []engine.Spec `json:"outputs,omitempty"`
	// LoadNS is the time in ns that such an engine takes to swap the stage in, from the host's memory and from its
	// file. WeightBytes is the memory that the stage then takes.
	LoadNS      [2]int64 `json:"load_ns,omitzero"`
	WeightBytes int64    `json:"weight_bytes,omitempty"`
}

// check returns an error if the fields of a stage do not fit each other. The parent may be another build, or another
// host.
func (s *StageSpec) check() error {
	switch {
	case s.ID >= maxStages:
		return fmt.Errorf("stage %d: at most %d", s.ID, maxStages)
	case s.From < 0 || s.To <= s.From || s.To > s.Blocks:
		return fmt.Errorf("stage %d of %s: blocks [%d,%d) of %d", s.ID, s.Model, s.From, s.To, s.Blocks)
	case s.MaxBatch < 1 || s.MaxBatch > MaxBatch:
		return fmt.Errorf("stage %d of %s: max_batch %d, expected 1 to %d", s.ID, s.Model, s.MaxBatch, MaxBatch)
	case s.FixedShapes && (s.MaxBatch > 1 || s.From > 0 || s.To < s.Blocks):
		return fmt.Errorf("stage %d of %s: blocks [%d,%d) of %d at batches up to %d, but the model runs whole, one request at a time", s.ID, s.Model, s.From, s.To, s.Blocks, s.MaxBatch)
	case len(s.Sizes) > 0 && (s.Sizes[0] < 1 || s.Sizes[len(s.Sizes)-1] != s.MaxBatch || !slices.IsSorted(s.Sizes)):
		return fmt.Errorf("stage %d of %s: sizes %v, expected them ascending up to max_batch %d", s.ID, s.Model, s.Sizes, s.MaxBatch)
	}
	return nil
}

// LoadedStage answers a load frame.
type LoadedStage struct {
	ID          uint32        `json:"id"`
	Inputs      []engine.Spec `json:"inputs"`
	Outputs     []engine.Spec `json:"outputs"`
	WeightBytes int64         `json:"weight_bytes"` // the memory that this stage added; 0 if another stage had loaded the weights
	LoadNS      int64         `json:"load_ns"`
}

// SegmentSpec announces shared memory; its descriptor comes with the frame.
type SegmentSpec struct {
	ID        uint32 `json:"id"`
	Size      int64  `json:"size"`
	ForOutput bool   `json:"own"` // this worker writes its outputs there
}

// Layout says where the slots of a stage lie in the worker's own segment. Slot i starts at Base + i*Stride. It has
// an input part of InBytes (zero if the input comes from another stage) and then an output part.
type Layout struct {
	ID      uint32 `json:"id"`
	Base    int64  `json:"base"`
	Stride  int64  `json:"stride"`
	InBytes int64  `json:"in_bytes"`
	Slots   int    `json:"slots"`
	// WarmSlots is the number of slots that are bound in advance for every batch size. The others are bound when first
	// used. If it is above zero, the stage also runs once at every batch size.
	WarmSlots int `json:"warm"`
}

// InputOffset returns the offset of the slot's input in the segment.
func (l Layout) InputOffset(slot int) int64 { return l.Base + int64(slot)*l.Stride }

// OutputOffset returns the offset of the slot's output in the segment.
func (l Layout) OutputOffset(slot int) int64 { return l.InputOffset(slot) + l.InBytes }

// ReadyReply answers segment and prepare frames.
type ReadyReply struct {
	Answers string `json:"for"` // name of the frame that this answers
	ID      uint32 `json:"id"`
	WarmNS  int64  `json:"warm_ns,omitempty"`
	Pinned  bool   `json:"pinned,omitempty"` // the device copies directly from and to the segment
}

// Failure answers a set-up frame whose step failed.
type Failure struct {
	Answers string `json:"for"`
	Code    Code   `json:"code"`
	Text    string `json:"text"`
}

// ErrHash is returned when the model file is not the one that the plan was made for.
var ErrHash = errors.New("model file differs from the plan's")

// ErrMemory is returned when a swap needs more memory than is free on the device.
var ErrMemory = errors.New("the device's memory is full")

// RemoteError is a failure that a worker reported. errors.Is sees the engine's
// error through the process boundary.
type RemoteError struct {
	Code Code
	Text string
}

func (e *RemoteError) Error() string { return e.Text }

// Unwrap returns the error that the code stands for, so that errors.Is finds it.
func (e *RemoteError) Unwrap() error {
	if int(e.Code) < len(codeErrors) {
		return codeErrors[e.Code]
	}
	return nil
}

// codeErrors are the errors that have a code of their own.
var codeErrors = [numCodes]error{
	NoLibrary: engine.ErrNoLibrary, NoDevice: engine.ErrNoDevice, CPUFallback: engine.ErrFallback, BadModel: engine.ErrModel,
	BadShape: engine.ErrShape, BadHash: ErrHash, EngineClosed: engine.ErrClosed, NoMemory: ErrMemory,
}

// codeOf returns the code that stands for an error in a message to another process.
func codeOf(err error) Code {
	for c, e := range codeErrors {
		if e != nil && errors.Is(err, e) {
			return Code(c)
		}
	}
	return OtherFailure
}
