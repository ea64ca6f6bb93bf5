package samples

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// Limits of the memory that a file can make us allocate.
const (
	maxValues = 1 << 30
	maxLabel  = 1 << 20
	maxLine   = 1 << 28 // of a line, which is a sample
)

// SampleSet holds labelled samples, with Width values each, one after the other.
type SampleSet struct {
	Width  int
	Labels []int
	Values []float32
}

// Sample returns the values of a sample.
func (s *SampleSet) Sample(i int) []float32 { return s.Values[i*s.Width : (i+1)*s.Width] }

// ReadFile reads a file.
func ReadFile(path string) (*SampleSet, error) {
	return open(path, "samples", Read)
}

// open opens a file, reads it with read and closes it. content says what the file holds, for the error.
func open[T any](path, content string, read func(io.Reader, string) (T, error)) (zero T, err error) {
	f, err := document.Open(path)
	if err != nil {
		return zero, fmt.Errorf("reading %s: %w", content, err)
	}
	defer f.Close()
	return read(f, path)
}

// Read reads labelled samples from CSV, plain or gzip. Errors use name for the source.
func Read(r io.Reader, name string) (*SampleSet, error) {
	t, err := openTable(r, name)
	if err != nil {
		return nil, err
	}
	if t.Header[0] != "label" || len(t.Header) < 2 {
		return nil, t.Fail(0, "", "the column "+strconv.Quote(t.Header[0]), "a header that starts with label and has a column per value of the model's input")
	}
	s := &SampleSet{Width: len(t.Header) - 1}
	if err := t.EachRow(func() error { return s.add(t) }); err != nil {
		return nil, err
	}
	if len(s.Labels) == 0 {
		return nil, &document.Error{File: name, Found: "no row below the header", Expected: "a sample per row"}
	}
	return s, nil
}

// openTable returns the CSV table in r, whose lines may be longer than usual: each has all values of a sample.
func openTable(r io.Reader, name string) (*csvfile.Table, error) {
	f, err := csvfile.New(r, name)
	if err != nil {
		return nil, err
	}
	f.MaxLine = maxLine
	return csvfile.NewTable(f)
}

// add adds the current row: a label, and the values of a sample.
func (s *SampleSet) add(t *csvfile.Table) error {
	label, err := strconv.Atoi(t.Row[0])
	if err != nil || label < 0 || label > maxLabel {
		return t.CellError(0, "a class, counted from 0")
	}
	if len(s.Values)+s.Width > maxValues {
		return t.Fail(0, "label", "more samples", fmt.Sprintf("at most %d values", maxValues))
	}
	s.Labels = append(s.Labels, label)
	for i, text := range t.Row[1:] {
		v, err := strconv.ParseFloat(text, 32)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return t.CellError(i+1, "a number")
		}
		s.Values = append(s.Values, float32(v))
	}
	return nil
}

// WriteFile writes a set completely or not at all, compressed if the name ends in .gz.
func (s *SampleSet) WriteFile(path string) error {
	if _, err := csvfile.WriteFile(path, s.write, document.Force(true)); err != nil {
		return fmt.Errorf("writing samples: %w", err)
	}
	return nil
}

// write writes the samples as a CSV file: the header label,v0,v1,... and one line per sample.
func (s *SampleSet) write(w io.Writer) error {
	line := []byte("label")
	for i := range s.Width {
		line = fmt.Appendf(line, ",v%d", i)
	}
	for i, label := range s.Labels {
		line = append(line, '\n')
		if _, err := w.Write(line); err != nil {
			return err
		}
		line = strconv.AppendInt(line[:0], int64(label), 10)
		for _, v := range s.Sample(i) {
			line = strconv.AppendFloat(append(line, ','), float64(v), 'g', -1, 32)
		}
	}
	_, err := w.Write(append(line, '\n'))
	return err
}
