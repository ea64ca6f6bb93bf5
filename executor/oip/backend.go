package oip

import (
	"context"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// Backend serves the models that the servers offer. Many goroutines may call all methods at once.
type Backend interface {
	// Ready reports whether inference requests are accepted. Every readiness probe calls it, so it must be cheap.
	Ready() bool
	// Models returns the catalog in force. It is called once per request; a Backend keeps it in an atomic pointer and
	// swaps it when the plan changes.
	Models() *Catalog
	// Infer runs one validated request. It returns a Response or an error, never neither. An *Error keeps its code;
	// context errors become deadline exceeded or cancelled; anything else is internal. The context ends when the
	// client goes away. It does not end when Request.Timeout has passed, because the policy decides whether a late
	// request still runs.
	Infer(ctx context.Context, req *Request) (*Response, error)
	// Statistics returns the cumulative statistics of one model and version, of all its versions if version is empty,
	// or of all models if both are. The names are in the catalog.
	Statistics(model, version string) []ModelStatistics
}

// ModelReadier is implemented by a Backend that knows readiness per model. Otherwise a model is ready when the
// Backend is.
type ModelReadier interface {
	ModelReady(model, version string) bool
}

// Tensor is a named array. Data holds the elements in row-major order, little endian, without padding.
type Tensor struct {
	Name     string
	Datatype Datatype
	Shape    []int64
	Data     []byte
}

// Param is the value of a request or response parameter: bool, int64, uint64,
// float64 or string.
type Param any

// OutputRequest names an output that a client wants.
type OutputRequest struct {
	Name string
	// Binary requests raw bytes in place of JSON, over HTTP.
	Binary bool
}

// Request is one inference request, independent of its transport.
type Request struct {
	ID      string
	Model   string
	Version string // that the client named; if empty, the server chooses
	Info    *ModelInfo

	// Client is the sender: the name of its key, else its address without the port.
	Client string
	// Received is the time at which the request's head had been read. Timeout counts from it.
	Received time.Time
	// Timeout is the budget that remained when the client sent the request: the parameter "timeout" (microseconds) or
	// the gRPC deadline, whichever is smaller. It is zero if there is neither.
	Timeout time.Duration
	// Class is the SLO class that the client named (the parameter "class", or the header or metadata HeaderClass). If
	// it is empty, the model's default applies.
	Class string
	// Priority is the parameter "priority": 1 is the highest, 0 the default.
	Priority uint64

	// Batch is the first dimension of the inputs of a model that batches, else 1.
	Batch   int
	Inputs  []Tensor
	Outputs []OutputRequest // if empty, all
	// Params are the request's other parameters, or nil.
	Params map[string]Param
	// Trace has the request's span, and makes its spans. It is nil if there is none.
	Trace *tracing.Request
	// Text receives the answer's text as it is made. It is nil if nobody wants it before the end.
	Text *TextStream

	// binaryDefault is the parameter "binary_data_output".
	binaryDefault bool
	body          *httplimit.Buffer
	memoryHold    httplimit.MemoryHold // memory booked for the request

	// Buffers inside the request, so that a usual one costs a single allocation.
	inputBuf  [2]Tensor
	shapeBuf  [8]int64
	shapeUsed int
}

// Input returns the input with a name, and whether there is one.
func (r *Request) Input(name string) (*Tensor, bool) {
	for i := range r.Inputs {
		if r.Inputs[i].Name == name {
			return &r.Inputs[i], true
		}
	}
	return nil, false
}

// shape returns a slice for the n dimensions of a tensor. It lies inside the request, without an allocation, as
// long as the request's buffer has room.
func (r *Request) shape(n int) []int64 {
	if r.shapeUsed+n <= len(r.shapeBuf) {
		s := r.shapeBuf[r.shapeUsed : r.shapeUsed+n : r.shapeUsed+n]
		r.shapeUsed += n
		return s
	}
	return make([]int64, n)
}

// Response is the answer of a Backend.
type Response struct {
	// ID, Model and Version are taken from the request if they are empty.
	ID      string
	Model   string
	Version string
	// Outputs may hold more than the client wants; the server selects.
	Outputs []Tensor
	// Partial says that some outputs of the model are missing because the request does not have them.
	Partial bool
	Params  map[string]Param
	// Release, if set, is called once when the Data of the outputs has been written or is not needed. Then the
	// Backend may reuse its memory.
	Release func()
}

// DurationStat is a count and a sum of durations.
type DurationStat struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

// Add counts n occurrences that took d together.
func (s *DurationStat) Add(n uint64, d time.Duration) {
	s.Count += n
	s.NS += uint64(max(d, 0))
}

// InferenceStats are the sums over requests.
type InferenceStats struct {
	Success       DurationStat `json:"success"`
	Fail          DurationStat `json:"fail"`
	Queue         DurationStat `json:"queue"`
	ComputeInput  DurationStat `json:"compute_input"`
	ComputeInfer  DurationStat `json:"compute_infer"`
	ComputeOutput DurationStat `json:"compute_output"`
}

// BatchStats are the sums over executions of one batch size.
type BatchStats struct {
	BatchSize     uint64       `json:"batch_size"`
	ComputeInput  DurationStat `json:"compute_input"`
	ComputeInfer  DurationStat `json:"compute_infer"`
	ComputeOutput DurationStat `json:"compute_output"`
}

// ModelStatistics are the figures that the statistics extension reports for a model version.
type ModelStatistics struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// LastInference is the time of the last inference, in milliseconds since 1970.
	LastInference uint64 `json:"last_inference"`
	// InferenceCount counts samples: a request of batch 8 adds 8.
	InferenceCount uint64 `json:"inference_count"`
	// ExecutionCount counts batches.
	ExecutionCount uint64         `json:"execution_count"`
	Inference      InferenceStats `json:"inference_stats"`
	Batches        []BatchStats   `json:"batch_stats"`
}
