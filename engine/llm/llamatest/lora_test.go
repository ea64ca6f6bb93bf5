package llamatest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"inferplan/engine/llm"
	"inferplan/engine/llm/gguf"
)

// A LoRA adapter of a real server changes what its model writes, and with the weight 0 it
// does not.
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
	if c.Can.LoRA != llm.Scaled {
		t.Fatalf("it can %+v", c.Can)
	}
	write := func() string {
		a, err := c.Complete(ctx, &llm.Request{Model: TinyA, Prompt: "once upon", MaxTokens: 40, Fields: map[string]any{"temperature": 0, "cache_prompt": false}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Text
	}
	with := write() // it begins with the weight 1
	if err := c.UnloadAdapter(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	without := write()
	if err := c.LoadAdapter(ctx, "other", path); err != nil {
		t.Fatal(err)
	}
	if list, err := c.Adapters(ctx); err != nil || len(list) != 1 || list[0].Name != "other" || list[0].Scale != 1 {
		t.Errorf("adapters %+v, %v", list, err)
	}
	if again := write(); with == without || again != with {
		t.Errorf("with %q, without %q, with it again %q", with, without, again)
	}
}
