package formats

import (
	"fmt"
	"iter"
	"slices"

	"inferplan/formats/document"
	"inferplan/formats/modelfile"
)

// Plan says what runs where, and which policy decides at run time. It has all that simulation needs. Its inputs
// are needed only to check and to serve it.
//
// The header and the deployment are the same for every kind of plan. The section holds the promises, and whatever
// else the kind needs. In the document it stands under the name of the kind.
type Plan struct {
	Format      string          `json:"format"` // inferplan.plan/v2
	Kind        string          `json:"kind"`
	Tool        Tool            `json:"tool"`
	Seed        uint64          `json:"seed"`
	Algorithm   string          `json:"algorithm"`
	Objective   Objective       `json:"objective"`
	StoppedBy   string          `json:"stopped_by" check:"proved|gap|trials|work|time|interrupt"` // proved, gap, trials, work, time, interrupt
	Inputs      []Input         `json:"inputs"`
	Options     document.Values `json:"options"`
	Pools       []Pool          `json:"pools"`               // the cluster that was planned for
	FrontEnd    *FrontEnd       `json:"front_end,omitempty"` // the machine that receives requests; absent if not known
	Deployment  []Deployed      `json:"deployment"`
	Section     PlanSection     `json:"-" section:"plan"`
	Policy      PolicySpec      `json:"policy"`
	Execution   []Execution     `json:"execution,omitempty"` // the settings under which the planned times were measured, if they are not the defaults
	Arrivals    *Arrivals       `json:"arrivals,omitempty"`
	Certificate *Certificate    `json:"certified,omitempty"`
	Replan      *Replan         `json:"replan,omitempty"` // the difference from the plan before, if there was one
	Limits      []Limit         `json:"limits,omitempty"`
	Assumptions []string        `json:"assumptions,omitempty"`
	Warnings    []string        `json:"warnings,omitempty"`
	// RatesBy says from which times rates are computed. If it is mean_us, stages that have mean_us use that.
	// Otherwise infer_us is used.
	RatesBy string `json:"rates_by,omitempty"`
	// Drift is the share by which runs take longer than planned when simulation tests the rates.
	Drift float64 `json:"drift,omitempty"`
}

// RatesByMean is the RatesBy of plans whose rates are computed from mean_us.
const RatesByMean = "mean_us"

// RunUS returns the time of a batch of the planned size that a stage's rates are computed with: the mean, if the
// plan's rates are by means, or else the median.
func (d *Plan) RunUS(l *Pipeline, s *Stage) document.Micros {
	if d.RatesBy == RatesByMean && len(s.MeanUS) == l.Batch {
		return s.MeanUS[l.Batch-1]
	}
	return s.InferUS[l.Batch-1]
}

// Execution says how models are executed on the devices of a kind.
type Execution struct {
	Device    string            `json:"device"`
	Provider  string            `json:"provider,omitempty"`                    // cuda, tensorrt
	Options   map[string]string `json:"options,omitempty"`                     // options of the provider
	Precision string            `json:"precision,omitempty" check:"precision"` // fp16: whole models in float16
}

// Tool is the program that made the plan.
type Tool struct {
	Version string `json:"version"`
	Solver  string `json:"solver,omitempty"` // name and version
}

// Objective is the value reached, with its proven bound if there is one.
type Objective struct {
	Name  string  `json:"name" check:"throughput|cost|power|gpus|accuracy|latency|goodput"` // throughput, cost, power, gpus
	Value float64 `json:"value"`
	// Basis says how the value was found. If absent, it is that of the fluid program, which has no queueing.
	Basis string `json:"basis,omitempty"`
	// Fluid is the value by the fluid program, if simulation decided the value of the plan.
	Fluid *float64 `json:"fluid,omitempty"`
	Bound *float64 `json:"bound"`
	// BoundAmong says for which plans the bound holds, such as "with margin 0.4". If absent, it holds for all.
	BoundAmong string   `json:"bound_among,omitempty"`
	Gap        *float64 `json:"gap"`
}

// BasisSimulation is the basis of a value that holds in simulation: at the percentile of the
// workload and under its arrivals.
const BasisSimulation = "simulation"

