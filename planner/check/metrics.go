package check

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/recompute"
)

// Metric is a kind of figures that the gate compares, promised before and found today. The methods'
// figures name their metric. Some metrics exist only for some kinds.
type Metric struct {
	Name           string
	Tolerance      float64 // relative worsening that is allowed
	HigherIsBetter bool    // more is better
	RestsOnTimes   bool    // figures rest on measured times, which differ between measurements
	Help           string
}

var metrics = []Metric{ // metrics is the table of metrics.
	{Name: "rps", Tolerance: 0.01, HigherIsBetter: true, RestsOnTimes: true, Help: "rates that the plan carries today, and the objective that is reachable"},
	{Name: "p99", Tolerance: 0.02, RestsOnTimes: true, Help: "p99 of simulations of both plans: the certified one, of a gear plan that of every gear, of a queue plan that of every class"},
	{Name: serviceMetric, Tolerance: 0.02, RestsOnTimes: true, Help: "service time of the slowest pipeline or the longest path, without waiting (with the tolerance of p99 where that alone is given)"},
	{Name: "accuracy", Tolerance: 0.002, HigherIsBetter: true, Help: "of a gear plan: right answers over all ranges, and the accuracy that is reachable"},
	{Name: "cost", Tolerance: 0.01, Help: "USD per hour of the devices used"},
	{Name: machineMetric, Tolerance: 0.1, Help: "what the reference takes that profiles of CPUs measure; other times are compared in relation to it"},
	{Name: blockMetric, Tolerance: 0.04, RestsOnTimes: true, Help: "blocks of the plan that are slower by more are named; they explain a failure, they do not make one"},
}

// blockMetric decides only which blocks are named, and serviceMetric compares times without waiting.
const (
	blockMetric   = "block"
	serviceMetric = "service"
)

// Metrics lists the metrics with their default tolerances.
func Metrics() []Metric { return slices.Clone(metrics) }

// Tolerances holds a relative tolerance per metric. A metric that is missing has its default.
type Tolerances map[string]float64

// ParseTolerances parses a list of relative tolerances by metric, such as "rps=1%,p99=2%,cost=0.5%", the value of --max-regression. A
// number without the percent sign is refused, because it could mean a share or a percentage; 0 needs no sign.
func ParseTolerances(text string) (Tolerances, error) {
	tolerances := Tolerances{}
	names := lists.Map(len(metrics), func(i int) string { return metrics[i].Name })
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		fail := func(found, expected string) error {
			return &document.Error{Path: "--max-regression", Found: strconv.Quote(found), Expected: expected}
		}

		// A part has the name of a metric and a percentage.
		if !ok {
			return nil, fail(part, "METRIC=PERCENT such as rps=1%")
		}
		if !slices.Contains(names, name) {
			return nil, fail(name, "one of "+strings.Join(names, ", "))
		}
		digits, percent := strings.CutSuffix(strings.TrimSpace(value), "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || !percent && v != 0 {
			return nil, fail(value, "a percentage of at least 0 with its sign, such as 1%")
		}
		v /= 100
		if _, duplicate := tolerances[name]; duplicate {
			return nil, fail(name+" a second time", "each metric once")
		}
		tolerances[name] = v
	}
	return tolerances, nil
}

// metricNamed returns a metric, or nil if there is none of that name.
func metricNamed(name string) *Metric {
	if i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name }); i >= 0 {
		return &metrics[i]
	}
	return nil
}

// ToleranceOf returns by which part a metric may get worse: as the user has set it, or its default.
func (t Tolerances) ToleranceOf(m *Metric) float64 {
	if v, ok := t[m.Name]; ok {
		return v
	}
	if v, ok := t["p99"]; ok && m.Name == serviceMetric { // which was a part of p99 once
		return v
	}
	return m.Tolerance
}

// compare compares a figure of today with the promised one and returns by how much it is worse, as a part of the promised, and whether
// that fails: it must exceed the tolerance, and be more than chance. For metrics that rest on measured times, values has the figure by each
// profile of both sides: the medians are compared, and chance says how much of a difference may come about between profiles of unchanged
// models. For other metrics values may be nil.
func (m *Metric) compare(figure *kind.FigurePair, tolerance float64, chance *chanceModel, values *figureValues) Comparison {
	result := Comparison{Metric: m.Name, Subject: figure.Subject, Unit: figure.Unit, Old: figure.Old, New: figure.New, Tolerance: tolerance}

	// Figures of times are medians over the profiles.
	if m.RestsOnTimes {
		result.New = median(values.current)
		if len(values.promised) > 0 {
			result.Old = median(values.promised)
		}
	}

	// The relative worsening.
	switch {
	case result.Old == result.New:
	case m.HigherIsBetter:
		result.WorseBy = (result.Old - result.New) / result.Old
	case result.Old == 0:
		result.WorseBy = math.MaxFloat64
	default:
		result.WorseBy = (result.New - result.Old) / result.Old
	}

	// State the difference that chance may make and, with several profiles on a side, the probability that chance made this one.
	if m.RestsOnTimes {
		noise, p := chance.significance(values.promised, values.current, result.WorseBy)
		result.Noise = noise
		if len(values.promised)+len(values.current) > 2 {
			result.P = &p
		}
	}
	result.Failed = result.WorseBy > max(result.Tolerance, result.Noise)+recompute.Rounding
	return result
}
