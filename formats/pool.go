package formats

import (
	"cmp"
	"fmt"
	"math"

	"inferplan/formats/document"
)

// PlanPool is the kind of plans of pooled pipelines.
const PlanPool = "pool"

// PoolPlan holds the promises of a plan of pooled pipelines, in the order of the deployment: deployment i serves
// entry i.
type PoolPlan struct {
	Models []Served `json:"models"`
	// Headroom is the reserve of every model. If absent, it is options.margin of the SLO, and nothing of the rate.
	Headroom []Headroom `json:"headroom,omitempty"`
}

// Headroom is the reserve of a model for queueing and jitter.
type Headroom struct {
	Margin      float64 `json:"margin" check:"margin"`             // share of the SLO
	Utilisation float64 `json:"utilisation" check:"positiveShare"` // share of the replicas' capacity that is promised
}

var poolKind = planKind{name: PlanPool, section: (*PoolPlan)(nil), options: poolOptions, schema: schemaFile("plan.pool")}

// PoolOf is the section of a plan of pooled pipelines; nil for other plans.
func PoolOf(p *Plan) *PoolPlan { return planSection[*PoolPlan](p) }

// ServedModels lists the models and their classes.
func (s *PoolPlan) ServedModels() []Served { return s.Models }

// PromiseFor returns what the plan promises for a deployed model or class: the entry with the same key.
func (s *PoolPlan) PromiseFor(d *Deployed) Served {
	if m := document.First(s.Models, func(m *Served) bool { return m.Key() == d.Key() }); m != nil {
		return *m
	}
	return Served{}
}

// AttainmentGroups implements PlanSection.
func (s *PoolPlan) AttainmentGroups() [][]int { return nil }

// Options that several kinds have.
var (
	sloOption = document.Option{Name: "slo", Key: "slo", Type: document.SLOOption,
		Help: "latency SLO of every model, such as 200ms or 5x; overrides the workload's"}
	maxPartitionsOption = document.Option{Name: "max-partitions", Key: "max_partitions", Type: document.WholeOption, Default: 2, Min: 1, Max: 8,
		Help: "stages per pipeline"}
	maxBatchOption = document.Option{Name: "max-batch", Key: "max_batch", Type: document.WholeOption,
		Help: "largest batch; 0 is the largest measured"}
	blocksOption = document.Option{Name: "blocks", Key: "blocks", Type: document.WholeOption,
		Help: "merge neighbouring blocks until every model has at most this many; 0 keeps all of the profile's"}
	blocksByOption = document.Option{Name: "blocks-by", Key: "blocks_by", Type: document.ChoiceOption, Default: "bytes", Choices: []string{"bytes"},
		Help:    "how neighbouring blocks are merged: bytes keeps the cuts that the fewest bytes cross",
		Retired: "cuts by time are no more, as they were worse than cuts by bytes nearly everywhere: make the plan anew"}
	cutDTypeOption = document.Option{Name: "cut-dtype", Key: "cut_dtype", Type: document.ChoiceOption, Default: "auto", Choices: []string{"auto", "fp32"},
		Help: "type of the tensors sent between stages: auto (float16 where the profile shows that answers stay the same) or fp32"}
	maxMovedOption = document.Option{Name: "max-moved", Type: document.NumberOption, Default: 0.2, Max: 1, NeedsOneOf: []string{"from"},
		Help: "with --from, largest fraction of the devices that may load another model"}
	gapOption = document.Option{Name: "gap", Key: "gap_target", Type: document.NumberOption, Default: 1e-2, Max: 1, MaxExcluded: true,
		Help: "stop when the plan is proven to be within this fraction of the optimum"}
	timeLimitOption = document.Option{Name: "time-limit", Type: document.DurationOption,
		Help: "stop after this much wall time; such a plan may differ from run to run"}
)

var poolOptions = []document.Option{
	{Name: "algorithm", Type: document.ChoiceOption, Default: "template", Choices: []string{"template", "np", "dart-r"},
		Help: "template (pooled pipelines), or a baseline: np (whole models only) or dart-r (pairs of devices)"},
	{Name: "objective", Type: document.ChoiceOption, Default: "throughput", Choices: []string{"throughput", "cost", "power", "gpus"},
		Help: "maximise throughput, or minimise cost, power or gpus while every model carries --min-load"},
	{Name: "margin", Key: "margin", Type: document.NumberOption, Default: 0.4, Recommended: "auto", Max: 1, MaxExcluded: true, Choices: []string{"auto"},
		Help: "fraction of the SLO reserved for queueing and jitter (PPipe: 0.4), or auto: found by simulation, with the largest batch and the stages"},
	{Name: "gpu-rounding", Key: "gpu_rounding", Type: document.ChoiceOption, Default: "slot", Choices: []string{"slot", "fractional"},
		Help: "slot: every stage of a model gets whole devices; fractional: shares of a device may go to different models"},
	maxPartitionsOption,
	sloOption,
	cutDTypeOption,
	maxBatchOption,
	blocksOption,
	blocksByOption,
	{Name: "batch-build", Key: "batch_build", Type: document.NumberOption, Max: 1e6,
		Help: "reserve this many times the delay of filling a batch (PPipe's artifact: 1.3)"},
	{Name: "min-load", Key: "min_load_rps", Type: document.NumberOption, Max: 1e12,
		Help: "rate per unit of weight that every model must reach, in requests per second"},
	{Name: "uneven-nic", Key: "uneven_nic", Type: document.FlagOption,
		Help: "on single-node kinds, let some devices run whole models only, leaving the NIC to the others"},
	gapOption,
	{Name: "effort", Key: "effort", Type: document.WholeOption, Default: 1, Min: 1, Max: 16,
		Help: "work limit of the search; each step doubles it"},
	maxMovedOption,
	timeLimitOption,
}

