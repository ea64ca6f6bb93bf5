package oip

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"inferplan/executor/oip/oippb"

	"inferplan/executor/httplimit"
)

func TestMain(m *testing.M) {
	// net/http lingers for half a second on a connection that it closes before
	// the client has sent all.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// fake is a backend whose answers a test chooses.
type fake struct {
	catalog  *Catalog
	notReady atomic.Bool
	infer    func(ctx context.Context, r *Request) (*Response, error)
	released atomic.Int64
}

func (f *fake) Ready() bool      { return !f.notReady.Load() }
func (f *fake) Models() *Catalog { return f.catalog }
func (f *fake) Infer(ctx context.Context, r *Request) (*Response, error) {
	return f.infer(ctx, r)
}

func (f *fake) Statistics(model, version string) []ModelStatistics {
	var out []ModelStatistics
	for _, m := range f.catalog.Models() {
		if model != "" && m.Name != model {
			continue
		}
		s := ModelStatistics{Name: m.Name, Version: m.Versions[0], LastInference: 7, InferenceCount: 8, ExecutionCount: 1}
		s.Inference.Success.Add(1, 1500)
		s.Batches = []BatchStats{{BatchSize: 8, ComputeInfer: DurationStat{1, 1200}}}
		out = append(out, s)
	}
	return out
}

func (f *fake) ModelReady(model, _ string) bool { return model != "cold" }

// models: mlp batches; mix takes one tensor of several datatypes; echo returns
// a BYTES tensor; cold is never ready.
func testCatalog(t testing.TB) *Catalog {
	t.Helper()
	c, err := NewCatalog(
		ModelInfo{
			Name: "mlp", Versions: []string{"1", "2"}, Platform: "onnx", MaxBatch: 8,
			Inputs:  []TensorInfo{{Name: "x", Datatype: FP32, Shape: []int64{-1, 4}}},
			Outputs: []TensorInfo{{Name: "y", Datatype: FP32, Shape: []int64{-1, 2}}, {Name: "label", Datatype: Int64, Shape: []int64{-1}}},
		},
		ModelInfo{
			Name: "mix", Versions: []string{"1"}, Platform: "onnx",
			Inputs: []TensorInfo{
				{Name: "bool", Datatype: Bool, Shape: []int64{-1}, Optional: true},
				{Name: "u8", Datatype: Uint8, Shape: []int64{-1}, Optional: true},
				{Name: "u16", Datatype: Uint16, Shape: []int64{-1}, Optional: true},
				{Name: "u32", Datatype: Uint32, Shape: []int64{-1}, Optional: true},
				{Name: "u64", Datatype: Uint64, Shape: []int64{-1}, Optional: true},
				{Name: "i8", Datatype: Int8, Shape: []int64{-1}, Optional: true},
				{Name: "i16", Datatype: Int16, Shape: []int64{-1}, Optional: true},
				{Name: "i32", Datatype: Int32, Shape: []int64{-1}, Optional: true},
				{Name: "i64", Datatype: Int64, Shape: []int64{-1}, Optional: true},
				{Name: "f16", Datatype: FP16, Shape: []int64{-1}, Optional: true},
				{Name: "f32", Datatype: FP32, Shape: []int64{-1}, Optional: true},
				{Name: "f64", Datatype: FP64, Shape: []int64{-1}, Optional: true},
				{Name: "text", Datatype: Bytes, Shape: []int64{-1}, Optional: true},
				{Name: "b16", Datatype: BF16, Shape: []int64{-1}, Optional: true},
				{Name: "grid", Datatype: Int32, Shape: []int64{2, -1}, Optional: true},
				{Name: "one", Datatype: FP64, Shape: nil, Optional: true},
			},
			Outputs: []TensorInfo{{Name: "out", Datatype: FP32, Shape: []int64{-1}}},
		},
		ModelInfo{
			Name: "cold", Versions: []string{"1"}, Platform: "onnx",
			Inputs:  []TensorInfo{{Name: "x", Datatype: FP32, Shape: []int64{1}}},
			Outputs: []TensorInfo{{Name: "y", Datatype: FP32, Shape: []int64{1}}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newFake answers mlp with y = (sum, first) per row and label = row, and any
// other model with its own inputs.
func newFake(t testing.TB) *fake {
	f := &fake{catalog: testCatalog(t)}
	f.infer = func(_ context.Context, r *Request) (*Response, error) {
		resp := &Response{Release: func() { f.released.Add(1) }}
		if r.Model != "mlp" {
			resp.Outputs = append(resp.Outputs, r.Inputs...)
			return resp, nil
		}
		x := floats(r.Inputs[0].Data)
		var y []float32
		var label []byte
		for row := range r.Batch {
			v := x[row*4 : row*4+4]
			y = append(y, v[0]+v[1]+v[2]+v[3], v[0])
			label = binary.LittleEndian.AppendUint64(label, uint64(row))
		}
		n := int64(r.Batch)
		resp.Outputs = []Tensor{{"y", FP32, []int64{n, 2}, raw(y...)}, {"label", Int64, []int64{n}, label}}
		return resp, nil
	}
	return f
}

func raw(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func floats(b []byte) []float32 {
	var v []float32
	for ; len(b) >= 4; b = b[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return v
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// startHTTP serves on a loopback port until the test ends.
func startHTTP(t testing.TB, b Backend, opt Options) (*HTTPServer, string) {
	t.Helper()
	if opt.Door == nil {
		opt.Door = behind(httplimit.Door{})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewHTTPServer(b, opt)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, "http://" + l.Addr().String()
}

// startGRPC serves on a pipe until the test ends.
func startGRPC(t testing.TB, b Backend, opt Options, dial ...grpc.DialOption) (*GRPCServer, *grpc.ClientConn) {
	t.Helper()
	if opt.Door == nil {
		opt.Door = behind(httplimit.Door{})
	}
	l := bufconn.Listen(1 << 20)
	s := NewGRPCServer(b, opt)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	if len(dial) == 0 {
		dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	dial = append(dial, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	cc, err := grpc.NewClient("passthrough:///pipe", dial...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cc.Close()
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, cc
}

// do sends one request to the handler without a network.
func do(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8000"
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestBothTransportsServeTheSameBackend(t *testing.T) {
	f := newFake(t)
	_, url := startHTTP(t, f, Options{})
	_, cc := startGRPC(t, f, Options{})

	resp, err := http.Post(url+"/v2/models/mlp/infer", "application/json",
		strings.NewReader(`{"id":"a","inputs":[{"name":"x","shape":[2,4],"datatype":"FP32","data":[1,2,3,4,5,6,7,8]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	want := `{"id":"a","model_name":"mlp","model_version":"2","outputs":[{"name":"y","datatype":"FP32","shape":[2,2],"data":[10,1,26,5]},{"name":"label","datatype":"INT64","shape":[2],"data":[0,1]}]}`
	if resp.StatusCode != 200 || string(body) != want {
		t.Errorf("HTTP: %d %s\nwant %s", resp.StatusCode, body, want)
	}

	out, err := oippb.NewGRPCInferenceServiceClient(cc).ModelInfer(t.Context(), &oippb.ModelInferRequest{
		ModelName: "mlp", Id: "b",
		Inputs:           []*oippb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{2, 4}}},
		RawInputContents: [][]byte{raw(1, 2, 3, 4, 5, 6, 7, 8)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if out.GetId() != "b" || out.GetModelVersion() != "2" || !bytes.Equal(out.GetRawOutputContents()[0], raw(10, 1, 26, 5)) {
		t.Errorf("gRPC: %v", out)
	}
	if n := f.released.Load(); n != 2 {
		t.Errorf("released %d responses, want 2", n)
	}
}

// behind is a door that logs nothing.
func behind(d httplimit.Door) *httplimit.Door {
	d.Log = quiet
	return &d
}

// ring is a keyring with a key of that token.
func ring(token string) *httplimit.Keyring {
	k, err := httplimit.NewKeyring(httplimit.Key{Token: token, Name: "somebody"})
	if err != nil {
		panic(err)
	}
	return k
}
