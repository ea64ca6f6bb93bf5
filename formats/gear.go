package formats

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"inferplan/formats/document"
)

// GearPlan is the part of a plan of kind gear that says how requests are
// answered at which rate. The deployment of the family's models is in the
// plan's list of models: a pipeline for each device kind that a model runs whole
// on, and for each sequence of kinds that it runs on in stages.
//
// A replica of a pipeline is a chain of one device per stage: as many as the stage
// with the most replicas has. The replicas of every other stage are a whole
// fraction of that, each in equally many chains that follow each other.
//
// Certainties are kept as levels: level l of a model means that l of its
// thresholds are at most the certainty. A stage forwards a sample whose level
// is below the stage's, that is, whose certainty is below the threshold.
type GearPlan struct {
	SLOUS      document.Micros `json:"slo_us"`
	Percentile string          `json:"percentile" check:"percentile"`
	SLOScope   string          `json:"slo_over,omitempty" check:"ranges|requests"` // requests: all together keep the SLO; else every range does
	Accuracy   float64         `json:"accuracy_slo,omitempty" check:"share"`       // over the ranges by weight, if a target was given
	MaxQPS     float64         `json:"max_qps"`
	Score      string          `json:"score,omitempty"`                                 // the formula of certainties; top1-top2 if absent
	Weights    string          `json:"weights" check:"zipf|uniform|histogram|measured"` // the kind of the ranges' weights: zipf, uniform, histogram or measured
	Samples    int             `json:"samples"`                                         // planned on
	HeldOut    int             `json:"held_out"`                                        // held-out samples, for AccuracyHeldOut
	// AccuracyHeldOut is the accuracy of the whole plan on the held-out samples, over the ranges by weight.
	// HeldOutInterval is its 95 % interval.
	AccuracyHeldOut *float64    `json:"accuracy_held_out,omitempty" check:"share"`
	HeldOutInterval *[2]float64 `json:"accuracy_held_out_interval,omitempty"`
	// TriedBound bounds the objective of the plans that the planner's trials can accept: plans of one cascade per
	// range on placements of whole models, with the splits and the request streams of the trials. 0 means not
	// known.
	TriedBound float64 `json:"tried_bound,omitempty"`
	// RequestUS is the time that a request of the cascade takes besides its runs. RequestCPUUS is the CPU time
	// that it costs the front end. The trials of the gears use both. If absent, they are not known, or the plan is
	// of an older version: then the deployment's values count, weighted by rates.
	RequestUS    document.Micros `json:"request_us,omitempty"`
	RequestCPUUS document.Micros `json:"request_cpu_us,omitempty"`
	Models       []GearModel     `json:"models"` // the models, in the order of the plan's
	Gears        []Gear          `json:"gears"`  // the gears by rising rate, without holes
}

// GearModel holds a model's thresholds and, of every sample planned on, its
// level (one character of GearLevels) and whether the model is right ('1').
type GearModel struct {
	Model      string    `json:"model"`
	Thresholds []float64 `json:"thresholds"` // certainties, ascending
	Levels     string    `json:"levels"`
	Correct    string    `json:"correct"`
	// Calibration turns a raw certainty (Score) into the one that thresholds are compared with.
	Calibration Calibration `json:"calibration,omitempty"`
}

// Gear is the cascade that a gear plan serves while the rate is in [FromQPS, ToQPS). The last gear also serves higher
// rates.
type Gear struct {
	FromQPS         float64         `json:"from_qps"`
	ToQPS           float64         `json:"to_qps"`
	Weight          float64         `json:"weight" check:"share"`               // share of the requests or of the time, by GearPlan.Weights; of measured rates, of the requests that come under the gear
	RateShare       float64         `json:"rate_share,omitempty" check:"share"` // with measured rates, the share of the requests that come while the rate is in the range
	Accuracy        float64         `json:"accuracy" check:"share"`
	AccuracyHeldOut *float64        `json:"accuracy_held_out,omitempty"`
	HeldOutInterval *[2]float64     `json:"accuracy_held_out_interval,omitempty"` // 95 %
	Bound           float64         `json:"bound"`                                // no plan over these thresholds that holds ToQPS for ever is more accurate there; at least Accuracy
	Utilisation     float64         `json:"utilisation"`                          // utilisation of the busiest device at ToQPS; above 1 only if all requests of measured rates keep the SLO together
	LatencyUS       document.Micros `json:"latency_us"`                           // latency at the percentile, simulated at ToQPS
	// LatencyHeldOutUS is LatencyUS when requests bring the held-out samples, with the highest mean work that its
	// interval allows. It is absent if no samples are held out, or in plans of versions that did not simulate it.
	LatencyHeldOutUS document.Micros `json:"latency_held_out_us,omitempty"`
	LateShare        float64         `json:"late,omitempty" check:"share"` // share past the SLO at ToQPS, if the SLO is over all requests
	Stages           []GearStage     `json:"stages"`
}

