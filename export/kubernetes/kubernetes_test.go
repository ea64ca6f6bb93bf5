package kubernetes

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"inferplan/export"
	"inferplan/formats"
	"inferplan/formats/usage"
	"inferplan/policy/policies"
)

var update = flag.Bool("update", false, "write the golden files anew")

// cases are plans of every kind, with flags. Each has a golden file.
var cases = []struct {
	name, plan string
	flags      []string
}{
	{"pool", "plan-classes.v2.json", []string{"--max-copies", "3", "--pod-monitor", "--image", "registry.example.com:5000/team/inferplan:1.2", "--namespace", "vision"}},
	{"shares", "plan.v2.json", []string{"--copies", "2", "--node-selector", "L4=nvidia.com/gpu.product=NVIDIA-L4", "--devices-per-pod", "P4=3"}},
	{"gear", "plan-gear.v2.json", []string{"--variant", "pod", "--worker-memory", "512MiB", "--drain", "90s", "--drain-delay", "4s"}},
	{"flow", "plan-flow.v2.json", []string{"--variant", "kserve", "--max-copies", "2", "--resource", "gpu=amd.com/gpu"}},
	{"queue", "plan-queue.v2.json", []string{"--name", "chat", "--server", "http://vllm-0:8000", "--server", "1=http://vllm-1:8000", "--pod-monitor", "--storage", "100GiB"}},
	{"members", "plan-queue.v2.json", []string{"--name", "chat", "--server", "0=http://vllm-first:8000", "--server", "1=dns+http://old.models:8000", "--servers", "vllm:8000"}},
	{"queues", "plan-queue.v2.json", []string{"--server", "http://vllm-0:8000", "--server", "1/chat-7b=http://vllm-1:8000", "--queue", "nats://a:4222,nats://b:4222", "--copies", "2"}},
}

const compat = "../../testdata/compat/"

// newSource reads a plan.
func newSource(t testing.TB, path string) *export.Source {
	t.Helper()
	plan, err := formats.ReadPlan(path)
	if err != nil {
		t.Fatal(err)
	}
	return &export.Source{Plan: plan, Path: path}
}

// exported writes the folder of a plan, and returns where.
func exported(t testing.TB, source *export.Source, flags ...string) (dir string, err error) {
	t.Helper()
	target := Target()
	set := pflag.NewFlagSet("kubernetes", pflag.ContinueOnError)
	target.DefineFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	folder := &export.Folder{}
	if err := target.AddFiles(context.Background(), source, folder); err != nil {
		return "", err
	}
	dir = filepath.Join(t.TempDir(), "out")
	_, err = folder.Save(target, source, dir, false)
	return dir, err
}

func TestGolden(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir, err := exported(t, newSource(t, compat+c.plan), c.flags...)
			if err != nil {
				t.Fatal(err)
			}
			got := &txtar.Archive{}
			err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || path == "export.json" || strings.HasSuffix(path, "plan.json") {
					return err
				}
				data, err := os.ReadFile(filepath.Join(dir, path))
				got.Files = append(got.Files, txtar.File{Name: path, Data: data})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", c.name+".txtar")
			if *update {
				if err := os.WriteFile(golden, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(txtar.Format(got))); d != "" {
				t.Errorf("differs from %s, which -update writes anew:\n%s", golden, d)
			}
		})
	}
}

