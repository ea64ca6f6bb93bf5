package formats

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"inferplan/formats/document"
	"inferplan/formats/modelfile"
)

// BusyNote begins the note of a profile whose device also did other work.
const BusyNote = "busy machine on "

// Profile holds the costs of every block of every model on every device kind that was measured.
type Profile struct {
	Format  string          `json:"format"` // inferplan.profile/v1
	Devices []ProfileDevice `json:"devices"`
	Models  []ProfileModel  `json:"models"`
	Records []Records       `json:"records,omitempty"` // records for cascades, one entry per family
	LLMs    []LLMProfile    `json:"llms,omitempty"`    // language models, which are served whole
	Notes   []string        `json:"notes,omitempty"`
	// FrontEnd is the machine on which request_cpu_us was measured.
	FrontEnd *FrontEnd `json:"front_end,omitempty"`
}

// ProfileDevice is the provenance of the numbers of one device kind.
type ProfileDevice struct {
	Device        string  `json:"device"`           // kind: L4, H100, cpu-1
	Name          string  `json:"name,omitempty"`   // the name that the driver or the CPU reports
	Driver        string  `json:"driver,omitempty"` // driver version
	Engine        string  `json:"engine,omitempty"` // onnxruntime, replay, imported
	EngineVersion string  `json:"engine_version,omitempty"`
	Provider      string  `json:"provider,omitempty"`     // cpu, cuda, tensorrt
	Method        string  `json:"method,omitempty"`       // the method by which latency was measured
	ShareMethod   string  `json:"share_method,omitempty"` // mps, time-slicing
	Date          string  `json:"date,omitempty"`         // when, RFC 3339
	MemoryBytes   int64   `json:"memory_bytes,omitempty"` // the memory of the complete device
	CopyGbps      float64 `json:"copy_gbps,omitempty"`    // host copy or host-to-device rate
	CostSeconds   float64 `json:"cost_seconds,omitempty"` // device time that the measuring took
	Source        string  `json:"source,omitempty"`       // the source of imported numbers

	// Options of the execution provider during the measurements.
	Options map[string]string `json:"options,omitempty"`
	// Precision is fp16 if whole models computed in float16. If absent, they computed as their files say.
	Precision string `json:"precision,omitempty" check:"precision"`
	// What the device was measured to reach: bytes read plus bytes written by a
	// copy inside its memory, and floating-point operations (two per
	// multiplication with an addition) of a large float32 matrix product.
	MemoryGBps   float64 `json:"memory_gbps,omitempty"` // 1e9 bytes a second
	MatmulGflops float64 `json:"matmul_gflops,omitempty"`
	// State of a GPU while it was measured.
	State *DeviceState `json:"state,omitempty"`
	// BetweenRuns is the spread between whole measurements of the device, if it was measured several times.
	BetweenRuns *BetweenRuns `json:"between_runs,omitempty"`
}

// BetweenRuns is the spread between whole measurements of one device.
type BetweenRuns struct {
	Runs   int     `json:"runs"`   // the number of runs, at least 2
	Spread float64 `json:"spread"` // relative standard deviation of a model's time
}

// DeviceState is the power and the clocks at which a GPU ran. A value is 0 if the GPU did not report it.
type DeviceState struct {
	Samples        int     `json:"samples"`
	WattsMedian    float64 `json:"watts_median,omitempty"`
	WattsMax       float64 `json:"watts_max,omitempty"`
	ClockMHzMin    int     `json:"clock_mhz_min,omitempty"`
	ClockMHzMedian int     `json:"clock_mhz_median,omitempty"`
	MemoryMHz      int     `json:"memory_mhz,omitempty"`
	CelsiusMax     int     `json:"celsius_max,omitempty"`
	// ThrottledShare is the share of the samples in which the driver had lowered the
	// clocks for power or heat.
	ThrottledShare float64 `json:"throttled,omitempty"`
}

