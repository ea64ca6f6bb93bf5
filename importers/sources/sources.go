package sources

import (
	"inferplan/formats/document"
	"inferplan/importers"
	"inferplan/importers/blocks"
	"inferplan/importers/kubernetes"
	"inferplan/importers/llm"
	"inferplan/importers/perfanalyzer"
	"inferplan/importers/pipeline"
	"inferplan/importers/records"
	"inferplan/importers/trace"
	"inferplan/importers/transitions"
	"inferplan/importers/triton"
	"inferplan/importers/trtexec"
	"inferplan/importers/vllmrun"
	"inferplan/importers/workload"
)

// source is an importer with the names of the tools whose files it reads. Files of our own layout have no tool. No file
// outside of importers names a tool; names_test.go lists the exceptions.
type source struct {
	newImporter func() *importers.Importer
	tools       []string
}

// requestTools write the traces, logs and rates that both traces and workloads are made of.
var requestTools = []string{"Dynamo", "AIPerf", "Mooncake", "Azure", "BurstGPT", "BLIS", "Application Load Balancer", "Envoy", "Common or Combined Log Format", "Prometheus"}

// table lists the importers, in the order of the help.
var table = []source{
	{blocks.Importer, nil},
	{trace.Importer, requestTools},
	{records.Importer, nil},
	{trtexec.Importer, []string{"trtexec"}},
	{perfanalyzer.Importer, []string{"perf_analyzer", "Model Analyzer"}},
	{pipeline.Importer, nil},
	{llm.Importer, []string{"vllm bench serve", "bench_serving", "AIPerf", "genai-perf", "GuideLLM", "Splitwise", "DistServe", "Vidur", "LLM-Inference-Bench", "aiconfigurator"}},
	{vllmrun.Importer, []string{"vLLM"}},
	{transitions.Importer, []string{"OpenTelemetry"}},
	{workload.Importer, requestTools},
	{triton.Importer, []string{"Triton"}},
	{kubernetes.Importer, []string{"Kubernetes"}},
}

// All returns the importers, in the order of the help. Each call returns new ones, with flags of their own.
func All() []*importers.Importer {
	return document.Map(table, func(s *source) *importers.Importer { return s.newImporter() })
}
