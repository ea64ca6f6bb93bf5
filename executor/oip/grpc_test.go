package oip

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip/oippb"
)

type (
	pbInput  = oippb.ModelInferRequest_InferInputTensor
	pbOutput = oippb.ModelInferRequest_InferRequestedOutputTensor
	pbData   = oippb.InferTensorContents
)

func pbParam(v any) *oippb.InferParameter {
	switch v := v.(type) {
	case int64:
		return &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_Int64Param{Int64Param: v}}
	case uint64:
		return &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_Uint64Param{Uint64Param: v}}
	case string:
		return &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_StringParam{StringParam: v}}
	case bool:
		return &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_BoolParam{BoolParam: v}}
	case float64:
		return &oippb.InferParameter{ParameterChoice: &oippb.InferParameter_DoubleParam{DoubleParam: v}}
	}
	return &oippb.InferParameter{}
}

func goodPB() *oippb.ModelInferRequest {
	return &oippb.ModelInferRequest{ModelName: "mlp", Inputs: []*pbInput{{Name: "x", Datatype: "FP32", Shape: []int64{1, 4}}}, RawInputContents: [][]byte{raw(1, 2, 3, 4)}}
}

func TestGRPCMethods(t *testing.T) {
	f := newFake(t)
	_, cc := startGRPC(t, f, Options{Version: "1.2"})
	c, ctx := oippb.NewGRPCInferenceServiceClient(cc), t.Context()
	if r, err := c.ServerLive(ctx, &oippb.ServerLiveRequest{}); err != nil || !r.GetLive() {
		t.Error("live", r, err)
	}
	if r, err := c.ServerReady(ctx, &oippb.ServerReadyRequest{}); err != nil || !r.GetReady() {
		t.Error("ready", r, err)
	}
	if r, err := c.ModelReady(ctx, &oippb.ModelReadyRequest{Name: "cold"}); err != nil || r.GetReady() {
		t.Error("cold is ready", r, err)
	}
	if _, err := c.ModelReady(ctx, &oippb.ModelReadyRequest{Name: "nope"}); status.Code(err) != codes.NotFound {
		t.Error("nope", err)
	}
	if r, err := c.ServerMetadata(ctx, &oippb.ServerMetadataRequest{}); err != nil || r.GetName() != "inferplan" || r.GetVersion() != "1.2" || len(r.GetExtensions()) != len(Extensions) {
		t.Error("metadata", r, err)
	}
	if r, err := c.ModelMetadata(ctx, &oippb.ModelMetadataRequest{Name: "mlp"}); err != nil || r.GetInputs()[0].GetDatatype() != "FP32" || r.GetInputs()[0].GetShape()[0] != -1 || len(r.GetOutputs()) != 2 {
		t.Error("model metadata", r, err)
	}
	if r, err := c.ModelStatistics(ctx, &oippb.ModelStatisticsRequest{}); err != nil || len(r.GetModelStats()) != 3 || r.GetModelStats()[0].GetInferenceStats().GetSuccess().GetNs() != 1500 || r.GetModelStats()[0].GetBatchStats()[0].GetBatchSize() != 8 {
		t.Error("statistics", r, err)
	}
	if r, err := c.RepositoryIndex(ctx, &oippb.RepositoryIndexRequest{Ready: true}); err != nil || len(r.GetModels()) != 3 || r.GetModels()[0].GetState() != "READY" {
		t.Error("index", r, err)
	}
	f.notReady.Store(true)
	if r, err := c.ServerReady(ctx, &oippb.ServerReadyRequest{}); err != nil || r.GetReady() {
		t.Error("ready though the backend is not", r, err)
	}
}

