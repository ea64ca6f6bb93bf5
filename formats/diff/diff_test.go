package diff_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/document"
)

var update = flag.Bool("update", false, "write the golden files anew")

func plan(t *testing.T) *formats.Plan {
	t.Helper()
	p, err := formats.ReadPlan("../../testdata/compat/plan.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func profile(t *testing.T) *formats.Profile {
	t.Helper()
	p, err := formats.ReadProfile("../../testdata/compat/profile.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSameDocumentsDoNotDiffer(t *testing.T) {
	for _, r := range []*diff.Result{diff.Plans(plan(t), plan(t), nil), diff.Profiles(profile(t), profile(t), 0)} {
		if !r.Empty() || len(r.Lines()) != 0 {
			t.Errorf("%s: %v", r.Kind, r.Lines())
		}
		if data, err := json.Marshal(r); err != nil || string(data) != `{"kind":"`+r.Kind+`","changes":[]}` {
			t.Errorf("%s: %s, %v", r.Kind, data, err)
		}
	}
}

// TestPlansListEveryChange changes one thing of everything and reads the whole answer.
func TestPlansListEveryChange(t *testing.T) {
	a, b := plan(t), plan(t)
	bound := 1200.0
	b.Algorithm, b.Seed, b.StoppedBy = "a2", 7, "proved"
	b.Objective = formats.Objective{Name: "throughput", Value: 1100, Bound: &bound}
	b.Certificate.Models[0].RPS = 700
	m, promised := &b.Deployment[0], formats.PoolOf(b)
	promised.Models[0].RPS, promised.Models[0].SLOUS, promised.Models[0].Weight = 880, 18_000_000, 0.7
	l := &m.Pipelines[0]
	l.RPS, l.LatencyUS = 880, 9_000_000
	l.Stages[0].Blocks[1], l.Stages[1].Blocks[0] = 3, 3
	l.Stages[1].Replicas = 4
	l.Stages[1].GPUs = 2
	m.Pipelines = append(m.Pipelines, formats.Pipeline{Batch: 4, RPS: 50, Stages: []formats.Stage{{Blocks: [2]int{0, 4}, Device: "H100", Share: 1, Replicas: 1, GPUs: 1}}})
	b.Deployment = append(b.Deployment[:1], formats.Deployed{Model: "new", Pipelines: []formats.Pipeline{{RPS: 5, Batch: 1, Stages: []formats.Stage{{Blocks: [2]int{0, 1}, Device: "P4", Share: 1, Replicas: 1, GPUs: 1}}}}})
	promised.Models = append(promised.Models[:1], formats.Served{Model: "new", RPS: 5})
	b.Pools = append(b.Pools, formats.Pool{Device: "H100", Count: 1})
	b.Pools[0].Count, b.Pools[1].NICEfficiency = 3, 0.5
	b.Policy = formats.PolicySpec{Name: "reactive", Params: map[string]float64{"guard_share": 0.2, "wait": 1}}
	if err := errors.Join(b.Options.Set("margin", 0.3), b.Options.Set("slo", document.SLO{Duration: 18 * time.Millisecond})); err != nil {
		t.Fatal(err)
	}
	b.Arrivals = &formats.Arrivals{Process: "gamma", CV: 2}
	b.Inputs[0].SHA256 = strings.Repeat("f", 64)
	b.Inputs = append(b.Inputs, formats.Input{Role: "cluster", Path: "cluster.yaml"})
	b.Warnings = []string{"another"}

	got := strings.Join(diff.Plans(a, b, nil).Lines(), "\n") + "\n"
	golden := "../../testdata/formats/diff-plans.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Error(d)
	}
	// The other way round the same things moved.
	forth, back := diff.Plans(a, b, nil), diff.Plans(b, a, nil)
	if len(forth.Changes) != len(back.Changes) {
		t.Errorf("%d changes forth, %d back", len(forth.Changes), len(back.Changes))
	}
}

func TestChangesAreJudgedBetterOrWorse(t *testing.T) {
	for _, c := range []struct {
		name string
		move func(p *formats.Plan)
		path string
		note string
	}{
		{"more throughput", func(p *formats.Plan) { p.Objective.Value = 1100 }, "value", "better"},
		{"less throughput", func(p *formats.Plan) { p.Objective.Value = 900 }, "value", "worse"},
		{"slower", func(p *formats.Plan) { p.Deployment[1].Pipelines[0].LatencyUS *= 2 }, "tiny latency", "worse"},
	} {
		b := plan(t)
		c.move(b)
		r := diff.Plans(plan(t), b, nil)
		if len(r.Changes) == 0 || r.Changes[0].Path != c.path || r.Changes[0].Note != c.note {
			t.Errorf("%s: %+v", c.name, r.Changes)
		}
	}
	a, b := plan(t), plan(t)
	a.Objective.Name, b.Objective.Name, b.Objective.Value = "cost", "cost", 900
	if r := diff.Plans(a, b, nil); r.Changes[0].Note != "better" {
		t.Errorf("a lower cost: %+v", r.Changes)
	}
}

// What simulated runs certified comes before the rates that were planned without queueing, and a plan without a
// certificate is not compared by those in silence.
func TestCertifiedRatesComeFirst(t *testing.T) {
	certify := func(p *formats.Plan, rps float64) {
		p.Certificate = &formats.Certificate{LoadFactor: 1, Models: []formats.CertifiedModel{{Model: "encnet", RPS: rps}}}
	}
	for name, c := range map[string]struct {
		change             func(a, b *formats.Plan)
		summary, firstPath string
	}{
		"both certified": {func(a, b *formats.Plan) { certify(a, 10); certify(b, 8) }, "certified 10 rps -> 8 rps (-20 %); 0 of 5 devices load other blocks; planned throughput +10 %", "certified encnet"},
		"the first":      {func(a, b *formats.Plan) { certify(a, 10); b.Certificate = nil }, "only the first plan is certified; 0 of 5 devices load other blocks; planned throughput +10 %", "certificate"},
		"the second":     {func(a, b *formats.Plan) { a.Certificate = nil; certify(b, 8) }, "only the second plan is certified; 0 of 5 devices load other blocks; planned throughput +10 %", "certificate"},
		"none":           {func(a, b *formats.Plan) { a.Certificate, b.Certificate = nil, nil }, "0 of 5 devices load other blocks; planned throughput +10 %", "value"},
		"values of two kinds": {func(a, b *formats.Plan) {
			certify(a, 10)
			certify(b, 8)
			b.Objective.Basis = formats.BasisSimulation
		}, "certified 10 rps -> 8 rps (-20 %); 0 of 5 devices load other blocks", "certified encnet"},
	} {
		a, b := plan(t), plan(t)
		b.Objective.Value *= 1.1
		c.change(a, b)
		r := diff.Plans(a, b, nil)
		if r.Summary != c.summary || r.Changes[0].Path != c.firstPath {
			t.Errorf("%s: %q, first %q", name, r.Summary, r.Changes[0].Path)
		}
	}
}

// The gate's case: one block became 5 % slower.
func TestProfilesNameTheBlock(t *testing.T) {
	a, b := profile(t), profile(t)
	b.Models[0].Measurements[0].Blocks[1].WallUS = 52501 // 50.001 us before
	r := diff.Profiles(a, b, 0.02)
	want := []diff.BlockChange{{Model: "tiny", Device: "cpu-1", Share: 1, Batch: 1, Block: 1, Name: "1", OldUS: 50001, NewUS: 52501, Relative: float64(52501-50001) / 50001}}
	if d := cmp.Diff(want, r.Blocks); d != "" {
		t.Error(d)
	}
	lines := strings.Join(r.Lines(), "\n")
	if want := "blocks\n  ~ model tiny block 1 on cpu-1 share 1/1 batch 1: 0.050001 ms -> 0.052501 ms (+5 %), worse"; lines != want {
		t.Errorf("got %s\nwant %s", lines, want)
	}
	if r := diff.Profiles(a, b, 0.06); !r.Empty() {
		t.Errorf("within the tolerance, yet %v", r.Lines())
	}
	if got := r.Blocks[0].String(); got != "model tiny block 1 on cpu-1 share 1/1 batch 1: 0.050001 ms -> 0.052501 ms (+5 %)" {
		t.Errorf("got %s", got)
	}
}

func TestProfilesNameWhatCameAndWent(t *testing.T) {
	a, b := profile(t), profile(t)
	b.Devices = b.Devices[:1]
	b.Devices[0].EngineVersion = "1.30.0"
	b.Models[0].Measurements = b.Models[0].Measurements[:1]
	b.Models[0].Blocks[0].CutBytesFP16 = 33
	b.Models = append(b.Models, formats.ProfileModel{Model: "second"})
	want := []string{
		"devices",
		"  ~ cpu-1 engine_version: 1.29.0 -> 1.30.0",
		"  - device L4",
		"models",
		"  ~ model tiny block 0 cut_bytes_fp16: 32 -> 33 (+3.12 %)",
		"measurements",
		"  - model tiny on L4 share 1/2 batch 4",
		"models",
		"  + model second",
	}
	if d := cmp.Diff(want, diff.Profiles(a, b, 0).Lines()); d != "" {
		t.Error(d)
	}
}

// A model that is slower everywhere has one cause, and takes one line.
func TestProfilesTellOneCauseOnce(t *testing.T) {
	a, b := profile(t), profile(t)
	many := func(p *formats.Profile, us document.Micros) {
		m := &p.Models[0].Measurements[0]
		m.Blocks = nil
		p.Models[0].Blocks = nil
		for i := range 6 {
			p.Models[0].Blocks = append(p.Models[0].Blocks, formats.Block{Name: string(rune('a' + i))})
			m.Blocks = append(m.Blocks, formats.Latency{WallUS: us + document.Micros(i)})
		}
		p.Models[0].Measurements = p.Models[0].Measurements[:1]
	}
	many(a, 10_000_000)
	many(b, 11_000_000)
	r := diff.Profiles(a, b, 0.02)
	if len(r.Blocks) != 6 {
		t.Errorf("%d latencies as numbers, want all 6", len(r.Blocks))
	}
	want := []string{"blocks", "  ~ model tiny on cpu-1: 6 latencies by +10 % to +10 %, median +10 %, worse"}
	if d := cmp.Diff(want, r.Lines()); d != "" {
		t.Error(d)
	}
}

func TestReportsListChangedFigures(t *testing.T) {
	report := func(late int64, p99 document.Micros) *formats.Report {
		c := formats.Counts{Requests: 1000, Completed: 1000, Late: late, Attainment: 1 - float64(late)/1000, GoodputRPS: 50}
		l := formats.LatencySummary{P50US: 10_000_000, P99US: p99}
		return &formats.Report{Source: "simulate", Counts: c, Latency: l,
			Models:  []formats.ModelReport{{Model: "m", Counts: c, Latency: l}},
			Devices: []formats.DeviceReport{{Device: "L4", Count: 2, Utilisation: 0.5}}}
	}
	if r := diff.Reports(report(3, 30_000_000), report(3, 30_000_000)); !r.Empty() {
		t.Errorf("the same report: %v", r.Lines())
	}
	want := []string{
		"requests",
		"  ~ attainment: 99.7 % -> 98 %, worse",
		"  ~ late: 3 -> 20, worse",
		"  ~ p99: 30 ms -> 45 ms (+50 %), worse",
		"models",
		"  ~ m attainment: 99.7 % -> 98 %, worse",
		"  ~ m late: 3 -> 20, worse",
		"  ~ m p99: 30 ms -> 45 ms (+50 %), worse",
	}
	r := diff.Reports(report(3, 30_000_000), report(20, 45_000_000))
	if d := cmp.Diff(want, r.Lines()); d != "" {
		t.Error(d)
	}
	if md := strings.Join(r.Markdown(), "\n"); !strings.Contains(md, "*requests*\n\n- attainment: 99.7 % -> 98 %, worse\n") {
		t.Errorf("%s", md)
	}
}

// The summary counts what a switch costs: the devices that load other blocks.
func TestSummaryCountsDevicesThatReload(t *testing.T) {
	a, b := plan(t), plan(t)
	b.Objective.Value *= 1.26
	b.Deployment[0].Pipelines[0].Stages[0].Blocks[1], b.Deployment[0].Pipelines[0].Stages[1].Blocks[0] = 3, 3
	if got, want := diff.Plans(a, b, nil).Summary, "4 of 5 devices load other blocks; planned throughput +26 %"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	// Devices that only lose their blocks load nothing.
	a, b = plan(t), plan(t)
	b.Deployment[0].Pipelines[0].Stages = b.Deployment[0].Pipelines[0].Stages[:1]
	freed := 0
	for _, place := range a.Deployment[0].Pipelines[0].Stages[1].Placement {
		freed += place.DeviceCount()
	}
	if got, want := diff.Plans(a, b, nil).Summary, fmt.Sprintf("1 pipeline added, 1 removed; 0 of 5 devices load other blocks, %d become free", freed); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The latencies of a run that answered nothing are not compared.
func TestReportsWithoutAnswersHaveNoLatency(t *testing.T) {
	a := &formats.Report{Counts: formats.Counts{Completed: 5}, Latency: formats.LatencySummary{P50US: 10_000_000, P99US: 20_000_000}}
	for _, r := range []*diff.Result{diff.Reports(a, &formats.Report{}), diff.Reports(&formats.Report{}, a)} {
		if lines := strings.Join(r.Lines(), "\n"); strings.Contains(lines, "p50") || strings.Contains(lines, "p99") {
			t.Errorf("found %s", lines)
		}
	}
}