// Input is a file that the plan was made from.
type Input struct {
	Role   string `json:"role"` // profile, cluster, workload
	Path   string `json:"path"` // relative to the plan
	SHA256 string `json:"sha256" check:"sha256"`
}

// Deployed is a deployed model, or one SLO class of it: its tensors, its blocks, and its pipelines with their
// placement.
type Deployed struct {
	Model        string                      `json:"model"`
	Class        string                      `json:"class,omitempty"`                 // SLO class; absent if the model has one without a name
	SHA256       string                      `json:"sha256,omitempty" check:"sha256"` // the digest of the model file
	Bucket       *Bucket                     `json:"bucket,omitempty"`                // set if it is a bucket of another model
	Inputs       []TensorInfo                `json:"inputs,omitempty"`
	Outputs      []TensorInfo                `json:"outputs,omitempty"`
	Constants    []TensorInfo                `json:"constants,omitempty"` // inputs of the file that always have one value
	Operators    []modelfile.OperatorLibrary `json:"operators,omitempty"` // libraries of operators that it runs with
	NumBlocks    int                         `json:"num_blocks" check:"count"`
	Pipelines    []Pipeline                  `json:"pipelines"`
	RequestUS    document.Micros             `json:"request_us,omitempty"`     // time that a request takes besides its runs; absent if not known
	RequestCPUUS document.Micros             `json:"request_cpu_us,omitempty"` // CPU time of the front end; absent if not known
}

// RPS returns the rate that all pipelines of a model carry together, in requests/s.
func (d *Deployed) RPS() float64 {
	sum := 0.0
	for i := range d.Pipelines {
		sum += d.Pipelines[i].RPS
	}
	return sum
}

// Served is something that requests can ask for, with its promise: a model, one SLO class of it, or one name for
// several models.
type Served struct {
	Model      string          `json:"model"`
	Class      string          `json:"class,omitempty"`
	SLOUS      document.Micros `json:"slo_us"`
	MarginUS   document.Micros `json:"margin_us"` // the part of the SLO that is kept back
	Percentile string          `json:"percentile" check:"percentile"`
	Weight     float64         `json:"weight" check:"weight"`
	RPS        float64         `json:"rps"` // planned
}

// AnswersByInput reports whether a request's input decides which model answers it. Random inputs then load the
// plan in another way than real ones.
func (p *Plan) AnswersByInput() bool {
	s, ok := p.Section.(interface{ AnswersByInput() bool })
	return ok && s.AnswersByInput()
}

// PlanSection is the part of a plan that depends on its kind.
type PlanSection interface {
	// ServedModels returns everything that requests can ask for.
	ServedModels() []Served
	// PromiseFor returns the promise for a deployed model.
	PromiseFor(d *Deployed) Served
	// AttainmentGroups returns groups of indexes of ServedModels, each of which attains its percentile together.
	// It returns nil if each entry attains it by itself.
	AttainmentGroups() [][]int

	check(p *planChecker)
}

// ServedModels returns everything that requests can ask for, with its promise: models, classes or applications, by
// the plan's kind. Without a section it returns nothing.
func (d *Plan) ServedModels() []Served {
	if d.Section == nil {
		return nil
	}
	return d.Section.ServedModels()
}

// AttainmentShares returns, for everything that requests can ask for, the share of its requests that must be in
// time, by its percentile: .99 for p99.
func (d *Plan) AttainmentShares() []float64 {
	return document.Map(d.ServedModels(), func(s *Served) float64 { return document.ShareAt(s.Percentile) })
}

// AttainmentGroups returns groups of indexes into ServedModels whose requests are judged together: the share in
// time that a percentile asks for counts over all requests of the group. If the plan's kind has no groups, each
// served model is one by itself.
func (d *Plan) AttainmentGroups() [][]int {
	if d.Section == nil {
		return nil
	}
	if groups := d.Section.AttainmentGroups(); groups != nil {
		return groups
	}
	var singles [][]int
	for i := range d.ServedModels() {
		singles = append(singles, []int{i})
	}
	return singles
}

// PromiseFor returns what the plan promises (SLO, rate, weight) to the requests that deployment i serves.
func (d *Plan) PromiseFor(i int) Served {
	if d.Section == nil {
		return Served{}
	}
	return d.Section.PromiseFor(&d.Deployment[i])
}