func TestGRPCTypedContents(t *testing.T) {
	f := newFake(t)
	_, cc := startGRPC(t, f, Options{})
	c := oippb.NewGRPCInferenceServiceClient(cc)
	le := binary.LittleEndian
	for _, tc := range []struct {
		name string
		dt   Datatype
		n    int64
		data *pbData
		want []byte
	}{
		{"bool", Bool, 2, &pbData{BoolContents: []bool{true, false}}, []byte{1, 0}},
		{"u8", Uint8, 2, &pbData{UintContents: []uint32{0, 255}}, []byte{0, 255}},
		{"u16", Uint16, 1, &pbData{UintContents: []uint32{65535}}, []byte{255, 255}},
		{"u32", Uint32, 1, &pbData{UintContents: []uint32{1 << 31}}, le.AppendUint32(nil, 1<<31)},
		{"u64", Uint64, 1, &pbData{Uint64Contents: []uint64{1 << 63}}, le.AppendUint64(nil, 1<<63)},
		{"i8", Int8, 2, &pbData{IntContents: []int32{-128, 127}}, []byte{128, 127}},
		{"i16", Int16, 1, &pbData{IntContents: []int32{-2}}, []byte{254, 255}},
		{"i32", Int32, 1, &pbData{IntContents: []int32{-3}}, []byte{253, 255, 255, 255}},
		{"i64", Int64, 1, &pbData{Int64Contents: []int64{-1}}, bytes.Repeat([]byte{255}, 8)},
		{"f32", FP32, 2, &pbData{Fp32Contents: []float32{1, -2}}, raw(1, -2)},
		{"f64", FP64, 1, &pbData{Fp64Contents: []float64{0.1}}, le.AppendUint64(nil, math.Float64bits(0.1))},
		{"text", Bytes, 2, &pbData{BytesContents: [][]byte{[]byte("a"), {}}}, []byte{1, 0, 0, 0, 'a', 0, 0, 0, 0}},
	} {
		out, err := c.ModelInfer(t.Context(), &oippb.ModelInferRequest{ModelName: "mix", Id: "7", Inputs: []*pbInput{{Name: tc.name, Datatype: tc.dt.String(), Shape: []int64{tc.n}, Contents: tc.data}}})
		if err != nil {
			t.Errorf("%s: %v", tc.dt, err)
			continue
		}
		if !bytes.Equal(out.GetRawOutputContents()[0], tc.want) || out.GetOutputs()[0].GetDatatype() != tc.dt.String() || out.GetId() != "7" {
			t.Errorf("%s: got %v, want %v", tc.dt, out, tc.want)
		}
	}
}

