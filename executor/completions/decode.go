package completions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// Bounds on the form of a request.
const (
	maxFields        = 200
	maxMessages      = 10_000
	maxRequestTokens = 1 << 24
	maxChoices       = 128 // answers to one request
	maxNameBytes     = 256 // bytes of a name
)

// parsedRequest is the body of a completion request, as the front end understands it.
type parsedRequest struct {
	chat         bool
	model, class string
	body         []byte // JSON for the server, without the fields that only the front end reads
	promptTokens int    // tokens of the prompt, estimated
	maxTokens    int
	choices      int  // number of answers that the client wants
	events       bool // the answer is more than one text, or cannot be continued
	hasSeed      bool // the client gave a seed
	stream       bool
	wantsUsage   bool           // the last chunk has the token counts
	keepResult   bool           // the client may come again for the result
	parent       tracing.Parent // the span below which it runs
	cacheKey     string         // prompt_cache_key: the client's name of its session; empty if it gave none
	chatStart    uint64         // hash of the first messages of a chat, up to the first of the user; 0 if there is none
	session      uint64         // hash of what tells its session apart; 0 if it has none
}

// objectField is a member of a JSON object.
type objectField struct {
	name  string
	value json.RawMessage
}

// parseObject splits the JSON object of a request's body into its fields, in their order. Values stay as the client
// wrote them, because most are passed on to the model's server. It returns an error for a field that is given twice, or
// for more than maxFields.
func parseObject(body []byte) ([]objectField, *httplimit.Error) {
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
	var out []objectField
	seenNames := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, bad(err)
		}
		f := objectField{name: t.(string)}
		if err := d.Decode(&f.value); err != nil {
			return nil, bad(err)
		}
		if seenNames[f.name] {
			return nil, httplimit.Invalid(httplimit.Clip(f.name), "given twice")
		}
		seenNames[f.name] = true
		if out = append(out, f); len(out) > maxFields {
			return nil, httplimit.TooLarge("", "more than %d fields", maxFields)
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

// parseCompletion reads the body of a completion, or of a chat completion, from a client. It separates the fields
// for the front end from those for the server, whose body it keeps. It returns an error for the client if a field
// is wrong or missing.
func parseCompletion(body []byte, chat bool) (*parsedRequest, *httplimit.Error) {
	list, err := parseObject(body)
	if err != nil {
		return nil, err
	}

	// Read each member. The server gets those that are not for the front end only.
	parsed := &parsedRequest{chat: chat, choices: 1}
	serverFields := list[:0:0]
	for _, f := range list {
		frontEndOnly, err := parsed.readField(f)
		if err != nil {
			err.Field = cmp.Or(err.Field, f.name)
			return nil, err
		}
		if !frontEndOnly {
			serverFields = append(serverFields, f)
		}
	}

	// Check what only all members together show.
	if parsed.model == "" {
		return nil, httplimit.Invalid("model", "missing: expected the name of a model")
	}
	if parsed.promptTokens == 0 {
		return nil, httplimit.Invalid(parsed.textField(), "missing")
	}
	if parsed.choices > maxChoices {
		return nil, httplimit.Invalid("n", "%d answers are asked for, at most %d are made", parsed.choices, maxChoices)
	}

	// A stream of events that has to be written again must come out the same.
	if parsed.events && parsed.stream && !parsed.hasSeed {
		serverFields = parsed.addSeed(serverFields)
	}
	parsed.body = encodeObject(serverFields)
	parsed.setSession()
	return parsed, nil
}

// addSeed adds a random seed, so that a server that has to write the answer again writes the same one, as far as
// servers do.
func (parsed *parsedRequest) addSeed(list []objectField) []objectField {
	list = slices.DeleteFunc(list, func(f objectField) bool { return f.name == "seed" }) // its value is null
	return append(list, objectField{"seed", strconv.AppendUint(nil, uint64(rand.Uint32()>>1), 10)})
}

// textField returns the name of the member that holds the prompt or the messages.
func (parsed *parsedRequest) textField() string {
	if parsed.chat {
		return "messages"
	}
	return "prompt"
}

// encodeObject writes members as a JSON object, in order, with their values as the client wrote them. It is the
// body for the server.
func encodeObject(list []objectField) []byte {
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

// readField reads one member of a request's body into the fields of parsed. frontEndOnly reports that the server
// does not get it. Members that are not known here go to the server as they are; some of them make the answer more
// than a text (events).
func (parsed *parsedRequest) readField(f objectField) (frontEndOnly bool, err *httplimit.Error) {
	isNull := string(f.value) == "null"
	if f.name == parsed.textField() {
		return false, parsed.readText(f.value)
	}
	switch f.name {
	case "model":
		err = decodeValue(f.value, &parsed.model, "the name of a model")
		if err == nil && len(parsed.model) > maxNameBytes {
			err = httplimit.Invalid("", "longer than %d characters", maxNameBytes)
		}
	case "max_tokens", "max_completion_tokens":
		if !isNull {
			err = parsed.readMaxTokens(f.value)
		}
	case "stream":
		return true, decodeValue(f.value, &parsed.stream, "true or false")
	case "stream_options":
		var options struct {
			Usage bool `json:"include_usage"`
		}
		err = decodeValue(f.value, &options, "an object")
		parsed.wantsUsage = options.Usage
		return true, err
	case "slo_class":
		return true, decodeValue(f.value, &parsed.class, "the name of an SLO class")
	case "store":
		return true, decodeValue(f.value, &parsed.keepResult, "true or false")
	case "metadata":
		return true, nil
	case "n":
		err = parsed.readChoices(f.value)
	case "best_of":
		err = requireOneOf(f.value, "servers do not stream the best of several answers", "null", "1")
	case "seed":
		parsed.hasSeed = !isNull
	case "prompt_cache_key":
		err = decodeValue(f.value, &parsed.cacheKey, "a text")
	case "response_format":
		var options struct{ Type string }
		err = decodeValue(f.value, &options, "an object with a type")
		parsed.events = parsed.events || options.Type != "" && options.Type != "text"
	default:
		parsed.events = parsed.events || eventFields[f.name] && !slices.Contains(neutralValues, string(f.value))
	}
	return false, err
}

// eventFields are members whose answers are more than one text, or texts that cannot be continued: a server that
// continues a text does not know what the grammar still allows. The members for constraints are those of vLLM, SGLang
// and llama.cpp.
var eventFields = map[string]bool{
	"tools": true, "functions": true, "logprobs": true, "top_logprobs": true, "echo": true, "suffix": true, "modalities": true, "audio": true,
	"reasoning_effort": true, "reasoning_format": true, "include_reasoning": true, "return_token_ids": true,
	"grammar": true, "json_schema": true, "structured_outputs": true, "guided_json": true, "guided_regex": true, "guided_choice": true,
	"guided_grammar": true, "regex": true, "ebnf": true,
}

// neutralValues are values of such a member that ask for nothing.
var neutralValues = []string{"null", "false", `""`, "[]", "{}"}

// decodeValue decodes a value into target. It returns an error that names what was expected. null leaves target
// unchanged.
func decodeValue(raw json.RawMessage, target any, expected string) *httplimit.Error {
	if err := json.Unmarshal(raw, target); err != nil {
		return httplimit.Invalid("", "found %s, expected %s", httplimit.Clip(string(raw)), expected)
	}
	return nil
}

// requireOneOf returns an error with a reason if raw is not one of the values.
func requireOneOf(raw json.RawMessage, reason string, values ...string) *httplimit.Error {
	if slices.Contains(values, string(raw)) {
		return nil
	}
	return &httplimit.Error{Code: httplimit.CodeInvalid, Reason: "unsupported_value",
		Msg: fmt.Sprintf("found %s, expected %s: %s", httplimit.Clip(string(raw)), strings.Join(values, " or "), reason)}
}

// readMaxTokens sets the bound on the tokens of an answer from a field's value. The field has two names in the protocol,
// max_tokens and max_completion_tokens. It returns an error if the value is out of range, or both are given and differ.
func (parsed *parsedRequest) readMaxTokens(raw json.RawMessage) *httplimit.Error {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 || n > maxRequestTokens {
		return httplimit.Invalid("", "found %s, expected a number of tokens from 1 to %d", httplimit.Clip(string(raw)), maxRequestTokens)
	}
	if parsed.maxTokens != 0 && parsed.maxTokens != n {
		return httplimit.Invalid("max_tokens", "found %d and %d in max_completion_tokens: give one of them", n, parsed.maxTokens)
	}
	parsed.maxTokens = n
	return nil
}

// readChoices multiplies parsed.choices, the number of answers of the request, by the number n of answers that the
// client wants to each prompt. If that is more than 1, the answer is stored as a log of events instead of a text,
// because the answers come mixed.
func (parsed *parsedRequest) readChoices(raw json.RawMessage) *httplimit.Error {
	if string(raw) == "null" {
		return nil
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 || n > maxChoices {
		return httplimit.Invalid("", "found %s, expected a number of answers from 1 to %d", httplimit.Clip(string(raw)), maxChoices)
	}
	parsed.choices *= n
	parsed.events = parsed.events || n > 1
	return nil
}

// bytesPerToken is the usual length of a token of English text, in bytes.
const bytesPerToken = 4

// readText checks the prompt, or the messages of a chat, and sets parsed.promptTokens, for admission and scheduling. The
// tokens of texts are estimated by their bytes; those of prompts that are given as tokens are counted by readPrompts.
func (parsed *parsedRequest) readText(raw json.RawMessage) *httplimit.Error {
	parsed.promptTokens = (len(raw) + bytesPerToken - 1) / bytesPerToken
	if parsed.chat {
		var err *httplimit.Error
		parsed.chatStart, err = checkMessages(raw)
		return err
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return nil
	}
	var prompts []json.RawMessage
	if json.Unmarshal(raw, &prompts) == nil && len(prompts) > 0 && parsed.readPrompts(prompts) {
		return nil
	}
	return httplimit.Invalid("", "found %s, expected a text, an array of texts, or tokens", httplimit.Clip(string(raw)))
}

// readPrompts reads a prompt that is a list: of texts, of lists of tokens, or of tokens. Lists of prompts multiply
// parsed.choices, the number of answers. For tokens it sets parsed.promptTokens exactly. In all cases but a single text
// the answer is stored as a log of events (parsed.events). It returns false if the list is none of the three.
func (parsed *parsedRequest) readPrompts(list []json.RawMessage) bool {
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
		parsed.choices *= len(list)
		parsed.events = parsed.events || len(list) > 1
		return true
	case json.Unmarshal(list[0], &ids) == nil && list[0][0] == '[':
		for _, raw := range list {
			if json.Unmarshal(raw, &ids) != nil || len(ids) == 0 {
				return false
			}
			tokens += len(ids)
		}
		parsed.choices *= len(list)
	default:
		for _, raw := range list {
			if _, err := strconv.ParseUint(string(raw), 10, 31); err != nil {
				return false
			}
		}
		tokens = len(list)
	}
	parsed.promptTokens, parsed.events = tokens, true
	return true
}

// checkMessages returns an error unless the value is a list of messages, each with a role and a content that is a
// text, a list of parts or null. It also returns a hash of the messages up to the first of the user, which all turns of a
// conversation have in common; without a message of the user it is 0.
func checkMessages(raw json.RawMessage) (chatStart uint64, err *httplimit.Error) {
	var list []struct {
		Role    *string         `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return 0, httplimit.Invalid("", "found %s, expected an array of messages, each an object with a role and content", httplimit.Clip(string(raw)))
	}
	if len(list) > maxMessages {
		return 0, httplimit.TooLarge("", "%d messages, at most %d are taken", len(list), maxMessages)
	}
	start := fnv.New64a()
	for i, m := range list {
		if m.Role == nil || *m.Role == "" {
			return 0, httplimit.Invalid(fmt.Sprintf("messages[%d].role", i), "missing")
		}
		if len(m.Content) > 0 && m.Content[0] != '"' && m.Content[0] != '[' && m.Content[0] != 'n' {
			return 0, httplimit.Invalid(fmt.Sprintf("messages[%d].content", i), "found %s, expected a text or an array of parts", httplimit.Clip(string(m.Content)))
		}
		if chatStart == 0 {
			hashText(start, *m.Role)
			hashText(start, string(m.Content))
			if *m.Role == "user" {
				chatStart = max(start.Sum64(), 1)
			}
		}
	}
	return chatStart, nil
}
