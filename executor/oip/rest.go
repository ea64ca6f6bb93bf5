package oip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/executor/httplimit"
)

const (
	// HeaderJSONLength is the length of the JSON in a body with binary tensors.
	HeaderJSONLength = "Inference-Header-Content-Length"
	// HeaderClass names the SLO class of an inference, as the parameter "class"
	// does; over gRPC it is metadata of the same name in lower case.
	HeaderClass   = "Inferplan-Class"
	metadataClass = "inferplan-class"
	// HeaderReason carries Error.Reason of a refusal.
	HeaderReason = "Inferplan-Reason"
	// HeaderEstimate carries Error.Estimate in milliseconds.
	HeaderEstimate = "Inferplan-Estimate-Ms"
)

// Extensions are the protocol extensions that the server metadata names.
var Extensions = []string{"binary_tensor_data", "statistics", "model_repository", "schedule_policy"}

// HTTPServer serves the REST protocol.
type HTTPServer struct {
	core   core
	tokens httplimit.Tokens
	server *http.Server
}

// NewHTTPServer makes a server; nothing listens until Serve.
func NewHTTPServer(b Backend, opt Options) *HTTPServer {
	opt = opt.withDefaults()
	s := &HTTPServer{core: core{backend: b, opt: opt}, tokens: opt.tokens()}
	s.server = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: opt.ReadTimeout,
		ReadTimeout:       opt.ReadTimeout,
		WriteTimeout:      opt.WriteTimeout,
		IdleTimeout:       opt.IdleTimeout,
		MaxHeaderBytes:    opt.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(opt.Log.Handler(), slog.LevelDebug),
	}
	if opt.TLS != nil {
		s.server.TLSConfig = opt.TLS.Clone()
	}
	return s
}

// Serve accepts connections until Drain or Close; it then returns nil.
func (s *HTTPServer) Serve(l net.Listener) error {
	var err error
	if s.server.TLSConfig != nil {
		err = s.server.ServeTLS(l, "", "")
	} else {
		err = s.server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving HTTP on %s: %w", l.Addr(), err)
}

// Drain stops taking inferences: readiness fails and new ones get 503 while the
// accepted ones finish; then the listeners and connections close. When ctx ends
// first, everything is closed at once and the error says what was cut off.
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

// Close ends everything at once.
func (s *HTTPServer) Close() error { return s.server.Close() }

// ServeHTTP answers one request; the server is also an http.Handler for tests
// and for mounting elsewhere.
func (s *HTTPServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w, r)
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v2")
	if !ok || rest != "" && rest[0] != '/' {
		s.fallback(w, r)
		return
	}
	if !strings.HasPrefix(rest, "/health/") && !s.admit(w, r) {
		return
	}
	if err := s.route(w, r, strings.TrimSuffix(rest, "/")); err != nil {
		s.fail(w, err)
	}
}

func (s *HTTPServer) fallback(w http.ResponseWriter, r *http.Request) {
	if s.core.opt.Fallback == nil || !strings.HasPrefix(r.URL.Path, s.core.opt.FallbackPath) {
		s.fail(w, NotFound("no such path %q; the protocol's paths start with /v2", httplimit.Clip(r.URL.Path)))
		return
	}
	if s.admit(w, r) {
		s.core.opt.Fallback.ServeHTTP(w, r)
	}
}

// recovered keeps a panic to its own request.
func (s *HTTPServer) recovered(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	httplimit.Panicked(p, r, s.core.opt.Log)
	s.fail(w, Internal(nil, "internal error"))
}

