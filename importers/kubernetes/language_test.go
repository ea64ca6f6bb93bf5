package kubernetes

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inferplan/formats"
	"inferplan/formats/usage"
	"inferplan/planner/kind"
)

// languageProfile is a profile of three language models and an adapter, with servers of some sizes on each kind.
func languageProfile() *formats.Profile {
	p := &formats.Profile{Devices: []formats.ProfileDevice{{Device: "A100", Name: "NVIDIA A100 80GB PCIe", MemoryBytes: 80 << 30}, {Device: "H100", MemoryBytes: 80 << 30}}}
	for _, name := range []string{"chat", "code", "sum", "sql"} {
		p.LLMs = append(p.LLMs, formats.LLMProfile{Model: name})
	}
	return p
}

// drawnServer is a server of a plan, with the command that a person would write for it.
type drawnServer struct {
	formats.QueueInstance
	replicas int
	manifest string
}

// drawServer draws a server on devices of a kind, written by hand for one of the programs.
func drawServer(t *rapid.T, number int, device string) drawnServer {
	in := formats.QueueInstance{Device: device, TensorParallel: rapid.SampledFrom([]int{1, 2}).Draw(t, "tp"), Model: rapid.SampledFrom([]string{"chat", "code", "sum"}).Draw(t, "model")}
	in.Models, in.Sequences, in.TokenBudget = []string{in.Model}, []int{rapid.IntRange(1, 512).Draw(t, "sequences")}, rapid.IntRange(256, 16384).Draw(t, "budget")
	in.NoPrefixCache = rapid.Bool().Draw(t, "no cache")
	hasAdapter, isPriority := rapid.Bool().Draw(t, "adapter"), false
	if hasAdapter {
		in.Models, in.Sequences = append(in.Models, "sql"), append(in.Sequences, in.Sequences[0])
	}
	var words []string
	image := ""
	switch program := rapid.SampledFrom([]string{"vllm", "vllm module", "sglang", "llama.cpp"}).Draw(t, "program"); program {
	case "vllm", "vllm module":
		isPriority = rapid.Bool().Draw(t, "priority")
		image, words = "vllm/vllm-openai:v0.11.0", []string{"vllm", "serve", "org/" + in.Model}
		if program == "vllm module" {
			words = []string{"python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "org/" + in.Model}
		}
		words = append(words, fmt.Sprintf("--max-num-seqs=%d", in.Sequences[0]), "--max-num-batched-tokens", fmt.Sprint(in.TokenBudget))
		if in.TensorParallel > 1 || rapid.Bool().Draw(t, "tp is said") {
			words = append(words, "-tp", fmt.Sprint(in.TensorParallel))
		}
		if isPriority {
			words = append(words, "--scheduling-policy", "priority")
		}
		if in.NoPrefixCache {
			words = append(words, "--no-enable-prefix-caching")
		}
		if hasAdapter {
			words = append(words, "--enable-lora", "--lora-modules", "sql=/lora/sql", "--port", "8000")
		}
	case "sglang":
		isPriority = rapid.Bool().Draw(t, "priority")
		image = "lmsysorg/sglang:v0.5"
		words = []string{"python3", "-m", "sglang.launch_server", "--model-path", "/models/x", "--served-model-name", in.Model, "--tp", fmt.Sprint(in.TensorParallel),
			"--max-running-requests", fmt.Sprint(in.Sequences[0]), "--chunked-prefill-size", fmt.Sprint(in.TokenBudget)}
		if isPriority {
			words = append(words, "--enable-priority-scheduling")
		}
		if in.NoPrefixCache {
			words = append(words, "--disable-radix-cache")
		}
		if hasAdapter {
			words = append(words, "--lora-paths", "sql=/lora/sql")
		}
	case "llama.cpp":
		image = "ghcr.io/ggml-org/llama.cpp:server-cuda"
		words = []string{"/app/llama-server", "-m", "/models/x.gguf", "--alias", in.Model, "-np", fmt.Sprint(in.Sequences[0]), "-b", fmt.Sprint(in.TokenBudget)}
		if in.NoPrefixCache {
			words = append(words, "--no-cache-prompt")
		}
		if hasAdapter {
			words = append(words, "--lora", "/lora/sql.gguf")
		}
	}
	if isPriority {
		in.Scheduling = formats.SchedulePriority
	}
	command := fmt.Sprintf("command: [%s]", strings.Join(quotedWords(words), ", "))
	if rapid.Bool().Draw(t, "in a shell") {
		command = fmt.Sprintf("command: [sh, -c, %q]", "exec "+strings.Join(words, " "))
	}
	s := drawnServer{QueueInstance: in, replicas: rapid.IntRange(0, 2).Draw(t, "replicas")}
	s.manifest = fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: s%d}
spec:
  replicas: %d
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-%s}
      containers:
      - name: server
        image: %s
        %s
        resources: {limits: {nvidia.com/gpu: %d}}
