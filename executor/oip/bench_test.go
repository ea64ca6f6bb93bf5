package oip

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"inferplan/cputime"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip/oippb"
)

// The benchmarks use an input of 784 floats, as a small MLP takes, and ten out.

func benchBackend(tb testing.TB) *fake {
	c, err := NewCatalog(ModelInfo{
		Name: "mlp", Versions: []string{"1"}, MaxBatch: 8,
		Inputs:  []TensorInfo{{Name: "x", Datatype: FP32, Shape: []int64{-1, 784}}},
		Outputs: []TensorInfo{{Name: "y", Datatype: FP32, Shape: []int64{-1, 10}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	out := make([]byte, 40)
	return &fake{catalog: c, infer: func(context.Context, *Request) (*Response, error) {
		return &Response{Outputs: []Tensor{{"y", FP32, []int64{1, 10}, out}}}, nil
	}}
}

func benchRequest() *Request {
	v := make([]float32, 784)
	for i := range v {
		v[i] = float32(i) / 783
	}
	return &Request{ID: "0123456789abcdef", Model: "mlp", Timeout: 200 * time.Millisecond,
		Inputs: []Tensor{{"x", FP32, []int64{1, 784}, raw(v...)}}}
}

func benchDecode(b *testing.B, r *Request, binary bool) {
	text, err := EncodeRequest(nil, r, binary, binary)
	if err != nil {
		b.Fatal(err)
	}
	var tail []byte
	if binary {
		tail = r.Inputs[0].Data
	}
	m := benchBackend(b).catalog.Models()[0]
	b.ReportAllocs()
	for b.Loop() {
		got := &Request{Model: "mlp"}
		if err := decodeRequest(context.Background(), text, tail, m, got); err != nil {
			b.Fatal(err)
		}
		if err := m.validate(got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeHTTPBinary784(b *testing.B) { benchDecode(b, benchRequest(), true) }
func BenchmarkDecodeHTTPJSON784(b *testing.B)   { benchDecode(b, benchRequest(), false) }

func BenchmarkDecodeGRPC784(b *testing.B) {
	wire := MarshalRequest(nil, benchRequest())
	c := benchBackend(b).catalog
	b.ReportAllocs()
	for b.Loop() {
		got := &Request{}
		if err := unmarshalRequest(context.Background(), wire, got, c.lookup); err != nil {
			b.Fatal(err)
		}
		if err := c.Models()[0].validate(got); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeHTTPBinary10(b *testing.B) {
	resp := &Response{ID: "0123456789abcdef", Model: "mlp", Version: "1", Outputs: []Tensor{{"y", FP32, []int64{1, 10}, make([]byte, 40)}}}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := encodeResponse(buf, resp, func(int) bool { return true }); err != nil {
			b.Fatal(err)
		}
	}
}

// reportCPU runs loop and reports CPU per request of client and server together.
func reportCPU(b *testing.B, loop func()) {
	b.ReportAllocs()
	before := cputime.Used()
	loop()
	b.ReportMetric(float64((cputime.Used()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// End to end over loopback TCP against a backend that does nothing. The client
// writes prepared bytes and reads the answer, so nearly all is the server's.
func benchHTTP(b *testing.B, binary bool) {
	_, url := startHTTP(b, benchBackend(b), Options{})
	r := benchRequest()
	text, err := EncodeRequest(nil, r, binary, binary)
	if err != nil {
		b.Fatal(err)
	}
	body, header := text, ""
	if binary {
		header = fmt.Sprintf("%s: %d\r\n", HeaderJSONLength, len(text))
		body = append(bytes.Clone(text), r.Inputs[0].Data...)
	}
	wire := append([]byte("POST /v2/models/mlp/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n"+header+"\r\n"), body...)
	conn, err := net.Dial("tcp", url[len("http://"):])
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	reportCPU(b, func() {
		for b.Loop() {
			if _, err := conn.Write(wire); err != nil {
				b.Fatal(err)
			}
			size := 0
			for i := 0; ; i++ {
				line, err := in.ReadSlice('\n')
				if err != nil {
					b.Fatal(err)
				}
				if i == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
					b.Fatalf("%s", line)
				}
				if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
					size, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
				}
				if len(line) == 2 {
					break
				}
			}
			if _, err := in.Discard(size); err != nil || size == 0 {
				b.Fatal(size, err)
			}
		}
	})
}

func BenchmarkEndToEndHTTPBinary784(b *testing.B) { benchHTTP(b, true) }
func BenchmarkEndToEndHTTPJSON784(b *testing.B)   { benchHTTP(b, false) }

// rawCodec passes prepared bytes through.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error { return nil }

func BenchmarkEndToEndGRPC784(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := NewGRPCServer(benchBackend(b), Options{Door: behind(httplimit.Door{})})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() { s.Close(); <-done }()
	cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2("proto")})))
	if err != nil {
		b.Fatal(err)
	}
	defer cc.Close()
	wire := MarshalRequest(nil, benchRequest())
	reportCPU(b, func() {
		for b.Loop() {
			if err := cc.Invoke(context.Background(), oippb.GRPCInferenceService_ModelInfer_FullMethodName, &wire, &wire); err != nil {
				b.Fatal(err)
			}
		}
	})
}
