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
	Percentile string          `json:"percentile"`
	Over       string          `json:"slo_over,omitempty"`     // requests: all together keep the SLO; else every range does
	Accuracy   float64         `json:"accuracy_slo,omitempty"` // over the ranges by weight, if a target was given
	MaxQPS     float64         `json:"max_qps"`
	Score      string          `json:"score,omitempty"` // the formula of certainties; top1-top2 if absent
	Weights    string          `json:"weights"`         // the kind of the ranges' weights: zipf, uniform, histogram or measured
	Samples    int             `json:"samples"`         // planned on
	HeldOut    int             `json:"held_out"`        // held-out samples, for AccuracyHeldOut
	// AccuracyHeldOut is the accuracy of the whole plan on the held-out samples, over the ranges by weight.
	// HeldOutInterval is its 95 % interval.
	AccuracyHeldOut *float64    `json:"accuracy_held_out,omitempty"`
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
	Weight          float64         `json:"weight"`               // share of the requests or of the time, by GearPlan.Weights; of measured rates, of the requests that come under the gear
	RateShare       float64         `json:"rate_share,omitempty"` // with measured rates, the share of the requests that come while the rate is in the range
	Accuracy        float64         `json:"accuracy"`
	AccuracyHeldOut *float64        `json:"accuracy_held_out,omitempty"`
	HeldOutInterval *[2]float64     `json:"accuracy_held_out_interval,omitempty"` // 95 %
	Bound           float64         `json:"bound"`                                // no plan over these thresholds that holds ToQPS for ever is more accurate there; at least Accuracy
	Utilisation     float64         `json:"utilisation"`                          // utilisation of the busiest device at ToQPS; above 1 only if all requests of measured rates keep the SLO together
	LatencyUS       document.Micros `json:"latency_us"`                           // latency at the percentile, simulated at ToQPS
	// LatencyHeldOutUS is LatencyUS when requests bring the held-out samples, with the highest mean work that its
	// interval allows. It is absent if no samples are held out, or in plans of versions that did not simulate it.
	LatencyHeldOutUS document.Micros `json:"latency_held_out_us,omitempty"`
	Late             float64         `json:"late,omitempty"` // share past the SLO at ToQPS, if the SLO is over all requests
	Stages           []GearStage     `json:"stages"`
}

// GearStage is one model of a gear's cascade.
type GearStage struct {
	Model     string    `json:"model"`
	Level     int       `json:"level,omitempty"`     // forwards below it; absent in the last stage
	Threshold float64   `json:"threshold,omitempty"` // the certainty of Level, for people
	Fraction  float64   `json:"fraction"`            // the part of the samples that come to this stage
	MinQueue  int       `json:"min_queue"`           // a shorter queue waits, up to the flush time
	Split     []float64 `json:"split"`               // the parts of the stage's samples for the model's replicas, in the order of its pipelines and their placement
}

// Chains is the number of a pipeline's replicas in a gear plan.
func (l *Pipeline) Chains() int {
	most := 0
	for i := range l.Stages {
		most = max(most, l.Stages[i].Replicas)
	}
	return most
}

// ChainError returns an error if the replicas of a stage do not divide the pipeline's chains, and otherwise nil.
// In a plan of kind gear every chain needs a replica of each stage.
func ChainError(at string, stage, replicas, chains int) *document.Error {
	if replicas >= 1 && chains%replicas == 0 {
		return nil
	}
	return &document.Error{Path: fmt.Sprintf("%s.stages[%d].replicas", at, stage), Found: fmt.Sprint(replicas), Expected: fmt.Sprintf("a divisor of %d, the most of any stage", chains),
		Hint: "in a plan of kind gear a replica is a chain of one device per stage"}
}

// Devices are the device kinds of a pipeline's stages as one text.
func (l *Pipeline) Devices() string {
	var kinds []string
	for i := range l.Stages {
		kinds = append(kinds, l.Stages[i].Device)
	}
	return strings.Join(kinds, ", ")
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
	gapOption,
	timeLimitOption,
}

// GearOf is the section of a plan of gears; nil for other plans.
func GearOf(p *Plan) *GearPlan {
	s, _ := p.Section.(*GearPlan)
	return s
}

// Served is the family under one name.
func (g *GearPlan) Served() []Served {
	return []Served{{Model: CascadeName, SLOUS: g.SLOUS, Percentile: g.Percentile, Weight: 1, RPS: g.MaxQPS}}
}

// RequestCosts returns the time that a request of the cascade takes besides its runs, and the CPU time that it
// costs the front end. Both are 0 if the plan does not say them.
func (g *GearPlan) RequestCosts() (beside, frontEnd document.Micros) {
	return g.RequestUS, g.RequestCPUUS
}

// AnswersByInput returns true: which model of a cascade answers depends on the input.
func (g *GearPlan) AnswersByInput() bool { return true }