// ProfileModel is one model: its blocks and their costs.
type ProfileModel struct {
	Model        string                      `json:"model"`
	Source       *ModelSource                `json:"source,omitempty"`
	Bucket       *Bucket                     `json:"bucket,omitempty"` // set if it is a bucket of another model
	Inputs       []TensorInfo                `json:"inputs,omitempty"`
	Outputs      []TensorInfo                `json:"outputs,omitempty"`
	Constants    []TensorInfo                `json:"constants,omitempty"` // inputs of the file that always have one value, which requests do not contain
	Operators    []modelfile.OperatorLibrary `json:"operators,omitempty"` // libraries of operators that it runs with
	FP16         *FP16Check                  `json:"fp16,omitempty"`      // the check of the uncut model, if it computes in float16
	Blocks       []Block                     `json:"blocks"`
	Measurements []Measurement               `json:"measurements"`
	Loads        []DeviceLoad                `json:"loads,omitempty"` // onto devices
	Move         *OutputMove                 `json:"output_move,omitempty"`
	Session      *SessionState               `json:"session_state,omitempty"`
	RequestUS    document.Micros             `json:"request_us,omitempty"`     // median time of a request besides its runs: client, loopback and front end of the machine
	DispatchUS   document.Micros             `json:"dispatch_us,omitempty"`    // median time that a batch occupies its device besides its run: the transfer into the device's memory, and the command's way
	RequestCPUUS document.Micros             `json:"request_cpu_us,omitempty"` // CPU time that client, loopback and front end spend on a request under many concurrent ones
}

// DeviceLoad is the time that loading the model onto a device takes.
type DeviceLoad struct {
	Device string `json:"device"`
	ModelLoads
}

// OutputMove is the time that moving a model's output to another device takes.
type OutputMove struct {
	NearUS document.Micros `json:"near_us"` // time to another device of the same node
	FarUS  document.Micros `json:"far_us"`  // time to a device of another node
}

// PrecisionFP16 is the Precision of models that compute in float16.
const PrecisionFP16 = "fp16"

// FindModel returns the model of that name, or nil if there is none.
func (p *Profile) FindModel(model string) *ProfileModel {
	return document.First(p.Models, func(m *ProfileModel) bool { return m.Model == model })
}

// FindMeasurement returns the measurement at a kind of device, share 1/v and batch size, or nil if there is none.
func (m *ProfileModel) FindMeasurement(device string, share, batch int) *Measurement {
	return document.First(m.Measurements, func(s *Measurement) bool { return s.Device == device && s.Share == share && s.Batch == batch })
}

// ExecutionFor returns how the times on the plan's device kinds were measured (provider, options, precision), so
// that a server loads models in the same way. Kinds on which nothing can be chosen are left out.
func (p *Profile) ExecutionFor(kinds []Pool) []Execution {
	var out []Execution
	for _, d := range p.Devices {
		isUsed := slices.ContainsFunc(kinds, func(k Pool) bool { return k.Device == d.Device })
		if isUsed && (len(d.Options) > 0 || d.Precision != "") {
			out = append(out, Execution{Device: d.Device, Provider: d.Provider, Options: maps.Clone(d.Options), Precision: d.Precision})
		}
	}
	return out
}

// ModelSource identifies the file that was measured.
type ModelSource struct {
	Path   string `json:"path"` // relative to the profile, if possible
	SHA256 string `json:"sha256" check:"sha256"`
	// Weights are files of weights, relative to the model's folder: the hash covers samples of them.
	Weights []string `json:"weights,omitempty"`
}

// TensorInfo declares a tensor; -1 in Shape is the batch or another free dimension.
type TensorInfo struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"` // Open Inference Protocol names: FP32, INT64, ...
	Shape []int64 `json:"shape"`
	// Value is the value of a constant. For an input it is the value that it is measured and warmed up with: one
	// number for all elements, or the elements of some samples.
	Value []float64 `json:"value,omitempty"`
	// DynamicAxes are the dimensions in which the buckets of a model differ.
	DynamicAxes []int `json:"dynamic_axes,omitempty"`
}

// Block is one block of a model. Cut lists the tensors that cross to the next block (empty after the last one).
// Byte counts are per sample.
type Block struct {
	Name         string       `json:"name"`
	Nodes        int          `json:"nodes,omitempty" check:"nonnegative"` // graph nodes in the block
	Cut          []TensorInfo `json:"cut,omitempty"`
	CutBytesFP32 CutBytes     `json:"cut_bytes_fp32,omitempty" check:"nonnegative"`
	CutBytesFP16 CutBytes     `json:"cut_bytes_fp16,omitempty" check:"nonnegative"` // float32 as float16, int64 as int32
	FP16         *FP16Check   `json:"fp16,omitempty"`
	WeightBytes  int64        `json:"weight_bytes,omitempty" check:"nonnegative"`
	// Counted from the graph, per sample: multiplications with an addition, and
	// bytes that tensors move through memory.
	MACs        int64 `json:"macs,omitempty" check:"nonnegative"`
	TensorBytes int64 `json:"tensor_bytes,omitempty" check:"nonnegative"`
}