// GearStage is one model of a gear's cascade.
type GearStage struct {
	Model     string    `json:"model"`
	Level     int       `json:"level,omitempty"`         // forwards below it; absent in the last stage
	Threshold float64   `json:"threshold,omitempty"`     // the certainty of Level, for people
	Fraction  float64   `json:"fraction" check:"share"`  // the part of the samples that come to this stage
	MinQueue  int       `json:"min_queue" check:"count"` // a shorter queue waits, up to the flush time
	Split     []float64 `json:"split"`                   // the parts of the stage's samples for the model's replicas, in the order of its pipelines and their placement
}

// ChainCount returns how often a pipeline runs in a gear plan: a chain is one replica of each stage, and stages
// with fewer replicas serve several chains.
func (l *Pipeline) ChainCount() int {
	maxReplicas := 0
	for i := range l.Stages {
		maxReplicas = max(maxReplicas, l.Stages[i].Replicas)
	}
	return maxReplicas
}

// ChainError returns an error if the replicas of a stage do not divide the pipeline's chains, and otherwise nil.
// In a plan of kind gear every chain needs a replica of each stage.
func ChainError(fieldPath string, stage, replicas, chains int) *document.Error {
	if replicas >= 1 && chains%replicas == 0 {
		return nil
	}
	return &document.Error{Path: fmt.Sprintf("%s.stages[%d].replicas", fieldPath, stage), Found: fmt.Sprint(replicas), Expected: fmt.Sprintf("a divisor of %d, the most of any stage", chains),
		Hint: "in a plan of kind gear a replica is a chain of one device per stage"}
}

// DeviceKinds returns the device kinds of a pipeline's stages in order, as one text.
func (l *Pipeline) DeviceKinds() string {
	return strings.Join(document.Map(l.Stages, func(s *Stage) string { return s.Device }), ", ")
}

// CascadeName is the name under which requests ask for a plan's cascade.
const CascadeName = "cascade"

// PlanGear is the kind of plans of gears.
const PlanGear = "gear"

var gearKind = planKind{name: PlanGear, section: (*GearPlan)(nil), options: gearOptions, schema: schemaFile("plan.gear")}

var gearOptions = []document.Option{
	{Name: "algorithm", Type: document.ChoiceOption, Default: "exact", Choices: []string{"exact"},
		Help: "exact (the only one)"},
	{Name: "objective", Type: document.ChoiceOption, Choices: []string{"accuracy", "latency", "gpus", "cost", "power"},
		Help: "accuracy or latency, whichever the workload's SLO leaves open, or the least gpus, cost or power that keeps it"},
	maxPartitionsOption,
	sloOption,
	cutDTypeOption,
	maxBatchOption,
	blocksOption,
	blocksByOption,
	maxMovedOption,
	gapOption,
	timeLimitOption,
}

// GearOf is the section of a plan of gears; nil for other plans.
func GearOf(p *Plan) *GearPlan { return planSection[*GearPlan](p) }

// ServedModels is the family under one name.
func (g *GearPlan) ServedModels() []Served {
	return []Served{{Model: CascadeName, SLOUS: g.SLOUS, Percentile: g.Percentile, Weight: 1, RPS: g.MaxQPS}}
}

// RequestCosts returns the time that a request of the cascade takes besides its runs, and the CPU time that it
// costs the front end. Both are 0 if the plan does not say them.
func (g *GearPlan) RequestCosts() (overhead, frontEnd document.Micros) {
	return g.RequestUS, g.RequestCPUUS
}

// AnswersByInput returns true: which model of a cascade answers depends on the input.
func (g *GearPlan) AnswersByInput() bool { return true }

