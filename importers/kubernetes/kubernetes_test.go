package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// The cluster of the tests: two nodes with two L4 each, four T4 without a network, and eight sets of CPU threads.
var testCluster = &formats.Cluster{Host: formats.HostShared, Pools: []formats.Pool{
	{Device: "L4", Count: 4, NICGbps: 10, PerNode: 2}, {Device: "T4", Count: 4}, {Device: "cpu-2", Count: 8},
}}

// repository writes a repository of two models and an ensemble, and returns its folder.
func repository(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "max_batch_size: 4", "b": "max_batch_size: 2", "all": `ensemble_scheduling { step { model_name: "a" } step { model_name: "b" } }`} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// deployment returns a Deployment of Triton with replicas, arguments, limits and fields of its pods.
func deployment(replicas, args, limits, pods string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: %s, template: {spec: {%s containers: [{name: t, image: "registry:5000/tritonserver:1@sha256:0", args: [%s], resources: {limits: {%s}}}]}}}}`, replicas, pods, args, limits)
}

// serversOf returns what is read of pods of Triton: their devices and models, and notes.
func serversOf(text, dir string, labels ...kindLabel) (lines string, err error) {
	c := &cluster{}
	if err := c.read("file", text); err != nil {
		return "", err
	}
	workloads, err := c.workloads()
	if err != nil {
		return "", err
	}
	if err := c.checkEngines(nil, workloads, workloads); err != nil {
		return "", err
	}
	t := &tritonReader{devices: deviceReader{cluster: testCluster, kindLabels: labels}, repositories: repositories{"": dir}}
	servers, err := t.servers(workloads)
	for _, s := range servers {
		for _, d := range append(s.Host.GPUs, s.Host.CPUs...) {
			lines += fmt.Sprintf("%s-%d ", testCluster.Pools[d.Pool].Device, d.Number)
		}
		for _, m := range s.Models {
			lines += m.Config.Name + " "
		}
		lines += "on " + s.Host.Name + "; "
	}
	return lines + strings.Join(append(c.notes, t.notes...), "; "), err
}

// Pods of Triton have the devices that their limits and nodes say, and load the models that they are told to.
func TestPodsOfTriton(t *testing.T) {
	dir := repository(t)
	const all, l4 = "--model-repository=/m", "nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4-24GB},"
	for name, c := range map[string]struct{ text, expected string }{
		"all models on a node each":  {deployment("2", all, "nvidia.com/gpu: 2", l4), "L4-0 L4-1 a all b on L4-0; L4-2 L4-3 a all b on L4-1; "},
		"pods beside each other":     {deployment("1", all, "nvidia.com/gpu: 1", l4) + "\n---\n" + strings.Replace(deployment("1", all, "nvidia.com/gpu: '1'", l4), "name: d", "name: e", 1), "L4-0 a all b on L4-0; L4-1 a all b on L4-0; "},
		"CPUs beside GPUs":           {deployment("1", all, "nvidia.com/gpu: 1, cpu: 5", `nodeSelector: {cloud.google.com/gke-accelerator: nvidia-t4},`), "T4-0 cpu-2-0 cpu-2-1 a all b on host; "},
		"CPUs alone":                 {deployment("null", all, "cpu: 4000m", l4), "cpu-2-0 cpu-2-1 a all b on host; "},
		"models by name":             {deployment("1", "--model-store, /m, --model-control-mode=explicit, --load-model=b", "cpu: 2", ""), "cpu-2-0 b on host; "},
		"an ensemble with its steps": {deployment("1", "--model-store, /m, --model-control-mode=explicit, --load-model=all", "cpu: 2", ""), "cpu-2-0 a all b on host; "},
		"models by clients":          {deployment("1", "--model-store=/m, --model-control-mode=explicit", "cpu: 2", ""), "cpu-2-0 a all b on host; deployment/d: models are loaded by clients, which manifests do not say: planned with all of " + dir},
		"no pods":                    {deployment("0", all, "cpu: 2", ""), "deployment/d has no pods"},
		"a label of the user":        {deployment("1", all, "nvidia.com/gpu: 1", "nodeSelector: {pool: x},"), "T4-0 a all b on host; "},
		"models by name in a shell":  {strings.Replace(deployment("1", `-c, "cd /; PATH=\"$PATH:/x\" bin/tritonserver --model-repository /m --model-control-mode explicit --load-model b; exit"`, "cpu: 2", ""), "args:", "command: [/bin/bash], args:", 1), "cpu-2-0 b on host; "},
		"what made it says nothing":  {"{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, metadata: {name: i}, spec: {predictor: {model: {}}}}\n---\n" + strings.Replace(deployment("1", all, "cpu: 2", ""), "name: d}", "name: d, ownerReferences: [{apiVersion: serving.kserve.io/v1beta1, kind: InferenceService, name: i}]}", 1), "cpu-2-0 a all b on host; inferenceservice/i does not say its containers: what it runs is read of the objects that it makes, if they are among the files"},
		"services of two groups":     {"{apiVersion: v1, kind: Service, metadata: {name: d}}\n---\n{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: d}}\n---\n" + deployment("1", all, "cpu: 2", ""), "cpu-2-0 a all b on host; "},
		"a pod whose owner is there": {`{apiVersion: v1, kind: List, items: [` + deployment("1", all, "cpu: 2", "") + `, {apiVersion: v1, kind: Pod, metadata: {name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: d-1}]}, spec: {containers: [{image: tritonserver}]}}]}`, "cpu-2-0 a all b on host; "},
	} {
		if got, err := serversOf(c.text, dir, kindLabel{"T4", "pool", "x"}); err != nil || got != c.expected {
			t.Errorf("%s: %s, %v\nwant %s", name, got, err, c.expected)
		}
	}
}

// What cannot be read is said with its file, its field and what to do.
func TestManifestErrors(t *testing.T) {
	dir := repository(t)
	const all = "--model-repository=/m"
	for name, c := range map[string]struct{ text, expected string }{
		"syntax":            {"{{ .Values.x }}: [", "file: found a YAML syntax error"},
		"not UTF-8":         {"\xff", "bytes that are not UTF-8"},
		"no manifest":       {"a: 1", "file:1:1: found an object without apiVersion and kind"},
		"a list":            {"[1]", "found a list, expected an object"},
		"other document":    {"format: x/v1", "an object without apiVersion"},
		"no name":           {"{apiVersion: v1, kind: Pod}", "metadata.name: found nothing, expected the name of the Pod"},
		"twice":             {strings.Repeat("{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n", 2), "file:3:1: found pod/p, which is also in file"},
		"an alias":          {"{apiVersion: v1, kind: &k Pod, metadata: {name: *k}}", "metadata.name: found an alias"},
		"nested lists":      {"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List}]}", "items[0]: found a List in a List"},
		"nothing in lists":  {"{apiVersion: v1, kind: List, items: [null]}", "items[0]: found nothing"},
		"no model server":   {"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{image: nginx}]}}", "found no container of a model server in 1 objects"},
		"replicas":          {deployment("-1", all, "cpu: 2", ""), `spec.replicas: found "-1", expected a whole number from 0 to 100000`},
		"arguments":         {deployment("1", "8000", "cpu: 2", ""), `spec.template.spec.containers[0].args[0]: found "8000", expected a text`},
		"a share of a GPU":  {deployment("1", all, "nvidia.com/mig-1g.5gb: 1", ""), "resources.limits.nvidia.com/mig-1g.5gb: found nvidia.com/mig-1g.5gb, expected whole GPUs"},
		"no CPUs":           {deployment("1", all, "memory: 1Gi", ""), "resources.limits.cpu: found 0 CPUs, expected at least the 2 of a cpu-2, or GPUs"},
		"which kind":        {deployment("1", all, "nvidia.com/gpu: 1", ""), "nodeSelector: found no label that tells the kind of device of deployment/d, expected one for L4 or T4"},
		"unknown kind":      {deployment("1", all, "nvidia.com/gpu: 1", "nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S},"), "found nvidia.com/gpu.product: NVIDIA-L40S, expected a kind of device of the cluster: L4 or T4"},
		"too many":          {deployment("3", all, "nvidia.com/gpu: 2", "nodeSelector: {inferplan/device: L4},"), "spec.replicas: found 3 pods of deployment/d with 2 GPUs of kind L4 each, expected at most 2"},
		"larger than hosts": {deployment("1", all, "nvidia.com/gpu: 3", "nodeSelector: {inferplan/device: L4},"), "expected at most 0: the cluster has no host with more"},
		"no repository":     {deployment("1", "--http-port=8000", "cpu: 2", ""), "found 0 model repositories of deployment/d"},
		"no such model":     {deployment("1", "--model-store=/m, --model-control-mode=explicit, --load-model=z", "cpu: 2", ""), `found the model "z", which deployment/d loads`},
		"daemons":           {strings.Replace(deployment("1", all, "cpu: 2", ""), "Deployment", "DaemonSet", 1), "status.desiredNumberScheduled: found nothing"},
		"two in a pod":      {"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{image: tritonserver}, {image: ollama/ollama}]}}", "spec.containers[1]: found Ollama beside Triton, expected one model server in a pod"},
		"unread kinds":      {"{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: [{image: vllm/vllm-openai}]}}}}", "found job.batch/j, which runs vLLM, expected objects of the kinds Deployment.apps, StatefulSet.apps"},
		"another group":     {strings.Replace(deployment("1", all, "cpu: 2", ""), "apps/v1", "example.com/v1", 1), "found deployment.example.com/d, which runs Triton, expected objects of the kinds Deployment.apps"},
	} {
		_, err := serversOf(c.text, dir)
		if err == nil || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%s: %v\nwant %s", name, err, c.expected)
		}
	}
}

// Servers are known by their commands, also in a shell, and by their images.
func TestEngines(t *testing.T) {
	for text, expected := range map[string]string{
		`{image: vllm/vllm-openai}`: "vLLM",
		`{image: "quay.io/a/triton:1", command: [/opt/tritonserver/bin/tritonserver]}`:        "Triton",
		`{image: x, command: [sh, -c], args: ["cd /a && exec \"plan\" worker --join 'a b'"]}`: "plan worker",
		`{image: x, command: [bash, -lc, "exec vllm serve m"]}`:                               "vLLM",
		`{image: ghcr.io/ggml-org/llama.cpp:server-cuda}`:                                     "llama.cpp",
		`{image: x, command: [tini, --, sh, -c, "echo vllm serve; X=1 plan serve p.json"]}`:   "plan serve",
		`{image: x, command: [sh, -c, "exec \"$@\"", sh, vllm, serve, m]}`:                    "vLLM",
		`{image: x, command: [sh, -c, "echo vllm serve m > log"]}`:                            "",
		`{image: vllm/vllm-openai, command: [sh, -c, ./start.sh]}`:                            "vLLM",
		`{image: lmcache/vllm-router}`:                                                        "",
		`{image: x, args: ["vllm", "bench", "serve"]}`:                                        "",
	} {
		documents, err := parseYAML(&source{file: "f"}, text)
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		if c, err := containerCommand(documents[0]); err == nil && c.engine != nil {
			name = c.engine.name
		}
		if name != expected || documents[0].err != nil {
			t.Errorf("%s: %q, expected %q, %v", text, name, expected, documents[0].err)
		}
	}
}

// The first command of a script that starts a model server is read, with the values that its variables have.
func TestScripts(t *testing.T) {
	const variables = `env: [{name: N, value: "8"}, {name: EMPTY, value: ""}, {name: DIR, value: /m}, {name: MODEL, value: "$(DIR)/chat"}, {name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}], `
	for script, want := range map[string]string{
		"exec vllm serve $MODEL --max-num-seqs ${N:-16} --port ${PORT:-80}":                     "vllm|serve|/m/chat|--max-num-seqs|8|--port|80",
		"pip install x && vllm serve m -tp 2 | tee log; sleep 1":                                "vllm|serve|m|-tp|2",
		"vllm serve m >/tmp/log 2>&1 & wait":                                                    "vllm|serve|m",
		"# vllm serve no\nset -e\nN=3\nexport SEQS=$N\nvllm serve m \\\n  --max-num-seqs $SEQS": "vllm|serve|m|--max-num-seqs|3",
		"env N=4 vllm serve m --lora-modules '{\"name\": \"a\"}' {\"b\":1,\"c\":2} $KEY":        `vllm|serve|m|--lora-modules|{"name": "a"}|{b:1,c:2}|$(KEY)`,
		"bash -lc 'vllm serve m ${EMPTY:-e} \"$N\"'":                                            "vllm|serve|m|e|8",
		"if true; then vllm serve a; else vllm serve b; fi":                                     "vllm|serve|a",
		"vllm serve m {1..1000000000}":                                                          "vllm|serve|m|{1..1000000000}",
		"vllm serve m --max-num-seqs $(nproc)":                                                  "found the word $(nproc) of a script, expected words and variables with known values\n  hint: write what this command prints in its place",
		"vllm serve m $UNSET":                                                                   "found the word $UNSET of a script, expected words and variables with known values\n  hint: give the value itself",
		"A=--x\nA+=' -tp 2'\nN+=0\nvllm serve m $A $N":                                          "vllm|serve|m|--x|-tp|2|80",
		"A=(-tp 2)\nvllm serve m \"${A[@]}\"":                                                   "found the word ${A[@]} of a script",
		"A=1\nA[1]=2\nvllm serve m $A":                                                          "found the word $A of a script",
		"A=$(x)\nA+=1\nvllm serve m $A":                                                         "found the word $A of a script",
		"set -- m -tp 2\nset -- \"$@\" '1 2'\nvllm serve $@":                                    "vllm|serve|m|-tp|2|1|2",
		"set -- x m\nshift\nexec vllm serve \"$@\" $#":                                          "vllm|serve|m|1",
		"if x; then set -- 1; fi\nvllm serve ${1:-2}":                                           "found the word ${1:-2} of a script",
		"if x; then N=9; fi\nvllm serve m ${N:-16}":                                             "found the word ${N:-16} of a script",
		"[ -n \"$X\" ] && N=9 && M=1\nvllm serve m $N":                                          "found the word $N of a script",
		"vllm serve m <(x)":                                                                     "found the word <(x) of a script",
		"vllm serve m ${!M*}":                                                                   "found the word ${!M*} of a script",
		"if x; then N=9; fi\nvllm serve m $((N+1))":                                             "found the word $((N + 1)) of a script",
		"vllm serve m $((N+1)) ${M:-3}":                                                         "vllm|serve|m|9|3",
		"cd /m && M=3 && vllm serve m $M":                                                       "vllm|serve|m|3",
		"x || N=9\nvllm serve m $N":                                                             "found the word $N of a script",
		"(N=9)\nvllm serve m $N":                                                                "found the word $N of a script",
		"for N in 1 2; do true; done; vllm serve m $N":                                          "found the word $N of a script",
		"f() { N=9; }\nf\nvllm serve m $N":                                                      "found the word $N of a script",
		"unset N\nvllm serve m ${N:-16}":                                                        "vllm|serve|m|16",
		"vllm --version && vllm serve m":                                                        "vllm|serve|m",
		"vllm serve --help\nvllm serve m":                                                       "vllm|serve|m",
		"if vllm serve no; then vllm serve m; fi":                                               "vllm|serve|m",
		"bash -euo pipefail -c 'vllm serve m'":                                                  "vllm|serve|m",
		"sh -c -- 'vllm serve m'":                                                               "vllm|serve|m",
		"sh -cx 'vllm serve m \"$@\"' sh -tp 2":                                                 "vllm|serve|m|-tp|2",
		"bash --norc +o posix -c 'vllm serve m'":                                                "vllm|serve|m",
		"bash -c \"vllm serve m 'a\"":                                                           "found a script of bash that cannot be read at its line 1, column 14",
		"true\nvllm serve m |":                                                                  "found a script of sh that cannot be read at its line 2",
		"vllm serve m # " + strings.Repeat("x", 70_000):                                         "found a script of sh of 70015 bytes, expected at most 65536 bytes",
		"N=7; LLAMA_ARG_B=7; export LLAMA_ARG_C; if x; then LLAMA_ARG_C=2; fi; llama-server":    "llama-server",
		"LLAMA_ARG_N_PARALLEL=2 llama-server -m m":                                              "llama-server|-m|m",
		"vllm serve 'open":                                                                      `found a script of sh that cannot be read`,
	} {
		documents, err := parseYAML(&source{file: "f"}, fmt.Sprintf(`{image: vllm/vllm-openai, %scommand: [sh, -c], args: [%q]}`, variables, script))
		if err != nil {
			t.Fatal(err)
		}
		c, err := containerCommand(documents[0])
		got := strings.Join(c.words, "|")
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
		if strings.HasPrefix(script, "N=7; LLAMA") && c.variables["LLAMA_ARG_B"]+c.variables["LLAMA_ARG_C"] != "$LLAMA_ARG_C" {
			t.Errorf("%s: %v", script, c.variables)
		}
		if strings.HasPrefix(script, "LLAMA") && c.variables["LLAMA_ARG_N_PARALLEL"] != "2" {
			t.Errorf("%s: %v", script, c.variables)
		}
	}
}

// servedText returns a server of a plan in a ConfigMap, and its workers.
func servedText(planText, workers string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: ConfigMap, metadata: {name: p}, data: {plan.json: %q}},
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, template: {spec: {volumes: [{name: v, configMap: {name: p}}], containers: [{command: [plan, serve, /etc/plan.json], args: [--join-listen=:1], volumeMounts: [{name: v, mountPath: /etc/}]}]}}}},
%s]}`, planText, workers)
}

