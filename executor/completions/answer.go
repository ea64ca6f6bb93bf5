package completions

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"inferplan/engine/llm/deltas"
)

// The answers of the protocol, as JSON. A nil pointer becomes null.

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// usage returns the token counts of a result.
func (x *end) usage() *usage { return &usage{x.Prompt, x.Output, x.Prompt + x.Output} }

type message struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal *string `json:"refusal,omitempty"`
}

type choice struct {
	Index    int      `json:"index"`
	Text     *string  `json:"text,omitempty"`
	Message  *message `json:"message,omitempty"`
	Delta    *message `json:"delta,omitempty"`
	Logprobs *int     `json:"logprobs"`
	Finish   *string  `json:"finish_reason"`

	raw json.RawMessage // the choice as a server wrote it, in place of the fields above; nil if there is none
}

// MarshalJSON implements json.Marshaler.
func (c choice) MarshalJSON() ([]byte, error) {
	if c.raw != nil {
		return c.raw, nil
	}
	type plain choice
	return json.Marshal(plain(c))
}

// rawChoices returns choices that are written as a server wrote them.
func raw(list []json.RawMessage) []choice {
	out := make([]choice, len(list))
	for i := range list {
		out[i].raw = list[i]
	}
	return out
}

// completion is an answer, or a part of one in a stream.
type completion struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	Model   string    `json:"model"`
	Status  string    `json:"status,omitempty"` // an extension: the state of a request that is asked for by id
	Choices []choice  `json:"choices"`
	Usage   *usage    `json:"usage,omitempty"`
	Error   *apiError `json:"error,omitempty"` // of a request that ended with an error
}

// chunk is a part of a stream with the field usage, for clients that asked for it: null in all but the last.
type chunk struct {
	completion
	Usage *usage `json:"usage"`
}

// completionHead returns an answer without choices. chunk says that it is a part of a stream.
func (r *record) head(id string, part bool) completion {
	object := "text_completion"
	if r.Chat {
		object = "chat.completion"
		if part {
			object += ".chunk"
		}
	}
	return completion{ID: id, Object: object, Created: r.Accepted.Unix(), Model: r.Model, Choices: []choice{}}
}

// fullCompletion returns the whole answer. result is nil while the request runs.
func (r *record) whole(id, text string, x *end) completion {
	out := r.head(id, false)
	if x != nil {
		out.Usage = x.usage()
	}
	if r.Events {
		out.Choices = raw(deltas.Whole(text, r.Chat))
		return out
	}
	c := choice{}
	if r.Chat {
		c.Message = &message{Role: "assistant", Content: &text}
	} else {
		c.Text = &text
	}
	if x != nil && x.Finish != "" {
		c.Finish = &x.Finish
	}
	out.Choices = append(out.Choices, c)
	return out
}

// showsPartialText reports whether text may be shown before the end. Events are shown early only if the client
// streams them, because they may be written anew.
func (r *record) visible() bool { return !r.Events || r.Shown }

// chunkCompletion returns the part of a stream with a text. isFirst says that nothing was sent before. result is nil
// in all parts but the last.
func (r *record) part(id, text string, first bool, x *end) completion {
	out := r.head(id, true)
	c := choice{}
	if r.Chat {
		c.Delta = &message{}
		if first {
			c.Delta.Role = "assistant"
		}
		if text != "" || first {
			c.Delta.Content = &text
		}
	} else {
		c.Text = &text
	}
	if x != nil {
		c.Finish = &x.Finish
	}
	out.Choices = append(out.Choices, c)
	return out
}

// statusCompletion returns the answer to a client that asks for the request by its id.
func (e *entry) found() completion {
	n := e.look(0)
	if n.end == nil && !e.rec.visible() { // it may be withdrawn
		n.text = ""
	}
	out := e.rec.whole(e.id, n.text, n.end)
	switch {
	case n.end == nil && n.at == 0:
		out.Status = "queued"
	case n.end == nil:
		out.Status = "in_progress"
	case n.end.Error == nil:
		out.Status = "completed"
	case n.end.Error.Code == errCancelled.Reason:
		out.Status, out.Error = "cancelled", n.end.Error.api()
	default:
		out.Status, out.Error = "failed", n.end.Error.api()
	}
	return out
}

// apiError is an error in the form of the protocol.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// errorBody is the body of an answer with an error.
type errorBody struct {
	Error *apiError `json:"error"`
}

// toAPIError returns the error in the form of the protocol.
func (f *failure) api() *apiError {
	some := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return &apiError{f.Message, f.kind(), some(f.Param), some(f.Code)}
}

// writeError answers with an error, and says when to retry if that is known.
func fail(w http.ResponseWriter, f *failure) {
	if f.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.Retry.Seconds()))))
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(f.Retry.Milliseconds(), 10))
	}
	answer(w, f.Status, errorBody{f.api()})
}

// writeJSON answers with a status and a value as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer could not be written","type":"server_error","param":null,"code":null}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failure means that the client is gone
}
