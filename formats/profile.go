package formats

// Profile says what every block of every model costs on every device kind that
// was measured.
type Profile struct {
	Format  string          `json:"format"` // inferplan.profile/v1
	Devices []ProfileDevice `json:"devices"`
	Models  []ProfileModel  `json:"models"`
	Records []Records       `json:"records,omitempty"` // for cascades: one entry per family
	Notes   []string        `json:"notes,omitempty"`
}

// ProfileDevice is the provenance of the numbers of one device kind.
type ProfileDevice struct {
	Device        string  `json:"device"`           // kind: L4, H100, cpu-1
	Name          string  `json:"name,omitempty"`   // as the driver or the CPU names itself
	Driver        string  `json:"driver,omitempty"` // driver version
	Engine        string  `json:"engine,omitempty"` // onnxruntime, replay, imported
	EngineVersion string  `json:"engine_version,omitempty"`
	Provider      string  `json:"provider,omitempty"`     // cpu, cuda, tensorrt
	Method        string  `json:"method,omitempty"`       // how latency was taken
	ShareMethod   string  `json:"share_method,omitempty"` // mps, time-slicing
	Date          string  `json:"date,omitempty"`         // when, RFC 3339
	MemoryBytes   int64   `json:"memory_bytes,omitempty"` // of the whole device
	CopyGbps      float64 `json:"copy_gbps,omitempty"`    // host copy or host-to-device rate
	CostSeconds   float64 `json:"cost_seconds,omitempty"` // device time that the measuring took
	Source        string  `json:"source,omitempty"`       // of imported numbers
}

// ProfileModel is one model: its blocks and what they cost.
type ProfileModel struct {
	Model        string        `json:"model"`
	Source       *ModelSource  `json:"source,omitempty"`
	Inputs       []TensorInfo  `json:"inputs,omitempty"`
	Outputs      []TensorInfo  `json:"outputs,omitempty"`
	Blocks       []Block       `json:"blocks"`
	Measurements []Measurement `json:"measurements"`
}

// ModelSource identifies the file that was measured.
type ModelSource struct {
	Path   string `json:"path"` // relative to the profile where possible
	SHA256 string `json:"sha256"`
}

// TensorInfo declares a tensor; -1 in Shape is the batch or another free dimension.
type TensorInfo struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"` // Open Inference Protocol names: FP32, INT64, ...
	Shape []int64 `json:"shape"`
}

// Block is one block of a model; Cut is what crosses from it to the next block
// (empty after the last one). Byte counts are per sample.
type Block struct {
	Name         string       `json:"name"`
	Nodes        int          `json:"nodes,omitempty"` // graph nodes in the block
	Cut          []TensorInfo `json:"cut,omitempty"`
	CutBytesFP32 int64        `json:"cut_bytes_fp32,omitempty"`
	CutBytesFP16 int64        `json:"cut_bytes_fp16,omitempty"` // float32 as float16, int64 as int32
	FP16         *FP16Check   `json:"fp16,omitempty"`
	WeightBytes  int64        `json:"weight_bytes,omitempty"`
}

// FP16Check tells what crossing this cut in float16 does to the model's answer.
type FP16Check struct {
	Top1Agreement float64 `json:"top1_agreement"` // share of samples, 0..1
	MaxAbsDiff    float64 `json:"max_abs_diff"`   // of the output before softmax
	Samples       int     `json:"samples"`
}

// Measurement is the cost at one device kind, share 1/v and batch size. An
// unmeasured batch costs the next larger measured one.
type Measurement struct {
	Device      string    `json:"device"`
	Share       int       `json:"share"` // v of 1/v; 1 is the whole device
	Batch       int       `json:"batch"`
	Whole       *Latency  `json:"whole,omitempty"`
	Blocks      []Latency `json:"blocks"` // as cut, one per block
	MemoryBytes int64     `json:"memory_bytes,omitempty"`
}

// Latency is one measured time. WallUS is the median that planning uses; on a
// CPU CPUUS is the median of the thread's CPU time beside it.
type Latency struct {
	WallUS      Micros `json:"wall_us"`
	CPUUS       Micros `json:"cpu_us,omitempty"`
	P99US       Micros `json:"p99_us,omitempty"`
	HalfWidthUS Micros `json:"half_width_us,omitempty"` // of the 95 % interval of the median
	Samples     int    `json:"samples,omitempty"`
}
