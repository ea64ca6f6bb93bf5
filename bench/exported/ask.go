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
	"inferplan/formats"
	"inferplan/formats/seeded"
)

var types = map[string]engine.DType{
	"FP32": engine.F32, "FP16": engine.F16, "BF16": engine.BF16, "FP64": engine.F64, "INT64": engine.I64, "INT32": engine.I32, "INT16": engine.I16,
	"INT8": engine.I8, "UINT64": engine.U64, "UINT32": engine.U32, "UINT16": engine.U16, "UINT8": engine.U8, "BOOL": engine.Bool,
}

// drawn are values of an input: floats from -1 to 1, whole numbers from 0 to 9.
func drawn(t engine.DType, name string, n int64) ([]byte, error) {
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

// tensor is an input or output over the protocol.
type tensor struct {
	Name       string         `json:"name"`
	Datatype   string         `json:"datatype"`
	Shape      []int64        `json:"shape"`
	Parameters map[string]any `json:"parameters"`
	data       []byte
}

// inputsOf draws a sample for a deployed model; its number distinguishes it from others.
func inputsOf(m *formats.Deployed, sample int) ([]tensor, error) {
	var out []tensor
	for _, in := range m.Inputs {
		x := tensor{Name: in.Name, Datatype: in.DType}
		n := int64(1)
		for _, d := range in.Shape {
			d = max(d, 1)
			x.Shape, n = append(x.Shape, d), n*d
		}
		var err error
		if x.data, err = drawn(types[in.DType], fmt.Sprintf("%s/%d", in.Name, sample), n); err != nil {
			return nil, err
		}
		x.Parameters = map[string]any{"binary_data_size": len(x.data)}
		out = append(out, x)
	}
	return out, nil
}

// together is a request of several samples.
func together(samples [][]tensor) []tensor {
	out := slices.Clone(samples[0])
	for i := range out {
		out[i].Shape = slices.Clone(out[i].Shape)
		out[i].Shape[0] *= int64(len(samples))
		out[i].data = nil
		for _, s := range samples {
			out[i].data = append(out[i].data, s[i].data...)
		}
		out[i].Parameters = map[string]any{"binary_data_size": len(out[i].data)}
	}
	return out
}

// largestBatch is the largest batch that a model ran.
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
	most := 0
	for _, m := range stats.Models {
		for _, b := range m.Batches {
			most = max(most, b.Size)
		}
	}
	return most, nil
}

const lengthHeader = "Inference-Header-Content-Length"

// ask sends a request and returns the outputs by name.
func ask(ctx context.Context, address, model string, inputs []tensor) (map[string]tensor, error) {
	head, err := json.Marshal(map[string]any{"inputs": inputs, "parameters": map[string]any{"binary_data_output": true}})
	if err != nil {
		return nil, err
	}
	body := bytes.NewBuffer(bytes.Clone(head))
	for _, t := range inputs {
		body.Write(t.data)
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
	var answer struct{ Outputs []tensor }
	if err := json.Unmarshal(data[:n], &answer); err != nil {
		return nil, err
	}
	out := map[string]tensor{}
	for rest := data[n:]; len(answer.Outputs) > 0; answer.Outputs = answer.Outputs[1:] {
		t := answer.Outputs[0]
		size, _ := t.Parameters["binary_data_size"].(float64)
		if int(size) > len(rest) {
			return nil, errors.New("an answer that is cut off")
		}
		t.data, rest = rest[:int(size)], rest[int(size):]
		out[t.Name] = t
	}
	return out, nil
}

// differ is the largest difference of two tensors' values, relative to the larger of
// 1 and what is expected.
func differ(t engine.DType, got, want []byte) (float64, error) {
	if len(got) != len(want) {
		return 0, fmt.Errorf("%d bytes, expected %d", len(got), len(want))
	}
	switch t {
	case engine.F32, engine.F64:
	default:
		if !bytes.Equal(got, want) {
			return math.Inf(1), nil
		}
		return 0, nil
	}
	worst, le := 0.0, binary.LittleEndian
	for i := 0; i < len(got); i += t.Size() {
		var a, b float64
		if t == engine.F32 {
			a, b = float64(math.Float32frombits(le.Uint32(got[i:]))), float64(math.Float32frombits(le.Uint32(want[i:])))
		} else {
			a, b = math.Float64frombits(le.Uint64(got[i:])), math.Float64frombits(le.Uint64(want[i:]))
		}
		worst = max(worst, math.Abs(a-b)/max(1, math.Abs(b)))
	}
	return worst, nil
}
