package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/bench/recorded"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/kind"
	"inferplan/planner/pool/documents"
	"inferplan/planner/pool/search"
	"inferplan/solver/highs"
	"inferplan/testkit/reference"
)

// The three ways of planning that are compared, by the names of the recorded
// plans.
var algorithms = []string{"PPipe", "DART-r", "NP"}

var ourName = map[string]string{"PPipe": documents.AlgorithmTemplate, "DART-r": documents.AlgorithmDARTr, "NP": documents.AlgorithmNP}

// scene is a case: models on a cluster, and a plan by each algorithm. Load 1 is
// what the PPipe plan promises each model.
type scene struct {
	b                            *bench
	name, family, group, cluster string
	ref                          *reference.Plan // the recorded PPipe plan; nil if there is none
	recordedPlans                []string        // algorithms whose plan is the recorded one; those of others are ours
	inputs                       func(ctx context.Context, algorithm string) (planner.Inputs, planner.Options, error)
}

// plan returns the plan of an algorithm.
func (s *scene) plan(ctx context.Context, algorithm string) (*formats.Plan, error) {
	if slices.Contains(s.recordedPlans, algorithm) {
		ref, err := reference.Find(s.b.plans, recorded.PlansFile, s.ref.Case, algorithm)
		if err != nil {
			return nil, err
		}
		return recorded.Plan(ref, s.b.profile)
	}
	in, opt, err := s.inputs(ctx, algorithm)
	if err != nil {
		return nil, err
	}
	out, err := s.b.solve(ctx, s.name+" "+algorithm, in, opt)
	if err != nil {
		return nil, err
	}
	return out.Plan.Plan, nil
}

// rates returns what the PPipe plan promises, in requests/s by model; of a recorded one, they are rounded down, as the artifact does.
func (s *scene) rates(ctx context.Context) (map[string]float64, error) {
	p, err := s.plan(ctx, "PPipe")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, served := range p.ServedModels() {
		out[served.Model] = served.RPS
		if len(s.recordedPlans) > 0 {
			out[served.Model] = math.Floor(served.RPS)
		}
	}
	return out, nil
}

// recorded are the cases of the artifact's own plans, with its plans of some algorithms.
func (b *bench) recorded(recordedPlans ...string) []scene {
	var out []scene
	for i := range b.plans {
		ref := &b.plans[i]
		if ref.Algorithm != "PPipe" || ref.Empty {
			continue
		}
		out = append(out, scene{b: b, name: ref.Case, family: ref.Family, group: ref.Group, cluster: ref.Cluster, ref: ref, recordedPlans: recordedPlans,
			inputs: func(_ context.Context, algorithm string) (in planner.Inputs, opt planner.Options, err error) {
				ref, err := reference.Find(b.plans, recorded.PlansFile, ref.Case, algorithm)
				if err != nil {
					return in, opt, err
				}
				opt.Values = map[string]any{"margin": ref.Margin, "batch-build": ref.BatchBuild, "max-partitions": ref.MaxPartitions}
				if algorithm != "PPipe" { // whose search is that of a user who names no algorithm
					opt.Set("algorithm", ourName[algorithm])
				}
				return planner.Inputs{Profile: b.profile, Cluster: ref.ClusterDocument(), Workload: ref.WorkloadDocument()}, opt, nil
			},
		})
	}
	return out
}

// replanned are the recorded cases as --margin auto plans them, with SLOs that are some
// times as long, so that batches are larger.
func (b *bench) replanned(times float64) []scene {
	out := b.recorded()
	for i := range out {
		s := &out[i]
		s.name, s.family = fmt.Sprintf("auto%g/%s", times, s.name), "--margin auto"
		if times != 1 {
			s.family += fmt.Sprintf(", SLO x %g", times)
		}
		recordedInputs := s.inputs
		s.inputs = func(ctx context.Context, algorithm string) (planner.Inputs, planner.Options, error) {
			in, opt, err := recordedInputs(ctx, algorithm)
			if err != nil {
				return in, opt, err
			}
			models := in.Workload.Section.(formats.WorkloadModels)
			for k := range models {
				models[k].SLO.Duration = time.Duration(math.Round(times * float64(models[k].SLO.Duration)))
			}
			opt.Set("margin", planner.Auto)
			opt.TestSettings = kind.TestSettings{Attainment: asked, Runs: 3, Duration: 10 * time.Second, Seed: 1}
			return in, opt, nil
		}
	}
	return out
}

// setup is a kind of cluster of the paper: HC1 to HC4 of table 1, with the
// bandwidths that its artifact plans with.
type setup struct {
	high, low               string
	gbps                    float64
	highPerNode, lowPerNode int
}

