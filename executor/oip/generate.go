package oip

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/executor/httplimit"
)

// The generate extension of the protocol, as Triton has it, for models that take a text and
// return one: POST …/generate answers at once, …/generate_stream as server-sent events.

// generateBody is the body of a request. Parameters are those of an inference.
type generateBody struct {
	ID         string                     `json:"id"`
	Text       *string                    `json:"text_input"`
	Parameters map[string]json.RawMessage `json:"parameters"`
}

// generateAnswer is an answer, or an event with a piece of one.
type generateAnswer struct {
	ID         string           `json:"id,omitempty"`
	Model      string           `json:"model_name"`
	Version    string           `json:"model_version"`
	Text       string           `json:"text_output"`
	Parameters map[string]Param `json:"parameters,omitempty"`
}

// TextStream takes the text of an answer while it is made. It may be used by several
// goroutines at once.
type TextStream struct {
	mu    sync.Mutex
	text  []byte
	taken int // bytes of the text
	ready chan struct{}
}

func newTextStream() *TextStream { return &TextStream{ready: make(chan struct{}, 1)} }

// Add takes the answer as far as it is made. If it differs from what was added before, it
// returns false.
func (s *TextStream) Add(answer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(answer), len(s.text))
	if answer[:n] != string(s.text[:n]) {
		return false
	}
	if s.text = append(s.text, answer[n:]...); len(s.text) > s.taken {
		select {
		case s.ready <- struct{}{}:
		default:
		}
	}
	return true
}

// take returns what was added since the last call.
func (s *TextStream) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(s.text[s.taken:])
	s.taken = len(s.text)
	return text
}

// texts returns the input and the output of a model that takes a text and returns one, as
// rows of bytes that zeros fill up; nil: it does neither.
func (m *ModelInfo) texts() (input, output *TensorInfo) {
	row := func(t *TensorInfo) bool { return t.Text && t.Datatype == Uint8 && len(t.Shape) == 2 && t.Shape[1] > 0 }
	if len(m.Inputs) != 1 || !row(&m.Inputs[0]) {
		return nil, nil
	}
	i := slices.IndexFunc(m.Outputs, func(t TensorInfo) bool { return row(&t) })
	if i < 0 {
		return nil, nil
	}
	return &m.Inputs[0], &m.Outputs[i]
}

// generate answers POST …/generate and …/generate_stream.
func (s *HTTPServer) generate(w http.ResponseWriter, r *http.Request, model, version string, stream bool, from *httplimit.Holder) *Error {
	req := &Request{Model: model, Version: version, Received: time.Now(), Client: from.Client(r.RemoteAddr)}
	m, _, err := s.head(r, req)
	if err == nil {
		if input, _ := m.texts(); input == nil {
			err = NotFound("model %q does not take a text and return one; ask it by …/infer", httplimit.Clip(model))
		}
	}
	if err == nil {
		err = from.Begin()
	}
	if err != nil {
		httplimit.Unread(w, r)
		return err
	}
	defer from.End()
	if !s.core.gate.Enter() {
		httplimit.Unread(w, r)
		return errDraining
	}
	defer s.core.gate.Leave()
	body, err := s.core.opt.Door.ReadBody(w, r, req.Client, &req.hold, s.core.opt.MaxBodyBytes)
	if err != nil {
		return err
	}
	defer body.Release()
	if err := decodeGenerate(body.B, m, req); err != nil {
		return err
	}
	if stream {
		return s.generateStream(w, r, m, req, from)
	}
	resp, err := s.core.infer(r.Context(), m, req, from)
	if err != nil {
		return err
	}
	defer resp.Release()
	return s.json(w, generated(resp))
}

// decodeGenerate reads a body into a request of the model's input.
func decodeGenerate(text []byte, m *ModelInfo, req *Request) *Error {
	var body generateBody
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return Invalid("", "the body is no JSON of text_input, id and parameters: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Invalid("", "the body goes on behind its JSON object")
	}
	input, output := m.texts()
	size := int(input.Shape[1])
	switch {
	case body.Text == nil:
		return Invalid("text_input", "found nothing, expected a text")
	case len(*body.Text) > size:
		return Invalid("text_input", "found %d bytes, expected at most %d", len(*body.Text), size)
	case strings.IndexByte(*body.Text, 0) >= 0:
		return Invalid("text_input", "found a zero byte, which ends a text")
	}
	for name, raw := range body.Parameters {
		var v Param
		if len(raw) == 0 || strings.IndexByte("{[n", raw[0]) >= 0 {
			return Invalid("parameters."+name, "found %s, expected a text, a number or a boolean", httplimit.Clip(string(raw)))
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		_ = d.Decode(&v) // the whole body has been read as JSON
		if err := req.setParam(name, plainParam(v)); err != nil {
			return err
		}
	}
	data := make([]byte, size)
	copy(data, *body.Text)
	req.ID, req.Batch = body.ID, 1
	req.Inputs = append(req.inputRoom[:0], Tensor{Name: input.Name, Datatype: Uint8, Shape: []int64{1, int64(size)}, Data: data})
	req.Outputs = []OutputRequest{{Name: output.Name}}
	return nil
}

// plainParam returns a JSON number as an integer; if it is none, as a float.
func plainParam(v Param) Param {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64()
	return f
}

// generated is the answer that a response holds.
func generated(resp *Response) generateAnswer {
	out := generateAnswer{ID: resp.ID, Model: resp.Model, Version: resp.Version, Parameters: resp.Params}
	if len(resp.Outputs) > 0 {
		text, _, _ := bytes.Cut(resp.Outputs[0].Data, []byte{0})
		out.Text = strings.ToValidUTF8(string(text), "�")
	}
	return out
}

// generateStream answers with the pieces of the text as they come. Its last event has the
// parameters of the answer. If the request fails behind the first piece, the last event is
// its error.
func (s *HTTPServer) generateStream(w http.ResponseWriter, r *http.Request, m *ModelInfo, req *Request, from *httplimit.Holder) *Error {
	type result struct {
		answer generateAnswer
		err    *Error
	}
	req.Text = newTextStream()
	done := make(chan result, 1)
	go func() {
		resp, err := s.core.infer(r.Context(), m, req, from)
		if err != nil {
			done <- result{err: err}
			return
		}
		defer resp.Release()
		done <- result{answer: generated(resp)}
	}()
	events := eventWriter{w: w, flush: http.NewResponseController(w)}
	piece := generateAnswer{ID: req.ID, Model: m.Name, Version: m.Versions[len(m.Versions)-1]}
	for {
		select {
		case <-req.Text.ready:
			if piece.Text = req.Text.take(); piece.Text != "" {
				events.write(piece)
			}
		case end := <-done:
			if end.err != nil {
				if !events.begun {
					return end.err
				}
				events.write(map[string]string{"error": end.err.Error()})
				return nil
			}
			req.Text.Add(end.answer.Text)
			end.answer.Text = req.Text.take()
			events.write(end.answer)
			return nil
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	begun bool
}

func (e *eventWriter) write(v any) {
	if !e.begun {
		e.begun = true
		e.w.Header()["Content-Type"] = []string{"text/event-stream"}
		e.w.Header()["Cache-Control"] = []string{"no-cache"}
	}
	data, err := json.Marshal(v)
	if err != nil {
		data, _ = json.Marshal(map[string]string{"error": fmt.Sprintf("encoding the answer: %v", err)})
	}
	// A failed write means that the client is gone: nobody is left to tell.
	_, _ = fmt.Fprintf(e.w, "data: %s\n\n", data)
	_ = e.flush.Flush()
}