func TestGRPCErrorsCarryCodeReasonAndField(t *testing.T) {
	f := newFake(t)
	_, cc := startGRPC(t, f, Options{MaxBodyBytes: 1 << 16, MaxTensors: 2})
	c := oippb.NewGRPCInferenceServiceClient(cc)
	with := func(change func(*oippb.ModelInferRequest)) *oippb.ModelInferRequest {
		r := goodPB()
		change(r)
		return r
	}
	inner := f.infer
	for _, tc := range []struct {
		name string
		req  *oippb.ModelInferRequest
		fail error
		code codes.Code
		want string
	}{
		{"model", with(func(r *oippb.ModelInferRequest) { r.ModelName = "nope" }), nil, codes.NotFound, `model "nope"`},
		{"version", with(func(r *oippb.ModelInferRequest) { r.ModelVersion = "9" }), nil, codes.NotFound, `no version "9"`},
		{"datatype", with(func(r *oippb.ModelInferRequest) { r.Inputs[0].Datatype = "INT32" }), nil, codes.InvalidArgument, `inputs[0] "x" datatype: got INT32, the model takes FP32`},
		{"datatype name", with(func(r *oippb.ModelInferRequest) { r.Inputs[0].Datatype = "F" }), nil, codes.InvalidArgument, `inputs[0].datatype: unknown datatype "F"`},
		{"shape", with(func(r *oippb.ModelInferRequest) { r.Inputs[0].Shape = []int64{4} }), nil, codes.InvalidArgument, `inputs[0] "x" shape: got [4]`},
		{"negative", with(func(r *oippb.ModelInferRequest) { r.Inputs[0].Shape = []int64{-1, 4} }), nil, codes.InvalidArgument, `shape: got [-1 4]`},
		{"rank", with(func(r *oippb.ModelInferRequest) { r.Inputs[0].Shape = make([]int64, 17) }), nil, codes.InvalidArgument, `inputs[0].shape: more than 16 dimensions`},
		{"bytes", with(func(r *oippb.ModelInferRequest) { r.RawInputContents[0] = []byte{1} }), nil, codes.InvalidArgument, `got 1 bytes, shape [1 4] of FP32 has 16`},
		{"raw count", with(func(r *oippb.ModelInferRequest) { r.RawInputContents = append(r.RawInputContents, nil) }), nil, codes.InvalidArgument, `raw_input_contents: 2 entries for 1 inputs`},
		{"raw and typed", with(func(r *oippb.ModelInferRequest) { r.Inputs[0].Contents = &pbData{Fp32Contents: []float32{1}} }), nil, codes.InvalidArgument, `inputs[0].contents: given together with raw_input_contents`},
		{"wrong contents", with(func(r *oippb.ModelInferRequest) {
			r.RawInputContents, r.Inputs[0].Contents = nil, &pbData{Fp64Contents: []float64{1}}
		}), nil, codes.InvalidArgument, `inputs[0].contents.fp64_contents: does not hold FP32; use fp32_contents`},
		{"range", &oippb.ModelInferRequest{ModelName: "mix", Inputs: []*pbInput{{Name: "i8", Datatype: "INT8", Shape: []int64{1}, Contents: &pbData{IntContents: []int32{128}}}}}, nil, codes.InvalidArgument, `element 0: 128 is out of range for INT8`},
		{"FP16 typed", &oippb.ModelInferRequest{ModelName: "mix", Inputs: []*pbInput{{Name: "f16", Datatype: "FP16", Shape: []int64{1}, Contents: &pbData{Fp32Contents: []float32{1}}}}}, nil, codes.InvalidArgument, `FP16 travels in raw contents only`},
		{"missing", with(func(r *oippb.ModelInferRequest) { r.Inputs, r.RawInputContents = nil, nil }), nil, codes.InvalidArgument, `input "x" is missing`},
		{"no data", with(func(r *oippb.ModelInferRequest) { r.RawInputContents = nil }), nil, codes.InvalidArgument, `got 0 bytes`},
		{"output", with(func(r *oippb.ModelInferRequest) { r.Outputs = []*pbOutput{{Name: "q"}} }), nil, codes.InvalidArgument, `outputs[0] "q"`},
		{"timeout", with(func(r *oippb.ModelInferRequest) {
			r.Parameters = map[string]*oippb.InferParameter{"timeout": pbParam(int64(-1))}
		}), nil, codes.InvalidArgument, `parameters.timeout`},
		{"parameter without value", with(func(r *oippb.ModelInferRequest) {
			r.Parameters = map[string]*oippb.InferParameter{"k": pbParam(nil)}
		}), nil, codes.InvalidArgument, `parameters.k: has no value`},
		{"too many", with(func(r *oippb.ModelInferRequest) {
			r.Inputs = append(r.Inputs, r.Inputs[0], r.Inputs[0])
			r.RawInputContents = nil
		}), nil, codes.ResourceExhausted, `3 tensors, at most 2`},
		{"message size", with(func(r *oippb.ModelInferRequest) { r.RawInputContents[0] = make([]byte, 1<<17) }), nil, codes.ResourceExhausted, `larger than max`},
		{"drop", goodPB(), httplimit.Dropped("queue_full", "full"), codes.ResourceExhausted, "full"},
		{"unavailable", goodPB(), httplimit.Unavailable("draining", "going"), codes.Unavailable, "going"},
		{"deadline", goodPB(), context.DeadlineExceeded, codes.DeadlineExceeded, "deadline"},
		{"internal", goodPB(), errors.New("disk"), codes.Internal, "disk"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.infer = inner
			if tc.fail != nil {
				f.infer = func(context.Context, *Request) (*Response, error) { return nil, tc.fail }
			}
			_, err := c.ModelInfer(t.Context(), tc.req)
			if status.Code(err) != tc.code || !strings.Contains(status.Convert(err).Message(), tc.want) {
				t.Errorf("got %v, want %s with %q", err, tc.code, tc.want)
			}
		})
	}
	f.infer = func(context.Context, *Request) (*Response, error) {
		return nil, httplimit.Dropped("queue_full", "full")
	}
	_, err := c.ModelInfer(t.Context(), goodPB())
	info, _ := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
	if info.GetReason() != "queue_full" || info.GetDomain() != ErrorDomain {
		t.Errorf("details %v", info)
	}
	f.infer = func(context.Context, *Request) (*Response, error) { panic("boom") }
	if _, err := c.ModelInfer(t.Context(), goodPB()); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "boom") {
		t.Errorf("panic: %v", err)
	}
}

