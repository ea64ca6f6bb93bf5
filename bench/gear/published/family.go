package published

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/importer/records"
)

// Family is a family of models on identical devices, with the SLO and the rates
// that it is measured under.
type Family struct {
	Name    string
	Models  []Model
	Records *formats.Records
	Memory  int64 // of a device; 0 stands for no limit
	SLO     time.Duration
	Grid    int           // quantile thresholds per model
	Load    time.Duration // of a model onto a device, for systems that load
	Peak    float64       // of the rates
	Rates   Rates         // nil where no trace was asked for
}

// Model is a model of a family.
type Model struct {
	Name   string
	Times  []time.Duration // [b-1]: of a batch of b
	Memory int64
}

// Names are the families that Load knows.
var Names = []string{"bert5", "llama4", "imdb3"}

// Load is a family with its trace, from the folder of reference data.
func Load(name, dir string) (*Family, error) {
	var f *Family
	var err error
	switch name {
	case "bert5":
		f = BERT5()
	case "llama4":
		f = Llama4()
	default:
		if _, ok := services[name]; !ok {
			return nil, fmt.Errorf("family %q: expected one of %v or %v", name, Names, Real)
		}
		if f, err = frugal(name, dir, records.Options{Seed: 1}); err != nil {
			return nil, err
		}
	}
	trace := &twitterBurst
	if name == "llama4" {
		trace = &azureBurst
	}
	f.Rates, err = trace.rates(dir, f.Peak)
	return f, err
}

// Dir is the folder of the reference data: INFERPLAN_DATA, else ../shared/data
// beside the repository that the working directory is in.
func Dir() string {
	if dir := os.Getenv("INFERPLAN_DATA"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "..", "shared", "data")
		}
	}
	return filepath.Join("..", "shared", "data")
}

// BERT5 are five fast models with two answers to choose from.
func BERT5() *Family {
	return &Family{
		Name: "bert5", Memory: 32000, SLO: 400 * time.Millisecond, Grid: 10, Load: 5 * time.Second, Peak: 7600,
		Models: linear([]string{"tiny", "mini", "small", "medium", "base"},
			[]float64{1.5, 2, 2, 3.5, 5}, []float64{.010, .05, .18, .36, 1.40}, 128, []int64{60, 90, 170, 220, 520}),
		Records: bert5Records(20240607),
	}
}

func bert5Records(seed splitmix) *formats.Records {
	return synthetic([]string{"tiny", "mini", "small", "medium", "base"}, []float64{.832, .859, .897, .896, .935}, 2, seed)
}

// Llama4 are four slow models with four answers to choose from; the largest
// leaves little memory for others.
func Llama4() *Family {
	return &Family{
		Name: "llama4", Memory: 48000, SLO: 3 * time.Second, Grid: 10, Load: 20 * time.Second, Peak: 60,
		Models: linear([]string{"3B", "7B", "13B", "70B"},
			[]float64{18, 34, 60, 330}, []float64{6, 12, 24, 120}, 16, []int64{3000, 5500, 9500, 40000}),
		Records: llama4Records(20240608),
	}
}

func llama4Records(seed splitmix) *formats.Records {
	return synthetic([]string{"3B", "7B", "13B", "70B"}, []float64{.490, .571, .601, .648}, 4, seed)
}

// services are the FrugalML data sets with three services each, the cheapest first.
var services = map[string]struct {
	file  string
	names []string
}{
	"imdb3":    {"imdb", []string{"GitHub(Vader)", "Amazon", "Google"}},
	"yelp3":    {"yelp", []string{"GitHub(Vader)", "Amazon", "Google"}},
	"shop3":    {"shop", []string{"GitHub(Bixin)", "Google", "Baidu"}},
	"expw3":    {"expw", []string{"GitHub(CNN)", "Google", "Microsoft"}},
	"command3": {"command", []string{"GitHub(DeepSpeech)", "Google", "Microsoft"}},
	"fluent3":  {"fluent", []string{"GitHub(DeepSpeech)", "Google", "Microsoft"}},
}

// Real are the families with real answers.
var Real = []string{"imdb3", "yelp3", "shop3", "expw3", "command3", "fluent3"}

