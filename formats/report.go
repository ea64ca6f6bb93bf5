package formats

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"inferplan/formats/document"
)

// Report holds the results of a simulated or measured run.
type Report struct {
	Format string `json:"format"`                             // inferplan.report/v1
	Source string `json:"source" check:"simulate|serve|load"` // simulate, serve, load
	Plan   *Input `json:"plan,omitempty"`
	Policy string `json:"policy,omitempty"`
	Seed   uint64 `json:"seed"`
	Runs   int    `json:"runs" check:"count"`
	// Interrupted says that the run ended early. The figures then cover the replications or loads that were
	// complete, or the requests that were sent until then.
	Interrupted bool            `json:"interrupted,omitempty"`
	Load        float64         `json:"load,omitempty" check:"nonnegative"` // factor of the planned rate
	DurationUS  document.Micros `json:"duration_us"`
	WarmupUS    document.Micros `json:"warmup_us"`

	Counts
	Latency  LatencySummary `json:"latency"`
	Models   []ModelReport  `json:"models"`
	Devices  []DeviceReport `json:"devices,omitempty"`
	Windows  []WindowReport `json:"windows,omitempty"`
	Transfer *TierReport    `json:"transfer,omitempty"`

	TransferTimes  *TransferTimes `json:"transfer_times,omitempty"`   // times of batches between stages; only of a simulated run in which some crossed
	ProbesPerBatch float64        `json:"probes_per_batch,omitempty"` // paths that the reservation policy looked for, per batch dispatched
	Curve          []LoadReport   `json:"curve,omitempty"`            // one entry per load

	Events          int64       `json:"events,omitempty"`
	EventsPerSecond float64     `json:"events_per_second,omitempty"` // only in --json output, never in files
	MaxLoadFactor   *float64    `json:"max_load_factor,omitempty"`
	BoundShare      *float64    `json:"bound_share,omitempty"` // goodput over the plan's bound
	Accuracy        *float64    `json:"accuracy,omitempty"`    // share of right answers, of a gear plan by its records
	Gears           *GearReport `json:"gears,omitempty"`       // the gears' figures; only of a gear plan

	ShareOfBound *float64       `json:"share_of_bound,omitempty" check:"nonnegative"` // goodput over that of a clairvoyant fluid, of a plan of one application
	Modules      []ModuleReport `json:"modules,omitempty"`                            // of applications
	Flow         *FlowReport    `json:"flow,omitempty"`                               // of applications
	// Workflow is of applications whose devices load models at run time.
	Workflow *WorkflowReport `json:"workflow,omitempty"`

	TokenReport

	// Plans has a part for each plan that a server executed, if there were several. The figures above are then
	// over all of them.
	Plans []PlanReport `json:"plans,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}

// PlanReport holds the results of one of several plans of a server. Its requests are those that arrived while the
// plan was in force.
type PlanReport struct {
	SHA256     string          `json:"sha256"` // the digest of the plan's file
	Kind       string          `json:"kind"`
	Policy     string          `json:"policy"`
	StartUS    document.Micros `json:"start_us"` // since the first plan was in force
	DurationUS document.Micros `json:"duration_us"`

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

// TransferTimes summarises how long batches' tensors took from the end of a stage to the next device, with the
// wait for links.
type TransferTimes struct {
	Count  int64           `json:"count"`
	MeanUS document.Micros `json:"mean_us"`
	P99US  document.Micros `json:"p99_us"`
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
	Model        string          `json:"model"`
	Class        string          `json:"class,omitempty"`
	Attainment   float64         `json:"attainment"`
	AttainmentCI *[2]float64     `json:"attainment_interval,omitempty"`
	GoodputRPS   float64         `json:"goodput_rps"`
	P99US        document.Micros `json:"p99_us"`
}

// GearReport holds the work of a plan's gears and of the models of its family.
type GearReport struct {
	Switches       int64             `json:"switches"`
	RequestsByGear []int64           `json:"requests"` // the number of requests by the gear under which they arrived
	Models         []GearModelReport `json:"models"`
	Drift          float64           `json:"drift"`              // total variation between the rates seen and those planned for
	ObservedShares []float64         `json:"observed,omitempty"` // share of the recent requests by range of rates; further ranges above the plan's largest rate
}

// GearModelReport is one model of a family.
type GearModelReport struct {
	Model     string          `json:"model"`
	Batches   int64           `json:"batches"`
	Samples   int64           `json:"samples"` // samples that it ran
	Answers   int64           `json:"answers"` // answers that were the request's
	RunningUS document.Micros `json:"running_us"`
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
	GoodputRPS   float64     `json:"goodput_rps" check:"nonnegative"`
}

// LatencySummary is of completed requests, from arrival to answer.
type LatencySummary struct {
	MeanUS document.Micros `json:"mean_us"`
	P50US  document.Micros `json:"p50_us"`
	P90US  document.Micros `json:"p90_us"`
	P95US  document.Micros `json:"p95_us"`
	P99US  document.Micros `json:"p99_us"`
	MaxUS  document.Micros `json:"max_us"`
}

// ModelReport is the share of one model, or one SLO class of it, in a report.
type ModelReport struct {
	Model      string          `json:"model"`
	Class      string          `json:"class,omitempty"`
	SLOUS      document.Micros `json:"slo_us"`
	OfferedRPS float64         `json:"offered_rps" check:"nonnegative"`
	Counts
	Latency       LatencySummary   `json:"latency"`
	BatchSizes    map[string]int64 `json:"batch_sizes,omitempty" check:"nonnegative"` // batches by size
	MaxLoadFactor *float64         `json:"max_load_factor,omitempty"`
	// Percentile of the requests that has to be in time, as simulations know.
	Percentile string `json:"percentile,omitempty" default:"p99" check:"percentile"`
	// Slower holds the results of a simulated model when runs take longer than profiled.
	Slower []Slower `json:"slower,omitzero"`
}

// DeviceReport is the use of one device kind.
type DeviceReport struct {
	Device      string          `json:"device"`
	Count       int             `json:"count"`
	Utilisation float64         `json:"utilisation"` // busy share of device time, shares weighted 1/v
	RunningUS   document.Micros `json:"running_us"`
	LoadingUS   document.Micros `json:"loading_us"`
	BothUS      document.Micros `json:"both_us"`
	IdleUS      document.Micros `json:"idle_us"`
}

// WindowReport is one window of time.
type WindowReport struct {
	StartUS document.Micros `json:"start_us"`
	Model   string          `json:"model,omitempty"`
	Class   string          `json:"class,omitempty"`
	Counts
	P95US document.Micros `json:"p95_us"`
}

// TierReport says by which transport tiers tensors crossed between stages.
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

// FileForm returns the report without its wall-clock rate, which would differ between runs with the same results.
func (d *Report) FileForm() any {
	c := *d
	c.EventsPerSecond = 0
	return &c
}

// Validate checks the rules that the types of a report cannot express. It returns all violations, each with its
// field path. Every request is accounted for once, and shares and percentiles agree with the counts.
func (d *Report) Validate() error {
	var c document.Checker
	c.Values(d, d.Format, FormatReport, rules)
	if d.Plan != nil {
		d.Plan.check(&c, "plan")
	}
	d.checkFlow(&c)
	checkServed(&c, "", &d.Counts, &d.Latency, d.Models)
	checkDevices(&c, "", d.Devices)
	d.checkTokens(&c)
	for i := range d.Windows {
		d.Windows[i].checkCounts(&c, fmt.Sprintf("windows[%d]", i))
	}
	for i := range d.Plans {
		d.Plans[i].check(&c, fmt.Sprintf("plans[%d]", i))
	}
	return c.Err()
}

// check reports to c what is wrong with a report's figures of one plan: its hash, requests, latencies and devices.
func (p *PlanReport) check(c *document.Checker, fieldPath string) {
	c.FailIf(p.SHA256 != "" && !document.IsSHA256(p.SHA256), fieldPath+".sha256", "the text "+document.Quote(p.SHA256), rules["sha256"].Expected)
	checkServed(c, fieldPath, &p.Counts, &p.Latency, p.Models)
	checkDevices(c, fieldPath, p.Devices)
}

// checkServed reports to c what is wrong with counts and latencies of a report or of one plan in it: those of the
// models, and the totals, which are the sums over the models.
func checkServed(c *document.Checker, fieldPath string, totals *Counts, latency *LatencySummary, models []ModelReport) {
	totals.checkCounts(c, fieldPath)
	latency.check(c, document.Join(fieldPath, "latency"))

	// Check each model.
	indexByKey := map[ModelClass]int{}
	var sum Counts
	for i := range models {
		m := &models[i]
		fieldPath := document.Join(fieldPath, fmt.Sprintf("models[%d]", i))
		checkKey(c, indexByKey, i, m.Key(), fieldPath)
		m.checkCounts(c, fieldPath)
		m.Latency.check(c, fieldPath+".latency")
		sum.Requests += m.Requests
		sum.Completed += m.Completed
		sum.Dropped += m.Dropped
		sum.Late += m.Late
	}

	// Check that the totals are the sums over the models.
	for _, f := range [...]struct {
		name       string
		total, sum int64
	}{{"requests", totals.Requests, sum.Requests}, {"completed", totals.Completed, sum.Completed}, {"dropped", totals.Dropped, sum.Dropped}, {"late", totals.Late, sum.Late}} {
		c.FailIf(len(models) > 0 && f.total != f.sum, document.Join(fieldPath, f.name), f.total, "the sum over the models, %d", f.sum)
	}
}

// checkDevices reports to c devices of a report without a name, or with a utilisation outside 0 to 1. The 1e-9
// allows for rounding.
func checkDevices(c *document.Checker, fieldPath string, devices []DeviceReport) {
	for i := range devices {
		fieldPath := document.Join(fieldPath, fmt.Sprintf("devices[%d]", i))
		c.FailIf(devices[i].Device == "", fieldPath+".device", "an empty name", "a device")
		u := devices[i].Utilisation
		c.FailIf(!(u >= 0 && u <= 1+1e-9), fieldPath+".utilisation", u, "a share from 0 to 1")
	}
}

// checkCounts reports to c where the counts of a report contradict each other: every request is completed or
// dropped, every dropped one has a reason, and the attainment is the share that completed in time. The 1e-9 allows
// for rounding. fieldPath is empty for the counts of the whole report.
func (n *Counts) checkCounts(c *document.Checker, fieldPath string) {
	byReason := int64(0)
	for _, reason := range slices.Sorted(maps.Keys(n.DroppedByReason)) {
		k := n.DroppedByReason[reason]
		c.FailIf(k < 0, document.Join(fieldPath, "dropped_by_reason."+reason), k, "0 or more")
		byReason += k
	}
	switch {
	case n.Requests < 0 || n.Completed < 0 || n.Dropped < 0 || n.Late < 0:
		c.Fail(document.Join(fieldPath, "requests"), "a negative count", "0 or more", "")
		return
	case n.Requests != n.Completed+n.Dropped:
		c.Fail(document.Join(fieldPath, "requests"), document.FormatWhole(n.Requests), fmt.Sprintf("completed + dropped, %d", n.Completed+n.Dropped), "")
	case n.Late > n.Completed:
		c.Fail(document.Join(fieldPath, "late"), document.FormatWhole(n.Late), fmt.Sprintf("at most completed, %d", n.Completed), "")
	case n.Dropped != byReason:
		c.Fail(document.Join(fieldPath, "dropped"), document.FormatWhole(n.Dropped), fmt.Sprintf("the sum of dropped_by_reason, %d", byReason), "")
	}

	// The attainment follows from the counts.
	if n.Requests > 0 {
		wantedAttainment := float64(n.Completed-n.Late) / float64(n.Requests)
		c.FailIf(!(math.Abs(n.Attainment-wantedAttainment) <= 1e-9), document.Join(fieldPath, "attainment"), n.Attainment, "(completed - late) / requests, "+document.FormatFloat(wantedAttainment))
	} else {
		c.FailIf(!(n.Attainment >= 0 && n.Attainment <= 1), document.Join(fieldPath, "attainment"), n.Attainment, "a share from 0 to 1")
	}
	if n.AttainmentCI != nil {
		c.Interval(document.Join(fieldPath, "attainment_interval"), *n.AttainmentCI)
	}
}

// check reports to c percentiles of latencies of which a higher one is smaller.
func (l *LatencySummary) check(c *document.Checker, fieldPath string) {
	list := [...]struct {
		name  string
		value document.Micros
	}{{"p50_us", l.P50US}, {"p90_us", l.P90US}, {"p95_us", l.P95US}, {"p99_us", l.P99US}, {"max_us", l.MaxUS}}
	for i := 1; i < len(list); i++ {
		if list[i].value < list[i-1].value {
			c.Fail(fieldPath+"."+list[i].name, "the number "+list[i].value.String(), "at least "+list[i-1].name+", "+list[i-1].value.String(), "")
			return
		}
	}
}

// TokenReport is the part of a report that is about instances of language models.
type TokenReport struct {
	Classes    []ClassReport `json:"classes,omitempty"`
	Swaps      *int64        `json:"swaps,omitempty" check:"nonnegative"`     // models that took another's place on an instance
	Loads      *int64        `json:"loads,omitempty" check:"nonnegative"`     // models that were loaded onto an instance
	Evictions  *int64        `json:"evictions,omitempty" check:"nonnegative"` // sequences that the policy took off an instance
	PrefixHits *float64      `json:"prefix_hits,omitempty" check:"share"`     // share of prompts' tokens that were in a prefix cache, of all that were needed
	KVInUse    *float64      `json:"kv_in_use,omitempty" check:"share"`       // share of KV memory, in the mean over instances and time
	DeviceTime *DeviceTime   `json:"device_time,omitempty"`
	Work       []WorkReport  `json:"work,omitempty"` // how long the work of requests took, as served
}

// WorkReport is the time that the work of a language model took on a kind of device, as a multiple of the planned time.
type WorkReport struct {
	Model     string          `json:"model"`
	Device    string          `json:"device"`
	Factor    float64         `json:"factor" check:"weight"` // its time over the planned one, as the policy has seen
	PlannedUS document.Micros `json:"planned_us"`            // the observed work, in planned time
}

// ClassReport is one class of requests, over all models.
type ClassReport struct {
	Class      string          `json:"class"`
	Requests   int64           `json:"requests" check:"nonnegative"`
	Attainment float64         `json:"attainment" check:"share"`
	E2EP99US   document.Micros `json:"e2e_p99_us"`
	TTFTP99US  document.Micros `json:"ttft_p99_us"`
	TPOTP99US  document.Micros `json:"tpot_p99_us"`
	// The SLO of the class, if all its models have the same, and the value at its percentile.
	Figure                string          `json:"of,omitempty" check:"e2e|ttft|tpot"`
	SLOUS                 document.Micros `json:"slo_us,omitempty"`
	Percentile            string          `json:"percentile,omitempty" check:"percentile"`
	AtPercentileUS        document.Micros `json:"at_percentile_us,omitempty"`
	WaitingSLOUS          document.Micros `json:"waiting_slo_us,omitempty"`
	WaitingAtPercentileUS document.Micros `json:"waiting_at_percentile_us,omitempty"`
}

// FigureOf returns what the SLO of a class bounds if that is no whole answer: FigureTTFT or FigureTPOT. Otherwise it
// returns "". Latencies of models are those of whole answers, which such an SLO is not about.
func (t *TokenReport) FigureOf(class string) string {
	for i := range t.Classes {
		if c := &t.Classes[i]; c.Class == class && c.Figure != FigureE2E {
			return c.Figure
		}
	}
	return ""
}

// DeviceTime divides the time of all devices by what they did, as shares.
type DeviceTime struct {
	Running           float64 `json:"running"`
	Loading           float64 `json:"loading"`
	RunningAndLoading float64 `json:"both"` // the part in which both happen at the same time
	Idle              float64 `json:"idle"`
}

// checkTokens reports to c what contradicts itself in the part of a report that only LLM servers have: swaps and
// loads, the shares of device time, and classes that stand twice. The 1e-9 allows for rounding.
func (t *TokenReport) checkTokens(c *document.Checker) {
	if t.Swaps != nil && t.Loads != nil && *t.Swaps > *t.Loads {
		c.Fail("swaps", document.FormatWhole(*t.Swaps), fmt.Sprintf("at most the loads, %d", *t.Loads), "")
	}
	if d := t.DeviceTime; d != nil && !(min(d.Running, d.Loading, d.RunningAndLoading, d.Idle) >= 0 && d.Running+d.Loading+d.RunningAndLoading+d.Idle <= 1+1e-9) {
		c.Fail("device_time", fmt.Sprintf("the shares %g, %g, %g and %g", d.Running, d.Loading, d.RunningAndLoading, d.Idle), "shares of 0 or more that sum to at most 1", "")
	}

	// Check the SLO classes.
	indexByName := map[string]int{}
	for i := range t.Classes {
		k, fieldPath := &t.Classes[i], fmt.Sprintf("classes[%d]", i)
		document.CheckUnique(c, indexByName, i, k.Class, fieldPath+".class", document.Quote(k.Class), "each class once")
	}
}
