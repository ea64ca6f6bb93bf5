package oip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registered first, so that our codec replaces it
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"inferplan/executor/httplimit"
	"inferplan/executor/oip/oippb"
)

// ErrorDomain is the domain of the ErrorInfo that gRPC errors carry.
const ErrorDomain = "inferplan"

// GRPCServer serves the protocol over gRPC, with the standard health service
// and reflection.
type GRPCServer struct {
	core      core
	newServer func() *grpc.Server
	stop      chan struct{} // closed when the server closes
	stopOnce  sync.Once

	mu         sync.Mutex
	server     *grpc.Server    // takes new connections
	listener   *sharedListener // of server; nil before Serve
	leftServer *grpc.Server    // finishes the calls of earlier connections after Leave; nil before
	serving    sync.WaitGroup  // of servers after the first
}

// Sizes of a stream's window and of a connection's buffers, in bytes.
const (
	windowBytes = 1 << 20
	bufferBytes = 128 << 10
)

// NewGRPCServer returns a gRPC server of the protocol (Open Inference Protocol) for the models of a backend, with health
// checks and reflection. It does not listen until Serve. If the door has keys, calls need one.
func NewGRPCServer(b Backend, opt Options) *GRPCServer {
	opt = opt.withDefaults()
	s := &GRPCServer{
		core: core{backend: b, opt: opt},
		stop: make(chan struct{}),
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.MaxRecvMsgSize(int(opt.MaxBodyBytes)),
		grpc.MaxHeaderListSize(uint32(opt.Door.MaxHeaderBytes)),
		grpc.MaxConcurrentStreams(opt.MaxStreams),
		grpc.ConnectionTimeout(opt.Door.ReadTimeout),
		// Requests are tensors, often of hundreds of kilobytes. With windows and buffers of the usual sizes they
		// would arrive in many small pieces.
		grpc.InitialWindowSize(windowBytes),
		grpc.InitialConnWindowSize(16 * windowBytes),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: opt.Door.IdleTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.interceptUnary),
		grpc.StreamInterceptor(s.interceptStream),
	}
	creds := insecure.NewCredentials()
	if opt.Door.TLS != nil {
		creds = credentials.NewTLS(opt.Door.TLS.Clone())
	}
	options = append(options, grpc.Creds(watchedCredentials{creds, opt.Door}))
	if opt.Door.Keys != nil {
		options = append(options, grpc.InTapHandle(s.authorise))
	}
	s.newServer = func() *grpc.Server {
		server := grpc.NewServer(options...)
		server.RegisterService(serviceDesc(), s)
		server.RegisterService(withClientParseErrors(healthpb.Health_ServiceDesc), (*health)(s))
		reflection.Register(server)
		return server
	}
	s.server = s.newServer()
	return s
}

// serviceDesc returns the generated description of the service, in which inferHandler answers ModelInfer. It reads
// and writes its messages by our codec, without the generated types.
func serviceDesc() *grpc.ServiceDesc {
	d := withClientParseErrors(oippb.GRPCInferenceService_ServiceDesc)
	d.HandlerType = (*any)(nil)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "ModelInfer" {
			d.Methods[i].Handler = inferHandler
		}
	}
	return d
}

// withClientParseErrors returns a copy of a service that answers INVALID_ARGUMENT to messages that cannot be parsed,
// since that is the client's fault. The library answers INTERNAL.
func withClientParseErrors(d grpc.ServiceDesc) *grpc.ServiceDesc {
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		handle := d.Methods[i].Handler
		d.Methods[i].Handler = func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(msg any) error { return parseMessage(msg, dec) }, interceptor)
		}
	}
	return &d
}

// parseAttempt is a message that the codec may fail to parse. The library would answer an error of its codec before a
// handler sees it, so the codec stores the error here.
type parseAttempt struct {
	msg any
	err error
}

// parseMessage reads a gRPC message by `read`. If it cannot be parsed, the error is the client's.
func parseMessage(msg any, read func(any) error) error {
	a := parseAttempt{msg: msg}
	if err := read(&a); err != nil || a.err == nil {
		return err
	}
	return toStatus(httplimit.Invalid("message", "%v", a.err))
}

// parsingStream is a stream that answers INVALID_ARGUMENT to messages that cannot be parsed.
type parsingStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (p parsingStream) RecvMsg(msg any) error { return parseMessage(msg, p.ServerStream.RecvMsg) }

// Serve accepts connections until Drain or Close; it then returns nil.
func (s *GRPCServer) Serve(l net.Listener) error {
	s.mu.Lock()
	s.listener = &sharedListener{Listener: l, next: make(chan accepted), closed: make(chan struct{})}
	server, listener := s.server, s.listener
	s.mu.Unlock()
	go s.accept(l)
	err := server.Serve(listener)
	s.serving.Wait()
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serving gRPC on %s: %w", l.Addr(), err)
	}
	return nil
}

