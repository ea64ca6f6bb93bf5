package oip

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// contentTypes are the content types that the protocol allows.
var contentTypes = []string{"application/json", "application/octet-stream"}

// infer answers POST …/infer: it decodes the request, runs it and writes the response. The body is JSON, behind which
// data of tensors may follow as raw bytes; then a header has the length of the JSON.
func (s *HTTPServer) infer(w http.ResponseWriter, r *http.Request, model, version string, holder *httplimit.Holder) *Error {
	return s.withRequest(w, r, model, version, holder, func(m *ModelInfo, req *Request, jsonLength int64) *Error {
		text, tail := req.body.B, []byte(nil)
		if jsonLength >= 0 {
			if jsonLength > int64(len(text)) {
				return httplimit.Invalid(HeaderJSONLength, "%d is beyond the body's %d bytes", jsonLength, len(text))
			}
			text, tail = text[:jsonLength], text[jsonLength:]
		}
		if err := decodeRequest(r.Context(), text, tail, m, req); err != nil {
			return err
		}
		resp, err := s.core.infer(r.Context(), m, req, holder)
		if err != nil {
			return err
		}
		defer resp.Release()
		return s.writeResponse(w, req, resp)
	})
}

// withRequest prepares a request with a body: it finds the model, checks headers and limits, reads the body, and
// calls answer. jsonLength is the length of the JSON at the start of the body, or -1 if all of the body is JSON.
func (s *HTTPServer) withRequest(w http.ResponseWriter, r *http.Request, model, version string, holder *httplimit.Holder, answer func(m *ModelInfo, req *Request, jsonLength int64) *Error) (failure *Error) {
	req := &Request{Model: model, Version: version, Received: time.Now(), Client: holder.Client(r.RemoteAddr)}
	if req.beginTrace(s.core.opt.Tracer, "http", r.Header[tracing.HeaderTraceparent], r.Header[tracing.HeaderTracestate]); req.Trace.IsRecording() {
		defer func() {
			if failure != nil {
				req.Trace.Fail(failure.Error())
			}
			req.Trace.End(nil)
		}()
	}
	m, jsonLength, err := s.checkRequest(r, req)

	// Count the request for its holder, and let it in.
	if err == nil {
		err = holder.BeginRequest()
	}
	if err != nil {
		httplimit.CloseIfUnread(w, r)
		return err
	}
	defer holder.EndRequest()
	if !s.core.gate.Enter() {
		httplimit.CloseIfUnread(w, r)
		return errDraining
	}
	defer s.core.gate.Leave()

	// Read the body and answer.
	body, err := s.core.opt.Door.ReadBody(w, r, req.Client, &req.memoryHold, s.core.opt.MaxBodyBytes)
	if err != nil {
		return err
	}
	defer body.Release()
	req.body = body
	return answer(m, req, jsonLength)
}

// checkRequest returns the model of an inference, and the length of the JSON in its body or -1, after checking the
// headers.
func (s *HTTPServer) checkRequest(r *http.Request, req *Request) (m *ModelInfo, jsonLength int64, err *Error) {
	if m, err = s.core.backend.Models().Find(req.Model, req.Version); err != nil {
		return nil, 0, err
	}
	if jsonLength, err = s.checkHeaders(r); err != nil {
		return nil, 0, err
	}
	return m, jsonLength, req.classHeader(r.Header[HeaderClass])
}

// checkHeaders returns an error if the headers of an inference announce a body that is too long or of another type. It
// returns the length of the JSON at the beginning of the body, in bytes, or -1 if all of the body is JSON.
func (s *HTTPServer) checkHeaders(r *http.Request) (jsonLength int64, err *Error) {
	if err := httplimit.CheckBody(r, s.core.opt.MaxBodyBytes, contentTypes...); err != nil {
		return 0, err
	}
	v := r.Header[HeaderJSONLength]
	if len(v) == 0 {
		return -1, nil
	}
	n, parseErr := strconv.ParseInt(v[0], 10, 64)
	if len(v) > 1 || parseErr != nil || n < 0 {
		return 0, httplimit.Invalid(HeaderJSONLength, "got %q, expected the length of the JSON in bytes", httplimit.Clip(strings.Join(v, ", ")))
	}
	return n, nil
}

// writeResponse writes a response to the client: JSON, and behind it the outputs that the request wants as binary data,
// directly from their memory. If it returns an error, nothing is written yet. If the client is gone, it returns nil.
func (s *HTTPServer) writeResponse(w http.ResponseWriter, req *Request, resp *Response) *Error {
	isBinary := func(i int) bool {
		if len(req.Outputs) > 0 {
			k := slices.IndexFunc(req.Outputs, func(o OutputRequest) bool { return o.Name == resp.Outputs[i].Name })
			return req.Outputs[k].Binary
		}
		return req.binaryDefault
	}

	// Encode the JSON.
	buf := httplimit.NewBuffer(4 << 10)
	defer buf.Release()
	text, err := encodeResponse(buf.B, resp, isBinary)
	if cap(text) == cap(buf.B) {
		buf.B = text
	}
	if err != nil {
		return err
	}
	size, binary := len(text), false
	for i := range resp.Outputs {
		if isBinary(i) {
			binary = true
			size += len(resp.Outputs[i].Data)
		}
	}

	// Write the headers, the JSON and the binary outputs.
	h := w.Header()
	contentLength := strconv.Itoa(size)
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{contentLength}
	if binary {
		h["Content-Type"] = contentBinary
		h[HeaderJSONLength] = []string{strconv.Itoa(len(text))}
	}
	// A failed write means that the client is gone.
	if _, werr := w.Write(text); werr != nil {
		return nil
	}
	for i := range resp.Outputs {
		if isBinary(i) {
			if _, werr := w.Write(resp.Outputs[i].Data); werr != nil {
				return nil
			}
		}
	}
	return nil
}
