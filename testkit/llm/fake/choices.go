package fake

import (
	"encoding/json"
	"fmt"
)

// answerOf is the answer to a request: some choices, each a text or a call of a tool, with
// log probabilities where they are asked for.
type answerOf struct {
	q       *question
	chat    bool
	call    int // number of the completion, which the ids of calls have
	choices [][]byte
}

// Choice returns the text that a model writes after a prompt as the choice of a number. The first one
// is Text.
func Choice(model, prompt string, number, tokens int) string {
	if number > 0 {
		prompt = fmt.Sprint(prompt, "\x00", number)
	}
	return Text(model, prompt, tokens)
}

// Arguments are those of the call that a model makes with a text.
func Arguments(text string) string { return `{"of":"` + text + `"}` }

func newAnswer(q *question, chat bool, prompt string, call int) *answerOf {
	a := &answerOf{q: q, chat: chat, call: call}
	for i := range max(q.N, 1) {
		text := Choice(q.writes, prompt, i, q.MaxTokens)
		if a.calls() {
			text = Arguments(text)
		}
		a.choices = append(a.choices, []byte(text))
	}
	return a
}

func (a *answerOf) calls() bool { return a.chat && len(a.q.Tools) > 0 }

// probable says whether log probabilities are asked for.
func (a *answerOf) probable() bool {
	s := string(a.q.Logprobs)
	return s != "" && s != "null" && s != "false"
}

// tokens is how many the longest choice has.
func (a *answerOf) tokens() (n int) {
	for _, c := range a.choices {
		n = max(n, len(c))
	}
	return n
}

func (a *answerOf) total() (n int) {
	for _, c := range a.choices {
		n += len(c)
	}
	return n
}

// part is a choice's piece, or with delta false all of it; from and to are tokens.
func (a *answerOf) part(number, from, to int, delta bool) map[string]any {
	text := string(a.choices[number][min(from, len(a.choices[number])):min(to, len(a.choices[number]))])
	out := map[string]any{"index": number, "finish_reason": nil}
	if a.probable() {
		out["logprobs"] = a.logprobs(text, from)
	}
	switch inside := map[string]any{}; {
	case !a.chat:
		out["text"] = text
		return out
	case a.calls():
		call := map[string]any{"function": map[string]any{"arguments": text}}
		if delta {
			call["index"] = 0
		}
		if from == 0 {
			call["id"], call["type"] = fmt.Sprint("call_", a.call, "_", number), "function"
			call["function"].(map[string]any)["name"] = "look_up"
		}
		inside["tool_calls"] = []any{call}
		out["delta"] = inside
	default:
		inside["content"] = text
		out["delta"] = inside
	}
	if !delta {
		out["message"] = out["delta"]
		out["message"].(map[string]any)["role"] = "assistant"
		delete(out, "delta")
	}
	return out
}

// logprobs are those of a text's tokens. They depend on the token and its place.
func (a *answerOf) logprobs(text string, from int) any {
	var content, tokens, values, offsets []any
	for i := range len(text) {
		p := json.Number(fmt.Sprintf("-%d.%03d", text[i]%3, (from+i)%1000))
		content = append(content, map[string]any{"token": text[i : i+1], "logprob": p, "bytes": []int{int(text[i])}, "top_logprobs": []any{}})
		tokens, values, offsets = append(tokens, text[i:i+1]), append(values, p), append(offsets, from+i)
	}
	if a.chat {
		return map[string]any{"content": content}
	}
	return map[string]any{"tokens": tokens, "token_logprobs": values, "text_offset": offsets}
}

// finish is why choices end.
func (a *answerOf) finish() string {
	if a.calls() {
		return "tool_calls"
	}
	return "length"
}

// role is the first event of a chat's choice.
func role(number int) map[string]any {
	return map[string]any{"index": number, "finish_reason": nil, "delta": map[string]any{"role": "assistant", "content": nil}}
}

// last is the event that ends a choice.
func (a *answerOf) last(number int) map[string]any {
	out := map[string]any{"index": number, "finish_reason": a.finish()}
	if a.chat {
		out["delta"] = map[string]any{}
	} else {
		out["text"] = ""
	}
	return out
}