`, number, s.replicas, device, image, command, in.TensorParallel)
	return s
}

// quotedWords returns words as texts of JSON.
func quotedWords(words []string) []string {
	var list []string
	for _, w := range words {
		list = append(list, fmt.Sprintf("%q", w))
	}
	return list
}

// languageServers reads the servers of a manifest, with the notes on what was taken for granted.
func languageServers(text string, devices *formats.Cluster, models map[string]string) ([]kind.Server, []string, error) {
	c := &cluster{}
	if err := c.read("manifests.yaml", text); err != nil {
		return nil, nil, err
	}
	workloads, err := c.workloads()
	if err != nil {
		return nil, nil, err
	}
	l := &languageReader{devices: deviceReader{cluster: devices}, profile: languageProfile(), models: models}
	list, err := l.servers(workloads)
	return list, l.notes, err
}

// Instances of any plan, written by hand as deployments of any of the programs, come back as they are, on devices one after
// the other.
func TestHandmadeServersAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, next := "", map[string]int{}
		var want []formats.QueueInstance
		for i := range rapid.IntRange(1, 5).Draw(t, "deployments") {
			device := rapid.SampledFrom([]string{"A100", "H100"}).Draw(t, "device")
			s := drawServer(t, i, device)
			text += s.manifest
			for range s.replicas {
				placed := s.QueueInstance
				placed.FirstDevice = next[device]
				next[device] += s.TensorParallel
				want = append(want, placed)
			}
		}
		cluster := &formats.Cluster{Pools: []formats.Pool{{Device: "A100", Count: 20}, {Device: "H100", Count: 20}}}
		list, _, err := languageServers(text, cluster, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		var got []formats.QueueInstance
		for _, s := range list {
			got = append(got, s.QueueInstance)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s\n%s", d, text)
		}
	})
}

// What cannot be read is said, at its place.
func TestServersThatAreNotRead(t *testing.T) {
	manifest := func(words, limits string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: s}\nspec:\n  template:\n    spec:\n      containers:\n      - image: vllm/vllm-openai\n        env: [{name: MODEL, value: org/chat}, {name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}]\n        args: [" +
			words + "]\n        resources: {limits: {" + limits + "}}\n"
	}
	cluster := &formats.Cluster{Pools: []formats.Pool{{Device: "A100", Count: 2}}}
	for _, c := range []struct{ words, limits, want string }{
		{`vllm, serve, $(MODEL)`, "nvidia.com/gpu: 1", ""},
		{`--model, $(MODEL)`, "nvidia.com/gpu: 2", "s uses 1 of the 2 devices of a pod"},
		{`vllm, serve, org/other`, "nvidia.com/gpu: 1", `found the model "org/other" of deployment/s, expected a language model of the profile: chat, code, sum and sql`},
		{`vllm, serve, $(MODEL), -tp, "4"`, "nvidia.com/gpu: 2", "found 1 copies on 4 devices each of deployment/s, expected at most the 2 devices of a pod"},
		{`vllm, serve, $(MODEL), -tp, "4294967296", -dp, "4294967296"`, "nvidia.com/gpu: 2", "found 4294967296 copies on 4294967296 devices each of deployment/s"},
		{`vllm, serve, $(MODEL), --max-num-seqs, $(KEY)`, "nvidia.com/gpu: 1", `found --max-num-seqs "$(KEY)" of deployment/s`},
		{`vllm, serve, $(MODEL), -pp, "2"`, "nvidia.com/gpu: 2", "--pipeline-parallel-size 2"},
		{`vllm, serve, $(MODEL), --lora-modules, a=/b`, "nvidia.com/gpu: 1", "the adapter a is no model of the profile"},
		{`vllm, serve, $(MODEL), --config, /etc/vllm.yaml`, "nvidia.com/gpu: 1", `args: found --config "/etc/vllm.yaml" of deployment/s, expected options as arguments
  hint: the file is not read: write its options behind the command`},
		{`--port, "8000", $(MODEL)`, "nvidia.com/gpu: 1", ""},
		{`vllm, serve, $(MODEL), --kv-cache-dtype, fp8`, "nvidia.com/gpu: 1", "deployment/s: not read: --kv-cache-dtype. The profile has to be of servers with the same settings"},
		{`vllm, serve, $(MODEL), -dp, "2"`, "nvidia.com/gpu: 2", ""},
		{`vllm, serve, $(MODEL)`, "nvidia.com/gpu: 3", "expected at most 0: the cluster has no host"},
	} {
		list, notes, err := languageServers(manifest(c.words, c.limits), cluster, nil)
		said := strings.Join(notes, "\n")
		if err != nil {
			said = err.Error()
		}
		if c.want == "" && (err != nil || len(list) == 0) || !strings.Contains(said, c.want) {
			t.Errorf("%s with %s: %d servers, %s; want %s", c.words, c.limits, len(list), said, c.want)
		}
	}
	from := func(script string) string {
		return strings.Replace(manifest(fmt.Sprintf("sh, -c, %q", script), "nvidia.com/gpu: 1"), "        env:", "        envFrom: [{configMapRef: {name: c}}]\n        env:", 1)
	}
	for script, want := range map[string]string{
		"vllm serve $MODEL --max-num-seqs ${N:-16}":              "variables of envFrom are not read",
		"N=8; vllm serve $MODEL --max-num-seqs ${N:-16}":         "",
		"vllm serve $MODEL -tp many; vllm serve $MODEL":          "hint: its script starts a model server at 2 places: the first is read",
		"LLAMA_ARG_X=7; exec vllm serve $MODEL --max-num-seqs 0": `found --max-num-seqs "0"`,
	} {
		_, notes, err := languageServers(from(script), cluster, nil)
		said := fmt.Sprint(strings.Join(notes, "\n"), err)
		if !strings.Contains(said, want) || want == "" && strings.Contains(said, "envFrom") {
			t.Errorf("%s: %s, want %q", script, said, want)
		}
	}
	llama := strings.NewReplacer("vllm/vllm-openai", "ghcr.io/ggml-org/llama.cpp:server", "[{name: MODEL", "[{name: LLAMA_ARG_N_PARALLEL, value: '6'}, {name: MODEL").Replace(manifest("--model, $(MODEL)", "nvidia.com/gpu: 1"))
	list, notes, err := languageServers(strings.Replace(llama, "        env:", "        envFrom: [{configMapRef: {name: c}}]\n        env:", 1), cluster, nil)
	if err != nil || len(list) != 1 || list[0].Sequences[0] != 6 || !strings.Contains(strings.Join(notes, "\n"), "variables of envFrom are not read") {
		t.Errorf("%v, %v, %v", list, notes, err)
	}
	if _, _, err := languageServers(strings.Replace(llama, "name: KEY", "name: LLAMA_ARG_BATCH", 1), cluster, nil); err == nil || !strings.Contains(err.Error(), `found LLAMA_ARG_BATCH "$(LLAMA_ARG_BATCH)" of deployment/s`) || !strings.Contains(err.Error(), "ConfigMap") {
		t.Error(err)
	}
	for words, isHinted := range map[string]bool{`--max-num-seqs, $(KEY)`: true, `--max-num-seqs, "0"`: false} {
		if _, _, err := languageServers(manifest("vllm, serve, org/chat, "+words, "nvidia.com/gpu: 1"), cluster, nil); err == nil || strings.Contains(err.Error(), "ConfigMap") != isHinted {
			t.Errorf("%s: %v", words, err)
		}
	}
	list, _, err = languageServers(manifest("vllm, serve, org/other, --served-model-name, mine", "nvidia.com/gpu: 1"), cluster, map[string]string{"mine": "code"})
	if err != nil || len(list) != 1 || list[0].Model != "code" {
		t.Errorf("%v, %v", list, err)
	}
	for flag, want := range map[string]string{
		"mine=chta":   `--model: found "mine=chta", expected a language model of the profile: chat, code, sum and sql`,
		"others=chat": `--model: found "others=chat", expected a name that a server has: l, mine, org/other and other`,
	} {
		name, model, _ := strings.Cut(flag, "=")
		_, _, err := languageServers(manifest("vllm, serve, org/other, --served-model-name, mine, --lora-modules, l=/l", "nvidia.com/gpu: 1"), cluster, map[string]string{name: model})
		if _, isUsage := errors.AsType[*usage.Error](err); !isUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}