// route takes the path behind /v2, escaped and without a trailing slash.
func (s *HTTPServer) route(w http.ResponseWriter, r *http.Request, path string) *Error {
	switch path {
	case "":
		return s.get(w, r, func() *Error { return s.json(w, s.metadata()) })
	case "/health/live":
		return s.get(w, r, func() *Error { return nil })
	case "/health/ready":
		return s.get(w, r, func() *Error {
			if !s.core.ready() {
				return s.notReady()
			}
			return nil
		})
	case "/models/stats":
		return s.get(w, r, func() *Error { return s.stats(w, "", "") })
	case "/repository/index":
		return s.repositoryIndex(w, r)
	}
	model, version, verb, ok := splitModelPath(path)
	if !ok {
		return NotFound("no such path %q", httplimit.Clip(r.URL.Path))
	}
	switch verb {
	case "infer":
		if r.Method != http.MethodPost {
			return method(w, r, http.MethodPost)
		}
		return s.infer(w, r, model, version)
	case "", "ready", "stats":
		return s.get(w, r, func() *Error {
			m, err := s.core.backend.Models().Find(model, version)
			switch {
			case err != nil:
				return err
			case verb == "stats":
				return s.stats(w, model, version)
			case verb == "":
				return s.json(w, m)
			case !s.core.modelReady(model, version):
				return Unavailable("not_ready", "model %q is not ready", model)
			}
			return nil
		})
	}
	return NotFound("no such path %q", httplimit.Clip(r.URL.Path))
}

func (s *HTTPServer) notReady() *Error {
	if s.core.gate.Closed() {
		return errDraining
	}
	if s.core.opt.Budget.Full() {
		return Unavailable("memory", "the memory for requests is full")
	}
	return Unavailable("not_ready", "the server is not ready")
}

// splitModelPath reads /models/M[/versions/V][/verb].
func splitModelPath(path string) (model, version, verb string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/models/")
	if !ok {
		return "", "", "", false
	}
	model, rest, _ = strings.Cut(rest, "/")
	if v, is := strings.CutPrefix(rest, "versions/"); is {
		version, rest, _ = strings.Cut(v, "/")
		if version == "" {
			return "", "", "", false
		}
	}
	var err1, err2 error
	model, err1 = unescape(model)
	version, err2 = unescape(version)
	return model, version, rest, model != "" && err1 == nil && err2 == nil
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	return url.PathUnescape(s)
}

func (s *HTTPServer) get(w http.ResponseWriter, r *http.Request, answer func() *Error) *Error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return method(w, r, "GET, HEAD")
	}
	return answer()
}

func method(w http.ResponseWriter, r *http.Request, allowed string) *Error {
	w.Header().Set("Allow", allowed)
	return &Error{Code: CodeMethod, Reason: "method", Msg: fmt.Sprintf("method %s; this path takes %s", httplimit.Clip(r.Method), allowed)}
}

func (s *HTTPServer) json(w http.ResponseWriter, v any) *Error {
	body, err := json.Marshal(v)
	if err != nil {
		return Internal(err, "encoding the answer: %v", err)
	}
	w.Header()["Content-Type"] = contentJSON
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// A failed write means that the client is gone: nobody is left to tell.
	_, _ = w.Write(body)
	return nil
}

func (s *HTTPServer) fail(w http.ResponseWriter, e *Error) {
	body := append(appendString([]byte(`{"error":`), e.Error()), '}')
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

type serverMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

func (s *HTTPServer) metadata() serverMetadata {
	return serverMetadata{s.core.opt.Name, s.core.opt.Version, Extensions}
}

type tensorMetadata struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

type modelMetadata struct {
	Name     string           `json:"name"`
	Versions []string         `json:"versions"`
	Platform string           `json:"platform"`
	Inputs   []tensorMetadata `json:"inputs"`
	Outputs  []tensorMetadata `json:"outputs"`
	Classes  []string         `json:"classes,omitempty"` // ours: the SLO classes that a request may name, the default first
}

// MarshalJSON writes the protocol's model metadata.
func (m *ModelInfo) MarshalJSON() ([]byte, error) {
	list := func(ts []TensorInfo) []tensorMetadata {
		out := make([]tensorMetadata, len(ts))
		for i, t := range ts {
			out[i] = tensorMetadata{t.Name, t.Datatype.String(), append([]int64{}, t.Shape...)}
		}
		return out
	}
	return json.Marshal(modelMetadata{m.Name, m.Versions, m.Platform, list(m.Inputs), list(m.Outputs), m.Classes})
}

// UnmarshalJSON reads the protocol's model metadata, for clients.
func (m *ModelInfo) UnmarshalJSON(b []byte) error {
	var in modelMetadata
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*m = ModelInfo{Name: in.Name, Versions: in.Versions, Platform: in.Platform, Classes: in.Classes}
	for _, l := range []struct {
		from []tensorMetadata
		to   *[]TensorInfo
	}{{in.Inputs, &m.Inputs}, {in.Outputs, &m.Outputs}} {
		for _, t := range l.from {
			dt, ok := ParseDatatype(t.Datatype)
			if !ok {
				return fmt.Errorf("model %q, tensor %q: unknown datatype %q", in.Name, t.Name, t.Datatype)
			}
			*l.to = append(*l.to, TensorInfo{Name: t.Name, Datatype: dt, Shape: t.Shape})
		}
	}
	return nil
}

func (s *HTTPServer) stats(w http.ResponseWriter, model, version string) *Error {
	list := s.core.backend.Statistics(model, version)
	if list == nil {
		list = []ModelStatistics{}
	}
	for i := range list {
		if list[i].Batches == nil {
			list[i].Batches = []BatchStats{}
		}
	}
	return s.json(w, struct {
		Models []ModelStatistics `json:"model_stats"`
	}{list})
}

// modelState is one row of the repository index.
type modelState struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state"`
	Reason  string `json:"reason"`
}

