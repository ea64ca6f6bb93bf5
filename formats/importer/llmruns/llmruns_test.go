package llmruns

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Every kind of file is known by its columns.
func TestFilesAreKnownByTheirColumns(t *testing.T) {
	var s Set
	for name, text := range map[string]string{
		"steps.csv":     "model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms,source\nm,RTX4090,1,decode,4,1,100,16.5,x\nm,RTX4090,1,prefill,1,512,512,48.25,x\n",
		"splitwise.csv": "model,gpu,tp,phase,batch,input_tokens,mean_context_tokens,output_tokens,latency_ms,repeats,source\nb,a100-80gb,8,prefill,2,128,128,128,79.668,5,splitwise\n",
		"e2e.csv":       "model,gpu,num_gpus,framework,input_len_eq_output_len,batch,e2e_latency_s,throughput_tok_s\nm,A100,2,vLLM,1024,16,12.5,1\n",
		"fit.csv":       "model,gpu,tp,engine,phase,decode_batch_threshold,a_ms,b,c\nopt,A100-80G,1,vllm,prefill,95,18.1,0.1,7e-6\nopt,A100-80G,1,vllm,decoding_smallbs,95,19.9,6e-4,0.04\n",
		"vidur.csv":     "model,gpu,tp,num_tokens,layers,dense_ms_per_layer,dense_ms_all_layers\nv,a100,1,8,48,0.9,44.1\n",
		"capacity.csv":  "model,tp,pp,max_num_tokens\nfacebook/opt,1,1,66144\nfacebook/opt,1,2,163008\n",
		"sizes.csv":     "model,params_billion,layers,kv_heads,head_dim,weight_bytes_16bit,kv_bytes_per_token_16bit\nm,7.24,32,8,128,14480000000,131072\n",
		"loads.csv":     "model,hardware,scenario,loader,run,loading_time_s\nm,RTX-A5000,random,sllm,0,1.06\n",
	} {
		if err := s.Read(strings.NewReader(text), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := []MeasuredStep{
		{InstanceKey{"m", "RTX4090", 1, "x"}, Decode, 4, 0, 0, 100, 16500 * time.Microsecond}, {InstanceKey{"m", "RTX4090", 1, "x"}, Prefill, 1, 512, 0, 0, 48250 * time.Microsecond},
		{InstanceKey{"b", "A100", 8, "splitwise"}, Prefill, 2, 128, 0, 0, 79668 * time.Microsecond}, {InstanceKey{"m", "A100", 2, "vLLM"}, WholeStep, 16, 1024, 1024, 0, 12500 * time.Millisecond},
		{InstanceKey{"v", "A100", 1, ""}, Partial, 8, 0, 0, 0, 44100 * time.Microsecond},
	}
	for _, w := range want {
		found := false
		for _, m := range s.Steps {
			found = found || m == w
		}
		if !found {
			t.Errorf("no %+v among %+v", w, s.Steps)
		}
	}
	if len(s.Steps) != len(want) || len(s.FittedSteps) != 2 || !s.FittedSteps[1].SmallOnly || s.FittedSteps[0].C != 7e-6 || s.KV[InstanceKey{Model: "opt", TensorParallel: 1}] != 66144 ||
		s.Weights["m"] != 14480000000 || s.KVBytes["m"] != 131072 || len(s.Loads) != 1 || s.Loads[0].Elapsed != 1060*time.Millisecond || len(s.Sources) != 8 {
		t.Errorf("%+v", s)
	}
}

// A server under a closed loop is a batch from start to end, and another layout or
// precision another engine.
func TestReadServing(t *testing.T) {
	var s Set
	text := "model,gpu,framework,framework_version,precision,tp,pp,attn_dp,moe_ep,input_tokens,output_tokens,concurrency,batch,ttft_ms,tpot_ms\n" +
		"m,b200_sxm,trtllm,,fp8,4,1,,4,1000,101,8,8,50,10\nm,h100_sxm,vllm,,unspecified,2,2,1,1,500,11,1,1,30,5\n"
	if err := s.Read(strings.NewReader(text), "f.csv"); err != nil {
		t.Fatal(err)
	}
	want := []MeasuredStep{
		{InstanceKey{"m", "B200", 4, "trtllm fp8 moe_ep4"}, WholeStep, 8, 1000, 101, 0, 1050 * time.Millisecond},
		{InstanceKey{"m", "H100", 4, "vllm pp2"}, WholeStep, 1, 500, 11, 0, 80 * time.Millisecond}, {InstanceKey{"m", "H100", 4, "vllm pp2"}, Prefill, 1, 500, 0, 0, 30 * time.Millisecond}}
	if !slices.Equal(s.Steps, want) {
		t.Errorf("%+v", s.Steps)
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	for text, wants := range map[string][]string{
		"":      {"f.csv", "empty file"},
		"a,b\n": {"f.csv:1:1", "the columns a,b", "coefficients"},
		"model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms\nm,g,1,decoding,1,1,1,1\n": {"f.csv:2:7", "phase", "prefill or decode"},
		"model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms\nm,g,1,decode,1.5,1,1,1\n": {"f.csv:2", "batch", "whole number"},
		"model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms\nm,g,1,decode,1,1,1,NaN\n": {"f.csv:2", "latency_ms", "NaN"},
		"model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms\n,g,1,decode,1,1,1,1\n":    {"f.csv:2", "without model or gpu"},
	} {
		var s Set
		err := s.Read(strings.NewReader(text), "f.csv")
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		for _, w := range wants {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %q does not say %q", text, err, w)
			}
		}
	}
}

// A run is the same from CSV and from JSON lines, and begins with its first request.
func TestReadRequests(t *testing.T) {
	csv := "request,input_tokens,output_tokens,arrival_s,queued_s,scheduled_s,first_token_s,last_token_s\nb,20,3,0,11.5,11.5,12,13\na,10,2,0,10,10,10.5,11\n"
	lines := `{"request_id": "a", "input_toks": 10, "output_toks": 2, "queued_ts": 10, "scheduled_ts": 10, "first_token_ts": 10.5, "last_token_ts": 11}
{"request_id": "b", "input_toks": 20, "output_toks": 3, "queued_ts": 11.5, "scheduled_ts": 11.5, "first_token_ts": 12, "last_token_ts": 13}
`
	want := []ServedRequest{{"a", 10, 2, 0, 0, 0.5, 1}, {"b", 20, 3, 1.5, 1.5, 2, 3}}
	for _, text := range []string{csv, lines} {
		got, err := ReadRequests(strings.NewReader(text), "r")
		if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for text, w := range map[string]string{
		"request,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s,last_token_s\n":                "no request",
		"request,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s,last_token_s\na,1,1,5,5,4,6\n": "r:2:1: found queued at 5, first token at 4",
		"request,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s\na,1,1,5,5,4\n":                "no column last_token_s",
		`{"request_id": "a", "input_toks": 0, "output_toks": 2}`:                                              "r:1:1: found 0 tokens in",
		"{\"request_id\": \"a\", \"input_toks\": 1, \"output_toks\": 2}\n{":                                   "r:2:1: found a text that is no JSON",
	} {
		if _, err := ReadRequests(strings.NewReader(text), "r"); err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%q: %v, want %q", text, err, w)
		}
	}
}

const goodMeta = `{"model": "/data/Llama", "vllm_version": "0.19", "engine_kwargs": {"tensor_parallel_size": 2, "max_num_seqs": 128, "max_num_batched_tokens": 2048},
 "kv_cache": {"num_gpu_blocks": 2588, "block_size": 16}, "hardware": {"device_name": "NVIDIA RTX PRO 6000 Blackwell"}}`

// The KV capacity is what the server said, and must be there.
func TestReadMeta(t *testing.T) {
	m, err := ReadMeta(strings.NewReader(goodMeta), "meta.json", 0)
	if err != nil || *m != (Meta{Model: "Llama", Version: "0.19", Device: "RTX-PRO-6000-BLACKWELL", TensorParallel: 2, DataParallel: 1, Sequences: 128, Budget: 2048, Block: 16, KVTokens: 41408, Prefix: true}) {
		t.Errorf("%+v, %v", m, err)
	}
	for was, is := range map[string][2]string{
		`"num_gpu_blocks": 2588`: {`"num_gpu_blocks": null`, "kv_cache.num_gpu_blocks: found the number 0"},
		`"block_size": 16`:       {`"block_size": 0, "num_kv_tokens": 5`, "kv_cache.block_size"},
		`"max_num_seqs": 128`:    {`"max_num_seqs": -1`, "engine_kwargs.max_num_seqs"},
		`{"model"`:               {`["model"`, "expected the meta.json"},
	} {
		if _, err := ReadMeta(strings.NewReader(strings.Replace(goodMeta, was, is[0], 1)), "meta.json", 0); err == nil || !strings.Contains(err.Error(), is[1]) {
			t.Errorf("%s: %v, want %q", is[0], err, is[1])
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms\nm,g,1,decode,1,1,1,1\n")
	f.Add("model,tp,pp,max_num_tokens\nfacebook/opt,1,1,66144\n")
	f.Add("request,input_tokens,output_tokens,queued_s,scheduled_s,first_token_s,last_token_s\na,1,1,5,5,6,7\n")
	f.Add(`{"request_id": "a", "input_toks": 10, "output_toks": 2, "queued_ts": 10, "first_token_ts": 10.5, "last_token_ts": 11}`)
	f.Add(goodMeta)
	f.Fuzz(func(t *testing.T, text string) {
		var s Set
		if s.Read(strings.NewReader(text), "f") == nil {
			for _, m := range s.Steps {
				if m.Elapsed < 0 || m.Batch < 1 {
					t.Fatalf("%+v", m)
				}
			}
		}
		if list, err := ReadRequests(strings.NewReader(text), "f"); err == nil && (len(list) == 0 || list[0].QueuedAt != 0) {
			t.Fatalf("%+v", list)
		}
		if m, err := ReadMeta(strings.NewReader(text), "f", 0); err == nil && m.KVTokens < 1 {
			t.Fatalf("%+v", m)
		}
	})
}

// A KV capacity that is given stands for one that meta.json lacks.
func TestReadMetaWithGivenKVTokens(t *testing.T) {
	text := `{"model": "m", "engine_kwargs": {"max_num_seqs": 8, "max_num_batched_tokens": 512}}`
	if m, err := ReadMeta(strings.NewReader(text), "meta.json", 4096); err != nil || m.KVTokens != 4096 || m.Block != defaultBlock {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := ReadMeta(strings.NewReader(text), "meta.json", 0); err == nil {
		t.Error("a server without a KV capacity is accepted")
	}
}
