package samples

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"inferplan/formats"
)

// Bounds of what a file may ask us to hold.
const (
	maxValues = 1 << 30
	maxLabel  = 1 << 20
)

// Set is labelled samples, Width values each, one after the other.
type Set struct {
	Width  int
	Labels []int
	Values []float32
}

// Sample gives the values of a sample.
func (s *Set) Sample(i int) []float32 { return s.Values[i*s.Width : (i+1)*s.Width] }

// ReadFile reads a file.
func ReadFile(path string) (*Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading samples: %w", err)
	}
	defer f.Close()
	return Read(f, path)
}

// Read reads samples; name is what errors call the source.
func Read(r io.Reader, name string) (*Set, error) {
	b := bufio.NewReader(r)
	r = b
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		r = z
	}
	c := csv.NewReader(r)
	c.ReuseRecord = true
	row, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, &formats.Error{File: name, Line: 1, Found: "an empty file", Expected: "the header label,… and a sample per row"}
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if row[0] != "label" || len(row) < 2 {
		return nil, &formats.Error{File: name, Line: 1, Found: strconv.Quote(row[0]), Expected: "a header that starts with label and has a column per value of the model's input"}
	}
	s := &Set{Width: len(row) - 1}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if err := s.add(row); err != nil {
			err.File = name
			err.Line, _ = c.FieldPos(0)
			return nil, err
		}
	}
	if len(s.Labels) == 0 {
		return nil, &formats.Error{File: name, Found: "no row below the header", Expected: "a sample per row"}
	}
	return s, nil
}

func (s *Set) add(row []string) *formats.Error {
	label, err := strconv.Atoi(row[0])
	if err != nil || label < 0 || label > maxLabel {
		return &formats.Error{Path: "label", Found: strconv.Quote(row[0]), Expected: "a class, counted from 0"}
	}
	if len(s.Values)+s.Width > maxValues {
		return &formats.Error{Path: "label", Found: "more samples", Expected: fmt.Sprintf("at most %d values", maxValues)}
	}
	s.Labels = append(s.Labels, label)
	for i, text := range row[1:] {
		v, err := strconv.ParseFloat(text, 32)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return &formats.Error{Path: fmt.Sprintf("column %d", i+2), Found: strconv.Quote(text), Expected: "a number"}
		}
		s.Values = append(s.Values, float32(v))
	}
	return nil
}

// WriteFile writes a set whole or not at all, compressed where the name ends in
// .gz.
func (s *Set) WriteFile(path string) error {
	var out bytes.Buffer
	var w io.Writer = &out
	var z *gzip.Writer
	if strings.HasSuffix(path, ".gz") {
		z = gzip.NewWriter(&out)
		w = z
	}
	line := []byte("label")
	for i := range s.Width {
		line = fmt.Appendf(line, ",v%d", i)
	}
	for i, label := range s.Labels {
		line = append(line, '\n')
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("writing samples: %w", err)
		}
		line = strconv.AppendInt(line[:0], int64(label), 10)
		for _, v := range s.Sample(i) {
			line = strconv.AppendFloat(append(line, ','), float64(v), 'g', -1, 32)
		}
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing samples: %w", err)
	}
	if z != nil {
		if err := z.Close(); err != nil {
			return fmt.Errorf("writing samples: %w", err)
		}
	}
	if _, err := formats.WriteBytes(path, out.Bytes(), formats.Force(true)); err != nil {
		return fmt.Errorf("writing samples: %w", err)
	}
	return nil
}