// Pipeline is a pooled pipeline: a batch may use any replica at every stage. All stages have one batch size.
type Pipeline struct {
	Batch        int             `json:"batch"`
	RPS          float64         `json:"rps"`
	LatencyUS    document.Micros `json:"latency_us"` // inference and transfer at Batch, no queueing
	BatchBuildUS document.Micros `json:"batch_build_us,omitempty"`
	Stages       []Stage         `json:"stages"`
}

// Stage is a half-open range of blocks on replicas of one device kind and share.
type Stage struct {
	Blocks   [2]int            `json:"blocks"` // [first, last)
	Device   string            `json:"device"`
	Share    int               `json:"share"`    // v of 1/v
	Replicas int               `json:"replicas"` // virtual devices
	GPUs     float64           `json:"gpus"`     // physical devices that they occupy; a share of time on a time-shared pool
	RPS      float64           `json:"rps"`      // capacity
	InferUS  []document.Micros `json:"infer_us"` // inference times at batch 1..Batch
	// InferRangeUS holds the bounds of InferUS, at batch 1..Batch. They differ for batches that were not measured,
	// whose time is interpolated between those that were. If absent, all batches were measured.
	InferRangeUS [][2]document.Micros `json:"infer_range_us,omitempty"`
	Estimated    bool                 `json:"estimated,omitempty"` // some of infer_us were not measured in one piece
	MeanUS       []document.Micros    `json:"mean_us,omitempty"`   // mean times when serving, at batch 1..Batch; if absent, infer_us
	IdleUS       document.Micros      `json:"idle_us,omitempty"`   // additional time of a run that begins after the device was idle for a while
	BlockUS      []document.Micros    `json:"block_us,omitempty"`  // time of each block at Batch, to find the block that changed when the profile does
	Placement    []Placement          `json:"placement"`
	Cut          *Cut                 `json:"cut,omitempty"` // the cut behind the stage; absent for the last stage
}

// Placement puts replicas on physical devices of the stage's pool: PerDevice
// on each of consecutive devices from FirstDevice, Replicas in all. Device i of a
// pool sits on node i / per_node of that pool.
type Placement struct {
	FirstDevice int `json:"first"`
	PerDevice   int `json:"per_device"`
	Replicas    int `json:"replicas"`
}

// Cut is the crossing between two stages.
type Cut struct {
	Tensors    []string          `json:"tensors,omitempty"`
	DType      string            `json:"dtype" check:"FP32|FP16"`   // FP32 or FP16: how float tensors cross
	Bytes      int64             `json:"bytes" check:"nonnegative"` // per sample, as it crosses
	TransferUS []document.Micros `json:"transfer_us"`               // transfer times over the slower NIC at batch 1..Batch; zeros on one host
}

// Replan says how much the plan differs from the plan that ran before, the input of role running.
type Replan struct {
	MovedGPUs int     `json:"moved_gpus"` // devices that have to load something that they did not hold
	GPUs      int     `json:"gpus"`       // devices of the cluster; in plans of kind pool, those that are not shared in time
	MaxMoved  float64 `json:"max_moved"`  // share of them that was allowed to
	// RunningValue is the objective of the plan that ran before, judged as this one is. It is nil if that is not known.
	RunningValue *float64     `json:"running_value,omitempty"`
	Moves        []DeviceMove `json:"moves,omitempty"`
}

// DeviceMove is a range of devices of a kind that load something else. OldContent is empty if they were idle.
type DeviceMove struct {
	Device     string `json:"device"`
	First      int    `json:"first"` // index in the pool
	Count      int    `json:"count" check:"count"`
	OldContent string `json:"before,omitempty"`
	NewContent string `json:"after"`
}

// PolicySpec names the run-time policy and its parameters.
type PolicySpec struct {
	Name   string             `json:"name"` // reserve, artifact, ...
	Params map[string]float64 `json:"params,omitempty"`
}

