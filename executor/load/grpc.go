package load

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registered first, so that our codec replaces it
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"inferplan/executor/oip"
	"inferplan/executor/oip/oippb"
)

// grpcTarget is a server over gRPC. It gets raw contents.
type grpcTarget struct {
	conn        *grpc.ClientConn
	sendTimeout bool
	token       string
}

// bufferBytes is the size of a connection's buffers. Requests are tensors, so it is large.
const bufferBytes = 128 << 10

// grpcPayload is a request without id and parameters. Protobuf messages in a row are one message, so id and
// parameters are sent in front of it.
type grpcPayload struct{ wire []byte }

// newGRPCTarget returns a target (a server that gets the load) over gRPC. It does not connect yet, and never sends a
// call twice.
func newGRPCTarget(u *url.URL, cfg *Config) (*grpcTarget, error) {
	creds := insecure.NewCredentials()
	if u.Scheme == "grpcs" || u.Scheme == "https" {
		creds = credentials.NewTLS(nil)
	}
	conn, err := grpc.NewClient("passthrough:///"+u.Host,
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent("inferplan-load"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxAnswer), grpc.ForceCodecV2(codec{encoding.GetCodecV2("proto")})),
		grpc.WithDisableRetry(),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithReadBufferSize(bufferBytes),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", u.Host, err)
	}
	return &grpcTarget{conn: conn, sendTimeout: !cfg.NoTimeout, token: cfg.Token}, nil
}

func (t *grpcTarget) close() { t.conn.Close() }

// withToken returns the context with the configured token in the metadata of a call, if there is one.
func (t *grpcTarget) withToken(ctx context.Context) context.Context {
	if t.token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+t.token)
}

// describe implements target: it asks the server for a model's inputs.
func (t *grpcTarget) describe(ctx context.Context, m *Model) (*oip.ModelInfo, error) {
	meta, err := oippb.NewGRPCInferenceServiceClient(t.conn).ModelMetadata(t.withToken(ctx), &oippb.ModelMetadataRequest{Name: m.Name})
	if err != nil {
		return nil, err
	}
	info := &oip.ModelInfo{Name: meta.GetName(), Versions: meta.GetVersions(), Platform: meta.GetPlatform()}
	for _, in := range meta.GetInputs() {
		dt, ok := oip.ParseDatatype(in.GetDatatype())
		if !ok {
			return nil, fmt.Errorf("input %q has datatype %q, which is unknown", in.GetName(), in.GetDatatype())
		}
		info.Inputs = append(info.Inputs, oip.TensorInfo{Name: in.GetName(), Datatype: dt, Shape: in.GetShape()})
	}
	return info, nil
}

// prepare implements target.
func (t *grpcTarget) prepare(m *Model, in Inputs) (payload, error) {
	return &grpcPayload{oip.MarshalRequest(nil, &oip.Request{Model: m.Name, Class: m.Class, Inputs: in})}, nil
}

// grpcCall is a request and its answer, for the codec.
type grpcCall struct {
	head, wire []byte
	answer     oip.Response
	err        error
}

// send implements target: it sends a prepared request and returns the reason why it got no good answer, or
// nothing. The request's id and timeout are encoded now and put before the prepared bytes.
func (t *grpcTarget) send(ctx context.Context, pl payload, id requestID, timeout time.Duration) string {
	var buf [idDigits]byte
	call := &grpcCall{wire: pl.(*grpcPayload).wire}
	head := oip.Request{ID: string(id.append(buf[:0]))}
	if t.sendTimeout {
		head.Timeout = timeout
	}
	call.head = oip.MarshalRequest(make([]byte, 0, 64), &head)
	err := t.conn.Invoke(t.withToken(ctx), oippb.GRPCInferenceService_ModelInfer_FullMethodName, call, call)
	switch {
	case err != nil:
		return grpcReason(ctx, err)
	case call.err != nil:
		return errorPrefix + "bad_answer"
	}
	return checkAnswer(&call.answer, id)
}

// grpcReason returns why a call failed: the server's reason if it has given the request up, else the code of the
// error.
func grpcReason(ctx context.Context, err error) string {
	st := status.Convert(err)
	reason := ""
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == oip.ErrorDomain {
			reason = info.GetReason()
		}
	}
	switch code := st.Code(); {
	case ctx.Err() != nil:
		return reasonUnanswered
	case reason != "" && reason != "too_large" && (code == codes.ResourceExhausted || code == codes.DeadlineExceeded):
		return reason
	case code == codes.DeadlineExceeded:
		return "grpc_deadline_exceeded"
	default:
		return errorPrefix + "grpc_" + strings.ToLower(code.String())
	}
}

// codec is the protobuf codec, except for our calls.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2. It sends the bytes of a prepared call as they are, without copying its
// tensors.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	call, ok := v.(*grpcCall)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(call.head), mem.SliceBuffer(call.wire)}, nil
}

// Unmarshal implements encoding.CodecV2. The answer of a prepared call (*grpcCall) is decoded by this program's decoder,
// into v, without the data of its tensors, which nobody reads. Other messages go to the codec of protobuf.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	call, ok := v.(*grpcCall)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	joined := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer joined.Free()
	call.err = oip.UnmarshalResponse(joined.ReadOnlyData(), &call.answer)
	// The buffer goes back to its pool, so nothing may alias it any more.
	for i := range call.answer.Outputs {
		call.answer.Outputs[i].Data = nil
	}
	return nil
}
