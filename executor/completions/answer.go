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
func (result *requestResult) usage() *usage {
	return &usage{result.PromptTokens, result.OutputTokens, result.PromptTokens + result.OutputTokens}
}

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

	rawJSON json.RawMessage // the choice as a server wrote it, in place of the fields above; nil if there is none
}

// MarshalJSON writes a choice as JSON: as a server wrote it, if it has that, or else by its fields. The local type
// has no MarshalJSON, which would call itself. It implements json.Marshaler.
func (c choice) MarshalJSON() ([]byte, error) {
	if c.rawJSON != nil {
		return c.rawJSON, nil
	}
	type choiceFields choice
	return json.Marshal(choiceFields(c))
}

// rawChoices returns choices whose JSON is sent to the client exactly as a server wrote it.
func rawChoices(list []json.RawMessage) []choice {
	out := make([]choice, len(list))
	for i := range list {
		out[i].rawJSON = list[i]
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

// completionHead returns an answer of the OpenAI protocol without choices (the alternatives that have the text).
// `part` says that it is a part of a stream, which has another object name.
func (r *requestRecord) completionHead(id string, part bool) completion {
	object := "text_completion"
	if r.Chat {
		object = "chat.completion"
		if part {
			object += ".chunk"
		}
	}
	return completion{ID: id, Object: object, Created: r.Accepted.Unix(), Model: r.Model, Choices: []choice{}}
}

// fullCompletion returns a request's whole answer in the form of the OpenAI API. result is nil while the request
// runs; then text is what it has so far. For requests whose answers are more than a text, text is the log of their
// events.
func (r *requestRecord) fullCompletion(id, text string, result *requestResult) completion {
	out := r.completionHead(id, false)
	if result != nil {
		out.Usage = result.usage()
	}
	if r.Events {
		out.Choices = rawChoices(deltas.CompleteChoices(text, r.Chat))
		return out
	}
	c := choice{}
	if r.Chat {
		c.Message = &message{Role: "assistant", Content: &text}
	} else {
		c.Text = &text
	}
	if result != nil && result.Finish != "" {
		c.Finish = &result.Finish
	}
	out.Choices = append(out.Choices, c)
	return out
}

// showsPartialText reports whether text may be shown before the end. Events are shown early only if the client
// streams them, because they may be written anew.
func (r *requestRecord) showsPartialText() bool { return !r.Events || r.Streamed }

// chunkCompletion returns one part of a streamed answer, with the text that is new. isFirst says that nothing was
// sent before, so that the part names the role. result is nil in all parts but the last, which has the reason why
// the answer ends.
func (r *requestRecord) chunkCompletion(id, text string, isFirst bool, result *requestResult) completion {
	out := r.completionHead(id, true)
	c := choice{}
	if r.Chat {
		c.Delta = &message{}
		if isFirst {
			c.Delta.Role = "assistant"
		}
		if text != "" || isFirst {
			c.Delta.Content = &text
		}
	} else {
		c.Text = &text
	}
	if result != nil {
		c.Finish = &result.Finish
	}
	out.Choices = append(out.Choices, c)
	return out
}

// statusCompletion returns the answer to a client that asks for a request by its id: its status (queued, in
// progress, completed, cancelled or failed) and the text so far. A partial text that may still be withdrawn is left
// out.
func (e *trackedRequest) statusCompletion() completion {
	update := e.snapshot(0)
	if update.result == nil && !e.record.showsPartialText() { // it may be withdrawn
		update.text = ""
	}
	out := e.record.fullCompletion(e.id, update.text, update.result)
	switch {
	case update.result == nil && update.textBytes == 0:
		out.Status = "queued"
	case update.result == nil:
		out.Status = "in_progress"
	case update.result.Error == nil:
		out.Status = "completed"
	case update.result.Error.Code == errCancelled.Reason:
		out.Status, out.Error = "cancelled", update.result.Error.toAPIError()
	default:
		out.Status, out.Error = "failed", update.result.Error.toAPIError()
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

// toAPIError returns the error in the form of the OpenAI protocol, in which an empty field or code is null.
func (f *clientError) toAPIError() *apiError {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	return &apiError{f.Message, f.openAIType(), orNull(f.Param), orNull(f.Code)}
}

// writeError answers with an error, and says when to retry if that is known.
func writeError(w http.ResponseWriter, f *clientError) {
	if f.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.Retry.Seconds()))))
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(f.Retry.Milliseconds(), 10))
	}
	writeJSON(w, f.Status, errorBody{f.toAPIError()})
}

// writeJSON answers with a status and a value as JSON.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer could not be written","type":"server_error","param":null,"code":null}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failure means that the client is gone
}
