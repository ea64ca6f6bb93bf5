package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// ErrNotResumed is returned when a server cannot continue an answer that broke off.
var ErrNotResumed = errors.New("the server cannot continue an answer that was begun")

// ResumeRequest returns a request for the rest of an answer to r that broke off. partial is the part that is known.
// For a completion, the prompt gets the part appended, which is exact if text always maps to the same tokens. A chat
// is rendered as a prompt by the server, or is sent with the part as a last message that is to be continued. A
// server that can do neither gives ErrNotResumed.
func (s *Server) ResumeRequest(ctx context.Context, r Request, partial string) (*Request, error) {
	if partial == "" {
		return &r, nil
	}
	var fields map[string]json.RawMessage
	if len(r.Body) > 0 {
		if err := json.Unmarshal(r.Body, &fields); err != nil {
			return nil, &Error{Kind: ErrRefused, Text: fmt.Sprintf("the body is no JSON object: %v", err)}
		}
	}

	// A completion's prompt gets longer. A chat is rendered by the server's template, or ends with a message to
	// continue.
	switch {
	case !r.Chat:
		if r.Prompt == "" && json.Unmarshal(fields["prompt"], &r.Prompt) != nil {
			return nil, fmt.Errorf("%w: its prompt is not one text", ErrNotResumed)
		}
		r.Prompt += partial
		return &r, nil
	case s.Abilities.Template:
		return s.renderedPrompt(ctx, r, fields, partial)
	case s.Abilities.ContinueChat:
		var messages []json.RawMessage
		if err := json.Unmarshal(fields["messages"], &messages); err != nil {
			return nil, &Error{Kind: ErrRefused, Text: fmt.Sprintf("messages: %v", err)}
		}
		lastMessage, _ := json.Marshal(map[string]string{"role": "assistant", "content": partial})
		fields := map[string]any{}
		for k, v := range r.Fields {
			fields[k] = v
		}
		fields["messages"], fields["add_generation_prompt"], fields["continue_final_message"] = append(messages, lastMessage), false, true
		r.Fields = fields
		return &r, nil
	}
	return nil, fmt.Errorf("%w: it neither renders chats nor continues their last message", ErrNotResumed)
}

// renderedPrompt turns a chat whose answer broke off into a completion. It has the server render the messages as a
// prompt (/apply-template), and appends the part of the answer that is known. fields are those of r's body, from
// which it removes the fields of chats.
func (s *Server) renderedPrompt(ctx context.Context, r Request, fields map[string]json.RawMessage, partial string) (*Request, error) {
	ask := map[string]any{"model": r.Model}
	for _, k := range []string{"messages", "tools", "chat_template_kwargs"} {
		if v, ok := fields[k]; ok {
			ask[k] = v
		}
	}

	// Have the server render the chat.
	data, err := s.Call(ctx, http.MethodPost, "/apply-template", ask)
	if err != nil {
		return nil, err
	}
	var rendered struct {
		Prompt string `json:"prompt"`
	}
	if err := json.Unmarshal(data, &rendered); err != nil || rendered.Prompt == "" {
		return nil, fmt.Errorf("%w: /apply-template answers %s", ErrNotResumed, excerpt(string(data)))
	}

	// Make a completion of it, without the fields of chats.
	for _, k := range []string{"messages", "tools", "tool_choice", "chat_template_kwargs"} {
		delete(fields, k)
	}
	if r.Body, err = json.Marshal(fields); err != nil {
		return nil, err
	}
	r.Chat, r.Prompt = false, rendered.Prompt+partial
	return &r, nil
}