func TestGRPCBudgetAndParameters(t *testing.T) {
	f := newFake(t)
	var got *Request
	inner := f.infer
	f.infer = func(ctx context.Context, r *Request) (*Response, error) { got = r; return inner(ctx, r) }
	_, cc := startGRPC(t, f, Options{})
	c := oippb.NewGRPCInferenceServiceClient(cc)
	r := goodPB()
	r.Parameters = map[string]*oippb.InferParameter{"timeout": pbParam(int64(90_000_000)), "priority": pbParam(uint64(2)), "k": pbParam("v"), "b": pbParam(true), "d": pbParam(1.5)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.ModelInfer(ctx, r); err != nil {
		t.Fatal(err)
	}
	if got.Timeout > time.Minute || got.Timeout <= 0 || got.Priority != 2 || got.Params["k"] != "v" || got.Params["b"] != true || got.Params["d"] != 1.5 {
		t.Errorf("got %+v", got)
	}
	if _, err := c.ModelInfer(t.Context(), r); err != nil || got.Timeout != 90*time.Second {
		t.Errorf("timeout %v, %v", got.Timeout, err)
	}
}

func TestGRPCHealthReflectionAndToken(t *testing.T) {
	f := newFake(t)
	s, cc := startGRPC(t, f, Options{Door: behind(httplimit.Door{Keys: ring("s3cret-s3cret-s3cret")})})
	h := healthpb.NewHealthClient(cc)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := h.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Error("watch", r, err)
	}
	f.notReady.Store(true)
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Error("watch after the change", r, err)
	}
	f.notReady.Store(false)
	if r, err := h.Check(ctx, &healthpb.HealthCheckRequest{Service: "inference.GRPCInferenceService"}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Error("check", r, err)
	}
	if _, err := h.Check(ctx, &healthpb.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Error("check of an unknown service", err)
	}
	c := oippb.NewGRPCInferenceServiceClient(cc)
	if _, err := c.ModelInfer(ctx, goodPB()); status.Code(err) != codes.Unauthenticated {
		t.Error("without a token:", err)
	}
	authed := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer s3cret-s3cret-s3cret")
	if _, err := c.ModelInfer(authed, goodPB()); err != nil {
		t.Error(err)
	}
	stream, err := reflectpb.NewServerReflectionClient(cc).ServerReflectionInfo(authed)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "inference.GRPCInferenceService"}}); err != nil {
		t.Fatal(err)
	}
	if r, err := stream.Recv(); err != nil || len(r.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
		t.Error("reflection", r, err)
	}
	stream.CloseSend()
	// A watcher does not hold up the end of the server.
	stop, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	if err := s.Drain(stop); err != nil {
		t.Error(err)
	}
}

func TestGRPCInProcess(t *testing.T) {
	s := NewGRPCServer(newFake(t), Options{Door: behind(httplimit.Door{})})
	defer s.Close()
	out, err := s.ModelInfer(t.Context(), goodPB())
	if err != nil || !bytes.Equal(out.GetRawOutputContents()[0], raw(10, 1)) {
		t.Errorf("got %v %v", out, err)
	}
}