// frugal pairs real certainties of three services with latencies of three models
// of growing size.
func frugal(name, dir string, o records.Options) (*Family, error) {
	of := services[name]
	file, err := os.Open(filepath.Join(dir, "cascade", "frugalml_"+of.file+"_60pct.csv.gz"))
	if err != nil {
		return nil, fmt.Errorf("opening the answers of %s: %w", name, err)
	}
	defer file.Close()
	f := &Family{Name: name, SLO: 200 * time.Millisecond, Grid: 20, Load: 5 * time.Second, Peak: 7600}
	o.Models = of.names
	if f.Records, err = records.Read(file, of.file, o); err != nil {
		return nil, fmt.Errorf("reading the answers of %s: %w", name, err)
	}
	for k, table := range [][5]float64{
		{1.7493, 1.8458, 1.9350, 1.9386, 1.9412}, {9.7840, 10.3600, 10.7732, 10.7732, 10.8056}, {19.1498, 20.2024, 21.3251, 21.3251, 21.3690},
	} {
		m := Model{Name: of.names[k]}
		for i, ms := range table {
			for len(m.Times) < 1<<i {
				m.Times = append(m.Times, milliseconds(ms))
			}
		}
		f.Models = append(f.Models, m)
	}
	return f, nil
}

// Draw is the family with other samples: of synthetic answers two draws of the generator,
// one to plan on and one held out, of real ones another split, 60 to 40.
func (f *Family) Draw(dir string, draw uint64) (*Family, error) {
	out := *f
	if of, ok := services[f.Name]; ok {
		fresh, err := frugal(f.Name, dir, records.Options{Seed: draw + 2, HeldOut: .4})
		if err != nil {
			return nil, fmt.Errorf("splitting %v: %w", of.names, err)
		}
		out.Records = fresh.Records
		return &out, nil
	}
	made := func(seed uint64) *formats.Records {
		if f.Name == "bert5" {
			return bert5Records(splitmix(seed))
		}
		return llama4Records(splitmix(seed))
	}
	out.Records = joined(made(1_000_003*(2*draw+1)), made(1_000_003*(2*draw+2)))
	return &out, nil
}

// joined returns the samples of two records, of which the first are planned on and the others held out.
func joined(planned, heldOut *formats.Records) *formats.Records {
	out := &formats.Records{Source: planned.Source, Score: planned.Score, Samples: planned.Samples + heldOut.Samples, PlanningSamples: planned.Samples}
	for k, m := range planned.Models {
		other := &heldOut.Models[k]
		out.Models = append(out.Models, formats.ModelRecords{Model: m.Model, Certainty: slices.Concat(m.Certainty, other.Certainty), Correct: m.Correct + other.Correct})
	}
	return out
}

// HeldOut is the family with the samples alone that are held out, as if planned on.
func (f *Family) HeldOut() *Family {
	out, r := *f, f.Records
	out.Name += ", held out"
	out.Records = part(r, r.PlanningSamples, r.Samples)
	return &out
}

// part returns the samples of records from one to another, as if all were planned on.
func part(r *formats.Records, from, to int) *formats.Records {
	out := &formats.Records{Source: r.Source, Score: r.Score, Samples: to - from, PlanningSamples: to - from}
	for _, m := range r.Models {
		out.Models = append(out.Models, formats.ModelRecords{Model: m.Model, Certainty: m.Certainty[from:to], Correct: m.Correct[from:to]})
	}
	return out
}

// Thirds divides a draw's samples into three parts of as many samples, up to a number. The two families plan on the first part. Trials
// have the second part as samples held out, a judge has the third.
func (f *Family) Thirds(dir string, draw uint64, most int) (tried, judged *Family, err error) {
	drawn, err := f.Draw(dir, draw)
	if err != nil {
		return nil, nil, err
	}
	n := min(most, drawn.Records.Samples/3)
	second, third := *drawn, *drawn
	second.Records = joined(part(drawn.Records, 0, n), part(drawn.Records, n, 2*n))
	third.Records = joined(part(drawn.Records, 0, n), part(drawn.Records, 2*n, 3*n))
	return &second, &third, nil
}

// linear are models whose batches take a + b times their size, in milliseconds.
func linear(names []string, a, b []float64, most int, memory []int64) []Model {
	var out []Model
	for k, name := range names {
		m := Model{Name: name, Memory: memory[k]}
		for batch := 1; batch <= most; batch++ {
			m.Times = append(m.Times, milliseconds(a[k]+b[k]*float64(batch)))
		}
		out = append(out, m)
	}
	return out
}

func milliseconds(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }

// Only keeps some models of the family.
func (f *Family) Only(names ...string) *Family {
	out := *f
	out.Models = nil
	for _, m := range f.Models {
		if slices.Contains(names, m.Name) {
			out.Models = append(out.Models, m)
		}
	}
	return &out
}

// ModelNames are the models' names, in order.
func (f *Family) ModelNames() []string {
	out := make([]string, len(f.Models))
	for i := range f.Models {
		out[i] = f.Models[i].Name
	}
	return out
}
