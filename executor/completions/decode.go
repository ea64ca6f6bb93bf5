package completions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inferplan/executor/httplimit"
)

// Bounds on the form of a request.
const (
	mostFields   = 200
	mostMessages = 10_000
	mostTokens   = 1 << 24
	mostChoices  = 128 // answers to one request
	longestName  = 256 // bytes of a name
)

// parsedRequest is the body of a completion request, as the front end understands it.
type question struct {
	chat         bool
	model, class string
	body         []byte // JSON for the server, without the fields that only the front end reads
	prompt       int    // tokens of the prompt, estimated
	maxTokens    int
	choices      int  // number of answers that the client wants
	events       bool // the answer is more than one text, or cannot be continued
	seeded       bool // the client gave a seed
	stream       bool
	usage        bool // the last chunk has the token counts
	store        bool // the client may come again for the result
}

// objectField is a member of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// parseObject splits a JSON object into its members, in order. Values stay as the client wrote them. It returns an
// error for a duplicate or for too many members.
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

// parseCompletion reads the body of a completion, or of a chat completion.
func decode(body []byte, chat bool) (*question, *httplimit.Error) {
	list, err := fields(body)
	if err != nil {
		return nil, err
	}

	// Read each member. The server gets those that are not for the front end only.
	q := &question{chat: chat, choices: 1}
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

	// Check what only all members together show.
	if q.model == "" {
		return nil, httplimit.Invalid("model", "missing: expected the name of a model")
	}
	if q.prompt == 0 {
		return nil, httplimit.Invalid(q.textField(), "missing")
	}
	if q.choices > mostChoices {
		return nil, httplimit.Invalid("n", "%d answers are asked for, at most %d are made", q.choices, mostChoices)
	}

	// A stream of events that has to be written again must come out the same.
	if q.events && q.stream && !q.seeded {
		kept = q.seed(kept)
	}
	q.body = object(kept)
	return q, nil
}

// addSeed adds a random seed, so that a server that has to write the answer again writes the same one, as far as
// servers do.
func (q *question) seed(list []field) []field {
	list = slices.DeleteFunc(list, func(f field) bool { return f.name == "seed" }) // its value is null
	return append(list, field{"seed", strconv.AppendUint(nil, uint64(rand.Uint32()>>1), 10)})
}

// textField returns the name of the member that holds the prompt or the messages.
func (q *question) textField() string {
	if q.chat {
		return "messages"
	}
	return "prompt"
}

// encodeObject writes members as a JSON object.
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

// readField reads a member. frontEndOnly reports that the server does not get it.
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
	case "n":
		err = q.takeChoices(f.value)
	case "best_of":
		err = only(f.value, "servers do not stream the best of several answers", "null", "1")
	case "seed":
		q.seeded = !null
	case "response_format":
		var o struct{ Type string }
		err = read(f.value, &o, "an object with a type")
		q.events = q.events || o.Type != "" && o.Type != "text"
	default:
		q.events = q.events || beyondText[f.name] && !slices.Contains(nothing, string(f.value))
	}
	return false, err
}

// eventFields are members whose answers are more than one text, or texts that cannot be continued: a server that
// continues a text does not know what the grammar still allows. The members for constraints are those of vLLM, SGLang
// and llama.cpp.
var beyondText = map[string]bool{
	"tools": true, "functions": true, "logprobs": true, "top_logprobs": true, "echo": true, "suffix": true, "modalities": true, "audio": true,
	"reasoning_effort": true, "reasoning_format": true, "include_reasoning": true, "return_token_ids": true,
	"grammar": true, "json_schema": true, "structured_outputs": true, "guided_json": true, "guided_regex": true, "guided_choice": true,
	"guided_grammar": true, "regex": true, "ebnf": true,
}

// neutralValues are values of such a member that ask for nothing.
var nothing = []string{"null", "false", `""`, "[]", "{}"}

// decodeValue decodes a value into target. It returns an error that names what was expected. null leaves target
// unchanged.
func read(raw json.RawMessage, to any, expected string) *httplimit.Error {
	if err := json.Unmarshal(raw, to); err != nil {
		return httplimit.Invalid("", "found %s, expected %s", httplimit.Clip(string(raw)), expected)
	}
	return nil
}

// requireOneOf returns an error with a reason if raw is not one of the values.
func only(raw json.RawMessage, why string, values ...string) *httplimit.Error {
	if slices.Contains(values, string(raw)) {
		return nil
	}
	return &httplimit.Error{Code: httplimit.CodeInvalid, Reason: "unsupported_value",
		Msg: fmt.Sprintf("found %s, expected %s: %s", httplimit.Clip(string(raw)), strings.Join(values, " or "), why)}
}

// readMaxTokens reads the bound on the tokens of an answer.
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

// readChoices reads how many answers to each prompt the client wants.
func (q *question) takeChoices(raw json.RawMessage) *httplimit.Error {
	if string(raw) == "null" {
		return nil
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 || n > mostChoices {
		return httplimit.Invalid("", "found %s, expected a number of answers from 1 to %d", httplimit.Clip(string(raw)), mostChoices)
	}
	q.choices *= n
	q.events = q.events || n > 1
	return nil
}

// bytesPerToken is the usual length of a token of English text, in bytes.
const bytesPerToken = 4

// readText checks a prompt or messages and estimates the number of tokens.
func (q *question) takeText(raw json.RawMessage) *httplimit.Error {
	q.prompt = (len(raw) + bytesPerToken - 1) / bytesPerToken
	if q.chat {
		return checkMessages(raw)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return nil
	}
	var prompts []json.RawMessage
	if json.Unmarshal(raw, &prompts) == nil && len(prompts) > 0 && q.takePrompts(prompts) {
		return nil
	}
	return httplimit.Invalid("", "found %s, expected a text, an array of texts, or tokens", httplimit.Clip(string(raw)))
}

// readPrompts reads a list of texts, a list of lists of tokens, or a list of tokens. It returns false if the list is
// none of them.
func (q *question) takePrompts(list []json.RawMessage) bool {
	tokens := 0
	var text string
	var ids []int
	switch {
	case json.Unmarshal(list[0], &text) == nil && list[0][0] == '"':
		for _, raw := range list {
			if json.Unmarshal(raw, &text) != nil || raw[0] != '"' {
				return false
			}
		}
		q.choices *= len(list)
		q.events = q.events || len(list) > 1
		return true
	case json.Unmarshal(list[0], &ids) == nil && list[0][0] == '[':
		for _, raw := range list {
			if json.Unmarshal(raw, &ids) != nil || len(ids) == 0 {
				return false
			}
			tokens += len(ids)
		}
		q.choices *= len(list)
	default:
		for _, raw := range list {
			if _, err := strconv.ParseUint(string(raw), 10, 31); err != nil {
				return false
			}
		}
		tokens = len(list)
	}
	q.prompt, q.events = tokens, true
	return true
}

// checkMessages returns an error if the value is not a list of messages with roles.
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
