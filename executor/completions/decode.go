package completions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inferplan/executor/httplimit"
)

// Bounds on a request's form.
const (
	mostFields   = 200
	mostMessages = 10_000
	mostTokens   = 1 << 24
	longestName  = 256
)

// question is what a client asks, in the front end's terms.
type question struct {
	chat         bool
	model, class string
	body         []byte // without the front end's fields
	prompt       int    // tokens, estimated
	maxTokens    int
	stream       bool
	usage        bool // a last chunk tells the usage
	store        bool // the client may come again
}

// field is a member of a JSON object, with its place in order.
type field struct {
	name  string
	value json.RawMessage
}

// fields takes a JSON object apart. Values stay as the client wrote them.
func fields(body []byte) ([]field, *httplimit.Error) {
	bad := func(err error) *httplimit.Error {
		return httplimit.Invalid("", "the body is not a JSON object: %v", err)
	}
	if !utf8.Valid(body) {
		return nil, bad(fmt.Errorf("it is not UTF-8"))
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		if err == nil {
			err = fmt.Errorf("it begins with %v", t)
		}
		return nil, bad(err)
	}
	var out []field
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, bad(err)
		}
		f := field{name: t.(string)}
		if err := d.Decode(&f.value); err != nil {
			return nil, bad(err)
		}
		if seen[f.name] {
			return nil, httplimit.Invalid(httplimit.Clip(f.name), "given twice")
		}
		seen[f.name] = true
		if out = append(out, f); len(out) > mostFields {
			return nil, httplimit.TooLarge("", "more than %d fields", mostFields)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, bad(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, bad(fmt.Errorf("something follows it"))
	}
	return out, nil
}

// decode reads the body of a completion, or of a chat completion.
func decode(body []byte, chat bool) (*question, *httplimit.Error) {
	list, err := fields(body)
	if err != nil {
		return nil, err
	}
	q := &question{chat: chat}
	kept := list[:0:0]
	for _, f := range list {
		ours, err := q.take(f)
		if err != nil {
			if err.Field == "" {
				err.Field = f.name
			}
			return nil, err
		}
		if !ours {
			kept = append(kept, f)
		}
	}
	if q.model == "" {
		return nil, httplimit.Invalid("model", "missing: expected the name of a model")
	}
	if q.prompt == 0 {
		return nil, httplimit.Invalid(q.textField(), "missing")
	}
	q.body = object(kept)
	return q, nil
}

// textField is what holds the text that is asked about.
func (q *question) textField() string {
	if q.chat {
		return "messages"
	}
	return "prompt"
}

// object writes fields as a JSON object.
func object(list []field) []byte {
	out := []byte{'{'}
	for i, f := range list {
		if i > 0 {
			out = append(out, ',')
		}
		name, _ := json.Marshal(f.name) // a string: it cannot fail
		out = append(append(append(out, name...), ':'), f.value...)
	}
	return append(out, '}')
}

// take reads a field; ours says that it is not for the server.
func (q *question) take(f field) (ours bool, err *httplimit.Error) {
	null := string(f.value) == "null"
	if f.name == q.textField() {
		return false, q.takeText(f.value)
	}
	switch f.name {
	case "model":
		err = read(f.value, &q.model, "the name of a model")
		if err == nil && len(q.model) > longestName {
			err = httplimit.Invalid("", "longer than %d characters", longestName)
		}
	case "max_tokens", "max_completion_tokens":
		if !null {
			err = q.takeMax(f.value)
		}
	case "stream":
		return true, read(f.value, &q.stream, "true or false")
	case "stream_options":
		var o struct {
			Usage bool `json:"include_usage"`
		}
		err = read(f.value, &o, "an object")
		q.usage = o.Usage
		return true, err
	case "slo_class":
		return true, read(f.value, &q.class, "the name of an SLO class")
	case "store":
		return true, read(f.value, &q.store, "true or false")
	case "metadata":
		return true, nil
	case "n", "best_of":
		err = only(f.value, "one answer is made for a request", "null", "1")
	case "echo", "logprobs":
		err = only(f.value, "it is not served here", "null", "false")
	case "top_logprobs":
		err = only(f.value, "it is not served here", "null", "0")
	case "suffix":
		err = only(f.value, "it is not served here", "null", `""`)
	case "tools", "functions":
		err = only(f.value, "calls of tools are not served here", "null", "[]")
	}
	return false, err
}

// read decodes a value; null leaves it as it is.
func read(raw json.RawMessage, to any, expected string) *httplimit.Error {
	if err := json.Unmarshal(raw, to); err != nil {
		return httplimit.Invalid("", "found %s, expected %s", httplimit.Clip(string(raw)), expected)
	}
	return nil
}

// only refuses other values than those listed.
func only(raw json.RawMessage, why string, values ...string) *httplimit.Error {
	if slices.Contains(values, string(raw)) {
		return nil
	}
	return &httplimit.Error{Code: httplimit.CodeInvalid, Reason: "unsupported_value",
		Msg: fmt.Sprintf("found %s, expected %s: %s", httplimit.Clip(string(raw)), strings.Join(values, " or "), why)}
}

func (q *question) takeMax(raw json.RawMessage) *httplimit.Error {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 || n > mostTokens {
		return httplimit.Invalid("", "found %s, expected a number of tokens from 1 to %d", httplimit.Clip(string(raw)), mostTokens)
	}
	if q.maxTokens != 0 && q.maxTokens != n {
		return httplimit.Invalid("max_tokens", "found %d and %d in max_completion_tokens: give one of them", n, q.maxTokens)
	}
	q.maxTokens = n
	return nil
}

// bytesPerToken is the usual length of a token of English text.
const bytesPerToken = 4

// takeText checks a prompt or messages and estimates their tokens.
func (q *question) takeText(raw json.RawMessage) *httplimit.Error {
	q.prompt = (len(raw) + bytesPerToken - 1) / bytesPerToken
	if q.chat {
		return checkMessages(raw)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil && len(list) == 1 && raw[0] == '[' {
		return nil
	}
	return httplimit.Invalid("", "found %s, expected one text", httplimit.Clip(string(raw)))
}

func checkMessages(raw json.RawMessage) *httplimit.Error {
	var list []struct {
		Role    *string         `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return httplimit.Invalid("", "found %s, expected an array of messages, each an object with a role and content", httplimit.Clip(string(raw)))
	}
	if len(list) > mostMessages {
		return httplimit.TooLarge("", "%d messages, at most %d are taken", len(list), mostMessages)
	}
	for i, m := range list {
		if m.Role == nil || *m.Role == "" {
			return httplimit.Invalid(fmt.Sprintf("messages[%d].role", i), "missing")
		}
		if len(m.Content) > 0 && m.Content[0] != '"' && m.Content[0] != '[' && m.Content[0] != 'n' {
			return httplimit.Invalid(fmt.Sprintf("messages[%d].content", i), "found %s, expected a text or an array of parts", httplimit.Clip(string(m.Content)))
		}
	}
	return nil
}
