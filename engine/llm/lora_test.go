package llm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// Adapters by name, as vLLM's documentation shows its answers: not of a run.
func TestNamedAdapters(t *testing.T) {
	ctx := context.Background()
	s, r := probed(t, map[string][]string{
		"GET /v1/models": {`{"data":[{"id":"qwen","root":"Qwen/Qwen3-8B","parent":null}]}`, `{"data":[{"id":"qwen","root":"Qwen/Qwen3-8B","parent":null},{"id":"sql","root":"/adapters/sql","parent":"qwen"}]}`},
		"GET /metrics":   {"vllm:num_requests_running 0\n"},
		"POST /v1/load_lora_adapter": {"Success: LoRA adapter 'sql' added successfully.", `400|{"error":{"message":"The lora adapter 'sql' has already been loaded.","type":"InvalidUserInput","code":400}}`,
			`404|{"error":{"message":"Loading lora sql failed: No adapter found for /nowhere","type":"NotFoundError","code":404}}`},
		"POST /v1/unload_lora_adapter": {"Success: LoRA adapter 'sql' removed successfully.", `404|{"error":{"message":"The lora adapter 'sql' cannot be found.","type":"NotFoundError","code":404}}`},
	})
	if s.Can.LoRA != Named {
		t.Fatalf("it can %+v", s.Can)
	}
	for range 2 { // the second time it is there
		if err := s.LoadAdapter(ctx, "sql", "/adapters/sql"); err != nil {
			t.Error(err)
		}
	}
	if list, err := s.Adapters(ctx); err != nil || !slices.Equal(list, []Adapter{{Name: "sql", Path: "/adapters/sql", Scale: 1}}) {
		t.Errorf("adapters %+v, %v", list, err)
	}
	if err := s.LoadAdapter(ctx, "sql", "/nowhere"); err == nil || !strings.Contains(err.Error(), "No adapter found") {
		t.Errorf("an adapter that is not there: %v", err)
	}
	for range 2 {
		if err := s.UnloadAdapter(ctx, "sql"); err != nil {
			t.Error(err)
		}
	}
	if err := s.ScaleAdapter(ctx, "sql", .5); !errors.Is(err, ErrStays) {
		t.Errorf("a weight of an adapter that has none: %v", err)
	}
	if !strings.Contains(r.heard(), `{"lora_name":"sql","lora_path":"/adapters/sql"}`) || !strings.Contains(r.heard(), `POST /v1/unload_lora_adapter {"lora_name":"sql"}`) {
		t.Errorf("asked\n%s", r.heard())
	}
}

// Adapters with weights: the others keep theirs, and one that the server was not started
// with is not there.
func TestScaledAdapters(t *testing.T) {
	ctx := context.Background()
	s, r := probed(t, map[string][]string{
		"GET /v1/models":      {`{"data":[{"id":"m"}]}`},
		"GET /lora-adapters":  {`[{"id":0,"path":"/a/sql.gguf","scale":0.0},{"id":1,"path":"poem.gguf","scale":0.25}]`},
		"POST /lora-adapters": {`{"success":true}`},
	})
	if s.Can.LoRA != Scaled {
		t.Fatalf("it can %+v", s.Can)
	}
	if list, err := s.Adapters(ctx); err != nil || len(list) != 2 || list[1].Name != "poem" || list[1].Scale != .25 {
		t.Errorf("adapters %+v, %v", list, err)
	}
	for _, err := range []error{s.LoadAdapter(ctx, "sql", ""), s.UnloadAdapter(ctx, "poem"), s.ScaleAdapter(ctx, "sql", .5)} {
		if err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{`[{"id":0,"scale":1},{"id":1,"scale":0.25}]`, `[{"id":0,"scale":0},{"id":1,"scale":0}]`, `[{"id":0,"scale":0.5},{"id":1,"scale":0.25}]`} {
		if !strings.Contains(r.heard(), want) {
			t.Errorf("it was not asked for %s:\n%s", want, r.heard())
		}
	}
	if err := s.LoadAdapter(ctx, "none", "/a/none.gguf"); !errors.Is(err, ErrUnknownModel) {
		t.Errorf("an adapter that is not there: %v", err)
	}
	none, _ := probed(t, map[string][]string{"GET /v1/models": {`{"data":[{"id":"m"}]}`}, "GET /lora-adapters": {`[]`}})
	if list, err := none.Adapters(ctx); none.Can.LoRA != NoLoRA || list != nil || err != nil || !errors.Is(none.LoadAdapter(ctx, "a", "b"), ErrStays) {
		t.Errorf("a server without adapters: %v, %v, %v", none.Can.LoRA, list, err)
	}
}