// PromiseFor is the SLO of the cascade, for every model of the family.
func (g *GearPlan) PromiseFor(d *Deployed) Served {
	return Served{Model: d.Model, SLOUS: g.SLOUS, Percentile: g.Percentile, Weight: 1, RPS: d.RPS()}
}

// AttainmentGroups implements PlanSection.
func (g *GearPlan) AttainmentGroups() [][]int { return nil }

// renumber implements numberedSection: the shares of every stage follow the replicas of its model.
func (g *GearPlan) renumber(replicaOrders [][]int, _ func(int) int) PlanSection {
	changed := *g
	changed.Gears = slices.Clone(g.Gears)
	for r := range changed.Gears {
		gear := &changed.Gears[r]
		gear.Stages = slices.Clone(gear.Stages)
		for k := range gear.Stages {
			s := &gear.Stages[k]
			model := slices.IndexFunc(g.Models, func(m GearModel) bool { return m.Model == s.Model })
			split := make([]float64, 0, len(s.Split))
			for _, replica := range replicaOrders[model] {
				split = append(split, s.Split[replica])
			}
			s.Split = split
		}
	}
	return &changed
}

// GearLevels are the characters for the levels 0, 1, 2, …
const GearLevels = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// MaxGrid is the largest number of levels.
const MaxGrid = len(GearLevels)

// Records are answers of a family of models to the same labelled samples.
type Records struct {
	Source          string         `json:"source,omitempty"`
	Score           string         `json:"score,omitempty"` // the formula of certainty, such as top1-top2
	Seed            uint64         `json:"seed,omitempty"`  // the seed of the shuffle
	Samples         int            `json:"samples"`
	PlanningSamples int            `json:"planning"` // number of samples, from the first on, that are planned on; the others are held out
	Models          []ModelRecords `json:"models"`
}

// FindModel returns the answers of a model, or nil if there are none.
func (r *Records) FindModel(model string) *ModelRecords {
	return document.First(r.Models, func(m *ModelRecords) bool { return m.Model == model })
}

// ModelRecords are one model's answers, sample by sample.
type ModelRecords struct {
	Model     string    `json:"model"`
	Certainty []float64 `json:"certainty"`
	Correct   string    `json:"correct"` // '1' if the answer is right, else '0'
	// Calibration is the function by which Certainty was computed from the raw certainty (Records.Score). It is
	// empty if the certainty is raw.
	Calibration Calibration `json:"calibration,omitempty"`
}

// checkRecords reports to c what is wrong with a profile's records: how certain each model was of its answers on
// common samples, and which were correct. models has the models of the profile; a profile of records alone has none.
// list has one entry for each family of models; `planning` samples come first, and the others are held out.
func checkRecords(c *document.Checker, list []Records, models map[string]int) {
	for i := range list {
		r, fieldPath := &list[i], fmt.Sprintf("records[%d]", i)
		c.FailIf(r.PlanningSamples < 1 || r.PlanningSamples > r.Samples, fieldPath+".planning", r.PlanningSamples, "1 to the number of samples, %d", r.Samples)
		c.NotEmpty(len(r.Models), fieldPath+".models", "at least one model")
		indexByName := map[string]int{}
		for k := range r.Models {
			m := &r.Models[k]
			entryPath := fmt.Sprintf("%s.models[%d]", fieldPath, k)
			c.Name(indexByName, k, m.Model, "%s.models[%d].model", fieldPath, k)
			if _, ok := models[m.Model]; !ok && len(models) > 0 {
				c.Fail(entryPath+".model", "the model "+document.Quote(m.Model), "a model of the profile", "")
			}
			c.FailIf(len(m.Certainty) != r.Samples, entryPath+".certainty", fmt.Sprintf("%d numbers", len(m.Certainty)), "%d, one per sample", r.Samples)
			if sample := slices.IndexFunc(m.Certainty, func(x float64) bool { return !(x >= 0 && x <= 1) }); sample >= 0 {
				c.Fail(fmt.Sprintf("%s.certainty[%d]", entryPath, sample), document.Number(m.Certainty[sample]), "a certainty from 0 to 1", "")
			}
			checkFlags(c, m.Correct, r.Samples, entryPath+".correct", "01")
			m.Calibration.check(c, entryPath+".calibration")
		}
	}
}

