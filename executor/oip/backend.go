package oip

import (
	"context"
	"time"

	"inferplan/executor/httplimit"
)

// Backend is what the servers stand in front of. All methods may be called at
// the same time from many goroutines.
type Backend interface {
	// Ready says whether inference requests are taken. It is asked on each
	// readiness probe, so it must be cheap.
	Ready() bool
	// Models is the catalog in force. It is asked once per request; a Backend
	// keeps it in an atomic pointer and swaps it when the plan changes.
	Models() *Catalog
	// Infer runs one validated request. It returns a Response or an error,
	// never neither. An *Error keeps its code; context errors become deadline
	// exceeded or cancelled; anything else is internal. The context ends when
	// the client goes away; it does not end when Request.Timeout has passed,
	// because whether a late request still runs is the policy's decision.
	Infer(ctx context.Context, req *Request) (*Response, error)
	// Statistics lists the cumulative statistics of one model and version, of
	// all its versions when version is empty, of all models when both are.
	// The names were found in the catalog before.
	Statistics(model, version string) []ModelStatistics
}

// ModelReadier is implemented by a Backend that knows readiness per model;
// without it a model is ready when the Backend is.
type ModelReadier interface {
	ModelReady(model, version string) bool
}

// Tensor is a named array: Data holds the elements in row-major order, little
// endian, without padding.
type Tensor struct {
	Name     string
	Datatype Datatype
	Shape    []int64
	Data     []byte
}

// Param is the value of a request or response parameter: bool, int64, uint64,
// float64 or string.
type Param any

// OutputRequest is an output that a client asked for by name.
type OutputRequest struct {
	Name string
	// Binary: over HTTP, raw bytes rather than JSON.
	Binary bool
}

// Request is one inference request, the same whatever it came over.
type Request struct {
	ID      string
	Model   string
	Version string // as asked; empty: the server's choice
	Info    *ModelInfo

	// Client is who sends it: the name of its key, else the address without the port.
	Client string
	// Received is when the request's head had been read; the budget runs from there.
	Received time.Time
	// Timeout is the budget that was left when the client sent the request:
	// the parameter "timeout" (microseconds) or the gRPC deadline, the smaller
	// if there are both. Zero: none was given.
	Timeout time.Duration
	// Class is the SLO class that the client named (the parameter "class", or the
	// header or metadata HeaderClass); empty: the model's default.
	Class string
	// Priority is the parameter "priority": 1 is the highest, 0 the default.
	Priority uint64

	// Batch is the first dimension of the inputs of a model that batches, else 1.
	Batch   int
	Inputs  []Tensor
	Outputs []OutputRequest // empty: all
	// Params are the request's other parameters; nil when there are none.
	Params map[string]Param
	// Text takes the answer's text while it is made; nil: nobody wants it before the end.
	Text *TextStream

	// binaryDefault is the parameter "binary_data_output".
	binaryDefault bool
	body          *httplimit.Buffer
	hold          httplimit.Hold // of the memory for requests

	// Room for the usual request, so that it costs one allocation.
	inputRoom [2]Tensor
	shapeRoom [8]int64
	shapeUsed int
}

// Input returns the input of that name.
func (r *Request) Input(name string) (*Tensor, bool) {
	for i := range r.Inputs {
		if r.Inputs[i].Name == name {
			return &r.Inputs[i], true
		}
	}
	return nil, false
}

// shape returns a slice of n dimensions, inside the request when there is room.
func (r *Request) shape(n int) []int64 {
	if r.shapeUsed+n <= len(r.shapeRoom) {
		s := r.shapeRoom[r.shapeUsed : r.shapeUsed+n : r.shapeUsed+n]
		r.shapeUsed += n
		return s
	}
	return make([]int64, n)
}

// Response is the answer of a Backend.
type Response struct {
	// ID, Model and Version are filled from the request where they are empty.
	ID      string
	Model   string
	Version string
	// Outputs may hold more than the client asked for; the server picks.
	Outputs []Tensor
	// Partial says that outputs of the model are left out because the request has none.
	Partial bool
	Params  map[string]Param
	// Release, if set, is called once after the outputs' Data was written or
	// given up, so that the Backend may use their memory again.
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

// ModelStatistics is what the statistics extension reports for a model version.
type ModelStatistics struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// LastInference is in milliseconds since the epoch.
	LastInference uint64 `json:"last_inference"`
	// InferenceCount counts samples: a request of batch 8 adds 8.
	InferenceCount uint64 `json:"inference_count"`
	// ExecutionCount counts batches run.
	ExecutionCount uint64         `json:"execution_count"`
	Inference      InferenceStats `json:"inference_stats"`
	Batches        []BatchStats   `json:"batch_stats"`
}