// Promised is the SLO of the cascade, for every model of the family.
func (g *GearPlan) Promised(d *Deployed) Served {
	return Served{Model: d.Model, SLOUS: g.SLOUS, Percentile: g.Percentile, Weight: 1, RPS: d.RPS()}
}

// Pooled implements PlanSection.
func (g *GearPlan) Pooled() [][]int { return nil }

// GearLevels are the characters for the levels 0, 1, 2, …
const GearLevels = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// MaxGrid is the largest number of levels.
const MaxGrid = len(GearLevels)

// Records are answers of a family of models to the same labelled samples.
type Records struct {
	Source   string         `json:"source,omitempty"`
	Score    string         `json:"score,omitempty"` // the formula of certainty, such as top1-top2
	Seed     uint64         `json:"seed,omitempty"`  // the seed of the shuffle
	Samples  int            `json:"samples"`
	Planning int            `json:"planning"` // number of samples, from the first on, that are planned on; the others are held out
	Models   []ModelRecords `json:"models"`
}

// FindModel returns the answers of a model, or nil if there are none.
func (r *Records) Find(model string) *ModelRecords {
	return find(r.Models, func(m *ModelRecords) bool { return m.Model == model })
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

// checkRecords holds records against the models of their profile. A profile of
// records alone has no models.
func checkRecords(c *document.Checker, list []Records, models map[string]int) {
	for i := range list {
		r, at := &list[i], fmt.Sprintf("records[%d]", i)
		c.FailIf(r.Planning < 1 || r.Planning > r.Samples, at+".planning", r.Planning, "1 to the number of samples, %d", r.Samples)
		c.Some(len(r.Models), at+".models", "at least one model")
		seen := map[string]int{}
		for k := range r.Models {
			m := &r.Models[k]
			here := fmt.Sprintf("%s.models[%d]", at, k)
			c.Name(seen, k, m.Model, "%s.models[%d].model", at, k)
			if _, ok := models[m.Model]; !ok && len(models) > 0 {
				c.Fail(here+".model", "the model "+document.Quote(m.Model), "a model of the profile", "")
			}
			c.FailIf(len(m.Certainty) != r.Samples, here+".certainty", fmt.Sprintf("%d numbers", len(m.Certainty)), "%d, one per sample", r.Samples)
			if at := slices.IndexFunc(m.Certainty, func(x float64) bool { return !(x >= 0 && x <= 1) }); at >= 0 {
				c.Fail(fmt.Sprintf("%s.certainty[%d]", here, at), document.Number(m.Certainty[at]), "a certainty from 0 to 1", "")
			}
			checkFlags(c, m.Correct, r.Samples, here+".correct", "01")
			m.Calibration.check(c, here+".calibration")
		}
	}
}

// checkFlags checks a text of one character per sample.
func checkFlags(c *document.Checker, text string, samples int, path, alphabet string) {
	c.FailIf(len(text) != samples, path, fmt.Sprintf("%d characters", len(text)), "%d, one per sample", samples)
	if at := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune(alphabet, r) }); at >= 0 {
		c.Fail(path, fmt.Sprintf("the character %q at sample %d", text[at], at), "one of "+alphabet, "")
	}
}