// FP16Check is the effect on a model's answer of crossing a cut in float16, or of computing in float16.
type FP16Check struct {
	Top1Agreement float64 `json:"top1_agreement" check:"share"` // share of samples, 0..1
	MaxAbsDiff    float64 `json:"max_abs_diff"`                 // the largest difference of the output before softmax
	Samples       int     `json:"samples"`
}

// PadsBatches reports whether blocks [firstBlock, endBlock) on a kind of device run a batch of a size that was not
// measured at the next larger measured size. They do on devices other than CPUs, if they have one input and one
// output tensor (or the profile does not say how many).
func (m *ProfileModel) PadsBatches(device string, firstBlock, endBlock int) bool {
	return !IsCPU(device) && m.OneTensor(firstBlock) && m.OneTensor(endBlock)
}

// OneTensor reports whether at most one tensor is known to cross before a block: the model's inputs before the first
// block, its outputs after the last. block is the number of the block behind the cut.
func (m *ProfileModel) OneTensor(block int) bool {
	switch {
	case block == 0:
		return len(m.Inputs) <= 1
	case block >= len(m.Blocks):
		return len(m.Outputs) <= 1
	}
	return len(m.Blocks[block-1].Cut) <= 1
}

// Measurement is the cost at one device kind, share 1/v and batch size. The cost of a batch size between two
// measured ones is interpolated, or is that of the next larger one if batches are padded (see PadsBatches).
type Measurement struct {
	Device      string    `json:"device"`
	Share       int       `json:"share"` // v of 1/v; 1 is the whole device
	Batch       int       `json:"batch"`
	WholeModel  *Latency  `json:"whole,omitempty"` // all blocks in one piece
	Blocks      []Latency `json:"blocks"`          // the times of the blocks, in their order
	MemoryBytes int64     `json:"memory_bytes,omitempty" check:"nonnegative"`
	// Ranges are blocks in a row that were measured in one piece, as a stage runs
	// them: at least two, and not all. Ascending by first and last block.
	Ranges []RangeLatency `json:"ranges,omitempty"`
	// ReferenceUS is the time of a fixed piece of work, measured between the samples, that depends on no model or
	// engine. It shows how fast the machine was. It exists only for CPUs of one thread.
	ReferenceUS document.Micros `json:"reference_us,omitempty"`
}

// RangeLatency is the time of several blocks in one piece.
type RangeLatency struct {
	Blocks  [2]int  `json:"blocks"` // [first, last)
	Latency Latency `json:"latency"`
}

// IdleGap is for how long a device had nothing to do before a run whose time is
// IdleUS.
const IdleGap = 5 * time.Millisecond

// Stretches is the number of parts, in the order of time, whose means say how far a machine's
// speed changes.
const Stretches = 8

// Latency is one measured time. WallUS is the median, which planning uses. On a CPU, CPUUS is the median of the
// thread's CPU time. MeanUS and IdleUS are means over all runs, which are the times when serving.
type Latency struct {
	WallUS      document.Micros `json:"wall_us"`
	CPUUS       document.Micros `json:"cpu_us,omitempty"`
	P99US       document.Micros `json:"p99_us,omitempty"`
	HostUS      document.Micros `json:"host_us,omitempty"`       // GPUs: median until the run was launched; wall_us waits for the device
	HalfWidthUS document.Micros `json:"half_width_us,omitempty"` // half the width of the 95 % interval of the median
	MeanUS      document.Micros `json:"mean_us,omitempty"`       // mean wall time, also over disturbed runs
	DriftUS     document.Micros `json:"drift_us,omitempty"`      // standard deviation of the means of Stretches parts of the runs, in the order of time
	IdleUS      document.Micros `json:"idle_us,omitempty"`       // the same as the mean of runs that began after the device had nothing to do for a while
	Samples     int             `json:"samples,omitempty" check:"nonnegative"`
}

