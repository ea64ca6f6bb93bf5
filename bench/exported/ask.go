package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/seeded"
)

var types = map[string]engine.DType{
	"FP32": engine.F32, "FP16": engine.F16, "BF16": engine.BF16, "FP64": engine.F64, "INT64": engine.I64, "INT32": engine.I32, "INT16": engine.I16,
	"INT8": engine.I8, "UINT64": engine.U64, "UINT32": engine.U32, "UINT16": engine.U16, "UINT8": engine.U8, "BOOL": engine.Bool,
}

// values draws the values of an input: floats from -1 to 1, whole numbers from 0 to 9.
func values(t engine.DType, name string, n int64) ([]byte, error) {
	rng := seeded.New(1, "exported/"+name)
	l := graph.Literal{Values: make([]float64, n)}
	for i := range l.Values {
		switch t {
		case engine.F32, engine.F64, engine.F16, engine.BF16:
			l.Values[i] = 2*rng.Float64() - 1
		case engine.Bool:
			l.Values[i] = float64(rng.IntN(2))
		default:
			l.Values[i] = float64(rng.IntN(10))
		}
	}
	return l.Bytes(t)
}

// drawSample draws a sample for a deployed model; its number distinguishes it from others.
func drawSample(m *formats.Deployed, number int) ([]oip.Tensor, error) {
	var sample []oip.Tensor
	for _, in := range m.Inputs {
		datatype, ok := oip.ParseDatatype(in.DType)
		if !ok {
			return nil, fmt.Errorf("input %q has the datatype %s", in.Name, in.DType)
		}
		t := oip.Tensor{Name: in.Name, Datatype: datatype}
		n := int64(1)
		for _, d := range in.Shape {
			t.Shape, n = append(t.Shape, max(d, 1)), n*max(d, 1)
		}
		var err error
		if t.Data, err = values(types[in.DType], fmt.Sprintf("%s/%d", in.Name, number), n); err != nil {
			return nil, err
		}
		sample = append(sample, t)
	}
	return sample, nil
}

// join returns several samples as one.
func join(samples [][]oip.Tensor) []oip.Tensor {
	joined := slices.Clone(samples[0])
	for i := range joined {
		joined[i].Shape, joined[i].Data = slices.Clone(joined[i].Shape), nil
		joined[i].Shape[0] *= int64(len(samples))
		for _, s := range samples {
			joined[i].Data = append(joined[i].Data, s[i].Data...)
		}
	}
	return joined
}

// largestBatch returns the largest batch that a model ran.
func largestBatch(ctx context.Context, address, model string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v2/models/"+model+"/stats", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var stats struct {
		Models []struct {
			Batches []struct {
				Size int `json:"batch_size"`
			} `json:"batch_stats"`
		} `json:"model_stats"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		return 0, fmt.Errorf("reading the statistics: %w", err)
	}
	largest := 0
	for _, m := range stats.Models {
		for _, b := range m.Batches {
			largest = max(largest, b.Size)
		}
	}
	return largest, nil
}

const lengthHeader = "Inference-Header-Content-Length"

// ask sends a request and returns the outputs' bytes by name.
func ask(ctx context.Context, address, model string, inputs []oip.Tensor) (map[string][]byte, error) {
	head, err := oip.EncodeRequest(nil, &oip.Request{Inputs: inputs}, true, true)
	if err != nil {
		return nil, err
	}
	body := bytes.NewBuffer(bytes.Clone(head))
	for _, t := range inputs {
		body.Write(t.Data)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v2/models/"+model+"/infer", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(lengthHeader, strconv.Itoa(len(head)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(data))
	}
	n, err := strconv.Atoi(resp.Header.Get(lengthHeader))
	if err != nil || n > len(data) {
		return nil, errors.New("an answer that is not binary")
	}
	var answer oip.Response
	if err := oip.DecodeResponse(data[:n], data[n:], &answer); err != nil {
		return nil, err
	}
	outputs := map[string][]byte{}
	for _, t := range answer.Outputs {
		outputs[t.Name] = t.Data
	}
	return outputs, nil
}

// difference returns the largest difference of two tensors' values, relative to the larger of 1 and what is expected. Other values than
// floats are equal, or infinitely apart.
func difference(t engine.DType, found, expected []byte) (float64, error) {
	if len(found) != len(expected) {
		return 0, fmt.Errorf("%d bytes, expected %d", len(found), len(expected))
	}
	if bytes.Equal(found, expected) {
		return 0, nil
	}
	le := binary.LittleEndian
	value := func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }
	switch t {
	case engine.F32:
	case engine.F64:
		value = func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }
	default:
		return math.Inf(1), nil
	}
	worst := 0.0
	for i := 0; i < len(found); i += t.Size() {
		a, b := value(found[i:]), value(expected[i:])
		worst = max(worst, math.Abs(a-b)/max(1, math.Abs(b)))
	}
	return worst, nil
}
