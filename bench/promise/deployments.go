package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"inferplan/bench/served"
)

// deployment is a plan of one kind, and how it is made, served and driven.
type deployment struct {
	kind  string
	title string
	// documents are written, by their names, before the steps run.
	documents map[string]string
	steps     [][]string             // plan commands that end with plan.json
	requests  func(dir string) error // writes a folder of what clients send; if nil, they send random numbers
	serve     []string               // further flags of plan serve
	load      []string               // further flags of plan load
	records   bool                   // plan serve records service times
	inTime    float64                // asked for at load 1
	p50, p99  float64                // how far what is served may be from what is promised, up to load 1
	llama     string                 // model of a llama-server that is started; none if empty
	text      bool                   // clients speak OpenAI's protocol
	duration  time.Duration          // arrivals of a run; 0 stands for -duration
}

const oneCPU = "format: inferplan.cluster/v1\npools:\n- {device: cpu-1, count: 1, sharing: time}\n"

// deployments returns one deployment of each kind.
func deployments() []deployment {
	return []deployment{
		{
			kind: "pool", title: "SqueezeNet, ShuffleNet and ResNet-50 on one CPU core, SLO 1 s",
			steps: [][]string{
				{"models", "write", "squeezenet", "shufflenet", "resnet50", "--dir", "models"},
				{"profile", "--batches", "1,2,4", "--blocks", "10", "--budget", "90s"},
				{"solve", "--slo", "1s"},
			},
			records: true, inTime: .99, p50: .05, p99: .07,
		},
		{
			kind: "gear", title: "a cascade of three classifiers of digits on one CPU core, SLO 100 ms at p95",
			documents: map[string]string{
				"cluster.yaml":  oneCPU,
				"workload.yaml": "format: inferplan.workload/v1\ncascade:\n  family: [digits-16, digits-64, digits-conv]\n  slo: {latency: 100ms, percentile: p95}\n  qps: {max: 700, distribution: uniform, ranges: 5}\n",
			},
			steps: [][]string{
				{"models", "write", "digits-16", "digits-64", "digits-conv", "--dir", "models"},
				{"models", "samples", "digits.csv.gz"},
				{"profile", "models/digits-16.onnx", "models/digits-64.onnx", "models/digits-conv.onnx", "--on", "cpu-1", "--blocks", "1", "--batches", "1,2,4,8,16", "--budget", "30s", "--records", "digits.csv.gz"},
				{"solve", "--workload", "workload.yaml"},
			},
			load: []string{"--inputs", "digits.csv.gz"}, records: true, inTime: .95, p50: .05, p99: .07,
		},
		{
			kind: "flow", title: "text from images by three models (`examples/ocr`) on one CPU core",
			documents: map[string]string{"cluster.yaml": oneCPU},
			steps: [][]string{
				{"models", "write", "ocr_det", "ocr_cls", "ocr_rec", "--dir", "models"},
				{"profile", "--batches", "1,2,4", "--blocks", "1", "--budget", "60s"},
				{"solve", "--cluster", "cluster.yaml", "--workload", "EXAMPLES/ocr/workload.yaml"},
			},
			requests: lines, load: []string{"--inputs", "requests"}, records: true, inTime: .99, p50: .05, p99: .07,
		},
		{
			kind: "queue", title: "a small language model by llama-server with four slots on one CPU core, SLO 5 s",
			documents: map[string]string{
				"cluster.yaml":  "format: inferplan.cluster/v1\npools:\n- {device: cpu-1, count: 1}\n",
				"workload.yaml": "format: inferplan.workload/v1\nllm:\n  models: [tiny-a]\n  classes:\n  - {class: chat, slo: 5s, prompt: {distribution: normal, mean: 24, sd: 9, max: 64}, output: {distribution: normal, mean: 48, sd: 18, max: 128}}\n",
			},
			steps: [][]string{
				{"profile", "--llm", "SERVER", "--model", "tiny-a", "--device", "cpu-1", "--budget", "30s"},
				{"solve", "--workload", "workload.yaml", "--cluster", "cluster.yaml", "--objective", "throughput"},
			},
			serve: []string{"--server", "SERVER"}, llama: "tiny-a", text: true, inTime: .99, p50: .10, p99: .15,
		},
		{
			kind: "rag", title: "answers from passages (`examples/rag`): an embedder on one CPU core, a small language model by llama-server on another, SLO 1 s",
			steps: [][]string{
				{"models", "write", "embedder", "--dir", "models"},
				{"models", "vectors", "EXAMPLES/rag/passages.txt"},
				{"profile", "models/embedder.onnx", "--budget", "20s"},
				{"profile", "--llm", "SERVER", "--model", "tiny-a", "--device", "llama", "--budget", "45s"},
				{"solve", "--cluster", "EXAMPLES/rag/cluster.yaml", "--workload", "EXAMPLES/rag/workload.yaml"},
			},
			serve: []string{"--server", "SERVER"}, load: []string{"--inputs", "EXAMPLES/rag/questions.txt"},
			llama: "tiny-a", duration: 60 * time.Second, inTime: .99, p50: .10, p99: .15,
		},
	}
}

// prepare makes the deployment's plan anew in the program's folder and starts its language model's server; stop ends it. In the flags of the
// deployment it puts the server's address for SERVER and the folder of the examples for EXAMPLES.
func (b *bench) prepare(ctx context.Context, p served.Program, d *deployment) (stop func(), err error) {
	stop = func() {}
	if err := errors.Join(os.RemoveAll(p.Folder), os.MkdirAll(p.Folder, 0o755)); err != nil {
		return stop, err
	}
	for name, text := range d.documents {
		if err := os.WriteFile(filepath.Join(p.Folder, name), []byte(text), 0o644); err != nil {
			return stop, err
		}
	}
	if d.requests != nil {
		if err := d.requests(filepath.Join(p.Folder, "requests")); err != nil {
			return stop, err
		}
	}
	examples, err := filepath.Abs("examples")
	if err != nil {
		return stop, err
	}
	llama, err := filepath.Abs(b.llama)
	if err != nil {
		return stop, err
	}
	url := ""
	if d.llama != "" {
		if url, stop, err = served.Llama(ctx, llama, p.Folder, 4, []string{"--no-cache-prompt"}, d.llama); err != nil {
			return func() {}, err
		}
	}
	places := strings.NewReplacer("SERVER", url, "EXAMPLES", examples)
	for _, list := range append([][]string{d.serve, d.load}, d.steps...) {
		for i := range list {
			list[i] = places.Replace(list[i])
		}
	}
	for _, step := range d.steps {
		if err := p.Run(ctx, step...); err != nil {
			return stop, err
		}
	}
	return stop, nil
}
