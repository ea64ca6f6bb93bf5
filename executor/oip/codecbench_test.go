package oip

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"inferplan/executor/oip/oippb"
)

// requestOf is a request of one row of so many floats, and the model that it asks.
func requestOf(tb testing.TB, n int) (*Request, *Catalog) {
	tb.Helper()
	c, err := NewCatalog(ModelInfo{
		Name: "mlp", Versions: []string{"1"}, MaxBatch: 8,
		Inputs:  []TensorInfo{{Name: "x", Datatype: FP32, Shape: []int64{-1, int64(n)}}},
		Outputs: []TensorInfo{{Name: "y", Datatype: FP32, Shape: []int64{-1, 10}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i) / float32(n)
	}
	return &Request{ID: "0123456789abcdef", Model: "mlp", Inputs: []Tensor{{"x", FP32, []int64{1, int64(n)}, raw(v...)}}}, c
}

// The readers of this package beside what would take their place: the generated code
// of the protocol, and encoding/json. docs/dependencies.md has the figures.
func BenchmarkCodec(b *testing.B) {
	for _, floats := range []int{784, 150_528} { // a small picture, and one of 602 KB
		r, c := requestOf(b, floats)
		wire := MarshalRequest(nil, r)
		name := fmt.Sprintf("grpc/%d", floats)
		b.Run(name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := unmarshalRequest(context.Background(), wire, &Request{}, c.lookup); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/generated", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(wire, &oippb.ModelInferRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, binary := range []bool{false, true} {
			benchJSON(b, r, c, binary)
		}
	}
}

// fastestJSON is a library's json.Unmarshal. It is nil without the build tag rivals.
var fastestJSON func(data []byte, v any) error

// jsonRequest is a request as encoding/json binds it.
type jsonRequest struct {
	ID         string         `json:"id"`
	Parameters map[string]any `json:"parameters"`
	Inputs     []struct {
		Name       string         `json:"name"`
		Datatype   string         `json:"datatype"`
		Shape      []int64        `json:"shape"`
		Parameters map[string]any `json:"parameters"`
		Data       []float32      `json:"data"`
	} `json:"inputs"`
	Outputs []struct {
		Name       string         `json:"name"`
		Parameters map[string]any `json:"parameters"`
	} `json:"outputs"`
}

// benchJSON reads a request whose tensor stands in the text, or behind it.
func benchJSON(b *testing.B, r *Request, c *Catalog, binary bool) {
	text, err := EncodeRequest(nil, r, binary, binary)
	if err != nil {
		b.Fatal(err)
	}
	name, tail := "json", []byte(nil)
	if binary {
		name, tail = "head", r.Inputs[0].Data
	}
	name = fmt.Sprintf("%s/%d", name, len(r.Inputs[0].Data)/4)
	b.Run(name+"/ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := decodeRequest(context.Background(), text, tail, c.Models()[0], &Request{Model: "mlp"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(name+"/standard", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(text, &jsonRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	if fastestJSON == nil {
		return
	}
	b.Run(name+"/fastest", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := fastestJSON(text, &jsonRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
