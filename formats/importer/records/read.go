package records

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats"
	"inferplan/formats/seeded"
)

var header = []string{"sample_id", "model", "correct", "certainty"}

// maxSamples bounds what a file may ask us to hold.
const maxSamples = 10_000_000

// Options say how samples become records.
type Options struct {
	Models    []string // to take, in this order; nil: all, in order of appearance
	Seed      uint64   // of the shuffle
	NoShuffle bool
	HeldOut   float64 // share of the samples that is held out, 0 to below 1
	Calibrate bool    // see Calibrate
	Source    string  // where the file comes from, for the profile
}

// Read reads a file; name is what errors call it.
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
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// By identifier first: the order of the file's rows must not matter.
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(t.ids[a], t.ids[b]) })
	if !opt.NoShuffle {
		rng := seeded.New(opt.Seed, "records/shuffle")
		rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	out := &formats.Records{Source: opt.Source, Seed: opt.Seed, Samples: n, Planning: n - int(opt.HeldOut*float64(n))}
	for _, m := range names {
		at := slices.Index(t.models, m)
		if at < 0 {
			return nil, &formats.Error{File: name, Path: "model", Found: "no row of " + strconv.Quote(m), Expected: "rows of every model asked for", Hint: "the models there: " + strings.Join(t.models, ", ")}
		}
		rec := formats.ModelRecords{Model: m, Certainty: make([]float64, n)}
		correct := make([]byte, n)
		for i, s := range order {
			a := t.answers[at][s]
			if !a.seen {
				return nil, &formats.Error{File: name, Path: "sample_id", Found: fmt.Sprintf("no row of %s for sample %s", m, t.ids[s]), Expected: "one row per sample and model"}
			}
			rec.Certainty[i], correct[i] = a.certainty, '0'
			if a.correct {
				correct[i] = '1'
			}
		}
		rec.Correct = string(correct)
		if opt.Calibrate {
			Calibrate(&rec, out.Planning)
		}
		out.Models = append(out.Models, rec)
	}
	return out, nil
}

// answer of a model to a sample.
type answer struct {
	certainty     float64
	correct, seen bool
}

type table struct {
	ids     []string
	models  []string
	answers [][]answer // by model and sample, in order of appearance
}

func readTable(r io.Reader, name string) (*table, error) {
	b := bufio.NewReader(r)
	var in io.Reader = b
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		in = z
	}
	c := csv.NewReader(in)
	c.ReuseRecord = true
	row, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, &formats.Error{File: name, Line: 1, Found: "an empty file", Expected: "the header " + strings.Join(header, ",")}
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if !slices.Equal(row, header) {
		return nil, &formats.Error{File: name, Line: 1, Found: strings.Join(row, ","), Expected: "the header " + strings.Join(header, ",")}
	}
	t := &table{}
	samples, models := map[string]int{}, map[string]int{}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if err := t.add(row, samples, models); err != nil {
			err.File = name
			err.Line, err.Column = c.FieldPos(0)
			return nil, err
		}
	}
	if len(t.ids) == 0 {
		return nil, &formats.Error{File: name, Found: "no row below the header", Expected: "one per sample and model"}
	}
	for m := range t.answers {
		t.answers[m] = append(t.answers[m], make([]answer, len(t.ids)-len(t.answers[m]))...)
	}
	return t, nil
}

func (t *table) add(row []string, samples, models map[string]int) *formats.Error {
	if row[0] == "" || row[1] == "" {
		return &formats.Error{Path: "sample_id", Found: "an empty sample or model", Expected: "a name for each"}
	}
	certainty, err := strconv.ParseFloat(row[3], 64)
	if err != nil || !(certainty >= 0 && certainty <= 1) {
		return &formats.Error{Path: "certainty", Found: strconv.Quote(row[3]), Expected: "a number from 0 to 1"}
	}
	if row[2] != "0" && row[2] != "1" {
		return &formats.Error{Path: "correct", Found: strconv.Quote(row[2]), Expected: "0 or 1"}
	}
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
			return &formats.Error{Path: "sample_id", Found: "more samples", Expected: fmt.Sprintf("at most %d", maxSamples)}
		}
		id := strings.Clone(row[0])
		samples[id] = s
		t.ids = append(t.ids, id)
	}
	for len(t.answers[m]) <= s {
		t.answers[m] = append(t.answers[m], answer{})
	}
	a := &t.answers[m][s]
	if a.seen {
		return &formats.Error{Path: "sample_id", Found: fmt.Sprintf("sample %s of %s again", row[0], row[1]), Expected: "each once"}
	}
	*a = answer{certainty: certainty, correct: row[2] == "1", seen: true}
	return nil
}