// checkFlags reports to c a text that does not have one character of the alphabet per sample.
func checkFlags(c *document.Checker, text string, samples int, path, alphabet string) {
	c.FailIf(len(text) != samples, path, fmt.Sprintf("%d characters", len(text)), "%d, one per sample", samples)
	if sample := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune(alphabet, r) }); sample >= 0 {
		c.Fail(path, fmt.Sprintf("the character %q at sample %d", text[sample], sample), "one of "+alphabet, "")
	}
}

// check reports to p what is wrong with a gear plan: its targets, its models, which stand in the order of the
// deployment, and its gears.
func (g *GearPlan) check(p *planChecker) {
	p.FailIf(g.SLOUS <= 0, "gear.slo_us", g.SLOUS, "a positive latency")
	p.FailIf(g.Samples < 1 || g.HeldOut < 0, "gear.samples", g.Samples, "1 or more, and held_out of 0 or more")
	if h := g.HeldOutInterval; h != nil && !(0 <= h[0] && h[0] <= h[1] && h[1] <= 1) {
		p.Fail("gear.accuracy_held_out_interval", "from "+document.FormatFloat(h[0])+" to "+document.FormatFloat(h[1]), "the ends of an interval from 0 to 1", "")
	}
	replicas := map[string]int{} // by model
	if !p.FailIf(len(g.Models) != len(p.plan.Deployment), "gear.models", fmt.Sprintf("%d models", len(g.Models)), "the %d of the deployment, in order", len(p.plan.Deployment)) {
		for i := range g.Models {
			if !g.checkModel(p, i, replicas) {
				return
			}
		}
		g.checkGears(p, replicas)
	}
}

// checkModel reports to p what is wrong with model i of a gear plan and with deployment i, which must be the same
// model, when a plan is validated. (A gear is a cascade of models for a range of request rates: a model forwards the
// samples of which it is less certain than a threshold.) It adds the number of the model's replicas to `replicas`, by
// model. It returns false if that number or the thresholds are wrong, so that the gears cannot be checked.
func (g *GearPlan) checkModel(p *planChecker, i int, replicas map[string]int) bool {
	m, d := &g.Models[i], &p.plan.Deployment[i]
	fieldPath, deploymentPath := fmt.Sprintf("gear.models[%d]", i), fmt.Sprintf("deployment[%d]", i)
	p.FailIf(m.Model != d.Model, fieldPath+".model", document.Quote(m.Model), "the model at the same place of the deployment, "+document.Quote(d.Model))
	p.FailIf(d.Class != "", deploymentPath+".class", "the class "+document.Quote(d.Class), "none: a cascade has one SLO")

	// Check its pipelines, one for each sequence of device kinds along their stages, against the promised SLO. A
	// chain is a replica of each stage, one behind the other; the chains of all pipelines are the model's replicas.
	promised := g.PromiseFor(d)
	kinds := map[string]int{} // the devices of a pipeline's stages, as one text
	for n := range d.Pipelines {
		l, fieldPath := &d.Pipelines[n], fmt.Sprintf("%s.pipelines[%d]", deploymentPath, n)
		p.checkLimits(l, &promised, fieldPath)
		chains, deviceKinds := l.ChainCount(), l.DeviceKinds()
		for k := range l.Stages {
			if err := ChainError(fieldPath, k, l.Stages[k].Replicas, chains); err != nil {
				p.Add(err)
				return false
			}
		}
		earlierPipeline, isDuplicate := kinds[deviceKinds]
		if p.FailIf(isDuplicate, fieldPath+".stages[0].device", document.Quote(deviceKinds)+" as in pipeline "+fmt.Sprint(earlierPipeline), "one pipeline for each device kind, or sequence of kinds along its stages") {
			return false
		}
		kinds[deviceKinds] = n
		replicas[m.Model] += chains
	}
	if p.FailIf(len(d.Pipelines) == 0, deploymentPath+".pipelines", "nothing", "a pipeline for each device kind, or sequence of kinds, that the model is on") ||
		p.FailIf(len(m.Thresholds) >= MaxGrid || !slices.IsSorted(m.Thresholds), fieldPath+".thresholds", fmt.Sprintf("%d thresholds", len(m.Thresholds)), "at most %d, ascending", MaxGrid-1) {
		return false
	}
	// Check the records: for each sample the level of the model's certainty (between which thresholds it lies, as
	// one character of GearLevels), and whether the answer is correct (1 or 0).
	checkFlags(p.Checker, m.Levels, g.Samples, fieldPath+".levels", GearLevels[:len(m.Thresholds)+1])
	m.Calibration.check(p.Checker, fieldPath+".calibration")
	checkFlags(p.Checker, m.Correct, g.Samples, fieldPath+".correct", "01")
	return true
}

