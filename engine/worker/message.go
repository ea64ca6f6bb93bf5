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
	// Device.CPUs, where given, are what the worker's thread is pinned to.
	Device  Device `json:"device"`
	Library string `json:"library,omitempty"` // path of the engine's library; empty: its own search

	Execution Execution `json:"execution"`
	// Operators are libraries of custom operators that the stages need.
	Operators []modelfile.OperatorLibrary `json:"operators,omitempty"`
	// Memory is what may be on the device of what is swapped in; 0: anything.
	Memory int64 `json:"memory,omitempty"`
}

// Env is what the worker's process needs in its environment.
func (h *Hello) Env() []string {
	// As formats.IsCPU: engines import no documents.
	if strings.HasPrefix(h.Device.Kind, "cpu-") {
		return nil
	}
	return slices.Concat(ShareEnv(h.Device.Share), h.Execution.Env())
}

// ShareEnv limits a process to 1/v of a GPU's multiprocessors where CUDA's
// Multi-Process Service runs.
func ShareEnv(v int) []string {
	if v < 2 {
		return nil
	}
	return []string{fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", max(1, 100/v))}
}

// Device says what a worker executes on.
type Device struct {
	Kind  string `json:"kind"`  // the plan's name (L4, cpu-1), or the engine's (cuda:0)
	Index int    `json:"index"` // which of that kind on this machine, from 0
	Share int    `json:"share"` // v of 1/v
	CPUs  []int  `json:"cpus,omitempty"`
	// Threads that work on one operator on a CPU; 0: one per CPU.
	Threads int `json:"threads,omitempty"`
}

// Welcome answers Hello.
type Welcome struct {
	PID     int    `json:"pid"`
	Engine  string `json:"engine"`
	Version string `json:"version"`
	Device  string `json:"device"` // as the engine names it
}

// StageSpec describes a stage to load.
type StageSpec struct {
	ID     uint32 `json:"id"`
	Model  string `json:"model"`
	File   string `json:"file,omitempty"` // name of the model's file without extension; empty: Model
	Path   string `json:"path,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of the file; empty: not checked
	// From and To are the half-open range of the model's Blocks blocks.
	From     int `json:"from"`
	To       int `json:"to"`
	Blocks   int `json:"blocks"`
	MaxBatch int `json:"max_batch"`
	// Sizes are the batch sizes that are made ready, ascending, the last MaxBatch;
	// empty: all. A smaller batch runs as the next of them: where every size costs a
	// session and memory, as on a GPU.
	Sizes   []int `json:"sizes,omitempty"`
	FP16In  bool  `json:"fp16_in,omitempty"`  // floats arrive as float16
	FP16Out bool  `json:"fp16_out,omitempty"` // floats leave as float16
	// CutIn and CutOut, where known, are the names of the tensors that cross;
	// the engine's must be the same.
	CutIn  []string `json:"cut_in,omitempty"`
	CutOut []string `json:"cut_out,omitempty"`
	// Whole: every run takes inputs of exactly the shapes of Dims, first dimension
	// included, for a model whose batch cannot be made free.
	Whole bool `json:"whole,omitempty"`
	// Seed, Dims and Values are options of reading the model (engine/graph); what has
	// a value and dimensions is warmed up with it.
	Seed   uint64                   `json:"seed,omitempty"`
	Dims   map[string][]int64       `json:"dims,omitempty"`
	Values map[string]graph.Literal `json:"values,omitempty"`
	// For engines that execute nothing: what each batch 1.. costs, and tensors.
	InferNS []int64       `json:"infer_ns,omitempty"`
	Inputs  []engine.Spec `json:"inputs,omitempty"`
	Outputs []engine.Spec `json:"outputs,omitempty"`
	// LoadNS is how long such an engine takes to swap the stage in: from the host's
	// memory, and from its file. WeightBytes is what it then holds.
	LoadNS      [2]int64 `json:"load_ns,omitzero"`
	WeightBytes int64    `json:"weight_bytes,omitempty"`
}

func (s *StageSpec) check() error {
	switch {
	case s.ID >= maxStages:
		return fmt.Errorf("stage %d: at most %d", s.ID, maxStages)
	case s.From < 0 || s.To <= s.From || s.To > s.Blocks:
		return fmt.Errorf("stage %d of %s: blocks [%d,%d) of %d", s.ID, s.Model, s.From, s.To, s.Blocks)
	case s.MaxBatch < 1 || s.MaxBatch > MaxBatch:
		return fmt.Errorf("stage %d of %s: max_batch %d, expected 1 to %d", s.ID, s.Model, s.MaxBatch, MaxBatch)
	case s.Whole && (s.MaxBatch > 1 || s.From > 0 || s.To < s.Blocks):
		return fmt.Errorf("stage %d of %s: blocks [%d,%d) of %d at batches up to %d, but the model runs whole, one request at a time", s.ID, s.Model, s.From, s.To, s.Blocks, s.MaxBatch)
	case len(s.Sizes) > 0 && (s.Sizes[0] < 1 || s.Sizes[len(s.Sizes)-1] != s.MaxBatch || !slices.IsSorted(s.Sizes)):
		return fmt.Errorf("stage %d of %s: sizes %v, expected them ascending up to max_batch %d", s.ID, s.Model, s.Sizes, s.MaxBatch)
	}
	return nil
}

// Loaded answers a load frame.
type Loaded struct {
	ID          uint32        `json:"id"`
	Inputs      []engine.Spec `json:"inputs"`
	Outputs     []engine.Spec `json:"outputs"`
	WeightBytes int64         `json:"weight_bytes"` // in memory because of this stage; 0 where another had them loaded
	LoadNS      int64         `json:"load_ns"`
}

// SegmentSpec announces shared memory; its descriptor comes with the frame.
type SegmentSpec struct {
	ID   uint32 `json:"id"`
	Size int64  `json:"size"`
	Own  bool   `json:"own"` // this worker writes its outputs there
}

// Layout is where the slots of a stage lie in the worker's own segment. Slot i
// starts at Base + i*Stride; its input part (InBytes, zero where the input
// comes from another stage) is followed by its output part.
type Layout struct {
	ID      uint32 `json:"id"`
	Base    int64  `json:"base"`
	Stride  int64  `json:"stride"`
	InBytes int64  `json:"in_bytes"`
	Slots   int    `json:"slots"`
	// Warm is how many slots are bound ahead for every batch size; the others
	// are bound when first used. With Warm over zero the stage also runs once
	// at every batch size.
	Warm int `json:"warm"`
}

// In is the offset of the slot's input.
func (l Layout) In(slot int) int64 { return l.Base + int64(slot)*l.Stride }

// Out is the offset of the slot's output.
func (l Layout) Out(slot int) int64 { return l.In(slot) + l.InBytes }

// Ready answers segment, prepare and unload frames.
type Ready struct {
	For    string `json:"for"` // the frame it answers
	ID     uint32 `json:"id"`
	WarmNS int64  `json:"warm_ns,omitempty"`
	Pinned bool   `json:"pinned,omitempty"` // a segment that the device copies from and to directly
}

// Unload gives a stage's memory back.
type Unload struct {
	ID uint32 `json:"id"`
}

// Failure answers a set-up frame that could not be done.
type Failure struct {
	For  string `json:"for"`
	Code Code   `json:"code"`
	Text string `json:"text"`
}

// ErrHash: the model file is not the one that the plan was made for.
var ErrHash = errors.New("model file differs from the plan's")

// ErrMemory: the device's memory has no room for what is to be swapped in.
var ErrMemory = errors.New("the device's memory is full")

// RemoteError is a failure that a worker reported. errors.Is sees the engine's
// error through the process boundary.
type RemoteError struct {
	Code Code
	Text string
}

func (e *RemoteError) Error() string { return e.Text }

func (e *RemoteError) Unwrap() error {
	if int(e.Code) < len(codeErrors) {
		return codeErrors[e.Code]
	}
	return nil
}

var codeErrors = [numCodes]error{
	NoLibrary: engine.ErrNoLibrary, NoDevice: engine.ErrNoDevice, Fallback: engine.ErrFallback, BadModel: engine.ErrModel,
	BadShape: engine.ErrShape, BadHash: ErrHash, Closed: engine.ErrClosed, NoMemory: ErrMemory,
}

// codeOf classes an error for the wire.
func codeOf(err error) Code {
	for c, e := range codeErrors {
		if e != nil && errors.Is(err, e) {
			return Code(c)
		}
	}
	return Failed
}
