package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/samples"
	"inferplan/planner"
	"inferplan/policy"
	policygear "inferplan/policy/gear"
	"inferplan/profiler"
	"inferplan/solver/highs"
)

// family is the digits family as measured on this machine.
type family struct {
	models  string // folder of the ONNX files
	profile *formats.Profile
	records *formats.Records
	held    []int    // held-out samples, as rows of the records
	inputs  [][]byte // by row of the records
	labels  []int    // likewise
}

const device = "cpu-1"

// openFamily reads a folder with models/, profile.json with records, and the
// samples that these are of.
func openFamily(dir string) (*family, error) {
	f := &family{models: filepath.Join(dir, "models")}
	var err error
	if f.profile, err = formats.ReadProfile(filepath.Join(dir, "profile.json")); err != nil {
		return nil, err
	}
	set, err := samples.ReadFile(filepath.Join(dir, "digits.csv.gz"))
	if err != nil {
		return nil, err
	}
	if len(f.profile.Records) != 1 || f.profile.Records[0].Samples != len(set.Labels) {
		return nil, fmt.Errorf("%s: profile.json has no records of digits.csv.gz: plan profile --records makes them", dir)
	}
	f.records = &f.profile.Records[0]
	if f.records.PlanningSamples == f.records.Samples {
		return nil, fmt.Errorf("%s: profile.json holds no sample out: plan profile --held-out", dir)
	}
	for row := f.records.PlanningSamples; row < f.records.Samples; row++ {
		f.held = append(f.held, row)
	}
	f.inputs, f.labels = make([][]byte, f.records.Samples), make([]int, f.records.Samples)
	for row, s := range profiler.SampleOrder(f.records.Seed, f.records.Samples) {
		f.labels[row] = set.Labels[s]
		for _, v := range set.Sample(s) {
			f.inputs[row] = binary.LittleEndian.AppendUint32(f.inputs[row], math.Float32bits(v))
		}
	}
	return f, nil
}

// names are the members, the smallest first.
func (f *family) names() []string {
	var out []string
	for i := range f.records.Models {
		out = append(out, f.records.Models[i].Model)
	}
	return out
}

// plan makes the gear plan for a largest rate, on one CPU.
func (f *family) plan(ctx context.Context, peak float64, slo time.Duration) (*formats.Plan, error) {
	limit, err := document.ParseSLO(slo.String())
	if err != nil {
		return nil, err
	}
	w := &formats.Workload{Format: formats.FormatWorkload, Section: &formats.Cascade{Family: f.names(), Grid: 20,
		SLO: formats.CascadeSLO{Percentile: "p95", Latency: limit}, QPS: formats.CascadeQPS{Max: peak, Ranges: 5, Distribution: "uniform"}}}
	res, err := planner.Solve(ctx, planner.Inputs{Profile: f.profile, Workload: w,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: device, Count: 1, Sharing: formats.SharingTime}}}},
		planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		return nil, fmt.Errorf("planning for %g requests/s: %w", peak, err)
	}
	res.Plan.Policy.Params["shed"] = 0 // how late all are is compared
	return res.Plan, nil
}

// single is the plan with one model for every rate: dynamic batching.
func (f *family) single(plan *formats.Plan, model string) (*formats.Plan, error) {
	at := slices.IndexFunc(formats.GearOf(plan).Models, func(m formats.GearModel) bool { return m.Model == model })
	if at < 0 {
		return nil, fmt.Errorf("the plan has no model %s", model)
	}
	p, g := *plan, *formats.GearOf(plan)
	p.Section = &g
	accuracy := share(g.Models[at].Correct)
	g.Gears = slices.Clone(g.Gears)
	for i := range g.Gears {
		g.Gears[i].Accuracy = accuracy
		g.Gears[i].AccuracyHeldOut, g.Gears[i].HeldOutInterval = nil, nil
		g.Gears[i].Stages = []formats.GearStage{{Model: model, Fraction: 1, MinQueue: 1, Split: []float64{1}}}
	}
	return &p, nil
}

// share of a row of records that is right.
func share(correct string) float64 {
	n := 0
	for i := range len(correct) {
		if correct[i] == '1' {
			n++
		}
	}
	return float64(n) / float64(len(correct))
}

// cheapest is the cheapest member that is right at least as often on the
// held-out samples, by its time per sample at the plan's largest batch.
func (f *family) cheapest(plan *formats.Plan, accuracy float64) string {
	best, cost := "", math.Inf(1)
	for i := range f.records.Models {
		r := &f.records.Models[i]
		m := slices.IndexFunc(plan.Deployment, func(m formats.Deployed) bool { return m.Model == r.Model })
		if m < 0 || share(r.Correct[f.records.PlanningSamples:]) < accuracy {
			continue
		}
		infer := plan.Deployment[m].Pipelines[0].Stages[0].InferUS
		each := math.Inf(1)
		for b, d := range infer {
			each = min(each, d.D().Seconds()/float64(b+1))
		}
		if each < cost {
			best, cost = r.Model, each
		}
	}
	return best
}

// rowsAs gives tables the records of the rows that requests carry, in their
// order, so that the simulator's request i has the answers of row rows[i].
func (f *family) rowsAs(t *policy.Tables, rows []int) {
	g := *policygear.TablesOf(t)
	g.Records = policygear.SampleRecords{Samples: len(rows)}
	for p, name := range g.PipelineModels {
		at := slices.IndexFunc(f.records.Models, func(m formats.ModelRecords) bool { return m.Model == name })
		m := &f.records.Models[at]
		levels, correct := make([]uint8, len(rows)), make([]bool, len(rows))
		for i, row := range rows {
			levels[i], correct[i] = uint8(g.Level(int32(p), m.Certainty[row])), m.Correct[row] == '1'
		}
		g.Records.Levels, g.Records.Correct = append(g.Records.Levels, levels), append(g.Records.Correct, correct)
	}
	t.KindTables = &g
}

// expected is whether the cascade of a gear answers a row right, by the
// records, and which model answers.
func (f *family) expected(t *policy.Tables, gear int, row int) (correct bool, by int32) {
	own := policygear.TablesOf(t)
	for _, s := range own.Gears[gear].Stages {
		m := f.model(own.PipelineModels[s.Pipeline])
		correct, by = m.Correct[row] == '1', s.Pipeline
		if own.Level(s.Pipeline, m.Certainty[row]) >= int64(s.ForwardBelow) {
			break
		}
	}
	return correct, by
}

func (f *family) model(name string) *formats.ModelRecords {
	return &f.records.Models[slices.IndexFunc(f.records.Models, func(m formats.ModelRecords) bool { return m.Model == name })]
}

// writePlan keeps a plan for who wants to look at it.
func writePlan(path string, p *formats.Plan) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keeping a plan: %w", err)
	}
	_, err := document.WriteFile(path, p, document.Force(true))
	return err
}
