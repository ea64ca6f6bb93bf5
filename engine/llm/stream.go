package llm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// Request is a request for a completion.
type Request struct {
	Model string
	// Chat sends the request to /v1/chat/completions, with the messages of Body;
	// otherwise it goes to /v1/completions.
	Chat      bool
	Prompt    string // the prompt of a completion; if empty, that in Body
	MaxTokens int    // the most tokens of the answer; if 0, as Body says
	// Body is a JSON object of fields as a client wrote them, or empty. The fields above take precedence.
	Body json.RawMessage
	// Fields are set last. They are for fields of one server (ignore_eos, cache_prompt).
	Fields map[string]any
	// Events asks for the choices of each event as they are, in place of its text.
	Events bool
}

// Token is a piece of an answer.
type Token struct {
	Elapsed time.Duration // since the request was sent
	Text    string
	Count   int // tokens of the answer so far, as the server counts, else pieces
	// Choices are the choices of the event, as the server wrote them, if Request.Events is set.
	Choices json.RawMessage
}

// Usage is the server's count of tokens.
type Usage struct {
	PromptTokens, OutputTokens int
	CachedTokens               int // tokens of the prompt that were in the server's prefix cache
}

// Answer is the result of a request, or the part of it before an error.
type Answer struct {
	Text           string
	Finish         string        // stop, length, …; empty if the answer broke off
	Usage          Usage         // if HasUsage is false, OutputTokens counts pieces
	HasUsage       bool          // the server reported its usage
	FirstTokenTime time.Duration // the time of the first piece; 0 if none came
	LastTokenTime  time.Duration // the time of the last piece
}

// Complete sends a request and returns its answer. It calls onToken, if not nil, for each piece when it arrives.
// An error of onToken ends the request. If Complete returns an error, the answer holds the part before it.
func (c *Client) Complete(ctx context.Context, r *Request, onToken func(Token) error) (*Answer, error) {
	body, err := r.requestBody()
	if err != nil {
		return &Answer{}, err
	}
	path := "/v1/completions"
	if r.Chat {
		path = "/v1/chat/completions"
	}
	ctx, cancel := context.WithCancel(ctx) // so that an early return closes the connection
	defer cancel()

	// Send the request, and read the answer's events as they come.
	sentAt := time.Now()
	resp, err := c.send(ctx, http.MethodPost, path, body)
	if err != nil {
		return &Answer{}, err
	}
	defer resp.Body.Close()
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return &Answer{}, &Error{Kind: ErrNoStream, Status: resp.StatusCode, Text: fmt.Sprintf("%s answers with %q, expected text/event-stream", path, excerpt(kind))}
	}
	s := &stream{sentAt: sentAt, onToken: onToken, wholeEvents: r.Events}
	if err := s.readEvents(newEvents(resp.Body)); err != nil {
		var e *Error
		if s.callbackErr == nil && !errors.As(err, &e) {
			err = c.connectionError(ctx, err)
		}
		return s.finished(), err
	}
	return s.finished(), nil
}

// requestBody returns the body to send: the client's fields (r.Body), overridden by those of the request, and
// r.Fields last. It always asks for a stream with counts of tokens.
func (r *Request) requestBody() (map[string]any, error) {
	body := map[string]any{}
	if len(r.Body) > 0 {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(r.Body, &fields); err != nil {
			return nil, &Error{Kind: ErrRefused, Text: fmt.Sprintf("the body is no JSON object: %v", err)}
		}
		for k, v := range fields {
			body[k] = v
		}
	}
	body["model"] = r.Model
	if r.Prompt != "" {
		body["prompt"] = r.Prompt
	}
	if r.MaxTokens > 0 {
		delete(body, "max_completion_tokens")
		body["max_tokens"] = r.MaxTokens
	}
	body["stream"] = true
	// vLLM and SGLang then report the count of tokens with every piece. Other servers ignore this.
	body["stream_options"] = map[string]any{"include_usage": true, "continuous_usage_stats": true}
	maps.Copy(body, r.Fields)
	return body, nil
}

