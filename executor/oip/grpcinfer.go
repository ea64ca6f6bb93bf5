package oip

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registered first, so that our codec replaces it
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip/oippb"
)

// inferCall is the request message of ModelInfer as the codec reads it.
type inferCall struct {
	core *core
	ctx  context.Context // ends when the client disconnects
	req  Request
	err  *Error
}

// inferReply is the response message of ModelInfer as the codec writes it.
type inferReply struct {
	resp *Response
	body *httplimit.Buffer
}

// release frees the outputs of the response and the body of the request.
func (r *inferReply) release() {
	r.resp.Release()
	r.body.Release()
}

// discard frees the body of a call that no handler will see.
func discard(req any) {
	if call, ok := req.(*inferCall); ok && call.req.body != nil {
		call.req.body.Release()
	}
}

// inferHandler handles a ModelInfer call over the network, in place of the generated handler: it decodes the message by
// this package's codec, without generated messages, and passes it through the interceptors to modelInfer.
func inferHandler(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	s := srv.(*GRPCServer)
	call := &inferCall{core: &s.core, ctx: ctx, req: Request{Received: time.Now()}}
	if err := dec(call); err != nil {
		discard(call)
		return nil, err
	}
	info := grpc.UnaryServerInfo{Server: srv, FullMethod: oippb.GRPCInferenceService_ModelInfer_FullMethodName}
	return interceptor(ctx, call, &info, s.modelInfer)
}

// modelInfer runs a decoded ModelInfer call (msg, an *inferCall): it checks model, class, deadline and the limits of the
// sender's key, and returns the response (an *inferReply). The codec frees the request's body after it has encoded the
// response; if there is an error, modelInfer frees it.
func (s *GRPCServer) modelInfer(ctx context.Context, msg any) (any, error) {
	call := msg.(*inferCall)
	traceparent, tracestate := metadata.ValueFromIncomingContext(ctx, metadataTraceparent), []string(nil)
	if traceparent != nil {
		tracestate = metadata.ValueFromIncomingContext(ctx, metadataTracestate)
	}
	call.req.beginTrace(s.core.opt.Tracer, "grpc", traceparent, tracestate)
	reply, err := s.runInference(ctx, call)
	call.req.Trace.End(err)
	return reply, err
}

// runInference does what modelInfer says.
func (s *GRPCServer) runInference(ctx context.Context, call *inferCall) (any, error) {
	req := &call.req
	handedOver := false
	defer func() {
		if !handedOver {
			discard(call)
		}
	}()
	if call.err != nil {
		return nil, toStatus(call.err)
	}
	m, err := s.core.backend.Models().Find(req.Model, req.Version)
	if err != nil {
		return nil, toStatus(err)
	}
	if err := req.classHeader(metadata.ValueFromIncomingContext(ctx, metadataClass)); err != nil {
		return nil, toStatus(err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.capTimeout(max(deadline.Sub(req.Received), 1))
	}

	// Count the request for its holder, and let it in.
	holder := holderOf(ctx)
	if err := holder.BeginRequest(); err != nil {
		return nil, toStatus(err)
	}
	defer holder.EndRequest()
	if !s.core.gate.Enter() {
		return nil, toStatus(errDraining)
	}
	defer s.core.gate.Leave()
	resp, err := s.core.infer(ctx, m, req, holder)
	if err != nil {
		return nil, toStatus(err)
	}
	handedOver = true // the codec frees the body from here on
	return &inferReply{resp, req.body}, nil
}

// codec is the protobuf codec, except for the messages of ModelInfer.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2. A response of modelInfer is encoded directly, and then its memory and that of the
// request are freed; other messages go to the generated code.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	reply, ok := v.(*inferReply)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	defer reply.release()
	pool := mem.DefaultBufferPool()
	buf := pool.Get(maxResponseBytes(reply.resp))
	*buf = marshalResponse((*buf)[:0], reply.resp)
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}

// Unmarshal implements encoding.CodecV2. It decodes a request of ours directly, after booking its memory. Errors
// of parsing are stored in the message, so that a handler answers them.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if a, ok := v.(*parseAttempt); ok {
		a.err = c.CodecV2.Unmarshal(data, a.msg)
		return nil
	}
	call, ok := v.(*inferCall)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	req := &call.req
	if req.body != nil {
		call.err = httplimit.Invalid("message", "a second one in a call that takes one")
		return nil
	}
	// The message is in memory in pieces, and from here on also in one piece.
	client := ""
	if p, ok := peer.FromContext(call.ctx); ok {
		if info, ok := p.AuthInfo.(watchedInfo); ok {
			client = info.client
		}
	}
	req.Client = cmp.Or(holderOf(call.ctx).Name, client)
	req.memoryHold.Open(call.core.opt.Door.Budget, req.Client, nil)
	if call.err = req.memoryHold.Grow(int64(data.Len())); call.err != nil {
		return nil
	}
	joined := data.MaterializeToBuffer(mem.DefaultBufferPool())
	req.body = httplimit.NewLentBuffer(joined.ReadOnlyData(), joined, &req.memoryHold)
	call.err = unmarshalRequest(call.ctx, req.body.B, req, call.core.backend.Models().lookup)
	return nil
}