// check reports to p what is wrong with a plan's pool section: its models stand in the order of the deployment,
// and the rate of each is the sum of the rates of its pipelines, which keep the latency limits.
func (s *PoolPlan) check(p *planChecker) {
	p.NotEmpty(len(p.plan.Deployment), "deployment", "at least one model")
	if p.FailIf(len(s.Models) != len(p.plan.Deployment), "pool.models", fmt.Sprintf("%d models", len(s.Models)), "the %d of the deployment, in order", len(p.plan.Deployment)) {
		return
	}
	if n := len(s.Headroom); n > 0 && n != len(s.Models) {
		p.Fail("pool.headroom", fmt.Sprintf("%d entries", n), fmt.Sprintf("none, or one of each of the %d models", len(s.Models)), "")
		return
	}

	// Check each model with its part of the deployment.
	for i := range s.Models {
		m, fieldPath := &s.Models[i], fmt.Sprintf("pool.models[%d]", i)
		d := &p.plan.Deployment[i]
		if p.FailIf(m.Key() != d.Key(), fieldPath+".model", document.Quote(m.Key().String()), "the model at the same place of the deployment, "+document.Quote(d.Key().String())) {
			return
		}
		p.checkServed(m, fieldPath)
		sum := d.RPS()
		p.FailIf(!document.CloseTo(sum, m.RPS), fieldPath+".rps", m.RPS, "the sum over its pipelines, "+document.FormatFloat(sum))
		for k := range d.Pipelines {
			l, fieldPath := &d.Pipelines[k], fmt.Sprintf("deployment[%d].pipelines[%d]", i, k)
			p.checkLimits(l, m, fieldPath)
			maxStages := p.plan.Options.WholeNumber("max-partitions")
			p.FailIf(maxStages > 0 && len(l.Stages) > maxStages, fieldPath+".stages", fmt.Sprintf("%d stages", len(l.Stages)), "at most options.max_partitions, %d", maxStages)
		}
	}
	s.checkThroughput(p)
}

// checkThroughput reports to p a throughput objective that is not the smallest rps / weight of the models.
func (s *PoolPlan) checkThroughput(p *planChecker) {
	o := &p.plan.Objective
	if o.Name != "throughput" || len(s.Models) == 0 {
		return
	}
	minRate := math.Inf(1)
	for i := range s.Models {
		if m := &s.Models[i]; m.Weight > 0 {
			minRate = min(minRate, m.RPS/m.Weight)
		}
	}
	p.FailIf(!math.IsInf(minRate, 1) && !document.CloseTo(o.Value, minRate), "objective.value", o.Value, "the least rps / weight over the models, "+document.FormatFloat(minRate))
}

// WorkloadModels are the models of a workload, each with its target and weight,
// or the SLO classes of models.
type WorkloadModels []WorkloadModel

var modelsPart = workloadPart{name: "models", kind: PlanPool, section: WorkloadModels(nil), schema: schemaFile("workload.models")}

// ModelsOf returns the models that a workload asks for, or nil if it asks for something else.
func ModelsOf(w *Workload) WorkloadModels { return workloadSection[WorkloadModels](w) }

// Files names no file.
func (s WorkloadModels) Files() []SectionFile { return nil }

// check reports to c what is wrong with a workload's models, when the workload is validated: each model and class
// stands once, and its targets and weights are valid.
func (s WorkloadModels) check(c *document.Checker) {
	c.NotEmpty(len(s), "models", "at least one model")
	indexByKey := map[ModelClass]int{}
	for i := range s {
		fieldPath := fmt.Sprintf("models[%d]", i)
		checkKey(c, indexByKey, i, s[i].Key(), fieldPath)
		s[i].check(c, fieldPath)
	}
	s.checkWeights(c)
}

// maxWeights bounds the ratio of weights: a model with less than a millionth of another's weight would be lost in
// the precision of that one's rate.
const maxWeights = 1e6

// checkWeights reports to c weights that are extreme, or too small against the largest to matter. A weight of 0
// stands for 1.
func (s WorkloadModels) checkWeights(c *document.Checker) {
	heaviest, maxWeight := 0, 0.0
	for i := range s {
		if w := max(s[i].Weight, 0); w > maxWeight || w == 0 && maxWeight < 1 {
			heaviest, maxWeight = i, cmp.Or(w, 1)
		}
	}
	for i := range s {
		switch w := cmp.Or(s[i].Weight, 1); {
		case w > 0 && (w < 1e-9 || w > 1e9):
			c.Fail(fmt.Sprintf("models[%d].weight", i), document.Number(w), "a weight from 1e-9 to 1e9", "weights count against each other alone")
		case w > 0 && w*maxWeights < maxWeight && maxWeight <= 1e9:
			c.Fail(fmt.Sprintf("models[%d].weight", i), document.Number(w), fmt.Sprintf("at least a millionth of the largest weight, %g of models[%d]", maxWeight, heaviest),
				"min_rps gives a model a floor of its own")
		}
	}
}