func TestGRPCDrainRefusesWhileFinishing(t *testing.T) {
	f := newFake(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	inner := f.infer
	f.infer = func(ctx context.Context, r *Request) (*Response, error) {
		close(entered)
		<-leave
		return inner(ctx, r)
	}
	s, cc := startGRPC(t, f, Options{})
	c := oippb.NewGRPCInferenceServiceClient(cc)
	first := make(chan error, 1)
	go func() { _, err := c.ModelInfer(t.Context(), goodPB()); first <- err }()
	<-entered
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(t.Context()) }()
	for !s.core.gate.IsClosed() {
		time.Sleep(time.Millisecond)
	}
	if _, err := c.ModelInfer(t.Context(), goodPB()); status.Code(err) != codes.Unavailable {
		t.Errorf("while draining: %v", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// The hand-written codec against the generated one: what both take must mean
// the same, and what the generated one refuses ours must refuse too.
func FuzzUnmarshalRequest(f *testing.F) {
	add := func(m *oippb.ModelInferRequest) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(goodPB())
	r := goodPB()
	r.Id, r.Parameters, r.Outputs = "i", map[string]*oippb.InferParameter{"timeout": pbParam(int64(5)), "s": pbParam("t")}, []*pbOutput{{Name: "y"}}
	add(r)
	add(&oippb.ModelInferRequest{ModelName: "mix", Inputs: []*pbInput{
		{Name: "i8", Datatype: "INT8", Shape: []int64{2}, Contents: &pbData{IntContents: []int32{-1, 2}}},
		{Name: "text", Datatype: "BYTES", Shape: []int64{1}, Contents: &pbData{BytesContents: [][]byte{[]byte("a")}}},
	}})
	f.Add(repeatedContents(3))
	f.Add(MarshalRequest(MarshalRequest(nil, &Request{ID: "z", Timeout: time.Second}), &Request{Model: "mlp", Inputs: []Tensor{{"x", FP32, []int64{1, 4}, raw(1, 2, 3, 4)}}}))
	c := testCatalog(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var want oippb.ModelInferRequest
		perr := proto.Unmarshal(b, &want)
		got := &Request{}
		if err := unmarshalRequest(context.Background(), b, got, c.lookup); err != nil {
			return
		}
		if perr != nil {
			t.Fatalf("took what protobuf refuses: %v", perr)
		}
		if got.Model != want.GetModelName() || got.ID != want.GetId() || got.Version != want.GetModelVersion() || len(got.Inputs) != len(want.GetInputs()) || len(got.Outputs) != len(want.GetOutputs()) {
			t.Fatalf("got %+v, want %v", got, &want)
		}
		for i, in := range want.GetInputs() {
			g := got.Inputs[i]
			if g.Name != in.GetName() || g.Datatype.String() != in.GetDatatype() || len(g.Shape) != len(in.GetShape()) {
				t.Fatalf("input %d: got %+v, want %v", i, g, in)
			}
			for k, d := range in.GetShape() {
				if g.Shape[k] != d {
					t.Fatalf("input %d: shape %v, want %v", i, g.Shape, in.GetShape())
				}
			}
			if raws := want.GetRawInputContents(); len(raws) > 0 {
				if !bytes.Equal(g.Data, raws[i]) {
					t.Fatalf("input %d: data %v, want %v", i, g.Data, raws[i])
				}
			} else if g.Datatype == Int64 && len(g.Data) != 8*len(in.GetContents().GetInt64Contents()) {
				t.Fatalf("input %d: data %v, want %v", i, g.Data, in.GetContents())
			}
		}
		if m := c.lookup(got.Model); m != nil {
			_ = m.validate(got) // must not panic
		}
	})
}

func TestOurResponseIsProtobuf(t *testing.T) {
	resp := &Response{ID: "a", Model: "m", Version: "1", Params: map[string]Param{"k": int64(-3)}, Outputs: []Tensor{{"y", FP32, []int64{1, 300}, make([]byte, 1200)}, {"z", Bytes, nil, []byte{0, 0, 0, 0}}}}
	wire := marshalResponse(nil, resp)
	if len(wire) > maxResponseBytes(resp) {
		t.Errorf("%d bytes, room for %d", len(wire), maxResponseBytes(resp))
	}
	var pb oippb.ModelInferResponse
	if err := proto.Unmarshal(wire, &pb); err != nil {
		t.Fatal(err)
	}
	if pb.GetOutputs()[0].GetShape()[1] != 300 || len(pb.GetRawOutputContents()) != 2 || pb.GetParameters()["k"].GetInt64Param() != -3 {
		t.Errorf("got %v", &pb)
	}
	var back Response
	if err := UnmarshalResponse(wire, &back); err != nil || back.ID != "a" || len(back.Outputs) != 2 || !bytes.Equal(back.Outputs[0].Data, resp.Outputs[0].Data) {
		t.Errorf("got %+v %v", back, err)
	}
}

// A message that does not parse is the client's fault, of every method.
func TestMessagesThatDoNotParseAreInvalid(t *testing.T) {
	_, cc := startGRPC(t, newFake(t), Options{})
	for _, method := range []string{
		oippb.GRPCInferenceService_ModelMetadata_FullMethodName, oippb.GRPCInferenceService_ModelInfer_FullMethodName, healthpb.Health_Check_FullMethodName,
	} {
		err := cc.Invoke(t.Context(), method, []byte{0xff, 0xff}, &oippb.ModelMetadataResponse{}, grpc.ForceCodecV2(rawBytes{}))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", method, err)
		}
	}
	stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", grpc.ForceCodecV2(rawBytes{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg([]byte{0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(new([]byte)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("reflection: %v", err)
	}
}

// rawBytes sends a message as it is.
type rawBytes struct{}

func (rawBytes) Name() string { return "proto" }
func (rawBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawBytes) Unmarshal(mem.BufferSlice, any) error { return nil }
