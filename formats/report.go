package formats

// Report is what a simulated or measured run showed.
type Report struct {
	Format string `json:"format"` // inferplan.report/v1
	Source string `json:"source"` // simulate, serve, load
	Plan   *Input `json:"plan,omitempty"`
	Policy string `json:"policy,omitempty"`
	Seed   uint64 `json:"seed"`
	Runs   int    `json:"runs"`
	// Interrupted says that the run was ended early: the figures are of the
	// replications or loads that were complete, or of what was sent until then.
	Interrupted bool    `json:"interrupted,omitempty"`
	Load        float64 `json:"load,omitempty"` // factor of the planned rate
	DurationUS  Micros  `json:"duration_us"`
	WarmupUS    Micros  `json:"warmup_us"`

	Counts
	Latency  LatencySummary `json:"latency"`
	Models   []ModelReport  `json:"models"`
	Devices  []DeviceReport `json:"devices,omitempty"`
	Windows  []WindowReport `json:"windows,omitempty"`
	Transfer *TierReport    `json:"transfer,omitempty"`

	TransferTimes  *TransferTimes `json:"transfer_times,omitempty"`   // of a simulated run whose batches crossed between stages
	ProbesPerBatch float64        `json:"probes_per_batch,omitempty"` // paths that the reservation policy looked for, per batch dispatched
	Curve          []LoadReport   `json:"curve,omitempty"`            // of several loads, in order

	Events          int64       `json:"events,omitempty"`
	EventsPerSecond float64     `json:"events_per_second,omitempty"` // only in --json output, never in files
	MaxLoadFactor   *float64    `json:"max_load_factor,omitempty"`
	BoundShare      *float64    `json:"bound_share,omitempty"` // goodput over the plan's bound
	Accuracy        *float64    `json:"accuracy,omitempty"`    // share of right answers, of a gear plan by its records
	Gears           *GearReport `json:"gears,omitempty"`       // of a gear plan

	ShareOfBound *float64       `json:"share_of_bound,omitempty"` // goodput over that of a clairvoyant fluid, of a plan of one application
	Modules      []ModuleReport `json:"modules,omitempty"`        // of applications
	Flow         *FlowReport    `json:"flow,omitempty"`           // of applications
	// Workflow is of applications whose devices load models at run time.
	Workflow *WorkflowReport `json:"workflow,omitempty"`

	TokenReport

	// Plans has a part for each plan that a server executed, in order, where it executed
	// several. What stands above is then of all of them.
	Plans []PlanReport `json:"plans,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}

// PlanReport is what one of several plans of a server did. Its requests are those that
// came while it was in force.
type PlanReport struct {
	SHA256     string `json:"sha256"` // of the plan's file
	Kind       string `json:"kind"`
	Policy     string `json:"policy"`
	StartUS    Micros `json:"start_us"` // since the first plan came into force
	DurationUS Micros `json:"duration_us"`

	Counts
	Latency  LatencySummary `json:"latency"`
	Models   []ModelReport  `json:"models"`
	Devices  []DeviceReport `json:"devices,omitempty"`
	Transfer *TierReport    `json:"transfer,omitempty"`
	Events   int64          `json:"events,omitempty"`
	Accuracy *float64       `json:"accuracy,omitempty"`
	Gears    *GearReport    `json:"gears,omitempty"`
	Modules  []ModuleReport `json:"modules,omitempty"`

	TokenReport

	Warnings []string `json:"warnings,omitempty"`
}

// TransferTimes tells how long batches' tensors took from the end of a stage to
// the next device, waiting for links included.
type TransferTimes struct {
	Count  int64  `json:"count"`
	MeanUS Micros `json:"mean_us"`
	P99US  Micros `json:"p99_us"`
}

// LoadReport is one load of a curve.
type LoadReport struct {
	Load         float64      `json:"load"` // factor of the planned rate
	Attainment   float64      `json:"attainment"`
	AttainmentCI *[2]float64  `json:"attainment_interval,omitempty"`
	Models       []ModelPoint `json:"models"`
}

// ModelPoint is one model, or one SLO class of it, at one load.
type ModelPoint struct {
	Model        string      `json:"model"`
	Class        string      `json:"class,omitempty"`
	Attainment   float64     `json:"attainment"`
	AttainmentCI *[2]float64 `json:"attainment_interval,omitempty"`
	GoodputRPS   float64     `json:"goodput_rps"`
	P99US        Micros      `json:"p99_us"`
}

// GearReport tells what the gears of a plan and the models of its family did.
type GearReport struct {
	Switches int64             `json:"switches"`
	Requests []int64           `json:"requests"` // that came under each gear
	Models   []GearModelReport `json:"models"`
	Drift    float64           `json:"drift"`              // total variation between the rates seen and those planned for
	Observed []float64         `json:"observed,omitempty"` // share of the recent requests by range of rates; further ranges above the plan's largest rate
}

// GearModelReport is one model of a family.
type GearModelReport struct {
	Model     string `json:"model"`
	Batches   int64  `json:"batches"`
	Samples   int64  `json:"samples"` // that it ran
	Answers   int64  `json:"answers"` // that were the request's
	RunningUS Micros `json:"running_us"`
}

// Counts are the outcomes of requests: requests = completed + dropped; late
// ones are inside completed. Attainment = (completed - late) / requests.
type Counts struct {
	Requests        int64            `json:"requests"`
	Completed       int64            `json:"completed"`
	Dropped         int64            `json:"dropped"`
	Late            int64            `json:"late"`
	DroppedByReason map[string]int64 `json:"dropped_by_reason"`
	Attainment      float64          `json:"attainment"`
	// AttainmentCI is the 95 % interval: over replications, or Wilson's for one run.
	AttainmentCI *[2]float64 `json:"attainment_interval,omitempty"`
	GoodputRPS   float64     `json:"goodput_rps"`
}

// LatencySummary is of completed requests, from arrival to answer.
type LatencySummary struct {
	MeanUS Micros `json:"mean_us"`
	P50US  Micros `json:"p50_us"`
	P90US  Micros `json:"p90_us"`
	P95US  Micros `json:"p95_us"`
	P99US  Micros `json:"p99_us"`
	MaxUS  Micros `json:"max_us"`
}

// ModelReport is the share of one model, or one SLO class of it, in a report.
type ModelReport struct {
	Model      string  `json:"model"`
	Class      string  `json:"class,omitempty"`
	SLOUS      Micros  `json:"slo_us"`
	OfferedRPS float64 `json:"offered_rps"`
	Counts
	Latency       LatencySummary   `json:"latency"`
	BatchSizes    map[string]int64 `json:"batch_sizes,omitempty"` // batches by size
	MaxLoadFactor *float64         `json:"max_load_factor,omitempty"`
	// Percentile of the requests that has to be in time, as simulations know.
	Percentile string `json:"percentile,omitempty" default:"p99"`
	// Slower says what becomes of a simulated model where runs take longer than profiled.
	Slower []Slower `json:"slower,omitzero"`
}

// DeviceReport is the use of one device kind.
type DeviceReport struct {
	Device      string  `json:"device"`
	Count       int     `json:"count"`
	Utilisation float64 `json:"utilisation"` // busy share of device time, shares weighted 1/v
	RunningUS   Micros  `json:"running_us"`
	LoadingUS   Micros  `json:"loading_us"`
	BothUS      Micros  `json:"both_us"`
	IdleUS      Micros  `json:"idle_us"`
}

// WindowReport is one window of time.
type WindowReport struct {
	StartUS Micros `json:"start_us"`
	Model   string `json:"model,omitempty"`
	Class   string `json:"class,omitempty"`
	Counts
	P95US Micros `json:"p95_us"`
}

// TierReport tells by which tier tensors crossed between stages.
type TierReport struct {
	Tiers []Tier `json:"tiers"`
}

// Tier is one transport tier.
type Tier struct {
	Name           string  `json:"name"` // reference, shm, stream
	Transfers      int64   `json:"transfers"`
	Bytes          int64   `json:"bytes"`
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Stored is the report without its wall-clock rate: the same run would not give the same bytes.
func (d *Report) Stored() any {
	c := *d
	c.EventsPerSecond = 0
	return &c
}
