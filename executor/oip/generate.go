package oip

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/executor/httplimit"
	"inferplan/executor/jsonscan"
)

// The generate extension of the protocol, as Triton has it, for models that take a text and
// return one: POST …/generate returns the whole text when it is complete, …/generate_stream
// its pieces as they are made, as server-sent events.

// generateAnswer is the answer, or an event with a piece of it.
type generateAnswer struct {
	ID         string           `json:"id,omitempty"`
	Model      string           `json:"model_name"`
	Version    string           `json:"model_version"`
	Text       string           `json:"text_output"`
	Parameters map[string]Param `json:"parameters,omitempty"`
}

// TextStream carries the text of an answer from the backend to the client while it is made. Several goroutines may
// use it at once.
type TextStream struct {
	mu        sync.Mutex
	text      []byte
	sentBytes int           // bytes of the text that nextPiece has returned
	added     chan struct{} // has an element when text was added
}

func newTextStream() *TextStream { return &TextStream{added: make(chan struct{}, 1)} }

// Add adds a part of a text answer that begins at byte `from`, and wakes the sender. Parts may overlap what was
// added before. It returns false if they differ from it, or leave a gap after it.
func (s *TextStream) Add(from int, part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(part), len(s.text)-from)
	if n < 0 || part[:n] != string(s.text[from:][:n]) {
		return false
	}
	if s.text = append(s.text, part[n:]...); len(s.text) > s.sentBytes {
		select {
		case s.added <- struct{}{}:
		default:
		}
	}
	return true
}

// nextPiece returns the text that was added since the last call, which is sent to the client next.
func (s *TextStream) nextPiece() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := string(s.text[s.sentBytes:])
	s.sentBytes = len(s.text)
	return text
}

// textTensors returns the input and the output of a model that takes a text and returns one, as rows of bytes padded
// with zeros. If the model lacks one of them, both are nil.
func (m *ModelInfo) textTensors() (input, output *TensorInfo) {
	row := func(t TensorInfo) bool { return t.Text && t.Datatype == Uint8 && len(t.Shape) == 2 && t.Shape[1] > 0 }
	i := slices.IndexFunc(m.Outputs, row)
	if len(m.Inputs) != 1 || !row(m.Inputs[0]) || i < 0 {
		return nil, nil
	}
	return &m.Inputs[0], &m.Outputs[i]
}

// generate answers POST …/generate, for models that take a text and return one, with the whole text, and with stream
// (…/generate_stream) with its pieces as they come. holder is the sender's key.
func (s *HTTPServer) generate(w http.ResponseWriter, r *http.Request, model, version string, stream bool, holder *httplimit.Holder) *Error {
	return s.withRequest(w, r, model, version, holder, func(m *ModelInfo, req *Request, jsonLength int64) *Error {
		switch input, _ := m.textTensors(); {
		case input == nil:
			return httplimit.NotFound("model %q does not take a text and return one; ask it by …/infer", httplimit.Clip(model))
		case jsonLength >= 0:
			return httplimit.Invalid(HeaderJSONLength, "found %d, expected a body of JSON alone", jsonLength)
		}
		if err := decodeGenerate(r.Context(), req.body.B, m, req); err != nil {
			return err
		}
		if stream {
			return s.generateStream(w, r, m, req, holder)
		}
		resp, err := s.core.infer(r.Context(), m, req, holder)
		if err != nil {
			return err
		}
		defer resp.Release()
		return s.writeJSON(w, generateAnswerOf(resp))
	})
}

