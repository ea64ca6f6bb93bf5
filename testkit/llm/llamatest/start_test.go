package llamatest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"inferplan/engine/llm"
)

// The generated models do in a real server what package gguf promises: a character
// is a token, answers are letters and spaces up to the limit, and an answer goes on
// exactly from any part of it.
func TestGeneratedModels(t *testing.T) {
	s := Start(t, Options{})
	c, err := llm.New(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	const prompt, length = "once upon a time", 48
	greedy := func(model, prompt string, tokens int) *llm.Answer {
		a, err := c.Complete(context.Background(), &llm.Request{Model: model, Prompt: prompt, MaxTokens: tokens, Fields: map[string]any{"temperature": 0}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	texts := map[string]bool{}
	for _, model := range []string{TinyA, TinyB, Small} {
		whole := greedy(model, prompt, length)
		if whole.Finish != "length" || whole.Usage.PromptTokens != len(prompt) || whole.Usage.OutputTokens != length || len(whole.Text) != length || strings.Trim(whole.Text, "abcdefghijklmnopqrstuvwxyz ") != "" {
			t.Errorf("%s: %+v", model, whole)
		}
		for i := 1; i < length; i++ {
			if whole.Text[i] == whole.Text[i-1] {
				t.Errorf("%s: %q repeats a token", model, whole.Text)
			}
		}
		texts[whole.Text] = true
		for _, n := range []int{1, 13, 40} {
			if rest := greedy(model, prompt+whole.Text[:n], length-n); rest.Text != whole.Text[n:] {
				t.Errorf("%s: after %d tokens %q, expected %q", model, n, rest.Text, whole.Text[n:])
			}
		}
	}
	if len(texts) != 3 {
		t.Errorf("%d texts of 3 models", len(texts))
	}
	if _, err := c.Complete(context.Background(), &llm.Request{Model: "other", Prompt: "x"}, nil); !errors.Is(err, llm.ErrUnknownModel) {
		t.Errorf("an unknown model: %v", err)
	}
	s.Kill()
	if _, err := c.Complete(context.Background(), &llm.Request{Model: TinyA, Prompt: "x"}, nil); !errors.Is(err, llm.ErrGone) {
		t.Errorf("a server that was killed: %v", err)
	}
}