// A plan that the target cannot run, and flags that are wrong or do nothing, are refused with the reason.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		plan  string
		flags []string
		want  string
	}{
		{"plan.v2.json", []string{"--variant", "pod"}, "found 2 kinds of devices, expected one"},
		{"plan.v2.json", []string{"--devices-per-pod", "L4=3"}, "expected 1: a pod has one share"},
		{"plan-flow.v2.json", []string{"--devices-per-pod", "gpu=4"}, "expected a divisor of the 6 devices"},
		{"plan-flow.v2.json", []string{"--devices-per-pod", "gpu"}, "expected KIND=N"},
		{"plan-flow.v2.json", []string{"--devices-per-pod", "gpu=1", "--devices-per-pod", "gpu=1"}, "expected each kind once"},
		{"plan-flow.v2.json", []string{"--devices-per-pod", "gpu=1", "--variant", "pod"}, "has all devices in a pod"},
		{"plan-flow.v2.json", []string{"--node-selector", "gpu=label"}, "found label label= for kind gpu"},
		{"plan-flow.v2.json", []string{"--node-selector", "L4=a=b"}, `found kind "L4", expected a kind of device on which the plan has workers: gpu`},
		{"plan-flow.v2.json", []string{"--resource", "gpu=a b"}, "expected a resource such as nvidia.com/gpu"},
		{"plan-flow.v2.json", []string{"--server", "http://a"}, "expected none: the plan has no servers"},
		{"plan-flow.v2.json", []string{"--storage", "1GiB"}, "here it does nothing"},
		{"plan-flow.v2.json", []string{"--scale-at", ".5"}, "expected --max-copies"},
		{"plan-flow.v2.json", []string{"--scale-at", "1.5", "--max-copies", "2"}, "expected above 0 and at most 1"},
		{"plan-flow.v2.json", []string{"--max-copies", "1", "--copies", "2"}, "expected at least the 2 of --copies"},
		{"plan-flow.v2.json", []string{"--copies", "0"}, "expected at least 1"},
		{"plan-flow.v2.json", []string{"--name", "Vision"}, "lower-case letters"},
		{"plan-flow.v2.json", []string{"--image", "a b"}, "expected the name of an image"},
		{"plan-flow.v2.json", []string{"--variant", "ray"}, "expected workers, pod and kserve"},
		{"plan-flow.v2.json", []string{"--drain-delay", "1s"}, "readiness is looked at that often"},
		{"plan-flow.v2.json", []string{"--server-memory", "1MB"}, "expected 512MiB or more"},
		{"plan-flow.v2.json", []string{"--worker-memory", "much"}, "--worker-memory"},
		{"plan-flow.v2.json", []string{"--queue", "nats://a:4222"}, "here it does nothing"},
		{"plan-queue.v2.json", []string{"--queue", "a:4222"}, "expected nats://HOST:PORT"},
		{"plan-queue.v2.json", []string{"--server", "0=http://a", "--server", "1=http://a", "--queue", "nats://a:4222", "--storage", "1GiB"}, "without --queue"},
		{"plan-queue.v2.json", nil, "found no server of instance 0, expected one for each of the 2"},
		{"plan-queue.v2.json", []string{"--server", "vllm:8000"}, "expected a URL"},
		{"plan-queue.v2.json", []string{"--server", "0-1=http://a"}, "expected N=URL"},
		{"plan-queue.v2.json", []string{"--server", "1=dns+http://a"}, "found no server of instance 0"},
		{"plan-queue.v2.json", []string{"--server", "1-2=dns+http://a"}, "expected some of the 2 instances"},
		{"plan-queue.v2.json", []string{"--server", "dns+https://a"}, "expected dns+http://NAME:PORT"},
		{"plan-queue.v2.json", []string{"--server", "dns+http://a", "--queue", "nats://a:4222"}, "expected servers that stay"},
		{"plan-queue.v2.json", []string{"--servers", "a"}, "expected NAME:PORT"},
		{"plan-queue.v2.json", []string{"--servers", "A:8000"}, "--servers: found \"A\", expected at most 63 lower-case letters"},
		{"plan-queue.v2.json", []string{"--servers", "inferplan-server:8000"}, "expected another name"},
		{"plan-queue.v2.json", []string{"--servers", "a:8000", "--queue", "nats://a:4222"}, "expected servers that stay"},
		{"plan-flow.v2.json", []string{"--servers", "a:8000"}, "expected none: the plan has no servers"},
		{"plan-queue.v2.json", []string{"--server", "x=http://a"}, "expected URL, N=URL or N/MODEL=URL"},
		{"plan-queue.v2.json", []string{"--server", "2=http://a"}, "one of the 2 instances"},
		{"plan-queue.v2.json", []string{"--server", "0=http://a", "--server", "1=http://a", "--copies", "2"}, "--queue nats://HOST:PORT has several servers"},
		{"plan-queue.v2.json", []string{"--server", "0=http://a", "--server", "1=http://a", "--variant", "kserve"}, "all devices of the plan are servers"},
		{"plan-queue.v2.json", []string{"--server", "0=http://a", "--server", "1=http://a", "--worker-memory", "1GiB"}, "here it does nothing"},
	} {
		_, err := exported(t, newSource(t, compat+c.plan), c.flags...)
		if _, usage := err.(*usage.Error); !usage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v, expected a usage error with %q", c.plan, c.flags, err, c.want)
		}
	}
}

