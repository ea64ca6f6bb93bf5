package llamatest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"inferplan/engine/llm"
	"inferplan/testkit/llm/gguf"
)

// A LoRA adapter of a real server changes what its model writes, and with the weight 0 it
// does not: each request says it.
func TestAdapter(t *testing.T) {
	tiny := gguf.Tiny(TinyA, 1)
	path := filepath.Join(t.TempDir(), "other.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&gguf.Adapter{Of: &tiny, Rank: 4, Seed: 5}).Write(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s := Start(t, Options{Alone: TinyA, Args: []string{"--lora", path}})
	ctx := context.Background()
	c, err := llm.Probe(ctx, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if c.Abilities.LoRA != llm.LoRAWeighted {
		t.Fatalf("it can %+v", c.Abilities)
	}
	write := func(a *llm.Adapter) string {
		use, err := c.Adapters().RequestUse(ctx, TinyA, a)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Complete(ctx, &llm.Request{Model: use.Model, Prompt: "once upon", MaxTokens: 40, Fields: merged(use.Fields, map[string]any{"temperature": 0})}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out.Text
	}
	meant := &llm.Adapter{Name: "other", Path: path}
	if has, err := c.Adapters().Has(ctx, *meant); !has || err != nil {
		t.Errorf("it has the adapter: %v, %v", has, err)
	}
	with, without := write(meant), write(nil)
	if again := write(&llm.Adapter{Name: "other"}); with == without || again != with {
		t.Errorf("with %q, without %q, with it again %q", with, without, again)
	}
}

// merged are the fields of both.
func merged(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
