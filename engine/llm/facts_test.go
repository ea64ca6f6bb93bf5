package llm

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

const vllmMetrics = `# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",num_cpu_blocks="None",num_gpu_blocks="2588",prefix="a, \"b\" = c"} 1.0
vllm:num_requests_running{engine="0",model_name="m"} 0.0
`

// Every server's own way of saying what it holds is read, and nothing is made up.
func TestFactsOfEveryServerAreRead(t *testing.T) {
	models := `{"data":[{"id":"m","max_model_len":8192,"owned_by":"x"},{"id":"n","max_model_len":9}]}`
	for name, c := range map[string]struct {
		answers map[string]string
		want    Facts
	}{
		"vLLM": {map[string]string{"/v1/models": models, "/metrics": vllmMetrics, "/version": `{"version":"0.19.0"}`},
			Facts{Engine: "vllm 0.19.0", Context: 8192, KVTokens: 41408, BlockTokens: 16}},
		"vLLM in development mode": {map[string]string{"/v1/models": models, "/metrics": vllmMetrics,
			"/server_info": `{"vllm_config":{"scheduler_config":{"max_num_seqs":128,"max_num_batched_tokens":2048}}}`},
			Facts{Engine: "vllm", Context: 8192, KVTokens: 41408, BlockTokens: 16, Sequences: 128, Budget: 2048}},
		"llama-server": {map[string]string{"/v1/models": `{"data":[{"id":"m","meta":{"n_ctx_train":4096,"size":5400000}}]}`,
			"/props": `{"total_slots":4,"build_info":"b11669","chat_template":"x","default_generation_settings":{"n_ctx":1024}}`},
			Facts{Engine: "llama-server b11669", Context: 1024, KVTokens: 4096, Sequences: 4, WeightBytes: 5400000, Doubt: "counted as a context per slot: with -kvu, or without -np, llama-server has one context for all"}},
		"a router, slots of their own": {map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`, "/models": `{"data":[{"id":"m","status":{"value":"loaded","args":["--parallel","4"]}}]}`,
			"/props": `{"total_slots":4,"build_info":"b1","default_generation_settings":{"n_ctx":1024}}`}, Facts{Engine: "llama-server b1", Context: 1024, KVTokens: 4096, Sequences: 4}},
		"a router, slots that share": {map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`, "/models": `{"data":[{"id":"m","status":{"value":"loaded","args":["--threads","1"]}}]}`,
			"/props": `{"total_slots":4,"build_info":"b1","default_generation_settings":{"n_ctx":1024}}`}, Facts{Engine: "llama-server b1", Context: 1024, KVTokens: 1024, Sequences: 4}},
		"SGLang": {map[string]string{"/v1/models": models,
			"/get_server_info": `{"model_path":"m","version":"0.5","max_total_num_tokens":50000,"max_running_requests":64,"chunked_prefill_size":2048,"page_size":1}`},
			Facts{Engine: "sglang 0.5", Context: 8192, KVTokens: 50000, BlockTokens: 1, Sequences: 64, Budget: 2048}},
		"Ollama":       {map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`, "/api/ps": `{"models":[]}`, "/api/version": `{"version":"0.17.4"}`}, Facts{Engine: "ollama 0.17.4"}},
		"one unknown":  {map[string]string{"/v1/models": `{"data":[{"id":"m"}]}`}, Facts{}},
		"odd numbers":  {map[string]string{"/v1/models": `{"data":[{"id":"m","max_model_len":-5}]}`, "/metrics": `vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1`}, Facts{Engine: "vllm", BlockTokens: 16}},
		"torn metrics": {map[string]string{"/v1/models": models, "/metrics": `vllm:cache_config_info{block_size="16`}, Facts{Engine: "vllm", Context: 8192}},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, ok := c.answers[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, answer)
		}))
		s, err := Probe(context.Background(), srv.URL)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := s.Facts(context.Background(), "m")
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
		srv.Close()
	}
}

func FuzzLabels(f *testing.F) {
	f.Add(vllmMetrics)
	f.Add(`vllm:cache_config_info{block_size="16",num_gpu_blocks="\"5"} 1`)
	f.Add(`vllm:cache_config_info{a=`)
	f.Fuzz(func(t *testing.T, text string) {
		labels := labelsOf(text, "vllm:cache_config_info")
		if n := parseWhole(labels["num_gpu_blocks"]); n < 0 || n > 1<<20 {
			t.Fatal(n)
		}
	})
}
