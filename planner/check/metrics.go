package check

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
)

// Metric is a figure that the gate compares: what was promised against what
// holds today. More slot in by adding to metrics.
type Metric struct {
	Name      string
	Tolerance float64 // relative worsening that passes
	Higher    bool    // higher is better
	Help      string
	samples   func(*comparison) []sample
}

// sample is one pair of figures.
type sample struct {
	what     string
	old, now float64
	unit     string
}

// comparison is what metrics look at.
type comparison struct {
	against *formats.Plan // what was promised
	world                 // the plan under check, and today's documents
	held    *held         // what the plan under check does today
	planned *formats.Plan // the best plan of today; nil where there is none
	blocks  []BlockChange
	gears   *gears // of a gear plan, which has no held
	tails   []sample
}

var metrics = []Metric{
	{Name: "rps", Tolerance: 0.01, Higher: true, Help: "rates that the plan carries today, and the objective that is reachable", samples: (*comparison).rps},
	{Name: "p99", Tolerance: 0.02, Help: "certified p99 where both plans have it, else the latency of the slowest pipeline; of a gear plan the simulated tail of every gear", samples: (*comparison).p99},
	{Name: "accuracy", Tolerance: 0.002, Higher: true, Help: "of a gear plan: right answers over all ranges, and the accuracy that is reachable", samples: (*comparison).accuracy},
	{Name: "cost", Tolerance: 0.01, Help: "USD per hour of the devices used", samples: (*comparison).cost},
	{Name: "block", Tolerance: 0.04, Help: "time of each block that the plan runs", samples: (*comparison).block},
}

// Metrics lists what the gate compares, with the default tolerances.
func Metrics() []Metric { return slices.Clone(metrics) }

// Tolerances holds a relative tolerance per metric; a metric that is missing
// has its default.
type Tolerances map[string]float64

// ParseTolerances reads "rps=1%,p99=2%,cost=0.01".
func ParseTolerances(text string) (Tolerances, error) {
	out := Tolerances{}
	var names []string
	for _, m := range metrics {
		names = append(names, m.Name)
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		fail := func(found, expected string) error {
			return &formats.Error{Path: "--max-regression", Found: strconv.Quote(found), Expected: expected}
		}
		if !ok {
			return nil, fail(part, "METRIC=PERCENT such as rps=1%")
		}
		if !slices.Contains(names, name) {
			return nil, fail(name, "one of "+strings.Join(names, ", "))
		}
		digits, percent := strings.CutSuffix(strings.TrimSpace(value), "%")
		v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return nil, fail(value, "a percentage of at least 0, such as 1%")
		}
		if percent {
			v /= 100
		}
		if _, twice := out[name]; twice {
			return nil, fail(name+" a second time", "each metric once")
		}
		out[name] = v
	}
	return out, nil
}

func metric(name string) *Metric {
	return &metrics[slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })]
}

func (t Tolerances) of(m *Metric) float64 {
	if v, ok := t[m.Name]; ok {
		return v
	}
	return m.Tolerance
}

// rps compares each model's promised rate with what the plan carries today, and
// the promised objective with the best that is reachable today.
func (c *comparison) rps() []sample {
	if c.gears != nil {
		return c.gearRPS()
	}
	var out []sample
	kept := math.Inf(1)
	for i := range c.plan.Models {
		m := &c.plan.Models[i]
		now := c.held.rps[i]
		if math.IsNaN(now) {
			now = 0
		}
		if m.Weight > 0 {
			kept = min(kept, now/m.Weight)
		}
		if old := modelOf(c.against, m.Key()); old != nil {
			out = append(out, sample{m.Key().String(), old.RPS, now, "rps"})
		}
	}
	best := kept
	if c.planned != nil {
		best = max(best, c.planned.Objective.Value)
	}
	if c.against.Objective.Name == "throughput" && !math.IsInf(best, 1) {
		out = append(out, sample{"objective, planned again", c.against.Objective.Value, best, "rps per weight"})
	}
	return out
}

func modelOf(p *formats.Plan, key formats.ModelClass) *formats.PlanModel {
	for i := range p.Models {
		if p.Models[i].Key() == key {
			return &p.Models[i]
		}
	}
	return nil
}

func certifiedOf(p *formats.Plan, key formats.ModelClass) *formats.CertifiedModel {
	if p.Certified == nil {
		return nil
	}
	for i := range p.Certified.Models {
		if p.Certified.Models[i].Key() == key {
			return &p.Certified.Models[i]
		}
	}
	return nil
}

// p99 compares certified p99s where the two plans differ and both have one;
// the profile of today shows in the latency of the slowest pipeline.
func (c *comparison) p99() []sample {
	if c.gears != nil {
		return c.tails
	}
	var out []sample
	for i := range c.plan.Models {
		key := c.plan.Models[i].Key()
		name, old := key.String(), modelOf(c.against, key)
		if old == nil {
			continue
		}
		if a, b := certifiedOf(c.against, key), certifiedOf(c.plan, key); a != nil && b != nil && a.P99US != b.P99US {
			out = append(out, sample{name + " (certified)", float64(a.P99US) / 1000, float64(b.P99US) / 1000, "us"})
		}
		if c.held.latency[i] > 0 {
			out = append(out, sample{name + " (slowest pipeline)", us(slowest(old)), us(c.held.latency[i]), "us"})
		}
	}
	return out
}

func slowest(m *formats.PlanModel) time.Duration {
	var d time.Duration
	for i := range m.Pipelines {
		d = max(d, m.Pipelines[i].LatencyUS.D()+m.Pipelines[i].BatchBuildUS.D())
	}
	return d
}

func us(d time.Duration) float64 { return float64(d) / 1000 }

// cost compares what the devices of the two plans cost per hour, at the prices
// of their own clusters.
func (c *comparison) cost() []sample {
	old, now := hourly(c.against, c.against.Pools), hourly(c.plan, c.cluster.Pools)
	if old == 0 && now == 0 {
		return nil
	}
	return []sample{{"devices used", old, now, "USD per hour"}}
}

// hourly is the price of the whole devices that a plan touches.
func hourly(p *formats.Plan, pools []formats.Pool) float64 {
	sum := 0.0
	for i := range pools {
		used := map[int]bool{}
		for _, m := range p.Models {
			for _, pl := range m.Pipelines {
				for _, s := range pl.Stages {
					if s.Device != pools[i].Device {
						continue
					}
					for _, at := range s.Placement {
						last := at.First + (at.Replicas-1)/max(at.PerDevice, 1)
						for d := max(at.First, 0); d <= last && d < pools[i].Count; d++ {
							used[d] = true
						}
					}
				}
			}
		}
		sum += float64(len(used)) * pools[i].USDPerHour
	}
	return sum
}

func (c *comparison) block() []sample {
	var out []sample
	for _, b := range c.blocks {
		out = append(out, sample{fmt.Sprintf("%s block %d (%s) on %s", b.Model, b.Block, b.Name, b.Device), us(b.OldUS.D()), us(b.NewUS.D()), "us"})
	}
	return out
}
