package deltas

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"
)

// RestartLine is a line that revokes all lines before it.
const RestartLine = "null\n"

// LogLine returns the choices (alternative answers) of an event of a stream as a line of JSON, which is appended to
// the answer's log. An event is a piece of a streamed answer.
func LogLine(choices json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Compact(&b, choices); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// CompleteBytes returns the length of the complete lines of a log. What follows broke off when its writer died.
func CompleteBytes(log string) int { return strings.LastIndexByte(log, '\n') + 1 }

// LoggedEvents returns the events of an answer's log in their order, each as its list of choices. The log has an
// event on each line. Events before the last restart line (see RestartLine) do not count, nor does a line that broke
// off when its writer died.
func LoggedEvents(log string) iter.Seq[[]json.RawMessage] {
	return func(yield func([]json.RawMessage) bool) {
		text := log[:CompleteBytes(log)]
		if restart := strings.LastIndex(text, "\n"+RestartLine); restart >= 0 {
			text = text[restart+1+len(RestartLine):]
		} else {
			text = strings.TrimPrefix(text, RestartLine)
		}
		for line := range strings.Lines(text) {
			var choices []json.RawMessage
			if json.Unmarshal([]byte(line), &choices) == nil && len(choices) > 0 && !yield(choices) {
				return
			}
		}
	}
}

// CompleteChoices joins the events of a logged answer, and returns its choices by index, in the form that an answer
// without streaming has. chat says that it is a chat's answer, whose choices hold a message rather than a text. A
// choice is one of the alternative answers to a request.
func CompleteChoices(log string, chat bool) []json.RawMessage {
	// Merge the events of each choice.
	choicesByIndex := map[int]object{}
	maxSeen := -1
	for choices := range LoggedEvents(log) {
		for _, raw := range choices {
			if c, index, err := parseChoice(raw); err == nil {
				choicesByIndex[index] = mergePiece(choicesByIndex[index], c, true).(object)
				maxSeen = max(maxSeen, index)
			}
		}
	}

	// Give every choice the fields that an unstreamed answer has.
	out := []json.RawMessage{}
	for i := range maxSeen + 1 {
		c := choicesByIndex[i]
		if c == nil {
			continue
		}
		for _, name := range []string{"finish_reason", "logprobs"} {
			if _, ok := c[name]; !ok {
				c[name] = nil
			}
		}
		if chat {
			c["message"] = chatMessage(c["delta"])
			delete(c, "delta")
		} else if _, ok := c["text"]; !ok {
			c["text"] = ""
		}
		raw, err := json.Marshal(c)
		if err == nil { // always, since it was decoded from JSON
			out = append(out, raw)
		}
	}
	return out
}

// chatMessage turns the joined pieces (deltas) of a choice into the message of a chat's answer: it has a role and a
// content, and its calls of tools have no index, which only pieces need.
func chatMessage(delta any) object {
	m, _ := delta.(object)
	if m == nil {
		m = object{}
	}
	if m["role"] == nil {
		m["role"] = "assistant"
	}
	if _, ok := m["content"]; !ok {
		m["content"] = nil
	}
	calls, _ := m["tool_calls"].([]any)
	for _, c := range calls {
		if call, ok := c.(object); ok {
			delete(call, "index")
		}
	}
	return m
}