// checkGears reports to p what is wrong with the gears: each is for a range of request rates, and together they cover
// the rates from 0 to the highest without a gap. nextFrom is where the next range must begin. replicas has the number
// of replicas of each model.
func (g *GearPlan) checkGears(p *planChecker, replicas map[string]int) {
	if p.FailIf(len(g.Gears) == 0, "gear.gears", "an empty list", "at least one gear") {
		return
	}
	nextFrom := 0.0
	for i := range g.Gears {
		gear, fieldPath := &g.Gears[i], fmt.Sprintf("gear.gears[%d]", i)
		p.FailIf(!document.CloseTo(gear.FromQPS, nextFrom) || !(gear.ToQPS > gear.FromQPS), fieldPath+".from_qps", "the range "+document.FormatFloat(gear.FromQPS)+" to "+document.FormatFloat(gear.ToQPS), "a range that starts at "+document.FormatFloat(nextFrom))
		nextFrom = gear.ToQPS
		if g.SLOScope != ScopeRequests || g.Weights != "measured" {
			p.FailIf(!(gear.Utilisation >= 0 && gear.Utilisation <= 1), fieldPath+".utilisation", gear.Utilisation, "a share from 0 to 1")
		} else {
			p.FailIf(!(gear.Utilisation >= 0) || math.IsInf(gear.Utilisation, 1), fieldPath+".utilisation", gear.Utilisation, "a share of the time, 0 or more")
		}
		g.checkStages(p, gear, fieldPath, replicas)
	}
	p.FailIf(!document.CloseTo(nextFrom, g.MaxQPS), "gear.max_qps", g.MaxQPS, "the rate at which the last gear ends, "+document.FormatFloat(nextFrom))
}

// checkStages reports to p what is wrong with the stages of one gear of a cascade. A gear is the setting for a
// range of request rates; its stages are models in the plan's order, and a request goes on to the next stage if
// its certainty is below the stage's threshold. replicas counts the replicas of each model, among which a stage
// splits its requests.
func (g *GearPlan) checkStages(p *planChecker, gear *Gear, fieldPath string, replicas map[string]int) {
	p.NotEmpty(len(gear.Stages), fieldPath+".stages", "at least one model")
	previousModel := -1
	for k := range gear.Stages {
		s, entryPath := &gear.Stages[k], fmt.Sprintf("%s.stages[%d]", fieldPath, k)
		i := slices.IndexFunc(g.Models, func(m GearModel) bool { return m.Model == s.Model })
		if p.FailIf(i <= previousModel, entryPath+".model", "the model "+document.Quote(s.Model), "a model of the plan that stands after those of the stages before") {
			return
		}
		previousModel = i

		// A stage forwards below a threshold of its model; the last one answers everything.
		thresholds := g.Models[i].Thresholds
		isLast := k == len(gear.Stages)-1
		switch {
		case isLast && s.Level != 0:
			p.Fail(entryPath+".level", document.FormatWhole(s.Level), "none: the last stage answers", "")
		case !isLast && (s.Level < 1 || s.Level > len(thresholds)):
			p.Fail(entryPath+".level", document.FormatWhole(s.Level), fmt.Sprintf("1 to %d, the number of thresholds of %s", len(thresholds), s.Model), "")
		case !isLast && s.Threshold != thresholds[s.Level-1]:
			p.Fail(entryPath+".threshold", document.Number(s.Threshold), "the threshold of the level, "+document.FormatFloat(thresholds[s.Level-1]), "")
		}

		// The shares of the replicas sum to 1.
		sum := 0.0
		for _, x := range s.Split {
			sum += x
		}
		if len(s.Split) != replicas[s.Model] || !document.CloseTo(sum, 1) || slices.ContainsFunc(s.Split, func(x float64) bool { return x < 0 }) {
			p.Fail(entryPath+".split", fmt.Sprintf("%d shares that sum to %s", len(s.Split), document.FormatFloat(sum)),
				fmt.Sprintf("%d shares, one per replica of %s, that sum to 1", replicas[s.Model], s.Model), "")
		}
	}
}
