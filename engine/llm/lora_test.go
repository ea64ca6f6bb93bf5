package llm

import (
	"context"
	"errors"
	"reflect"
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
	if s.Abilities.LoRA != LoRANamed {
		t.Fatalf("it can %+v", s.Abilities)
	}
	for range 2 { // the second time it is there
		if err := s.Adapters().Load(ctx, Adapter{Name: "sql", Path: "/adapters/sql"}); err != nil {
			t.Error(err)
		}
	}
	if list, err := s.Adapters().List(ctx); err != nil || !slices.Equal(list, []Adapter{{Name: "sql", Path: "/adapters/sql"}}) {
		t.Errorf("adapters %+v, %v", list, err)
	}
	if err := s.Adapters().Load(ctx, Adapter{Name: "sql", Path: "/nowhere"}); !errors.Is(err, ErrNoAdapter) || !strings.Contains(err.Error(), "No adapter found") {
		t.Errorf("an adapter that is not there: %v", err)
	}
	for range 2 {
		if err := s.Adapters().Unload(ctx, "sql"); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(r.heard(), `{"lora_name":"sql","lora_path":"/adapters/sql"}`) || !strings.Contains(r.heard(), `POST /v1/unload_lora_adapter {"lora_name":"sql"}`) {
		t.Errorf("asked\n%s", r.heard())
	}
}

// Adapters with weights are those that the server was started with: none comes or goes.
func TestScaledAdapters(t *testing.T) {
	ctx := context.Background()
	s, r := probed(t, map[string][]string{
		"GET /v1/models":     {`{"data":[{"id":"m"}]}`},
		"GET /lora-adapters": {`[{"id":0,"path":"/a/sql.gguf","scale":0.0},{"id":1,"path":"poem.gguf","scale":0.25}]`},
	})
	if s.Abilities.LoRA != LoRAWeighted {
		t.Fatalf("it can %+v", s.Abilities)
	}
	if list, err := s.Adapters().List(ctx); err != nil || !slices.Equal(list, []Adapter{{Name: "sql", Path: "/a/sql.gguf"}, {Name: "poem", Path: "poem.gguf", id: 1}}) {
		t.Errorf("adapters %+v, %v", list, err)
	}
	for meant, want := range map[Adapter]bool{{Name: "sql"}: true, {Name: "other", Path: "/a/sql.gguf"}: true, {Name: "sql", Path: "/b/sql.gguf"}: false, {Name: "none"}: false} {
		if has, err := s.Adapters().Has(ctx, meant); has != want || err != nil {
			t.Errorf("it has %+v: %v, %v", meant, has, err)
		}
		if _, err := s.Adapters().RequestUse(ctx, "m", &meant); (err == nil) != want || err != nil && !errors.Is(err, ErrNoAdapter) {
			t.Errorf("requests for %+v: %v", meant, err)
		}
	}
	if err := s.Adapters().Offers(ctx, Adapter{Name: "sql", Path: "/b/sql.gguf"}); err == nil || !strings.Contains(err.Error(), "found [/a/sql.gguf poem.gguf], expected /b/sql.gguf") {
		t.Errorf("another file: %v", err)
	}
	none, _ := probed(t, map[string][]string{"GET /v1/models": {`{"data":[{"id":"m"}]}`}, "GET /lora-adapters": {`[]`}})
	if list, err := none.Adapters().List(ctx); none.Abilities.LoRA != NoLoRA || list != nil || err != nil {
		t.Errorf("a server without adapters: %v, %v, %v", none.Abilities.LoRA, list, err)
	}
	for _, a := range []Adapters{s.Adapters(), none.Adapters()} {
		for _, err := range []error{a.Load(ctx, Adapter{Name: "sql"}), a.Unload(ctx, "sql")} {
			if !errors.Is(err, ErrStays) {
				t.Errorf("a change that cannot be: %v", err)
			}
		}
	}
	if strings.Contains(r.heard(), "POST") {
		t.Errorf("asked\n%s", r.heard())
	}
}

// How requests ask for a model and its adapter, and what servers lack. The answers of
// SGLang are made up after its documentation.
func TestAdaptersAreUsedAsEachServerWants(t *testing.T) {
	ctx := context.Background()
	models := []string{`{"data":[{"id":"m","parent":null},{"id":"there","root":"/a/there","parent":"m"}]}`}
	sql := Adapter{Name: "sql", Path: "/a/sql"}
	for name, x := range map[string]struct {
		answers map[string][]string
		can     LoRA
		adapter Use
		lacks   string // of an adapter that is not there
	}{
		"vLLM":        {map[string][]string{"GET /metrics": {"vllm:num_requests_running 0\n"}, "GET /v1/load_lora_adapter": {`405|{"detail":"Method Not Allowed"}`}}, LoRANamed, Use{Model: "there"}, ""},
		"vLLM static": {map[string][]string{"GET /metrics": {"vllm:num_requests_running 0\n"}}, LoRANamed, Use{Model: "there"}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING"},
		"SGLang": {map[string][]string{"GET /get_server_info": {`{"model_path":"m","max_running_requests":8,"enable_lora":true}`}, "GET /load_lora_adapter": {`405|{"detail":"Method Not Allowed"}`}, "POST /load_lora_adapter": {`{"success":true}`}},
			LoRABesideModel, Use{"m", map[string]any{"lora_path": "there"}}, ""},
		"SGLang static":  {map[string][]string{"GET /get_server_info": {`{"model_path":"m","max_running_requests":8,"enable_lora":true}`}}, LoRABesideModel, Use{"m", map[string]any{"lora_path": "there"}}, "a version of SGLang that has /load_lora_adapter"},
		"SGLang without": {map[string][]string{"GET /get_server_info": {`{"model_path":"m","max_running_requests":8}`}}, NoLoRA, Use{}, "--enable-lora"},
		"llama-server": {map[string][]string{"GET /lora-adapters": {`[{"id":0,"path":"/a/x.gguf","scale":1.0},{"id":1,"path":"/a/there.gguf","scale":1.0}]`}},
			LoRAWeighted, Use{"m", map[string]any{"lora": []adapterWeight{{0, 0}, {1, 1}}}}, "found [/a/x.gguf /a/there.gguf], expected /a/sql"},
	} {
		x.answers["GET /v1/models"] = models
		s, r := probed(t, x.answers)
		if s.Abilities.LoRA != x.can {
			t.Errorf("%s can %+v", name, s.Abilities)
			continue
		}
		err := s.Adapters().Offers(ctx, sql)
		if x.lacks == "" && err != nil || x.lacks != "" && (!errors.Is(err, ErrNoAdapter) || !strings.Contains(err.Error(), x.lacks)) {
			t.Errorf("%s: %v, expected %q", name, err, x.lacks)
		}
		if x.can == NoLoRA {
			continue
		}
		there := Adapter{Name: "there"}
		if err := s.Adapters().Offers(ctx, there); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if u, err := s.Adapters().RequestUse(ctx, "m", &there); err != nil || !reflect.DeepEqual(u, x.adapter) {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
		u, err := s.Adapters().RequestUse(ctx, "m", nil)
		if err != nil || u.Model != "m" || x.can == LoRAWeighted && !reflect.DeepEqual(u.Fields["lora"], []adapterWeight{{0, 0}, {1, 0}}) {
			t.Errorf("%s, the model as it is: %+v, %v", name, u, err)
		}
		if x.can == LoRABesideModel && x.lacks == "" && (s.Adapters().Load(ctx, sql) != nil || !strings.Contains(r.heard(), `POST /load_lora_adapter {"lora_name":"sql","lora_path":"/a/sql"}`)) {
			t.Errorf("%s was asked\n%s", name, r.heard())
		}
	}
}
