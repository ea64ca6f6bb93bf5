package completions

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"

	"inferplan/engine/llm/deltas"
)

// The answers of the protocol. A pointer that is nil stands for null.

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

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

	raw json.RawMessage // as a server wrote it; nil: what stands above
}

// MarshalJSON implements json.Marshaler.
func (c choice) MarshalJSON() ([]byte, error) {
	if c.raw != nil {
		return c.raw, nil
	}
	type plain choice
	return json.Marshal(plain(c))
}

// raw are choices as a server wrote them.
func raw(list []json.RawMessage) []choice {
	out := make([]choice, len(list))
	for i := range list {
		out[i].raw = list[i]
	}
	return out
}

type completion struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	Model   string    `json:"model"`
	Status  string    `json:"status,omitempty"` // ours, of what is asked for by id
	Choices []choice  `json:"choices"`
	Usage   *usage    `json:"usage,omitempty"`
	Error   *apiError `json:"error,omitempty"` // of a request that ended with one
}

// chunk is a part of a stream. Usage is in each where the client asked for it.
type chunk struct {
	completion
	Usage *usage `json:"usage"`
}

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

// whole is the answer in one.
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

// visible says whether what came is shown before the end.
func (r *record) visible() bool { return !r.Events || r.Shown }

// part is a chunk with text; x is the end, in the last one.
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

// found is a request that was asked for by its id.
func (e *entry) found() completion {
	n := e.look(0)
	if n.end == nil && !e.rec.visible() { // it may be taken back
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

type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

type errorBody struct {
	Error *apiError `json:"error"`
}

func (f *failure) api() *apiError {
	some := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return &apiError{f.Message, f.kind(), some(f.Param), some(f.Code)}
}

// fail answers with an error.
func fail(w http.ResponseWriter, f *failure) {
	if f.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.Retry.Seconds()))))
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(f.Retry.Milliseconds(), 10))
	}
	answer(w, f.Status, errorBody{f.api()})
}

// answer answers with JSON.
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
