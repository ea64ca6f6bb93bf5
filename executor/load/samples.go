package load

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/executor/oip"
	"inferplan/formats/importer/samples"
)

// Samples are real inputs. They are sent in turn in place of random ones, in an order that the seed shuffles. They
// matter for cascades: which model of a cascade answers depends on the input, so random numbers do not show its load.
type Samples struct {
	source string
	rows   *samples.SampleSet // labelled samples, with one input each
	bodies [][]byte           // or requests of the protocol
	texts  []string           // or texts
}

// Bounds of a file of texts or a folder of requests.
const (
	maxSamples = 100_000
	maxBodies  = 1 << 30 // bytes
)

// ReadSamples reads samples from a path: labelled samples from a CSV file (the one that records are made of), texts
// from a file *.txt, one per line, or requests of the protocol from the files *.json of a folder, in the order of
// their names.
func ReadSamples(path string) (*Samples, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading inputs: %w", err)
	}
	s := &Samples{source: path}
	if strings.HasSuffix(path, ".txt") && !info.IsDir() {
		return s, s.readTexts(path)
	}
	if !info.IsDir() {
		if s.rows, err = samples.ReadFile(path); err != nil {
			return nil, err
		}
		return s, nil
	}

	// Read the requests in a folder.
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("reading inputs: %w", err)
	}
	size := 0
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		body, err := os.ReadFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading inputs: %w", err)
		}
		if size += len(body); size > maxBodies || len(s.bodies) == maxSamples {
			return nil, fmt.Errorf("%s: found more than %d requests or %d bytes, expected fewer", path, maxSamples, maxBodies)
		}
		s.bodies = append(s.bodies, body)
	}
	if len(s.bodies) == 0 {
		return nil, fmt.Errorf("%s: found no *.json, expected requests of the protocol, such as {\"inputs\": [{\"name\": \"x\", \"shape\": [1, 2], \"datatype\": \"FP32\", \"data\": [0, 1]}]}", path)
	}
	return s, nil
}

// readTexts reads a text from each line that is not empty.
func (s *Samples) readTexts(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading inputs: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			s.texts = append(s.texts, line)
		}
	}
	if n := len(s.texts); n == 0 || n > maxSamples {
		return fmt.Errorf("%s: found %d texts, expected 1 to %d, one a line", path, n, maxSamples)
	}
	return nil
}

// Len returns the number of samples.
func (s *Samples) Len() int {
	if s.texts != nil {
		return len(s.texts)
	}
	if s.rows != nil {
		return len(s.rows.Labels)
	}
	return len(s.bodies)
}

// inputs returns the inputs of the requests to a model, one for each sample. A sample that does not fit the model
// is an error.
func (s *Samples) inputs(info *oip.ModelInfo, m *Model) ([]Inputs, error) {
	switch {
	case s.rows != nil:
		return s.inputsOfRows(info, m)
	case s.texts != nil:
		return s.inputsOfTexts(info, m)
	}
	var out []Inputs
	for i, body := range s.bodies {
		var r oip.Request
		if err := oip.DecodeRequest(body, nil, info, &r); err != nil {
			return nil, fmt.Errorf("%s: request %d: %w", s.source, i+1, err)
		}
		for k := range r.Inputs {
			if !hasInput(info, r.Inputs[k].Name) {
				return nil, fmt.Errorf("%s: request %d: found the input %q, which model %q does not have", s.source, i+1, r.Inputs[k].Name, m.Name)
			}
		}
		out = append(out, slices.Clone(r.Inputs))
	}
	return out, nil
}

// inputsOfTexts returns an input for every text, as a row of bytes padded with zeros, for a model of one such
// input.
func (s *Samples) inputsOfTexts(info *oip.ModelInfo, m *Model) ([]Inputs, error) {
	if len(info.Inputs) != 1 || info.Inputs[0].Datatype != oip.Uint8 || len(info.Inputs[0].Shape) != 2 {
		return nil, fmt.Errorf("%s: model %q has %d inputs, the first of %s; texts are for models of one input, a row of UINT8: give a folder of requests", s.source, m.Name, len(info.Inputs), info.Inputs[0].Datatype)
	}
	in := &info.Inputs[0]
	size := in.Shape[1]
	out := make([]Inputs, 0, len(s.texts))
	for i, text := range s.texts {
		if int64(len(text)) > size {
			return nil, fmt.Errorf("%s: text %d: found %d bytes, expected at most the %d of model %q", s.source, i+1, len(text), size, m.Name)
		}
		data := make([]byte, size)
		copy(data, text)
		out = append(out, Inputs{{Name: in.Name, Datatype: in.Datatype, Shape: []int64{1, size}, Data: data}})
	}
	return out, nil
}

// inputsOfRows returns an input for every labelled sample, a row of numbers, for a model of one input of floats.
// The label is not sent.
func (s *Samples) inputsOfRows(info *oip.ModelInfo, m *Model) ([]Inputs, error) {
	if len(info.Inputs) != 1 || info.Inputs[0].Datatype != oip.FP32 && info.Inputs[0].Datatype != oip.FP64 {
		return nil, fmt.Errorf("%s: model %q has %d inputs, the first of %s; labelled samples are for models of one input in FP32 or FP64: give a folder of requests", s.source, m.Name, len(info.Inputs), info.Inputs[0].Datatype)
	}
	in := &info.Inputs[0]
	single := *m
	single.Batch = 1
	shape, n, err := concreteShape(in, &single)
	if err != nil {
		return nil, fmt.Errorf("model %q, input %q: %w", m.Name, in.Name, err)
	}
	if n != int64(s.rows.Width) {
		return nil, fmt.Errorf("%s: found %d values per sample, model %q takes %d (%v)", s.source, s.rows.Width, m.Name, n, shape)
	}

	// Encode the values of each sample.
	out := make([]Inputs, 0, s.Len())
	for i := range s.rows.Labels {
		data := make([]byte, 0, int(n)*in.Datatype.Size())
		for _, v := range s.rows.Sample(i) {
			if in.Datatype == oip.FP64 {
				data = binary.LittleEndian.AppendUint64(data, math.Float64bits(float64(v)))
			} else {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			}
		}
		out = append(out, Inputs{{Name: in.Name, Datatype: in.Datatype, Shape: shape, Data: data}})
	}
	return out, nil
}