// Whatever models and kinds are called and flags say, what is written is right, and the same bytes each time; or the user
// is told what is wrong.
func TestAnyNamesAndFlags(t *testing.T) {
	written := 0
	rapid.Check(t, func(r *rapid.T) {
		plan := rapid.SampledFrom([]string{"plan.v2.json", "plan-classes.v2.json", "plan-gear.v2.json", "plan-flow.v2.json"}).Draw(r, "plan")
		source := newSource(t, compat+plan)
		rename(source.Plan, rapid.StringMatching(`[ -~]{1,8}`).Draw(r, "model"), rapid.StringMatching(`(cpu-[1-9]|[A-Z][-A-Za-z0-9+_ ]{1,12})`).Draw(r, "kind"))
		var flags []string
		device := source.Plan.Pools[0].Device
		values := map[string][]string{
			"copies": {"1", "2"}, "max-copies": {"2", "7"}, "scale-at": {"0.3", "1"}, "variant": variants, "name": {"a", "vision-2"}, "namespace": {"a-b"},
			"image": {"x", "h:5000/x", "h/x:v1", "h/x@sha256:" + strings.Repeat("0a", 32)}, "drain": {"1s", "10m"}, "drain-delay": {"2s", "1500ms"}, "worker-memory": {"100MB", "3GiB"},
			"server-memory": {"600MB"}, "devices-per-pod": {device + "=2"}, "node-selector": {device + "=a.b/c=d"}, "pod-monitor": {"true"},
		}
		for _, flag := range slices.Sorted(maps.Keys(values)) {
			if rapid.IntRange(0, 2).Draw(r, flag) == 0 {
				flags = append(flags, "--"+flag+"="+rapid.SampledFrom(values[flag]).Draw(r, flag+" value"))
			}
		}
		dir, err := exported(t, source, flags...)
		if err != nil {
			if _, isUsage := err.(*usage.Error); !isUsage {
				r.Fatalf("%v: %v", flags, err)
			}
			return
		}
		written++
		newCluster(t, dir).check()
		again, err := exported(t, source, flags...)
		if err != nil {
			r.Fatal(err)
		}
		first, err := os.ReadFile(filepath.Join(dir, "export.json"))
		if err != nil {
			r.Fatal(err)
		}
		if second, err := os.ReadFile(filepath.Join(again, "export.json")); err != nil || !bytes.Equal(first, second) {
			r.Fatalf("%v: other bytes the second time: %v", flags, err)
		}
		if t.Failed() {
			r.Fatalf("with %v", flags)
		}
	})
	if written == 0 {
		t.Error("nothing was ever written")
	}
}

// rename gives the first model of a plan and the kind of its first pool other names.
func rename(plan *formats.Plan, model, kind string) {
	old := plan.Pools[0].Device
	plan.Pools[0].Device = kind
	for s := range plan.Stages() {
		if s.Device == old {
			s.Stage.Device = kind
		}
	}
	if pool := formats.PoolOf(plan); pool != nil {
		for i := range pool.Models {
			if pool.Models[i].Model == plan.Deployment[0].Model {
				pool.Models[i].Model = model
			}
		}
	}
	plan.Deployment[0].Model = model
}