// check holds the gears of a plan against themselves and its deployment.
func (g *GearPlan) check(p *planChecker) {
	p.FailIf(g.SLOUS <= 0, "gear.slo_us", g.SLOUS, "a positive latency")
	p.Percentile(g.Percentile, "gear.percentile")
	p.Share("gear.accuracy_slo", g.Accuracy)
	p.Word("gear.slo_over", g.Over, OverRanges, OverRequests)
	p.OneOf("gear.weights", g.Weights, "zipf", "uniform", "histogram", "measured")
	p.FailIf(g.Samples < 1 || g.HeldOut < 0, "gear.samples", g.Samples, "1 or more, and held_out of 0 or more")
	if h := g.AccuracyHeldOut; h != nil {
		p.Share("gear.accuracy_held_out", *h)
	}
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

// checkModel checks a model of the family with its part of the deployment, and counts its replicas. It returns false if
// the gears cannot be checked against it.
func (g *GearPlan) checkModel(p *planChecker, i int, replicas map[string]int) bool {
	m, d := &g.Models[i], &p.plan.Deployment[i]
	at, deployed := fmt.Sprintf("gear.models[%d]", i), fmt.Sprintf("deployment[%d]", i)
	p.FailIf(m.Model != d.Model, at+".model", document.Quote(m.Model), "the model at the same place of the deployment, "+document.Quote(d.Model))
	p.FailIf(d.Class != "", deployed+".class", "the class "+document.Quote(d.Class), "none: a cascade has one SLO")
	promised := g.Promised(d)
	kinds := map[string]int{} // the devices of a pipeline's stages, as one text
	for n := range d.Pipelines {
		l, at := &d.Pipelines[n], fmt.Sprintf("%s.pipelines[%d]", deployed, n)
		p.keeps(l, &promised, at)
		chains, along := l.Chains(), l.Devices()
		for k := range l.Stages {
			if err := ChainError(at, k, l.Stages[k].Replicas, chains); err != nil {
				p.Add(err)
				return false
			}
		}
		before, twice := kinds[along]
		if p.FailIf(twice, at+".stages[0].device", document.Quote(along)+" as in pipeline "+fmt.Sprint(before), "one pipeline for each device kind, or sequence of kinds along its stages") {
			return false
		}
		kinds[along] = n
		replicas[m.Model] += chains
	}
	if p.FailIf(len(d.Pipelines) == 0, deployed+".pipelines", "nothing", "a pipeline for each device kind, or sequence of kinds, that the model is on") ||
		p.FailIf(len(m.Thresholds) >= MaxGrid || !slices.IsSorted(m.Thresholds), at+".thresholds", fmt.Sprintf("%d thresholds", len(m.Thresholds)), "at most %d, ascending", MaxGrid-1) {
		return false
	}
	checkFlags(p.Checker, m.Levels, g.Samples, at+".levels", GearLevels[:len(m.Thresholds)+1])
	m.Calibration.check(p.Checker, at+".calibration")
	checkFlags(p.Checker, m.Correct, g.Samples, at+".correct", "01")
	return true
}

// checkGears checks that the gears cover the rates without a gap, and each gear.
func (g *GearPlan) checkGears(p *planChecker, replicas map[string]int) {
	if p.FailIf(len(g.Gears) == 0, "gear.gears", "an empty list", "at least one gear") {
		return
	}
	from := 0.0
	for i := range g.Gears {
		r, at := &g.Gears[i], fmt.Sprintf("gear.gears[%d]", i)
		p.FailIf(!document.CloseTo(r.FromQPS, from) || !(r.ToQPS > r.FromQPS), at+".from_qps", "the range "+document.FormatFloat(r.FromQPS)+" to "+document.FormatFloat(r.ToQPS), "a range that starts at "+document.FormatFloat(from))
		from = r.ToQPS
		p.Share(at+".accuracy", r.Accuracy)
		p.Share(at+".weight", r.Weight)
		p.Share(at+".rate_share", r.RateShare)
		p.Share(at+".late", r.Late)
		if g.Over != OverRequests || g.Weights != "measured" {
			p.Share(at+".utilisation", r.Utilisation)
		} else {
			p.FailIf(!(r.Utilisation >= 0) || math.IsInf(r.Utilisation, 1), at+".utilisation", r.Utilisation, "a share of the time, 0 or more")
		}
		g.stages(p, r, at, replicas)
	}
	p.FailIf(!document.CloseTo(from, g.MaxQPS), "gear.max_qps", g.MaxQPS, "the rate at which the last gear ends, "+document.FormatFloat(from))
}

func (g *GearPlan) stages(p *planChecker, r *Gear, at string, replicas map[string]int) {
	p.Some(len(r.Stages), at+".stages", "at least one model")
	before := -1
	for k := range r.Stages {
		s, here := &r.Stages[k], fmt.Sprintf("%s.stages[%d]", at, k)
		i := slices.IndexFunc(g.Models, func(m GearModel) bool { return m.Model == s.Model })
		if p.FailIf(i <= before, here+".model", "the model "+document.Quote(s.Model), "a model of the plan that stands after those of the stages before") {
			return
		}
		before = i
		thresholds := g.Models[i].Thresholds
		last := k == len(r.Stages)-1
		switch {
		case last && s.Level != 0:
			p.Fail(here+".level", document.Whole(s.Level), "none: the last stage answers", "")
		case !last && (s.Level < 1 || s.Level > len(thresholds)):
			p.Fail(here+".level", document.Whole(s.Level), fmt.Sprintf("1 to %d, the number of thresholds of %s", len(thresholds), s.Model), "")
		case !last && s.Threshold != thresholds[s.Level-1]:
			p.Fail(here+".threshold", document.Number(s.Threshold), "the threshold of the level, "+document.FormatFloat(thresholds[s.Level-1]), "")
		}
		document.Least(p.Checker, s.MinQueue, 1, here, ".min_queue")
		p.Share(here+".fraction", s.Fraction)
		sum := 0.0
		for _, x := range s.Split {
			sum += x
		}
		if len(s.Split) != replicas[s.Model] || !document.CloseTo(sum, 1) || slices.ContainsFunc(s.Split, func(x float64) bool { return x < 0 }) {
			p.Fail(here+".split", fmt.Sprintf("%d shares that sum to %s", len(s.Split), document.FormatFloat(sum)),
				fmt.Sprintf("%d shares, one per replica of %s, that sum to 1", replicas[s.Model], s.Model), "")
		}
	}
}