// Scaled returns the latency with its wall-clock times and its CPU time multiplied by factors.
func (l Latency) Scaled(wallFactor, cpuFactor float64) Latency {
	for _, us := range []*document.Micros{&l.WallUS, &l.P99US, &l.HalfWidthUS, &l.MeanUS, &l.DriftUS, &l.IdleUS, &l.HostUS} {
		*us = document.Micros(math.Round(float64(*us) * wallFactor))
	}
	l.CPUUS = document.Micros(math.Round(float64(l.CPUUS) * cpuFactor))
	return l
}

// SameCuts reports whether two lists of blocks are cut at the same tensors.
func SameCuts(a, b []Block) bool {
	return slices.EqualFunc(a, b, func(x, y Block) bool {
		return slices.EqualFunc(x.Cut, y.Cut, func(s, t TensorInfo) bool { return s.Name == t.Name })
	})
}

// WithTimes returns a copy of the profile with other latencies. For each measurement, change returns a function that
// is applied to each of its latencies, or nil to keep them. The profile itself is not changed. model is an index into
// Models.
func (p *Profile) WithTimes(change func(model int, m *Measurement) func(*Latency)) *Profile {
	out := *p
	out.Models = slices.Clone(p.Models)
	for i := range out.Models {
		list := slices.Clone(out.Models[i].Measurements)
		for k := range list {
			m := &list[k]
			apply := change(i, m)
			if apply == nil {
				continue
			}
			if m.WholeModel != nil {
				wholeModel := *m.WholeModel
				apply(&wholeModel)
				m.WholeModel = &wholeModel
			}
			m.Blocks, m.Ranges = slices.Clone(m.Blocks), slices.Clone(m.Ranges)
			for b := range m.Blocks {
				apply(&m.Blocks[b])
			}
			for r := range m.Ranges {
				apply(&m.Ranges[r].Latency)
			}
		}
		out.Models[i].Measurements = list
	}
	return &out
}

// Validate checks the rules that the types of a profile cannot express. It returns all violations, each with its
// field path.
func (d *Profile) Validate() error {
	var c document.Checker
	c.Values(d, d.Format, FormatProfile, rules)
	devices := map[string]int{}
	for i := range d.Devices {
		c.Name(devices, i, d.Devices[i].Device, "devices[%d].device", i)
		if p := &d.Devices[i]; p.MemoryBytes < 0 || p.CopyGbps < 0 || p.CostSeconds < 0 || p.MemoryGBps < 0 || p.MatmulGflops < 0 {
			c.Failf("a negative figure", "memory_bytes, copy_gbps, cost_seconds, memory_gbps and matmul_gflops of 0 or more", "", "devices[%d]", i)
		}
		if b := d.Devices[i].BetweenRuns; b != nil && (b.Runs < 2 || !(b.Spread >= 0 && b.Spread < 1)) {
			c.Failf(fmt.Sprintf("%d runs with a spread of %s", b.Runs, document.Number(b.Spread)), "at least 2 runs, and a share from 0 to 1", "", "devices[%d].between_runs", i)
		}
	}
	models := map[string]int{}
	for i := range d.Models {
		c.Name(models, i, d.Models[i].Model, "models[%d].model", i)
		d.Models[i].check(&c, fmt.Sprintf("models[%d]", i), devices)
	}
	checkRecords(&c, d.Records, models)
	checkLLMs(&c, d.LLMs, devices, "llms")
	return c.Err()
}

