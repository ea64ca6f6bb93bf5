package main

import (
	"context"
	"fmt"
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

// planning makes cases, recorded ones and our own.
type planning struct {
	records
	store     *store
	timeLimit time.Duration
	evenNIC   bool
}

// scene is a case: models on a cluster, and a plan by each algorithm. Load 1 is
// what the PPipe plan promises each model.
type scene struct {
	name, family, group, cluster string
	plan                         func(ctx context.Context, algorithm string) (*formats.Plan, error)
	// inputs returns the inputs of the PPipe plan. It is nil for recorded cases.
	inputs func(ctx context.Context) (planner.Inputs, planner.Options, error)
	// whole says that requests per second are rounded down, as the artifact does.
	whole bool
}

func (s *scene) rates(ctx context.Context) (map[string]float64, error) {
	p, err := s.plan(ctx, "PPipe")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, served := range p.ServedModels() {
		out[served.Model] = served.RPS
		if s.whole {
			out[served.Model] = math.Floor(served.RPS)
		}
	}
	return out, nil
}

// inputs are the documents and options under which a case was planned.
func (b *planning) inputs(ref *reference.Plan) (planner.Inputs, planner.Options) {
	opt := planner.Options{Values: map[string]any{
		"margin": ref.Margin, "batch-build": ref.BatchBuild, "max-partitions": ref.MaxPartitions, "time-limit": b.timeLimit,
	}}
	return planner.Inputs{Profile: b.profile, Cluster: ref.ClusterDocument(), Workload: ref.WorkloadDocument()}, opt
}

// recorded are the cases of the artifact's own plans.
func (b *planning) recorded() []scene {
	var out []scene
	for i := range b.plans {
		if ref := &b.plans[i]; ref.Algorithm == "PPipe" && !ref.Empty {
			out = append(out, scene{
				name: ref.Case, family: ref.Family, group: ref.Group, cluster: ref.Cluster, whole: true,
				plan: func(_ context.Context, algorithm string) (*formats.Plan, error) {
					of, err := reference.Find(b.plans, plansFile, ref.Case, algorithm)
					if err != nil {
						return nil, err
					}
					return recorded.Plan(of, b.profile)
				},
			})
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

var setups = map[string]setup{
	"HC1": {"L4", "P4", 6, 1, 1},
	"HC2": {"L4", "T4", 10, 4, 2},
	"HC3": {"V100", "P4", 6, 2, 1},
	"HC4": {"V100", "T4", 10, 4, 2},
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

// variation is a change to the paper's setting in a made case.
type variation struct {
	high, low int
	sloScale  float64
	margin    float64
}

var standard = variation{high: 25, low: 75, sloScale: 5, margin: 0.4}

// made is a case that we plan ourselves by the paper's rules: SLO of a multiple
// of the whole model's time on an L4, two partitions, a delay for filling
// batches by the rates of the plan without partitions; shares for PPipe alone.
func (b *planning) made(name, family, group, cluster string, models []string, weights []float64, v variation) scene {
	s := setups[strings.TrimSuffix(cluster, "-S")]
	workload := func(build map[string]float64) *formats.Workload {
		var list formats.WorkloadModels
		for i, m := range models {
			slo := reference.Micros(v.sloScale * b.models[m].wholeL4)
			list = append(list, formats.WorkloadModel{Model: m, SLO: document.SLO{Duration: slo.D()}, Weight: weights[i], BatchBuildRPS: build[m]})
		}
		return &formats.Workload{Format: formats.FormatWorkload, Section: list}
	}
	inputs := func(algorithm string, build map[string]float64) (planner.Inputs, planner.Options) {
		in := planner.Inputs{Profile: b.profile, Cluster: s.cluster(v.high, v.low, algorithm == "PPipe"), Workload: workload(build)}
		opt := planner.Options{Values: map[string]any{
			"algorithm": ourName[algorithm], "margin": v.margin, "time-limit": b.timeLimit, "gap": 1e-3, "uneven-nic": algorithm == "PPipe" && !b.evenNIC,
		}}
		if build != nil {
			opt.Set("batch-build", 1.3)
		}
		return in, opt
	}
	solve := func(ctx context.Context, algorithm string, build map[string]float64) (*formats.Plan, error) {
		in, opt := inputs(algorithm, build)
		key := keyOf(in.Cluster, in.Workload) + "-" + keyOf(b.profileKey, fmt.Sprintf("%+v", opt))
		return b.store.plan(key, func() (*formats.Plan, error) {
			res, err := planner.Solve(ctx, in, opt, highs.Solver{}, nil)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", name, algorithm, err)
			}
			return res.Plan, ctx.Err()
		})
	}
	whole := func(ctx context.Context) (map[string]float64, error) {
		in, opt := inputs("NP", nil)
		values := document.NewValues(formats.PlanOptions(formats.PlanPool))
		if err := values.Set("margin", opt.Values["margin"]); err != nil {
			return nil, err
		}
		resolved, err := documents.Resolve(&kind.Problem{Documents: in, Values: values, Seed: 1}, kind.NewRun(highs.Solver{}))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		unpartitioned, err := search.FewestDevicesNP(ctx, resolved.Problem.WithoutFloors(), highs.Solver{}, resolved.SearchOptions())
		if err != nil {
			return nil, fmt.Errorf("%s, rates at which batches fill: %w", name, err)
		}
		build := map[string]float64{}
		for i, m := range models {
			build[m] = unpartitioned.RPS[i]
		}
		return build, nil
	}
	return scene{name: name, family: family, group: group, cluster: cluster,
		plan: func(ctx context.Context, algorithm string) (*formats.Plan, error) {
			build, err := whole(ctx)
			if err != nil {
				return nil, err
			}
			return solve(ctx, algorithm, build)
		},
		inputs: func(ctx context.Context) (planner.Inputs, planner.Options, error) {
			build, err := whole(ctx)
			in, opt := inputs("PPipe", build)
			return in, opt, err
		},
	}
}

// ours are the paper's 24 cases of three models, all planned by us: six groups
// on four clusters, weighted as in one of its two workloads.
func (b *planning) ours(family string, weights []float64) []scene {
	var out []scene
	for _, cluster := range sortedKeys(setups) {
		for _, group := range sortedKeys(b.groups) {
			out = append(out, b.made(family+"/"+group+"/"+cluster, family, group, cluster, b.groups[group], weights, standard))
		}
	}
	return out
}

// small are the 18 models one at a time on the clusters of 16 devices.
func (b *planning) small() []scene {
	v := standard
	v.high, v.low = 4, 12
	var out []scene
	for _, cluster := range sortedKeys(setups) {
		out = append(out, b.singly("small", cluster+"-S", "", v)...)
	}
	return out
}

// singly are the models one at a time on a cluster.
func (b *planning) singly(family, cluster, what string, v variation) []scene {
	var out []scene
	for _, m := range sortedKeys(b.models) {
		name := family + "/" + cluster + "/" + m
		if what != "" {
			name += "/" + what
		}
		out = append(out, b.made(name, family, m, cluster, []string{m}, []float64{1}, v))
	}
	return out
}

// scenes are the cases of a table: those that -cases names, else its own.
func (b *bench) scenes(own string, from ...[]scene) ([]scene, error) {
	var out []scene
	matches, err := b.matcher(own)
	if err != nil {
		return nil, err
	}
	for _, s := range slices.Concat(from...) {
		if matches(s.name) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, errNoCase
	}
	return out, nil
}
