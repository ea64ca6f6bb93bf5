package oip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"inferplan/executor/httplimit"
	"inferplan/formats/jsontext"
)

const (
	// HeaderJSONLength is the length of the JSON in a body with binary tensors.
	HeaderJSONLength = "Inference-Header-Content-Length"
	// HeaderClass names the SLO class of an inference, like the parameter "class". Over gRPC it is metadata of the
	// same name in lower case.
	HeaderClass   = "Inferplan-Class"
	metadataClass = "inferplan-class"
	// Metadata of W3C Trace Context; over HTTP they are headers of the same names.
	metadataTraceparent, metadataTracestate = "traceparent", "tracestate"
	// HeaderReason carries Error.Reason of a refusal.
	HeaderReason = "Inferplan-Reason"
	// HeaderEstimate carries Error.Estimate in milliseconds.
	HeaderEstimate = "Inferplan-Estimate-Ms"
)

// Extensions are the protocol extensions that the server metadata names.
var Extensions = []string{"binary_tensor_data", "statistics", "model_repository", "schedule_policy", "generate"}

// HTTPServer serves the REST protocol.
type HTTPServer struct {
	core         core
	server       *http.Server
	probeHandler http.HandlerFunc // for paths that need no key
	keyedHandler http.HandlerFunc // for all other paths
}

// NewHTTPServer returns an HTTP server of the protocol for a backend's models. It does not listen until Serve.
func NewHTTPServer(b Backend, opt Options) *HTTPServer {
	opt = opt.withDefaults()
	s := &HTTPServer{core: core{backend: b, opt: opt}}
	s.server = opt.Door.Server(s)
	s.probeHandler, s.keyedHandler = opt.Door.Probe(writeError, s.serve), opt.Door.Handler(writeError, s.serve)
	return s
}

// Serve accepts connections until Drain or Close; it then returns nil.
func (s *HTTPServer) Serve(l net.Listener) error {
	return httplimit.Serve(s.server, l, "HTTP")
}

// Drain ends the server when it shuts down: readiness fails and new inferences get 503 while the accepted ones
// finish; then listeners and connections close. If ctx ends first, everything is closed at once and Drain returns
// an error.
func (s *HTTPServer) Drain(ctx context.Context) error {
	err := s.core.gate.Close(ctx)
	if err == nil {
		err = s.server.Shutdown(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("draining the HTTP server: %w", err), s.server.Close())
	}
	return nil
}

// Close closes everything at once.
func (s *HTTPServer) Close() error { return s.server.Close() }

// ServeHTTP answers one request. Health checks need no key; paths that begin with the fallback's (those of programs,
// which run workflows as code) go to its handler; all others pass the door, which checks keys and limits.
func (s *HTTPServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.EscapedPath(); {
	case strings.HasPrefix(path, "/v2/health/"):
		s.probeHandler(w, r)
	case s.core.opt.Fallback != nil && strings.HasPrefix(path, s.core.opt.FallbackPath):
		s.core.opt.Fallback.ServeHTTP(w, r)
	default:
		s.keyedHandler(w, r)
	}
}

// serve answers a request that has passed the door. holder is the sender's key. All paths of the protocol begin with
// /v2.
func (s *HTTPServer) serve(w http.ResponseWriter, r *http.Request, holder *httplimit.Holder) error {
	subPath, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v2")
	if ok && (subPath == "" || subPath[0] == '/') {
		if err := s.route(w, r, strings.TrimSuffix(subPath, "/"), holder); err != nil {
			return err
		}
		return nil
	}
	return httplimit.NotFound("no such path %q; the protocol's paths start with /v2", httplimit.Clip(r.URL.Path))
}