// worker returns workers of a kind that join the server.
func worker(kind string, replicas, count int) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: w-%s}, spec: {replicas: %d, template: {spec: {containers: [{command: [sh, -c, "exec plan worker --join s-0.s:8003 --device %s --count %d"]}]}}}}`, strings.ToLower(kind), replicas, kind, count)
}

// readServed returns the plan that manifests serve, or nil if they have no server.
func readServed(text string) (*served, error) {
	c := &cluster{}
	if err := c.read("file", text); err != nil {
		return nil, err
	}
	return servedBy(c)
}

// servedBy returns the plan that objects serve, or nil if there is no server.
func servedBy(c *cluster) (*served, error) {
	workloads, err := c.workloads()
	if err != nil {
		return nil, err
	}
	var servers, workers []*workload
	for _, w := range workloads {
		if w.engine == &serveEngine {
			servers = append(servers, w)
		} else {
			workers = append(workers, w)
		}
	}
	if len(servers) == 0 {
		return nil, nil
	}
	return newServed(c, servers, workers)
}

// Devices that workers lack, or have beyond the plan, are told by copies, and what is left keeps its places.
func TestServedPlans(t *testing.T) {
	text, err := os.ReadFile("../../testdata/compat/plan.v2.json")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := formats.DecodePlan(text, "plan.json")
	if err != nil {
		t.Fatal(err)
	}
	l4, p4 := 0, 0
	for s := range plan.Stages() {
		if s.Device == "L4" {
			l4 += s.Replicas
		} else {
			p4 += s.Replicas
		}
	}
	for name, c := range map[string]struct {
		l4, p4   int
		isWhole  bool
		expected string
	}{
		"two copies":     {2 * l4, 2 * p4, true, "2 copies of the plan run, each with its own devices: the plan is that of one"},
		"one too many":   {2*l4 + 1, 2 * p4, true, "1 devices of kind L4 more than the plan"},
		"one and a half": {2*l4 - 1, 2 * p4, true, fmt.Sprintf("copy 1 of the plan has %d of its %d devices of kind L4", l4-1, l4)},
		"another server": {2 * l4, 2 * p4, true, "statefulset/w-x does not join statefulset/s: it is left out"},
		"less than one":  {l4 - 1, p4, false, fmt.Sprintf("copy 0 of the plan has %d of its %d devices of kind L4", l4-1, l4)},
	} {
		s, err := readServed(servedText(string(text), worker("L4", c.l4, 1)+", "+worker("P4", c.p4, 1)+", "+strings.Replace(worker("X", 1, 1), "s-0.s", "r-0.r", 1)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.isWhole() != c.isWhole || !strings.Contains(strings.Join(s.notes, "\n"), c.expected) {
			t.Errorf("%s: whole %v, %q, expected %q", name, s.isWhole(), s.notes, c.expected)
		}
		remaining, err := s.remaining()
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, d := range remaining {
			for _, p := range d.Pipelines {
				for _, stage := range p.Stages {
					if stage.Device == "L4" {
						left += stage.Replicas
					}
				}
			}
		}
		if left != min(c.l4, l4) {
			t.Errorf("%s: %d replicas on L4 are left of %d", name, left, c.l4)
		}
	}
	for expected, text := range map[string]string{
		"no workers with devices of kind P4":                                            servedText(string(text), worker("L4", 9, 1)),
		"file: configmap/p: data.plan.json":                                             servedText("{}", worker("L4", 9, 1)),
		"found plan worker L4 0, expected":                                              servedText(string(text), worker("L4", 9, 0)),
		"no plan of statefulset/s, expected its document\n  hint: give the ConfigMap q": strings.Replace(servedText(string(text), worker("L4", 9, 1)), "configMap: {name: p}", "configMap: {name: q}", 1),
		"statefulset/s and statefulset/t, which both serve a plan":                      servedText(string(text), `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: t}, spec: {template: {spec: {containers: [{command: [plan, serve]}]}}}}`),
		"spec.replicas: found 0, expected a server that runs":                           strings.Replace(servedText(string(text), worker("L4", 9, 1)), "replicas: 2", "replicas: 0", 1),
	} {
		if _, err := readServed(text); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%v\nwant %s", err, expected)
		}
	}
}

// Whatever a file says, what is read has its pods on different devices of the cluster, or it is refused.
func FuzzManifests(f *testing.F) {
	sample, err := os.ReadFile("testdata/triton.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(sample))
	f.Add(deployment("2", "--model-repository=/m", "cpu: 1500m, nvidia.com/gpu: 1", "nodeSelector: {inferplan/device: L4},"))
	f.Add(servedText(`{"format": "inferplan.plan/v2"}`, worker("L4", 2, 2)))
	f.Add(strings.Replace(deployment("1", `-c, "N=2; exec tritonserver ${N:+--model-repository /m} $((N*2)) {a,b}"`, "cpu: 2", ""), "args:", "command: [sh], args:", 1))
	f.Add("a: &a [*a]\n---\n- ? {}\n  : 1")
	dir := repository(f)
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func() error{
			func() error { _, err := readServed(text); return err },
			func() error {
				lines, err := serversOf(text, dir)
				seen := map[string]bool{}
				for _, word := range strings.Fields(lines) {
					isDevice := strings.HasPrefix(word, "L4-") || strings.HasPrefix(word, "T4-") || strings.HasPrefix(word, "cpu-2-")
					if isDevice && !strings.HasSuffix(word, ";") && seen[word] {
						t.Errorf("%s is of two pods: %s", word, lines)
					}
					seen[word] = seen[word] || isDevice
				}
				return err
			},
		} {
			err := read()
			_, isUsage := errors.AsType[*usage.Error](err)
			if err != nil && !isUsage && len(document.Findings(err)) == 0 {
				t.Fatal(err)
			}
		}
	})
}

// Scripts of any kind are read or refused.
func FuzzScript(f *testing.F) {
	for _, script := range []string{"A+=1; export A; [ -n \"$X\" ] && B=(1 2)\nvllm serve $((A+1)) ${N:-16} \"$@\"", "set -- a; shift 3; for i in 1; do :; done; unset A; vllm serve $1", "if x; then :; elif y; then vllm serve $(( )); fi; case $A in a) A=1;; esac"} {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		if len(script) < 1<<12 {
			_, _ = commandOf([]string{"bash", "-c", script}, map[string]string{"N": "8"})
		}
	})
}
