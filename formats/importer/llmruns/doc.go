// Package llmruns reads tables of measurements of servers of language models. The columns of a file decide its kind:
//
//	steps     model,gpu,tp,phase,batch,new_tokens_per_seq,context_tokens,latency_ms   an iteration each
//	phases    model,gpu,tp,phase,batch,input_tokens,mean_context_tokens,…,latency_ms  prompt phase, and mean time per output token
//	batches   model,gpu,num_gpus,framework,input_len_eq_output_len,batch,e2e_latency_s batches from start to end
//	coefficients model,gpu,tp,engine,phase,decode_batch_threshold,a_ms,b,c            coefficients that others fitted
//	partial   model,gpu,tp,num_tokens,layers,dense_ms_per_layer,dense_ms_all_layers   an iteration without attention
//	capacity  model,tp,pp,max_num_tokens                                             KV capacity in tokens
//	sizes     model,…,weight_bytes_16bit,kv_bytes_per_token_16bit                     bytes of models
//	loads     model,hardware,scenario,loader,run,loading_time_s                      load times
//	serving   model,gpu,framework,precision,tp,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms   servers under closed loops
//
// A run of a server consists of its requests (CSV or JSON lines, with the times at which each was queued, scheduled, and
// had its first and last token) and its meta.json, which describes the server: KV blocks, sequences at once, token budget.
//
// Steps and partial files are sums of kernels of one GPU. The time of an all-reduce between several GPUs is computed
// in ring.go, from the config.json of a model.
//
// The package parses and checks. The profiler decides what is fitted to the numbers.
package llmruns