// chunk is an event of an answer.
type chunk struct {
	Choices []struct {
		Index int    `json:"index"`
		Text  string `json:"text"`
		Delta struct {
			Content   *string         `json:"content"`
			Reasoning *string         `json:"reasoning_content"`
			Calls     json.RawMessage `json:"tool_calls"`
		} `json:"delta"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Output  int `json:"completion_tokens"`
		Details *struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Timings *struct { // llama-server's counts and times
		Prompt int `json:"prompt_n"`
		Cached int `json:"cache_n"`
		Output int `json:"predicted_n"`
	} `json:"timings"`
	Error json.RawMessage `json:"error"`
}

// stream reads one answer.
type stream struct {
	sentAt       time.Time
	onToken      func(Token) error
	callbackErr  error // returned by onToken
	text         strings.Builder
	answer       Answer
	count        int   // tokens so far
	wholeEvents  bool  // whole events are passed on, see Request.Events
	counts       []int // tokens by choice, if whole events are passed on
	endedChoices int   // number of ended choices, if whole events are passed on
}

// finished returns the answer as it is when the stream has ended, completely or not. Without a count of the server, the
// pieces are the tokens.
func (s *stream) finished() *Answer {
	s.answer.Text = s.text.String()
	s.answer.Usage.OutputTokens = cmp.Or(s.answer.Usage.OutputTokens, s.count)
	return &s.answer
}

// readEvents reads the events of an answer, and adds them to s.answer, until the answer is complete: the server says
// so ([DONE]), or the stream ends after every choice has given a reason why it finished. Otherwise it returns an
// error.
func (s *stream) readEvents(in *eventReader) error {
	for {
		data, err := in.nextEvent()
		switch {
		case errors.Is(err, io.EOF) && s.answer.Finish != "" && s.endedChoices >= len(s.counts):
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the stream ended before the answer: %w", io.ErrUnexpectedEOF)
		case errors.Is(err, errEventSize):
			return &Error{Kind: ErrBroken, Text: err.Error()}
		case err != nil:
			return err
		case string(data) == "[DONE]" && s.answer.Finish == "" && s.answer.FirstTokenTime == 0:
			return &Error{Kind: ErrBroken, Text: "the stream has neither text nor a reason why it ended"}
		case string(data) == "[DONE]":
			s.answer.Finish = cmp.Or(s.answer.Finish, "stop")
			return nil
		}
		if err := s.addEvent(data); err != nil {
			return err
		}
	}
}

// addEvent adds an event of the stream to the answer, and passes its piece on to the caller.
func (s *stream) addEvent(data []byte) error {
	elapsed := time.Since(s.sentAt)
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return &Error{Kind: ErrBroken, Text: fmt.Sprintf("an event that is no JSON: %s", excerpt(string(data)))}
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return streamError(data)
	}

	// Pass the event on as it is, if the caller wants events.
	tokenCount := c.addCounts(&s.answer)
	if len(c.Choices) > 0 && s.wholeEvents {
		return s.passEvent(elapsed, data, &c, tokenCount)
	}
	s.count = max(s.count, tokenCount)
	if len(c.Choices) == 0 {
		return nil
	}

	// Otherwise pass on the text of the first choice, with the number of tokens so far.
	choice := &c.Choices[0]
	text := choice.Text
	for _, reasoning := range []*string{choice.Delta.Reasoning, choice.Delta.Content} {
		if reasoning != nil {
			text += *reasoning
		}
	}
	if choice.Finish != nil && *choice.Finish != "" {
		s.answer.Finish = *choice.Finish
	}
	if text == "" {
		return nil
	}
	if tokenCount == 0 {
		s.count++
	}
	return s.passToken(Token{Elapsed: elapsed, Text: text, Count: s.count})
}

// maxChoices bounds the choices of an answer.
const maxChoices = 1 << 10

// passEvent passes on a whole event, for a caller that wants events rather than texts. tokenCount is the server's
// count of output tokens so far, or 0. An event counts for its first choice, because servers send each choice in an
// event of its own. It adds to the counts of tokens by choice (s.counts) and of all (s.count), and counts the choices
// that end.
func (s *stream) passEvent(elapsed time.Duration, data []byte, c *chunk, tokenCount int) error {
	var raw struct {
		Choices json.RawMessage `json:"choices"`
	}
	firstChoice := &c.Choices[0]
	if err := json.Unmarshal(data, &raw); err != nil || firstChoice.Index < 0 || firstChoice.Index >= maxChoices {
		return &Error{Kind: ErrBroken, Text: fmt.Sprintf("an event with a choice of number %d", firstChoice.Index)}
	}

	// Count what is new: the server's count less the known one or, without such a count, 1 if there is any content.
	for len(s.counts) <= firstChoice.Index {
		s.counts = append(s.counts, 0)
	}
	switch d := &firstChoice.Delta; {
	case tokenCount > 0:
		tokenCount -= s.counts[firstChoice.Index]
	case firstChoice.Text != "" || d.Content != nil && *d.Content != "" || d.Reasoning != nil && *d.Reasoning != "" || len(d.Calls) > 0:
		tokenCount = 1
	}
	s.counts[firstChoice.Index] += max(tokenCount, 0)
	s.count += max(tokenCount, 0)

	// Note the choices that end here.
	for i := range c.Choices {
		if f := c.Choices[i].Finish; f != nil && *f != "" {
			s.endedChoices++
			s.answer.Finish = cmp.Or(s.answer.Finish, *f)
		}
	}
	return s.passToken(Token{Elapsed: elapsed, Count: s.count, Choices: raw.Choices})
}

// passToken adds a piece to the answer, with its time, and passes it to the caller's function.
func (s *stream) passToken(t Token) error {
	s.text.WriteString(t.Text)
	s.answer.FirstTokenTime = cmp.Or(s.answer.FirstTokenTime, t.Elapsed)
	s.answer.LastTokenTime = t.Elapsed
	if s.onToken == nil {
		return nil
	}
	s.callbackErr = s.onToken(t)
	return s.callbackErr
}

// maxTokenCount is larger than the number of tokens of any answer or prompt.
const maxTokenCount = 1 << 24

// clampCount bounds a server's count, because other code adds and divides it.
func clampCount(n int) int { return max(0, min(n, maxTokenCount)) }

// addCounts copies the server's counts of tokens, in either of the two forms that servers use, into the answer.
// Counts never go down. It returns the number of output tokens so far, or 0 if the event has no counts. Ollama's
// pieces have a usage of zeros, which is ignored.
func (c *chunk) addCounts(a *Answer) int {
	n := 0
	if t := c.Timings; t != nil && t.Output > 0 { // llama-server counts cached tokens apart from the prompt's
		a.HasUsage, n = true, clampCount(t.Output)
		a.Usage.OutputTokens = max(a.Usage.OutputTokens, n)
		a.Usage.PromptTokens, a.Usage.CachedTokens = max(a.Usage.PromptTokens, clampCount(t.Prompt)+clampCount(t.Cached)), max(a.Usage.CachedTokens, clampCount(t.Cached))
	}
	if u := c.Usage; u != nil && (u.Output > 0 || u.Prompt > 0) {
		a.HasUsage, n = true, max(n, clampCount(u.Output))
		a.Usage.PromptTokens, a.Usage.OutputTokens = max(a.Usage.PromptTokens, clampCount(u.Prompt)), max(a.Usage.OutputTokens, clampCount(u.Output))
		if u.Details != nil {
			a.Usage.CachedTokens = max(a.Usage.CachedTokens, clampCount(u.Details.Cached))
		}
	}
	return n
}

// streamError returns the error in an event of the stream. If it has an HTTP status as its code, that decides the
// kind.
func streamError(data []byte) error {
	var body struct {
		Error struct {
			Code json.RawMessage `json:"code"`
		} `json:"error"`
	}
	status := 0
	if json.Unmarshal(data, &body) == nil && json.Unmarshal(body.Error.Code, &status) == nil && status >= 400 && status <= 599 {
		return &Error{Kind: errorKind(status, data), Status: status, Text: errorText(data)}
	}
	return &Error{Kind: ErrBroken, Text: errorText(data)}
}