// Kinds that Kubernetes cannot tell apart, or whose pods nothing says how to make, are refused.
func TestRefusedKinds(t *testing.T) {
	for want, change := range map[string]func(p *formats.Plan){
		"found shares [1 2] of L4": func(p *formats.Plan) { p.Deployment[0].Pipelines[0].Stages[0].Device = "L4" },
		`the same name "l4"`: func(p *formats.Plan) {
			p.Pools[1].Device, p.Deployment[0].Pipelines[0].Stages[0].Device = "l4", "l4"
			p.Deployment[1].Pipelines[0].Stages[0].Device = "l4"
		},
		"does not say how many CPUs": func(p *formats.Plan) {
			p.Pools[0].Device, p.Deployment[0].Pipelines[0].Stages[1].Device = "cpu-a", "cpu-a"
		},
		"a name with 1 to 30 letters": func(p *formats.Plan) { p.Pools[0].Device, p.Deployment[0].Pipelines[0].Stages[1].Device = "++", "++" },
	} {
		source := newSource(t, compat+"plan.v2.json")
		change(source.Plan)
		if _, err := exported(t, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

// Copies of a workflow do not share the servers of its language models.
func TestCopiesOfLanguageModels(t *testing.T) {
	source := newSource(t, "testdata/workflow.plan.json")
	formats.FlowOf(source.Plan).Modules[0].Generation = &formats.FlowGeneration{}
	servers := []string{"--server", "http://a:1", "--server", "http://b:1", "--server", "http://c:1"}[:2*languageModelDevices(source.Plan)]
	if _, err := exported(t, source, servers...); err != nil {
		t.Error(err)
	}
	for _, flag := range []string{"--copies=2", "--max-copies=2"} {
		if _, err := exported(t, source, append(servers, flag)...); err == nil || !strings.Contains(err.Error(), "modules of language models, expected one copy") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// The README names what the server's pod takes of a node for all its devices, and Services that are there.
func TestReadme(t *testing.T) {
	gear := newSource(t, compat+"plan-gear.v2.json")
	kinds, err := (&options{}).newKinds(gear.Plan)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags    []string
		expected string
		headless bool
	}{
		{[]string{"--variant", "pod", "--copies", "2"}, fmt.Sprintf("pods of a copy: 1; each has %d CPUs", kinds[0].CPUs*kinds[0].Devices), true},
		{[]string{"--variant", "kserve", "--copies", "2"}, fmt.Sprintf("pods of a copy: 1; each has %d CPUs", kinds[0].CPUs*kinds[0].Devices), false},
		{nil, fmt.Sprintf("pods of a copy: %d; each has %d CPUs", kinds[0].Devices, kinds[0].CPUs), false},
	} {
		dir, err := exported(t, gear, c.flags...)
		if err != nil {
			t.Fatal(err)
		}
		readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil || !strings.Contains(string(readme), c.expected) || strings.Contains(string(readme), "headless") != c.headless || kinds[0].Devices < 2 {
			t.Errorf("%v: %s, %v, expected %s", c.flags, readme, err, c.expected)
		}
	}
}

// A plan that no ConfigMap holds is a file of the image.
func TestLargePlan(t *testing.T) {
	source := newSource(t, compat+"plan.v2.json")
	data, err := os.ReadFile(source.Path)
	if err != nil {
		t.Fatal(err)
	}
	source.Path = filepath.Join(t.TempDir(), "large.json")
	if err := os.WriteFile(source.Path, append(data, make([]byte, maxConfigMap)...), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, err := exported(t, source)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"image/Containerfile": "COPY plan.json /etc/inferplan/plan/plan.json", "image/plan.json": "", "README.md": "too large for a ConfigMap"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %q: %v", name, want, err)
		}
	}
	for _, d := range documents(t, dir) {
		if strings.Contains(d.text, "watch-plan") || strings.Contains(d.text, "configMap") {
			t.Errorf("%s has a ConfigMap", d.file)
		}
	}
}

// The pods of a copy have as many devices as join the server, of every kind.
func TestPodsHaveTheDevices(t *testing.T) {
	for _, path := range []string{compat + "plan.v2.json", compat + "plan-classes.v2.json", compat + "plan-gear.v2.json", compat + "plan-flow.v2.json", "testdata/workflow.plan.json"} {
		source := newSource(t, path)
		tables, err := policies.Compile(source.Plan)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		want := map[string]int{}
		for _, d := range tables.Devices {
			want[tables.Kinds[d.Kind]]++
		}
		kinds, err := (&options{}).newKinds(source.Plan)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		got := map[string]int{}
		for _, k := range kinds {
			got[k.Name] = k.Pods() * k.PerPod
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s:\n%s", path, d)
		}
	}
}

// Hosts whose devices swap models keep them in half of the pod's memory, which bounds them.
func TestModelCache(t *testing.T) {
	for _, c := range []struct {
		plan  string
		flags []string
		want  string
	}{
		{"testdata/workflow.plan.json", nil, "--model-cache 2GiB"},
		{"testdata/workflow.plan.json", []string{"--worker-memory", "1GiB", "--devices-per-pod", "L4=3"}, "--model-cache 1536MiB"},
		{"testdata/workflow.plan.json", []string{"--variant", "pod", "--worker-memory", "1GiB"}, "--model-cache=1536MiB"},
		{compat + "plan-flow.v2.json", nil, ""},
	} {
		dir, err := exported(t, newSource(t, c.plan), c.flags...)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, d := range documents(t, dir) {
			all.WriteString(d.text)
		}
		if !strings.Contains(all.String(), c.want) || strings.Contains(all.String(), "--model-cache") != (c.want != "") {
			t.Errorf("%s %v: expected %q", c.plan, c.flags, c.want)
		}
	}
}