// clusters are the kinds of clusters, in order.
var clusters = []string{"HC1", "HC2", "HC3", "HC4"}

var setups = map[string]setup{
	"HC1": {"L4", "P4", 6, 1, 1},
	"HC2": {"L4", "T4", 10, 4, 2},
	"HC3": {"V100", "P4", 6, 2, 1},
	"HC4": {"V100", "T4", 10, 4, 2},
}

// class returns whether a device kind is the high or the low one.
func (s setup) class(kind string) string {
	if kind == s.high {
		return "high"
	}
	return "low"
}

// cluster makes a cluster of a setup. P4 cannot be shared.
func (s setup) cluster(high, low int, shares bool) *formats.Cluster {
	devices := func(kind string, count, perNode int) formats.Pool {
		p := formats.Pool{Device: kind, Count: count, MaxShares: 1, PerNode: perNode, NICGbps: s.gbps}
		if shares && kind != "P4" {
			p.MaxShares = 4
		}
		return p
	}
	return &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{devices(s.high, high, s.highPerNode), devices(s.low, low, s.lowPerNode)}}
}

// The paper's setting of made cases: the SLO in times of the whole model on an L4, and the margin.
const (
	sloScale = 5
	margin   = 0.4
)

// paperScene returns a case that we plan ourselves by the paper's rules: SLO of a multiple
// of the whole model's time on an L4, two partitions, a delay for filling
// batches by the rates of the plan without partitions; shares for PPipe alone.
func (b *bench) paperScene(name, family, group, cluster string, models []string, weights []float64, high, low int) scene {
	inputs := func(algorithm string, fill []float64) (planner.Inputs, planner.Options) {
		var list formats.WorkloadModels
		for i, m := range models {
			list = append(list, formats.WorkloadModel{Model: m, SLO: document.SLO{Duration: reference.Micros(sloScale * b.wholeL4[m]).D()}, Weight: weights[i], BatchBuildRPS: fill[i]})
		}
		opt := planner.Options{Values: map[string]any{
			"algorithm": ourName[algorithm], "margin": margin, "gap": 1e-3, "uneven-nic": algorithm == "PPipe" && !b.evenNIC, "batch-build": 1.3,
		}}
		cluster := setups[strings.TrimSuffix(cluster, "-S")].cluster(high, low, algorithm == "PPipe")
		return planner.Inputs{Profile: b.profile, Cluster: cluster, Workload: &formats.Workload{Format: formats.FormatWorkload, Section: list}}, opt
	}
	return scene{b: b, name: name, family: family, group: group, cluster: cluster,
		inputs: func(ctx context.Context, algorithm string) (in planner.Inputs, opt planner.Options, err error) {
			in, _ = inputs("NP", make([]float64, len(models)))
			fill, err := fillRates(ctx, in)
			if err != nil {
				return in, opt, fmt.Errorf("rates at which batches fill: %w", err)
			}
			in, opt = inputs(algorithm, fill)
			return in, opt, nil
		},
	}
}

// fillRates returns the rates of the plan without partitions, by model.
func fillRates(ctx context.Context, in planner.Inputs) ([]float64, error) {
	values := document.NewValues(formats.PlanOptions(formats.PlanPool))
	if err := values.Set("margin", margin); err != nil {
		return nil, err
	}
	resolved, err := documents.Resolve(&kind.Problem{Documents: in, Values: values, Seed: 1}, kind.NewRun(highs.Solver{}))
	if err != nil {
		return nil, err
	}
	unpartitioned, err := search.FewestDevicesNP(ctx, resolved.Problem.WithoutFloors(), highs.Solver{}, resolved.SearchOptions())
	if err != nil {
		return nil, err
	}
	return unpartitioned.RPS, nil
}

// The weights of the paper's two workloads.
var (
	weights19 = []float64{0.3, 0.33, 0.37}
	weights21 = []float64{0.39, 0.26, 0.35}
)

// ours are the paper's 24 cases of three models, all planned by us: six groups
// on four clusters, weighted as in one of its two workloads.
func (b *bench) ours(family string, weights []float64) []scene {
	var out []scene
	for _, cluster := range clusters {
		for _, group := range slices.Sorted(maps.Keys(b.groups)) {
			out = append(out, b.paperScene(family+"/"+group+"/"+cluster, family, group, cluster, b.groups[group], weights, 25, 75))
		}
	}
	return out
}

// singly are the 18 models one at a time on a cluster of 4 high and 12 low devices.
func (b *bench) singly(cluster string) []scene {
	var out []scene
	for _, m := range slices.Sorted(maps.Keys(b.wholeL4)) {
		out = append(out, b.paperScene("small/"+cluster+"/"+m, "small", m, cluster, []string{m}, []float64{1}, 4, 12))
	}
	return out
}
