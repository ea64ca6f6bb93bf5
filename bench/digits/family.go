package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"inferplan/bench/served"
	"inferplan/bench/traces"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/samples"
	"inferplan/planner"
	"inferplan/profiler"
	"inferplan/solver/highs"
)

// family is the digits family as measured on this machine.
type family struct {
	models  string // folder of the ONNX files
	profile *formats.Profile
	records *formats.Records
	heldOut []int    // samples, as rows of the records
	inputs  [][]byte // by row of the records
	labels  []int    // likewise
}

const device = "cpu-1"

// members are the models of the family, the smallest first.
var members = []string{"digits-4", "digits-16", "digits-64", "digits-256", "digits-conv"}

// openFamily reads the family from the program's folder, and makes there what is missing: models, samples, and a profile with records.
func openFamily(ctx context.Context, p served.Program) (*family, error) {
	if err := os.MkdirAll(p.Folder, 0o755); err != nil {
		return nil, err
	}
	profile := []string{"profile", "--on", "cpu", "--blocks", "1", "--batches", "1,2,4,8,16", "--budget", "30s", "--records", "digits.csv.gz", "-o", "profile.json"}
	for _, name := range members {
		profile = append(profile, "models/"+name+".onnx")
	}
	for _, step := range []struct {
		file string
		verb []string
	}{{"models/digits-conv.onnx", append([]string{"models", "write", "--dir", "models"}, members...)}, {"digits.csv.gz", []string{"models", "samples", "digits.csv.gz"}}, {"profile.json", profile}} {
		if _, err := os.Stat(filepath.Join(p.Folder, step.file)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := p.Run(ctx, step.verb...); err != nil {
			return nil, err
		}
	}
	f := &family{models: filepath.Join(p.Folder, "models")}
	var err error
	if f.profile, err = formats.ReadProfile(filepath.Join(p.Folder, "profile.json")); err != nil {
		return nil, err
	}
	set, err := samples.ReadFile(filepath.Join(p.Folder, "digits.csv.gz"))
	if err != nil {
		return nil, err
	}
	if len(f.profile.Records) != 1 || f.profile.Records[0].Samples != len(set.Labels) || f.profile.Records[0].PlanningSamples == len(set.Labels) {
		return nil, fmt.Errorf("%s: profile.json has no records of digits.csv.gz with samples held out: remove it", p.Folder)
	}
	f.records = &f.profile.Records[0]
	for row, s := range profiler.SampleOrder(f.records.Seed, f.records.Samples) {
		if row >= f.records.PlanningSamples {
			f.heldOut = append(f.heldOut, row)
		}
		var input []byte
		for _, v := range set.Sample(s) {
			input = binary.LittleEndian.AppendUint32(input, math.Float32bits(v))
		}
		f.inputs, f.labels = append(f.inputs, input), append(f.labels, set.Labels[s])
	}
	return f, nil
}

// plan makes the gear plan for a largest rate, on one CPU. It does not shed: how late all requests are is compared.
func (f *family) plan(ctx context.Context, peak float64, slo time.Duration) (*formats.Plan, error) {
	limit, err := document.ParseSLO(slo.String())
	if err != nil {
		return nil, err
	}
	w := &formats.Workload{Format: formats.FormatWorkload, Section: &formats.Cascade{Family: members, Grid: 20,
		SLO: formats.CascadeSLO{Percentile: "p95", Latency: limit}, QPS: formats.CascadeQPS{Max: peak, Ranges: 5, Distribution: "uniform"}}}
	res, err := planner.Solve(ctx, planner.Inputs{Profile: f.profile, Workload: w,
		Cluster: &formats.Cluster{Format: formats.FormatCluster, Pools: []formats.Pool{{Device: device, Count: 1, Sharing: formats.SharingTime}}}},
		planner.Options{}, highs.Solver{}, nil)
	if err != nil {
		return nil, fmt.Errorf("planning for %g requests/s: %w", peak, err)
	}
	res.Plan.Policy.Params["shed"] = 0
	return res.Plan, nil
}

// single returns a plan with one model for every rate: dynamic batching.
func (f *family) single(plan *formats.Plan, model string) *formats.Plan {
	p, g := *plan, *formats.GearOf(plan)
	p.Section = &g
	accuracy := share(f.recordsOf(model).Correct[:f.records.PlanningSamples])
	g.Gears = slices.Clone(g.Gears)
	for i := range g.Gears {
		g.Gears[i].Accuracy = accuracy
		g.Gears[i].AccuracyHeldOut, g.Gears[i].HeldOutInterval = nil, nil
		g.Gears[i].Stages = []formats.GearStage{{Model: model, Fraction: 1, MinQueue: 1, Split: []float64{1}}}
	}
	return &p
}

// recordsOf returns the records of a model.
func (f *family) recordsOf(model string) *formats.ModelRecords {
	return &f.records.Models[slices.IndexFunc(f.records.Models, func(m formats.ModelRecords) bool { return m.Model == model })]
}

// share returns the share of a row of records that is right.
func share(correct string) float64 {
	return float64(strings.Count(correct, "1")) / float64(len(correct))
}

// cheapest returns the cheapest member that is right at least as often on the held-out samples, by its time per sample at the plan's best
// batch; the largest member if none is.
func (f *family) cheapest(plan *formats.Plan, accuracy float64) string {
	model, least := members[len(members)-1], math.Inf(1)
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		if share(f.recordsOf(d.Model).Correct[f.records.PlanningSamples:]) < accuracy {
			continue
		}
		for b, t := range d.Pipelines[0].Stages[0].InferUS {
			if cost := t.D().Seconds() / float64(b+1); cost < least {
				model, least = d.Model, cost
			}
		}
	}
	return model
}

// harder returns the half of the held-out samples that the members are least certain of.
func (f *family) harder() []int {
	certainty := func(row int) (sum float64) {
		for i := range f.records.Models {
			sum += f.records.Models[i].Certainty[row]
		}
		return sum
	}
	rows := slices.Clone(f.heldOut)
	slices.SortStableFunc(rows, func(a, b int) int { return cmp.Compare(certainty(a), certainty(b)) })
	return rows[:len(rows)/2]
}

// trace is a part of a recording: so many rows, from a first one, make one second here.
type trace struct {
	name        string
	recording   traces.Recording
	first, rows int
}

// The traces of the table: the Twitter part holds the burst, and a second stands for 4 s. Azure: a minute per second, from the part with
// the largest jump. WorldCup98: ten minutes per second, around the largest minute; the spike likewise, where one crowd comes and goes.
var (
	usual = []trace{{"twitter", traces.Twitter, 140706, 4}, {"azure", traces.Azure, 1660, 1}, {"worldcup", traces.WorldCup98, 80158, 10}}
	spike = trace{"spike", traces.WorldCup98, 16336, 10}
)

// rates returns the rates of so many seconds, all columns of the recording added up; the largest is a peak.
func (t *trace) rates(data string, seconds int, peak float64) ([]float64, error) {
	series, err := t.recording.Read(data, t.first, t.rows*seconds)
	if err != nil {
		return nil, err
	}
	counts := make([]float64, seconds)
	for _, column := range series {
		for row, n := range column {
			counts[row/t.rows] += n
		}
	}
	rates, _ := traces.ScaledToPeak(counts, 1, peak)
	return rates, nil
}
