package records

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

var header = []string{"sample_id", "model", "correct", "certainty"}

// maxSamples bounds the memory that a file can make us allocate.
const maxSamples = 10_000_000

// Options are the options of making records from samples.
type Options struct {
	Models    []string // models to read, in this order; nil means all, in order of appearance
	Seed      uint64   // the seed of the shuffle
	NoShuffle bool
	HeldOut   float64 // share of the samples that is held out, 0 to below 1
	Calibrate bool    // see Calibrate
	Source    string  // the file's source, for the profile
}

// Read returns the records in a CSV file: how certain each model was of its answer to each sample, and whether it
// was right. Samples are shuffled by the seed, and the last share of them is held out of planning. Errors use name
// for the file.
func Read(r io.Reader, name string, opt Options) (*formats.Records, error) {
	if !(opt.HeldOut >= 0 && opt.HeldOut < 1) {
		return nil, fmt.Errorf("reading records: %v of the samples held out, expected a share from 0 to below 1", opt.HeldOut)
	}
	t, err := readTable(r, name)
	if err != nil {
		return nil, err
	}
	names := opt.Models
	if names == nil {
		names = t.models
	}
	n := len(t.ids)
	sampleOrder := make([]int, n)
	for i := range sampleOrder {
		sampleOrder[i] = i
	}
	// Sort by identifier first, so that the order of the file's rows does not matter.
	slices.SortFunc(sampleOrder, func(a, b int) int { return cmp.Compare(t.ids[a], t.ids[b]) })
	if !opt.NoShuffle {
		rng := seeded.New(opt.Seed, "records/shuffle")
		rng.Shuffle(n, func(i, j int) { sampleOrder[i], sampleOrder[j] = sampleOrder[j], sampleOrder[i] })
	}
	records := &formats.Records{Source: opt.Source, Seed: opt.Seed, Samples: n, PlanningSamples: n - int(opt.HeldOut*float64(n))}
	for _, m := range names {
		modelIndex := slices.Index(t.models, m)
		if modelIndex < 0 {
			return nil, &document.Error{File: name, Path: "model", Found: "no row of " + strconv.Quote(m), Expected: "rows of every model asked for", Hint: "the models there: " + strings.Join(t.models, ", ")}
		}
		rec := formats.ModelRecords{Model: m, Certainty: make([]float64, n)}
		correct := make([]byte, n)
		for i, s := range sampleOrder {
			a := t.answers[modelIndex][s]
			if !a.isSeen {
				return nil, &document.Error{File: name, Path: "sample_id", Found: fmt.Sprintf("no row of %s for sample %s", m, t.ids[s]), Expected: "one row per sample and model"}
			}
			rec.Certainty[i], correct[i] = a.certainty, '0'
			if a.correct {
				correct[i] = '1'
			}
		}
		rec.Correct = string(correct)
		if opt.Calibrate {
			Calibrate(&rec, records.PlanningSamples)
		}
		records.Models = append(records.Models, rec)
	}
	return records, nil
}

// answer is a model's answer to a sample.
type answer struct {
	certainty       float64
	correct, isSeen bool
}

type table struct {
	ids     []string
	models  []string
	answers [][]answer // answers by model and sample, in order of appearance
}

// readTable reads a CSV file of answers, one row per sample and model. A model without a row for a sample has an
// empty answer there.
func readTable(r io.Reader, name string) (*table, error) {
	in, err := csvfile.ReadTable(r, name)
	if err != nil {
		return nil, err
	}
	if err := in.Expect(header...); err != nil {
		return nil, err
	}
	t := &table{}
	samples, models := map[string]int{}, map[string]int{}
	if err := in.EachRow(func() error { return t.add(in, samples, models) }); err != nil {
		return nil, err
	}
	if len(t.ids) == 0 {
		return nil, &document.Error{File: name, Found: "no row below the header", Expected: "one per sample and model"}
	}
	// Give every model an answer for every sample, also for those after its last row.
	for m := range t.answers {
		t.answers[m] = append(t.answers[m], make([]answer, len(t.ids)-len(t.answers[m]))...)
	}
	return t, nil
}

// add adds the answer of the current row. samples and models have the indexes of those known so far. It is called for
// each row. t.answers is by model and sample.
func (t *table) add(in *csvfile.Table, samples, models map[string]int) error {
	row := in.Row
	if row[0] == "" || row[1] == "" {
		return in.Fail(0, "sample_id", "an empty sample or model", "a name for each")
	}
	certainty := in.Number("certainty", 0, 1)
	if row[2] != "0" && row[2] != "1" {
		return in.CellError(2, "0 or 1")
	}

	// Find the model and the sample, or add them.
	m, ok := models[row[1]]
	if !ok {
		m = len(t.models)
		name := strings.Clone(row[1])
		models[name] = m
		t.models = append(t.models, name)
		t.answers = append(t.answers, nil)
	}
	s, ok := samples[row[0]]
	if !ok {
		if s = len(t.ids); s == maxSamples {
			return in.Fail(0, "sample_id", "more samples", fmt.Sprintf("at most %d", maxSamples))
		}
		id := strings.Clone(row[0])
		samples[id] = s
		t.ids = append(t.ids, id)
	}

	// Record the answer.
	for len(t.answers[m]) <= s {
		t.answers[m] = append(t.answers[m], answer{})
	}
	a := &t.answers[m][s]
	if a.isSeen {
		return in.Fail(0, "sample_id", fmt.Sprintf("sample %s of %s again", row[0], row[1]), "each once")
	}
	*a = answer{certainty: certainty, correct: row[2] == "1", isSeen: true}
	return nil
}