// index lists models and versions with their states.
func (c *core) index(onlyReady bool) []modelState {
	rows := []modelState{}
	for _, m := range c.backend.Models().All() {
		for _, v := range m.Versions {
			row := modelState{Name: m.Name, Version: v, State: "READY"}
			if !c.modelReady(m.Name, v) {
				if onlyReady {
					continue
				}
				row.State, row.Reason = "UNAVAILABLE", "not ready"
				if c.gate.Closed() {
					row.Reason = "draining"
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (s *HTTPServer) repositoryIndex(w http.ResponseWriter, r *http.Request) *Error {
	if r.Method != http.MethodPost {
		return method(w, r, http.MethodPost)
	}
	var ask struct {
		Repository string `json:"repository_name"`
		Ready      bool   `json:"ready"`
	}
	if err := httplimit.CheckContentType(r, contentTypes...); err != nil {
		return s.refuse(w, r, err)
	}
	if r.ContentLength != 0 {
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&ask); err != nil && !errors.Is(err, io.EOF) {
			return Invalid("body", "%v", err)
		}
	}
	return s.json(w, s.core.index(ask.Ready))
}

// infer answers POST …/infer.
func (s *HTTPServer) infer(w http.ResponseWriter, r *http.Request, model, version string) *Error {
	req := &Request{Model: model, Version: version, Received: time.Now()}
	m, err := s.core.backend.Models().Find(model, version)
	if err != nil {
		return s.refuse(w, r, err)
	}
	if !s.core.gate.Enter() {
		return s.refuse(w, r, errDraining)
	}
	defer s.core.gate.Leave()
	split, err := s.checkHead(r)
	if err == nil {
		err = req.classHeader(r.Header[HeaderClass])
	}
	if err != nil {
		return s.refuse(w, r, err)
	}
	body, err := s.readBody(w, r, req)
	if err != nil {
		return s.refuse(w, r, err)
	}
	defer body.release()
	req.body = body
	text, tail := body.b, []byte(nil)
	if split >= 0 {
		if split > int64(len(body.b)) {
			return Invalid(HeaderJSONLength, "%d is beyond the body's %d bytes", split, len(body.b))
		}
		text, tail = body.b[:split], body.b[split:]
	}
	if err := decodeRequest(r.Context(), text, tail, m, req); err != nil {
		return err
	}
	resp, err := s.core.infer(r.Context(), m, req)
	if err != nil {
		return err
	}
	defer resp.Release()
	return s.answer(w, req, resp)
}

// refuse answers before the body was read: the connection is closed, so that
// the client's remaining bytes are not waited for.
func (s *HTTPServer) refuse(w http.ResponseWriter, r *http.Request, err *Error) *Error {
	if r.ContentLength < 0 || r.ContentLength > 256<<10 {
		w.Header().Set("Connection", "close")
	}
	return err
}

// checkHead looks at the headers; split is the length of the JSON, -1 for all.
func (s *HTTPServer) checkHead(r *http.Request) (split int64, err *Error) {
	if err := httplimit.CheckContentType(r, contentTypes...); err != nil {
		return 0, err
	}
	if enc := r.Header["Content-Encoding"]; len(enc) > 0 && !slices.Equal(enc, []string{"identity"}) {
		return 0, &Error{Code: CodeUnsupportedMedia, Reason: "content_encoding", Field: "Content-Encoding", Msg: fmt.Sprintf("%q is not taken; send the body as it is", httplimit.Clip(strings.Join(enc, ", ")))}
	}
	if r.ContentLength > s.core.opt.MaxBodyBytes {
		return 0, httplimit.TooLarge("body", "%d bytes, at most %d are taken", r.ContentLength, s.core.opt.MaxBodyBytes)
	}
	v := r.Header[HeaderJSONLength]
	if len(v) == 0 {
		return -1, nil
	}
	n, perr := strconv.ParseInt(v[0], 10, 64)
	if len(v) > 1 || perr != nil || n < 0 {
		return 0, Invalid(HeaderJSONLength, "got %q, expected the length of the JSON in bytes", httplimit.Clip(strings.Join(v, ", ")))
	}
	return n, nil
}

// firstRoom is what a body gets before its first byte has come; from then on
// the room grows with the bytes that came.
const firstRoom = 1 << minClass

// readBody reads the whole body into a pooled buffer, which holds its share of
// the memory for requests until it is released.
func (s *HTTPServer) readBody(w http.ResponseWriter, r *http.Request, req *Request) (*buffer, *Error) {
	limit, length := s.core.opt.MaxBodyBytes, r.ContentLength
	req.hold.Open(s.core.opt.Budget, httplimit.Host(r.RemoteAddr), w)
	body := newBuffer(firstRoom)
	body.hold = &req.hold
	err := body.hold.Grow(int64(cap(body.b)))
	for err == nil {
		if len(body.b) == cap(body.b) && int64(len(body.b)) != length {
			if err = widen(body, length); err != nil {
				break
			}
		}
		n, rerr := r.Body.Read(body.b[len(body.b):cap(body.b)])
		body.b = body.b[:len(body.b)+n]
		switch {
		case int64(len(body.b)) > limit:
			err = httplimit.TooLarge("body", "more than %d bytes", limit)
		case rerr == io.EOF || int64(len(body.b)) == length:
			if err = body.hold.Whole(); err == nil {
				return body, nil
			}
		case rerr != nil:
			if err = body.hold.Whole(); err == nil {
				err = Invalid("body", "cut off: %v", rerr)
			}
		}
	}
	if err == httplimit.ErrEvicted {
		w.Header().Set("Connection", "close")
	}
	body.release()
	return nil, err
}

// widen makes room for what comes next: four times as much, 64 KiB at least,
// but not more than the length that was announced, where one was.
func widen(body *buffer, length int64) *Error {
	room := max(4*int64(cap(body.b)), 64<<10)
	if length >= 0 {
		room = min(room, length)
	}
	room = int64(roundUp(int(room)))
	if err := body.hold.Grow(room - int64(cap(body.b))); err != nil {
		return err
	}
	body.resize(int(room))
	return nil
}

// answer writes a response; binary outputs go out from where they lie.
func (s *HTTPServer) answer(w http.ResponseWriter, req *Request, resp *Response) *Error {
	wanted := func(i int) bool {
		if len(req.Outputs) > 0 {
			return req.Outputs[i].Binary
		}
		return req.binaryDefault
	}
	buf := newBuffer(1 << minClass)
	defer buf.release()
	text, err := encodeResponse(buf.b, resp, wanted)
	if cap(text) == cap(buf.b) {
		buf.b = text
	}
	if err != nil {
		return err
	}
	size, binary := len(text), false
	for i := range resp.Outputs {
		if wanted(i) {
			binary = true
			size += len(resp.Outputs[i].Data)
		}
	}
	h := w.Header()
	lengths := strconv.Itoa(size)
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{lengths}
	if binary {
		h["Content-Type"] = contentBinary
		h[HeaderJSONLength] = []string{strconv.Itoa(len(text))}
	}
	// A failed write means that the client is gone: nobody is left to tell.
	if _, werr := w.Write(text); werr != nil {
		return nil
	}
	for i := range resp.Outputs {
		if wanted(i) {
			if _, werr := w.Write(resp.Outputs[i].Data); werr != nil {
				return nil
			}
		}
	}
	return nil
}