// check reports to c what is wrong with a profile's model: its facts, the blocks into which it can be cut, and the
// latencies measured. devices has the device kinds of the profile.
func (m *ProfileModel) check(c *document.Checker, path string, devices map[string]int) {
	// Check the model's facts.
	checkBucket(c, m.Bucket, m.Model, path)
	checkTensors(c, m.Inputs, path+".inputs")
	checkTensors(c, m.Outputs, path+".outputs")
	checkConstants(c, m.Constants, path+".constants")
	checkOperators(c, m.Operators, path+".operators")
	c.NotEmpty(len(m.Blocks), path+".blocks", "at least one block")
	checkSession(c, m.Session, path+".session_state")
	for k := range m.Loads {
		if _, ok := devices[m.Loads[k].Device]; !ok {
			c.Failf("the device "+document.Quote(m.Loads[k].Device), "a device of the profile", "", "%s.loads[%d].device", path, k)
		}
	}

	// Check its blocks.
	blocks := map[string]int{}
	for k := range m.Blocks {
		b, fieldPath := &m.Blocks[k], fmt.Sprintf("%s.blocks[%d]", path, k)
		c.Name(blocks, k, b.Name, "%s.name", fieldPath)
		checkTensors(c, b.Cut, fieldPath+".cut")
	}

	// Check its measurements: each device kind, share and batch size once.
	type point struct {
		device       string
		share, batch int
	}
	seen := map[point]int{}
	for k := range m.Measurements {
		s := &m.Measurements[k]
		fieldPath := fmt.Sprintf("%s.measurements[%d]", path, k)
		s.check(c, len(m.Blocks), devices, fieldPath)
		document.CheckUnique(c, seen, k, point{s.Device, s.Share, s.Batch}, fieldPath, fmt.Sprintf("device %s, share 1/%d, batch %d", document.Quote(s.Device), s.Share, s.Batch), "each device, share and batch once")
	}
}

// maxBatch bounds batch sizes: plans list a time for every batch up to theirs.
const maxBatch = 1 << 16

// check reports to c what is wrong with the latencies of a model measured on one device kind, share of the device
// and batch size. blocks counts the model's blocks: each has one latency. devices has the device kinds of the
// profile.
func (s *Measurement) check(c *document.Checker, blocks int, devices map[string]int, fieldPath string) {
	if _, ok := devices[s.Device]; !ok {
		c.Fail(fieldPath+".device", "the device "+document.Quote(s.Device), "a device of the profile's list devices", "")
	}
	c.FailIf(s.Share < 1, fieldPath+".share", s.Share, "1 or more: the v of a share 1/v")
	c.FailIf(s.Share > 1 && IsCPU(s.Device), fieldPath+".share", s.Share, "1: CPU thread sets have no shares")
	c.FailIf(s.Batch < 1 || s.Batch > maxBatch, fieldPath+".batch", s.Batch, "1 to %d", maxBatch)
	c.FailIf(len(s.Blocks) != blocks, fieldPath+".blocks", fmt.Sprintf("%d latencies", len(s.Blocks)), "%d, one per block of the model", blocks)
	if s.WholeModel != nil {
		s.WholeModel.check(c, func() string { return fieldPath + ".whole" })
	}
	for b := range s.Blocks {
		s.Blocks[b].check(c, func() string { return fmt.Sprintf("%s.blocks[%d]", fieldPath, b) })
	}
	for i := range s.Ranges {
		s.checkRange(c, blocks, i, fmt.Sprintf("%s.ranges[%d]", fieldPath, i))
	}
}

// checkRange reports to c what is wrong with the i-th latency measured over several blocks in one run. The ranges
// are sorted, have two or more blocks, and are not the whole model, whose latency has a field of its own.
func (s *Measurement) checkRange(c *document.Checker, blocks, i int, path string) {
	r := &s.Ranges[i]
	first, last := r.Blocks[0], r.Blocks[1]
	r.Latency.check(c, func() string { return path + ".latency" })
	switch {
	case first < 0 || last > blocks || last-first < 2 || last-first == blocks:
		c.Fail(path+".blocks", fmt.Sprint(r.Blocks), fmt.Sprintf("[first, last) of two or more of the %d blocks, but not all", blocks),
			"one block stands in blocks, all of them in whole")
	case i > 0 && slices.Compare(s.Ranges[i-1].Blocks[:], r.Blocks[:]) >= 0:
		c.Fail(path+".blocks", fmt.Sprint(r.Blocks), "each range once, ascending", fmt.Sprintf("%v stands before it", s.Ranges[i-1].Blocks))
	}
}

// check reports to c what is wrong with a measured latency: the median wall time is positive and at most the 99th
// percentile, where there is one. path makes the field's path only if there is an error, because a profile has
// thousands of latencies.
func (l *Latency) check(c *document.Checker, path func() string) {
	if l.WallUS == 0 { // numbers below 0 are reported with all numbers
		c.Fail(path()+".wall_us", "the number 0", "a positive latency", "raise what rounds to nothing to 1")
	}
	if l.P99US != 0 && l.P99US < l.WallUS {
		c.Fail(path()+".p99_us", "the number "+l.P99US.String(), "at least the median, "+l.WallUS.String(), "")
	}
}
