package oip

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/executor/httplimit"
)

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
			k := slices.IndexFunc(req.Outputs, func(o OutputRequest) bool { return o.Name == resp.Outputs[i].Name })
			return req.Outputs[k].Binary
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