// route answers a request by the path behind /v2, which is escaped and has no trailing slash.
func (s *HTTPServer) route(w http.ResponseWriter, r *http.Request, path string, holder *httplimit.Holder) *Error {
	switch path {
	case "":
		return s.serveGet(w, r, func() *Error { return s.writeJSON(w, s.metadata()) })
	case "/health/live":
		return s.serveGet(w, r, func() *Error { return nil })
	case "/health/ready":
		return s.serveGet(w, r, func() *Error {
			if !s.core.ready() {
				return s.notReady()
			}
			return nil
		})
	case "/models/stats":
		return s.serveGet(w, r, func() *Error { return s.writeStatistics(w, "", "") })
	case "/repository/index":
		return s.repositoryIndex(w, r, holder)
	}

	// All other paths are about a model.
	model, version, verb, ok := splitModelPath(path)
	if !ok {
		return httplimit.NotFound("no such path %q", httplimit.Clip(r.URL.Path))
	}
	switch verb {
	case "infer":
		if r.Method != http.MethodPost {
			return methodNotAllowed(w, r, http.MethodPost)
		}
		return s.infer(w, r, model, version, holder)
	case "generate", "generate_stream":
		if r.Method != http.MethodPost {
			return methodNotAllowed(w, r, http.MethodPost)
		}
		return s.generate(w, r, model, version, verb == "generate_stream", holder)
	case "", "ready", "stats":
		return s.serveGet(w, r, func() *Error {
			m, err := s.core.backend.Models().Find(model, version)
			switch {
			case err != nil:
				return err
			case verb == "stats":
				return s.writeStatistics(w, model, version)
			case verb == "":
				return s.writeJSON(w, m)
			case !s.core.modelReady(model, version):
				return httplimit.Unavailable("not_ready", "model %q is not ready", model)
			}
			return nil
		})
	}
	return httplimit.NotFound("no such path %q", httplimit.Clip(r.URL.Path))
}

// notReady returns the reason why the server is not ready: it drains, its memory for requests is full, or the
// backend is not ready.
func (s *HTTPServer) notReady() *Error {
	if s.core.gate.IsClosed() {
		return errDraining
	}
	if s.core.opt.Door.Budget.NearlyFull() {
		return httplimit.Unavailable("memory", "the memory for requests is full")
	}
	return httplimit.Unavailable("not_ready", "the server is not ready")
}

// splitModelPath splits an escaped path /models/M[/versions/V][/verb] into its parts, of which model and version are
// unescaped. Absent parts are "". If the path has another form, ok is false.
func splitModelPath(path string) (model, version, verb string, ok bool) {
	remaining, ok := strings.CutPrefix(path, "/models/")
	if !ok {
		return "", "", "", false
	}
	model, remaining, _ = strings.Cut(remaining, "/")
	if v, hasVersion := strings.CutPrefix(remaining, "versions/"); hasVersion {
		version, remaining, _ = strings.Cut(v, "/")
		if version == "" {
			return "", "", "", false
		}
	}
	var err1, err2 error
	model, err1 = unescape(model)
	version, err2 = unescape(version)
	return model, version, remaining, model != "" && err1 == nil && err2 == nil
}

// unescape decodes a part of a path.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	return url.PathUnescape(s)
}

// serveGet answers a GET or HEAD request. It returns an error for other methods.
func (s *HTTPServer) serveGet(w http.ResponseWriter, r *http.Request, answer func() *Error) *Error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return methodNotAllowed(w, r, "GET, HEAD")
	}
	return answer()
}

// methodNotAllowed returns the error for a method that a path does not have.
func methodNotAllowed(w http.ResponseWriter, r *http.Request, allowedMethods string) *Error {
	w.Header().Set("Allow", allowedMethods)
	return &Error{Code: httplimit.CodeMethod, Reason: "method", Msg: fmt.Sprintf("method %s; this path takes %s", httplimit.Clip(r.Method), allowedMethods)}
}

// writeJSON answers with a value as JSON.
func (s *HTTPServer) writeJSON(w http.ResponseWriter, v any) *Error {
	body, err := json.Marshal(v)
	if err != nil {
		return httplimit.Internal(err, "encoding the answer: %v", err)
	}
	w.Header()["Content-Type"] = contentJSON
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// A failed write means that the client is gone.
	_, _ = w.Write(body)
	return nil
}

// writeError answers a request with an error: its status, and a JSON body. Headers have the reason and when to try
// again.
func writeError(w http.ResponseWriter, err error) {
	e := httplimit.AsError(err)
	body := append(jsontext.AppendQuoted([]byte(`{"error":`), e.Error()), '}')
	h := w.Header()
	if e.Reason != "" {
		h[HeaderReason] = []string{e.Reason}
	}
	if e.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds())))}
	}
	if e.Estimate > 0 {
		h[HeaderEstimate] = []string{strconv.FormatInt(e.Estimate.Milliseconds(), 10)}
	}
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(e.Code.HTTPStatus())
	_, _ = w.Write(body)
}

var (
	contentJSON   = []string{"application/json"}
	contentBinary = []string{"application/octet-stream"}
)