// decodeGenerate reads the JSON body of a request for text (id, text_input, parameters) and sets req to a request for
// the model's input tensor: one row of bytes, padded with zeros. The parameters are those of an inference. It books the
// tensor's memory.
func decodeGenerate(ctx context.Context, body []byte, m *ModelInfo, req *Request) *Error {
	d := decoder{Cursor: jsonscan.Cursor{B: body, Progress: jsonscan.Progress{Ctx: ctx, MemoryHold: &req.memoryHold}}, model: m, newShape: req.shape}
	var seenFields fieldSet
	text := ""
	err := d.Object(func(key []byte) *Error {
		switch string(key) {
		case "id":
			return d.readOnce(&seenFields, 0, "id", func() (err *Error) { req.ID, err = d.text(); return })
		case "text_input":
			return d.readOnce(&seenFields, 1, "text_input", func() (err *Error) { text, err = d.text(); return })
		case "parameters":
			return d.readOnce(&seenFields, 2, "parameters", func() *Error { return d.requestParams(req) })
		}
		return unknownField("", key, "id, text_input, parameters")
	})

	// Check the text.
	if err == nil {
		err = d.checkEnd("inputs", nil)
	}
	if err != nil {
		return err
	}
	input, output := m.textTensors()
	size := int(input.Shape[1])
	switch {
	case !seenFields.contains(1) || text == "":
		return httplimit.Invalid("text_input", "found nothing, expected a text")
	case len(text) > size:
		return httplimit.Invalid("text_input", "found %d bytes, expected at most %d", len(text), size)
	case strings.IndexByte(text, 0) >= 0:
		return httplimit.Invalid("text_input", "found a zero byte, which ends a text")
	case req.binaryDefault:
		return httplimit.Invalid("parameters.binary_data_output", "found true, expected nothing: the answer is a text")
	}

	// Make the input and name the output.
	if err := req.memoryHold.Grow(int64(size)); err != nil {
		return err
	}
	// Make the input, and name the output that is wanted.
	data := make([]byte, size)
	copy(data, text)
	req.Batch = 1
	req.Inputs = append(req.inputBuf[:0], Tensor{Name: input.Name, Datatype: Uint8, Shape: []int64{1, int64(size)}, Data: data})
	req.Outputs = []OutputRequest{{Name: output.Name}}
	return nil
}

// generateAnswerOf returns a response as the JSON answer of a request for text. The text ends before the first
// zero byte of the output.
func generateAnswerOf(resp *Response) generateAnswer {
	out := generateAnswer{ID: resp.ID, Model: resp.Model, Version: resp.Version, Parameters: resp.Params}
	if len(resp.Outputs) > 0 {
		text, _, _ := bytes.Cut(resp.Outputs[0].Data, []byte{0})
		out.Text = string(text)
	}
	return out
}

// generateResult is how a streamed request ended.
type generateResult struct {
	answer generateAnswer
	err    *Error
}

// stallTimeout is how long a client may take to read an event.
const stallTimeout = 30 * time.Second

// generateStream answers a request for text with its pieces as events, as they come. The last event has the
// parameters of the answer. If the request fails after the first piece, the last event is the error.
func (s *HTTPServer) generateStream(w http.ResponseWriter, r *http.Request, m *ModelInfo, req *Request, holder *httplimit.Holder) *Error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	req.Text = newTextStream()
	done := make(chan generateResult, 1)
	go func() { done <- s.runGenerate(ctx, m, req, holder) }()

	// Send pieces until the request has ended.
	events := httplimit.NewEvents(w, stallTimeout)
	piece := generateAnswer{ID: req.ID, Model: m.Name, Version: cmp.Or(req.Version, m.Versions[len(m.Versions)-1])}
	for {
		select {
		case <-req.Text.added:
			piece.Text = req.Text.nextPiece()
			if piece.Text != "" && events.Send(piece) != nil {
				cancel() // the client is gone, so the request is cancelled
			}
		case end := <-done:
			if end.err == nil && !req.Text.Add(0, end.answer.Text) {
				end.err = httplimit.Internal(nil, "the answer differs from the pieces that were sent")
			}
			if end.err != nil {
				if !events.HasBegun() {
					return end.err
				}
				_ = events.Send(map[string]string{"error": end.err.Error()})
				return nil
			}
			end.answer.Text = req.Text.nextPiece()
			_ = events.Send(end.answer)
			return nil
		}
	}
}

// runGenerate runs a request for text, whose pieces another goroutine sends meanwhile, and returns its whole answer or
// error. A panic fails only this request, since here no handler would catch it.
func (s *HTTPServer) runGenerate(ctx context.Context, m *ModelInfo, req *Request, holder *httplimit.Holder) (out generateResult) {
	defer func() {
		if p := recover(); p != nil {
			s.core.opt.Door.Log.Error("panic in an inference", "model", req.Model, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			out = generateResult{err: httplimit.Internal(nil, "internal error while running model %q", req.Model)}
		}
	}()
	resp, err := s.core.infer(ctx, m, req, holder)
	if err != nil {
		return generateResult{err: err}
	}
	defer resp.Release()
	return generateResult{answer: generateAnswerOf(resp)}
}