// Drain ends the server when it shuts down: readiness fails and new inferences get UNAVAILABLE while the accepted
// ones finish; then listeners and connections close. If ctx ends first, everything is closed at once and Drain
// returns an error.
func (s *GRPCServer) Drain(ctx context.Context) error {
	err := s.core.gate.Close(ctx)
	s.stopOnce.Do(func() { close(s.stop) })
	s.mu.Lock()
	server, left := s.server, s.leftServer
	s.mu.Unlock()
	if err == nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			server.GracefulStop()
			if left != nil {
				left.GracefulStop()
			}
		}()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			s.stopServers() // makes GracefulStop return, too
			<-done
			err = ctx.Err()
		}
	}
	s.stopServers()
	return fmt.Errorf("draining the gRPC server: %w", err)
}

// Close closes everything at once.
func (s *GRPCServer) Close() error {
	s.stopOnce.Do(func() { close(s.stop) })
	s.stopServers()
	return nil
}

// interceptUnary logs a call, and turns a panic into an error of this call only.
func (s *GRPCServer) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.logAccess(ctx, info.FullMethod, &err, time.Now())
	defer s.recoverPanic(info.FullMethod, &err)
	return handler(ctx, req)
}

// interceptStream does the same for a stream.
func (s *GRPCServer) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.logAccess(ss.Context(), info.FullMethod, &err, time.Now())
	defer s.recoverPanic(info.FullMethod, &err)
	return handler(srv, parsingStream{ss})
}

// logAccess writes a finished call to the access log, if there is one. It is deferred, so it takes a pointer to
// the call's error.
func (s *GRPCServer) logAccess(ctx context.Context, method string, err *error, began time.Time) {
	if s.core.opt.Door.Access == nil {
		return
	}
	address := ""
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	s.core.opt.Door.LogAccess(holderOf(ctx).Client(address), method, status.Code(*err).String(), 0, began)
}