// Certificate is the result of simulating the plan: the rates that it sustains.
type Certificate struct {
	LoadFactor float64          `json:"load_factor" check:"nonnegative"`  // highest point of the grid that passed
	Attainment float64          `json:"attainment" check:"positiveShare"` // asked
	Runs       int              `json:"runs" check:"count"`
	DurationUS document.Micros  `json:"duration_us"`
	Seed       uint64           `json:"seed"`
	Models     []CertifiedModel `json:"models"`
}

// CertifiedModel is one model's certified rate, with the attainment that the
// runs showed at it and the 95 % interval of that attainment.
type CertifiedModel struct {
	Model        string          `json:"model"`
	Class        string          `json:"class,omitempty"`
	RPS          float64         `json:"rps" check:"nonnegative"`
	Attainment   float64         `json:"attainment" check:"share"`
	AttainmentCI [2]float64      `json:"attainment_interval"`
	P99US        document.Micros `json:"p99_us"`
	// AttainedRPS are the requests per second of it that were in time.
	AttainedRPS   float64         `json:"attained_rps,omitempty"`
	AttainedRPSCI *[2]float64     `json:"attained_rps_interval,omitempty"`
	P50US         document.Micros `json:"p50_us,omitempty"`
	// Slower holds the results when runs take longer than profiled.
	Slower []Slower `json:"slower,omitzero"`
}

// Slower is the result of a model at its certified rate when all runs of batches take longer than profiled.
type Slower struct {
	ExtraShare float64         `json:"by"` // share of the profiled time
	Attainment float64         `json:"attainment"`
	P50US      document.Micros `json:"p50_us"`
	P99US      document.Micros `json:"p99_us"`
}

// Limit names something that limits the objective, and what a little more of it would gain.
type Limit struct {
	Constraint string  `json:"what"`   // "device L4", "slo resnet50"
	Change     string  `json:"change"` // "+1 device", "+10ms"
	Value      float64 `json:"value"`  // objective after the change, by the bound of the relaxed problem
	Gain       float64 `json:"gain"`   // relative to that bound now, which may be above the objective's
}

// PlacedStage is a stage of a plan with its pipeline, its deployment and its position.
type PlacedStage struct {
	*Stage
	Deployed *Deployed
	Pipeline *Pipeline
	Position int    // the stage's index in its pipeline
	indexes  [2]int // indexes of deployment and pipeline
}

// Path is the field of the plan that holds the stage.
func (s *PlacedStage) Path() string {
	return fmt.Sprintf("deployment[%d].pipelines[%d].stages[%d]", s.indexes[0], s.indexes[1], s.Position)
}

// Stages yields all stages of a plan, each with its deployment and pipeline, in the order of the deployment.
func (d *Plan) Stages() iter.Seq[PlacedStage] {
	return func(yield func(PlacedStage) bool) {
		for i := range d.Deployment {
			for k := range d.Deployment[i].Pipelines {
				l := &d.Deployment[i].Pipelines[k]
				for n := range l.Stages {
					if !yield(PlacedStage{&l.Stages[n], &d.Deployment[i], l, n, [2]int{i, k}}) {
						return
					}
				}
			}
		}
	}
}

// DeviceCount returns the number of devices that the placement covers.
func (p *Placement) DeviceCount() int {
	perDevice := max(p.PerDevice, 1)
	return (p.Replicas + perDevice - 1) / perDevice
}

// UsedDevices returns the numbers of the devices of a pool on which the plan places something.
func (d *Plan) UsedDevices(pool *Pool) map[int]bool {
	used := map[int]bool{}
	for s := range d.Stages() {
		for _, placement := range s.Placement {
			for n := range placement.DeviceCount() {
				if s.Device == pool.Device && placement.FirstDevice+n >= 0 && placement.FirstDevice+n < pool.Count {
					used[placement.FirstDevice+n] = true
				}
			}
		}
	}
	return used
}

// SharesDevice returns whether two stages have a device in common.
func (s *Stage) SharesDevice(o *Stage) bool {
	return s.Device == o.Device && slices.ContainsFunc(s.Placement, func(p Placement) bool {
		return slices.ContainsFunc(o.Placement, func(q Placement) bool {
			return p.FirstDevice < q.FirstDevice+q.DeviceCount() && q.FirstDevice < p.FirstDevice+p.DeviceCount()
		})
	})
}