// recoverPanic turns a panic in a call's handler into an internal error of the call. It must be deferred.
func (s *GRPCServer) recoverPanic(method string, err *error) {
	if p := recover(); p != nil {
		s.core.opt.Door.Log.Error("panic in a gRPC handler", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = toStatus(httplimit.Internal(nil, "internal error"))
	}
}

// openMethods are the methods that need no key: the probes of an orchestrator have none.
var openMethods = map[string]bool{
	healthpb.Health_Check_FullMethodName:                  true,
	healthpb.Health_Watch_FullMethodName:                  true,
	oippb.GRPCInferenceService_ServerLive_FullMethodName:  true,
	oippb.GRPCInferenceService_ServerReady_FullMethodName: true,
}

// holderKey is the key of the holder in the context of a call.
type holderKey struct{}

// holderOf returns the client that holds the key that a call was made with, or AnyClient without keys.
func holderOf(ctx context.Context) *httplimit.Holder {
	if holder, ok := ctx.Value(holderKey{}).(*httplimit.Holder); ok {
		return holder
	}
	return httplimit.AnyClient
}

// authorise checks the key of a call when its header has come, and adds the key's holder to the context. No
// message of a call that it refuses is read.
func (s *GRPCServer) authorise(ctx context.Context, call *tap.Info) (context.Context, error) {
	if openMethods[call.FullMethodName] {
		return ctx, nil
	}
	header := ""
	if v := call.Header["authorization"]; len(v) == 1 {
		header = v[0]
	}
	holder, err := s.core.opt.Door.Keys.Find(header)
	if err != nil {
		return nil, toStatus(err)
	}
	return context.WithValue(ctx, holderKey{}, holder), nil
}

// toStatus converts an error to the gRPC status that the client gets: a code, and as details the reason, the field at
// fault, an estimate of the waiting time in ms, and when to retry, each if known.
func toStatus(e *Error) error {
	st := status.New(grpcCodes[e.Code], e.Error())
	if e.Reason != "" {
		info := &errdetails.ErrorInfo{Reason: e.Reason, Domain: ErrorDomain}
		info.Metadata = map[string]string{}
		if e.Field != "" {
			info.Metadata["field"] = e.Field
		}
		if e.Estimate > 0 {
			info.Metadata["estimate_ms"] = strconv.FormatInt(e.Estimate.Milliseconds(), 10)
		}
		details := []protoadapt.MessageV1{info}
		if e.RetryAfter > 0 {
			details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
		}
		if detailed, err := st.WithDetails(details...); err == nil {
			st = detailed
		}
	}
	return st.Err()
}

// ServerLive answers that the process runs.
func (s *GRPCServer) ServerLive(context.Context, *oippb.ServerLiveRequest) (*oippb.ServerLiveResponse, error) {
	return &oippb.ServerLiveResponse{Live: true}, nil
}

// ServerReady answers whether inferences are accepted.
func (s *GRPCServer) ServerReady(context.Context, *oippb.ServerReadyRequest) (*oippb.ServerReadyResponse, error) {
	return &oippb.ServerReadyResponse{Ready: s.core.ready()}, nil
}

// ModelReady answers whether inferences of a model are accepted.
func (s *GRPCServer) ModelReady(_ context.Context, in *oippb.ModelReadyRequest) (*oippb.ModelReadyResponse, error) {
	if _, err := s.core.backend.Models().Find(in.GetName(), in.GetVersion()); err != nil {
		return nil, toStatus(err)
	}
	return &oippb.ModelReadyResponse{Ready: s.core.modelReady(in.GetName(), in.GetVersion())}, nil
}

// ServerMetadata names the server and its extensions.
func (s *GRPCServer) ServerMetadata(context.Context, *oippb.ServerMetadataRequest) (*oippb.ServerMetadataResponse, error) {
	return &oippb.ServerMetadataResponse{Name: s.core.opt.Name, Version: s.core.opt.Version, Extensions: slices.Clone(Extensions)}, nil
}

// ModelMetadata describes a model's inputs and outputs.
func (s *GRPCServer) ModelMetadata(_ context.Context, in *oippb.ModelMetadataRequest) (*oippb.ModelMetadataResponse, error) {
	m, err := s.core.backend.Models().Find(in.GetName(), in.GetVersion())
	if err != nil {
		return nil, toStatus(err)
	}
	list := func(ts []TensorInfo) (out []*oippb.ModelMetadataResponse_TensorMetadata) {
		for _, t := range ts {
			out = append(out, &oippb.ModelMetadataResponse_TensorMetadata{Name: t.Name, Datatype: t.Datatype.String(), Shape: t.Shape})
		}
		return out
	}
	return &oippb.ModelMetadataResponse{Name: m.Name, Versions: m.Versions, Platform: m.Platform, Inputs: list(m.Inputs), Outputs: list(m.Outputs)}, nil
}

// ModelStatistics answers with the counts and durations of a model since the start, or of all models if the name is
// empty. An unknown model is an error.
func (s *GRPCServer) ModelStatistics(_ context.Context, in *oippb.ModelStatisticsRequest) (*oippb.ModelStatisticsResponse, error) {
	if in.GetName() != "" {
		if _, err := s.core.backend.Models().Find(in.GetName(), in.GetVersion()); err != nil {
			return nil, toStatus(err)
		}
	}
	sum := func(d DurationStat) *oippb.StatisticDuration {
		return &oippb.StatisticDuration{Count: d.Count, Ns: d.NS}
	}
	out := &oippb.ModelStatisticsResponse{}
	for _, m := range s.core.backend.Statistics(in.GetName(), in.GetVersion()) {
		row := &oippb.ModelStatistics{
			Name: m.Name, Version: m.Version, LastInference: m.LastInference,
			InferenceCount: m.InferenceCount, ExecutionCount: m.ExecutionCount,
			InferenceStats: &oippb.InferStatistics{
				Success: sum(m.Inference.Success), Fail: sum(m.Inference.Fail), Queue: sum(m.Inference.Queue),
				ComputeInput: sum(m.Inference.ComputeInput), ComputeInfer: sum(m.Inference.ComputeInfer), ComputeOutput: sum(m.Inference.ComputeOutput),
			},
		}
		for _, b := range m.Batches {
			row.BatchStats = append(row.BatchStats, &oippb.InferBatchStatistics{
				BatchSize: b.BatchSize, ComputeInput: sum(b.ComputeInput), ComputeInfer: sum(b.ComputeInfer), ComputeOutput: sum(b.ComputeOutput),
			})
		}
		out.ModelStats = append(out.ModelStats, row)
	}
	return out, nil
}

// RepositoryIndex lists the models and their states.
func (s *GRPCServer) RepositoryIndex(_ context.Context, in *oippb.RepositoryIndexRequest) (*oippb.RepositoryIndexResponse, error) {
	out := &oippb.RepositoryIndexResponse{}
	for _, row := range s.core.repositoryIndex(in.GetReady()) {
		out.Models = append(out.Models, &oippb.RepositoryIndexResponse_ModelIndex{Name: row.Name, Version: row.Version, State: row.State, Reason: row.Reason})
	}
	return out, nil
}

// ModelInfer is for callers in the same process. Over the network inferHandler takes its place, which does not need
// the generated messages.
func (s *GRPCServer) ModelInfer(ctx context.Context, in *oippb.ModelInferRequest) (*oippb.ModelInferResponse, error) {
	wire, err := proto.Marshal(in)
	if err != nil {
		return nil, toStatus(httplimit.Internal(err, "encoding the request: %v", err))
	}
	call := &inferCall{core: &s.core, ctx: ctx, req: Request{Received: time.Now(), body: httplimit.NewBuffer(0)}}
	call.err = unmarshalRequest(ctx, wire, &call.req, s.core.backend.Models().lookup)
	reply, err := s.modelInfer(ctx, call)
	if err != nil {
		return nil, err
	}
	inferred := reply.(*inferReply)
	defer inferred.release()
	out := &oippb.ModelInferResponse{}
	if err := proto.Unmarshal(marshalResponse(nil, inferred.resp), out); err != nil {
		return nil, toStatus(httplimit.Internal(err, "decoding the response: %v", err))
	}
	return out, nil
}
