package llmserver_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/schema"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"inferplan/export"
	"inferplan/export/llamacpp"
	"inferplan/export/sglang"
	"inferplan/export/vllm"
	"inferplan/formats"
)

var update = flag.Bool("update", false, "write the golden files anew")

// engines are the targets with arguments that fit testdata/plan.json.
var engines = []struct {
	name      string
	target    func() *export.Target
	arguments []string
}{
	{"vllm", vllm.Target, []string{"--model", "chat-7b=org/chat-7b", "--model", "code-13b=/models/code", "--adapter", "sql=chat-7b,/models/sql", "--lora-rank", "32"}},
	{"sglang", sglang.Target, []string{"--model", "chat-7b=org/chat-7b", "--model", "code-13b=/models/code", "--adapter", "sql=chat-7b,/models/sql", "--address", "a100-1=gpu2.example"}},
	{"llamacpp", llamacpp.Target, []string{"--model", "chat-7b=org/chat-7b-GGUF:Q8_0", "--model", "code-13b=/models/code.gguf", "--adapter", "sql=chat-7b,/models/sql.gguf"}},
}

// exported returns the files of an export of a plan by path.
func exported(t *testing.T, target *export.Target, plan string, arguments ...string) (map[string]string, error) {
	t.Helper()
	return exportedChanged(t, target, plan, func(*formats.Plan) {}, arguments...)
}

// exportedChanged returns the files of an export of a plan that was changed after it was read.
func exportedChanged(t *testing.T, target *export.Target, plan string, change func(*formats.Plan), arguments ...string) (map[string]string, error) {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	target.DefineFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	read, err := formats.ReadPlan(plan)
	if err != nil {
		t.Fatal(err)
	}
	change(read)
	source, folder, dir := &export.Source{Plan: read, Path: plan}, &export.Folder{}, filepath.Join(t.TempDir(), "out")
	if err := target.AddFiles(context.Background(), source, folder); err != nil {
		return nil, err
	}
	paths, err := folder.Save(target, source, dir, false)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range paths {
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		files[path] = string(data)
	}
	return files, nil
}

// What is written is what was written before, and the same again.
func TestEnginesWriteTheSame(t *testing.T) {
	for _, e := range engines {
		var texts [2]string
		for i := range texts {
			files, err := exported(t, e.target(), "testdata/plan.json", e.arguments...)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range slices.Sorted(mapKeys(files)) {
				if path != "plan.json" && path != "export.json" {
					texts[i] += fmt.Sprintf("-- %s --\n%s", path, files[path])
				}
			}
		}
		golden := filepath.Join("testdata", e.name+".golden")
		if *update {
			if err := os.WriteFile(golden, []byte(texts[0]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		expected, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(expected), texts[0]); diff != "" || texts[1] != texts[0] {
			t.Errorf("%s (-update writes it): %s", e.name, diff)
		}
	}
}

func mapKeys(files map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for path := range files {
			if !yield(path) {
				return
			}
		}
	}
}

// options reads which options a server has, with their values.
func options(t *testing.T, engine string) map[string]string {
	data, err := os.ReadFile(filepath.Join("testdata", engine+".options"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Split(strings.TrimSpace(line), "\t"); !strings.HasPrefix(line, "#") {
			out[fields[0]] = fields[1]
		}
	}
	return out
}

// checkOptions reports options of a command that the server does not have, and values that they do not take.
func checkOptions(command []string, known map[string]string) (wrong []string) {
	for i := 0; i < len(command); i++ {
		name := command[i]
		kind, ok := known[name]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("option %s", name))
			continue
		}
		var values []string
		for i+1 < len(command) && !strings.HasPrefix(command[i+1], "-") {
			i++
			values = append(values, command[i])
		}
		fits := len(values) == 1
		switch kind {
		case "flag":
			fits = len(values) == 0
		case "list":
			fits = len(values) > 0
		case "whole":
			n, err := strconv.ParseInt(strings.Replace(strings.Join(values, " "), "${PORT}", "5800", 1), 10, 64)
			fits = err == nil && n > 0
		case "text":
		default:
			fits = fits && slices.Contains(strings.Split(kind, "|"), values[0])
		}
		if !fits {
			wrong = append(wrong, fmt.Sprintf("option %s with %q, expected %s", name, values, kind))
		}
	}
	return wrong
}

// Compose files follow the schema of the compose specification, and start servers with options that they have.
func TestComposeFiles(t *testing.T) {
	programs := map[string]int{"vllm": 3, "python3": 3, "llama-server": 1, "llama-swap": 1} // words before the options
	for _, e := range engines {
		files, err := exported(t, e.target(), "testdata/plan.json", e.arguments...)
		if err != nil {
			t.Fatal(err)
		}
		known, commands := options(t, e.name), 0
		for path, text := range files {
			if filepath.Base(path) != "compose.yaml" {
				continue
			}
			var file map[string]any
			if err := yaml.Unmarshal([]byte(text), &file); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(file); err != nil {
				t.Errorf("%s %s: %v", e.name, path, err)
			}
			for name, service := range file["services"].(map[string]any) {
				var command []string
				for _, word := range service.(map[string]any)["entrypoint"].([]any) {
					command = append(command, word.(string))
				}
				if command[0] == "curl" {
					continue
				}
				commands++
				if wrong := checkOptions(command[programs[command[0]]:], known); len(wrong) > 0 || programs[command[0]] == 0 {
					t.Errorf("%s %s: %s has %v", e.name, name, command[0], wrong)
				}
			}
		}
		if commands < 3 {
			t.Errorf("%s: found %d commands, expected one for each instance at least", e.name, commands)
		}
	}
}

// Compose takes no dollar sign of a name for a variable of its own.
func TestComposeDollars(t *testing.T) {
	files, err := exported(t, vllm.Target(), "testdata/plan.json", "--model", "chat-7b=/models/a$b", "--model", "code-13b=/c", "--model", "sql=/s", "--image", "vllm:$tag")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		if filepath.Base(path) != "compose.yaml" {
			continue
		}
		rest := strings.NewReplacer("$$", "", "${HF_HOME:-${HOME}/", "").Replace(text)
		if !strings.Contains(text, "vllm:$$tag") || strings.Contains(rest, "$") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// A wrong option, and a value that does not fit, are noticed.
func TestCheckOptions(t *testing.T) {
	known := map[string]string{"--count": "whole", "--on": "flag", "--way": "a|b", "--names": "list"}
	for command, expected := range map[string]int{"--count 3 --on --way a --names x y": 0, "--size": 1, "--count x": 1, "--on 1": 1, "--way c": 1, "--names": 1} {
		if got := checkOptions(strings.Fields(command), known); len(got) != expected {
			t.Errorf("%s: %v", command, got)
		}
	}
}

// The list of llama-server's options is that of the real one, where there is one.
func TestLlamaServerHasTheOptions(t *testing.T) {
	help, err := exec.Command("../../third_party/llama/llama-server", "--help").Output()
	if err != nil {
		t.Skipf("no llama-server here (make llama): %v", err)
	}
	for name := range options(t, "llamacpp") {
		if strings.HasPrefix(name, "--") && !regexp.MustCompile(`(?m)(^|[ ,])`+name+`([ ,\n]|$)`).Match(help) {
			t.Errorf("llama-server has no option %s", name)
		}
	}
}

// swapSchema has the fields of llama-swap's configuration that an export uses: config-schema.json of llama-swap v250.
const swapSchema = `{
 "type": "object", "required": ["models"], "additionalProperties": false,
 "properties": {
  "healthCheckTimeout": {"type": "integer", "minimum": 15},
  "startPort": {"type": "integer"},
  "models": {"type": "object", "additionalProperties": {
   "type": "object", "required": ["cmd"], "additionalProperties": false,
   "properties": {"cmd": {"type": "string", "minLength": 1}, "checkEndpoint": {"type": "string", "pattern": "^/.*$|^none$"}}}},
  "hooks": {"type": "object", "additionalProperties": false, "properties": {
   "on_startup": {"type": "object", "additionalProperties": false, "properties": {"preload": {"type": "array", "items": {"type": "string"}}}}}}
 }}`

// A kind of CPUs has no GPUs, even if it does not say how many threads it has.
func TestLlamaServerOnCPUs(t *testing.T) {
	for kind, expected := range map[string]string{"cpu-8": "--threads 8 --device none", "cpu-a": "--device none", "A100": "--n-gpu-layers all"} {
		files, err := exportedChanged(t, llamacpp.Target(), "testdata/plan.json", func(p *formats.Plan) {
			p.Pools[0].Device = kind
			for i := range formats.QueueOf(p).Instances {
				formats.QueueOf(p).Instances[i].Device = kind
			}
		}, engines[2].arguments...)
		if err != nil {
			t.Fatal(err)
		}
		for path, text := range files {
			if filepath.Base(path) != "start.sh" {
				continue
			}
			words := strings.Join(strings.Fields(strings.ReplaceAll(text, "\\\n", "")), " ")
			if !strings.Contains(words, expected) || strings.Contains(words, "--threads") != (kind == "cpu-8") {
				t.Errorf("%s: %s, expected %s", kind, words, expected)
			}
		}
	}
}

// A configuration of llama-swap has the fields that it reads, and its commands options that llama-server has.
func TestSwapConfiguration(t *testing.T) {
	e := engines[2]
	files, err := exported(t, e.target(), "testdata/plan.json", e.arguments...)
	if err != nil {
		t.Fatal(err)
	}
	var config any
	if err := yaml.Unmarshal([]byte(files["nodes/a100-0/instance-1.yaml"]), &config); err != nil {
		t.Fatal(err)
	}
	if err := compiled(t, swapSchema).Validate(throughJSON(t, config)); err != nil {
		t.Error(err)
	}
	models := config.(map[string]any)["models"].(map[string]any)
	for name, model := range models {
		command := strings.Fields(model.(map[string]any)["cmd"].(string))
		if wrong := checkOptions(command[1:], options(t, "llamacpp")); len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
	}
	if len(models) != 2 {
		t.Errorf("%d models, expected 2", len(models))
	}
}

// Where instances have more than a thousand ports, no two servers have one port, those behind a llama-swap included.
func TestPortsOfManyServers(t *testing.T) {
	const instances = 700
	files, err := exportedChanged(t, llamacpp.Target(), "testdata/plan.json", func(p *formats.Plan) {
		queue := formats.QueueOf(p)
		several := queue.Instances[1]
		p.Pools[0].Count, queue.Instances = instances, nil
		for i := range instances {
			several.FirstDevice, several.TensorParallel = i, 1
			queue.Instances = append(queue.Instances, several)
		}
	}, append([]string{"--per-node", fmt.Sprint(instances)}, engines[2].arguments[:4]...)...)
	if err != nil {
		t.Fatal(err)
	}
	owner := map[int]string{}
	take := func(port int, server string) {
		if other, taken := owner[port]; taken {
			t.Fatalf("port %d: %s and %s", port, other, server)
		}
		owner[port] = server
	}
	for path, text := range files {
		if path == "servers" {
			for _, match := range regexp.MustCompile(`(\d+)=http://[^:]+:(\d+)`).FindAllStringSubmatch(text, -1) {
				port, _ := strconv.Atoi(match[2])
				take(port, "instance "+match[1])
			}
		}
		var config struct {
			StartPort int            `yaml:"startPort"`
			Models    map[string]any `yaml:"models"`
		}
		if filepath.Ext(path) != ".yaml" || !strings.HasPrefix(filepath.Base(path), "instance-") {
			continue
		}
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		for k := range len(config.Models) {
			take(config.StartPort+k, path)
		}
	}
	if len(owner) != 3*instances {
		t.Errorf("%d ports, expected one of each of %d instances and two behind it", len(owner), instances)
	}
}

func compiled(t *testing.T, text string) *jsonschema.Schema {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("schema.json")
}

// throughJSON returns a value as a reader of JSON would have it.
func throughJSON(t *testing.T, value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Scripts are read by a shell.
func TestScripts(t *testing.T) {
	for _, e := range engines {
		files, err := exported(t, e.target(), "testdata/plan.json", e.arguments...)
		if err != nil {
			t.Fatal(err)
		}
		for path, text := range files {
			if filepath.Ext(path) != ".sh" {
				continue
			}
			cmd := exec.Command("sh", "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v: %s", e.name, path, err, out)
			}
		}
	}
}

// Names of a plan that make the same name of a node or a service are refused, and kinds that make none.
func TestRefusedNames(t *testing.T) {
	for _, c := range []struct {
		change    func(p *formats.Plan, q *formats.QueuePlan)
		arguments []string
		expected  string
	}{
		{func(p *formats.Plan, q *formats.QueuePlan) {
			p.Pools = append(p.Pools, p.Pools[0])
			p.Pools[1].Device, q.Instances[1].Device = "a100", "a100"
		}, engines[0].arguments, `queue.instances[1].device: found kinds "A100" and "a100"`},
		{func(p *formats.Plan, q *formats.QueuePlan) {
			p.Pools[0].Device = "++"
			for i := range q.Instances {
				q.Instances[i].Device = "++"
			}
		}, engines[0].arguments, `queue.instances[0].device: found "++"`},
		{func(_ *formats.Plan, q *formats.QueuePlan) {
			names := map[string]string{"chat-7b": "a.b", "code-13b": "a-b"}
			for i := range q.Models {
				q.Models[i].Model = cmp.Or(names[q.Models[i].Model], q.Models[i].Model)
			}
			for i := range q.Instances {
				in := &q.Instances[i]
				in.Model = cmp.Or(names[in.Model], in.Model)
				for k := range in.Models {
					in.Models[k] = cmp.Or(names[in.Models[k]], in.Models[k])
				}
			}
		}, []string{"--model", "a.b=/x", "--model", "a-b=/y", "--model", "sql=/s"}, "expected names that differ in letters and digits"},
	} {
		_, err := exportedChanged(t, vllm.Target(), "testdata/plan.json", func(p *formats.Plan) { c.change(p, formats.QueueOf(p)) }, c.arguments...)
		if err == nil || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%v, expected %s", err, c.expected)
		}
	}
}

// What the flags leave open or say wrongly is refused.
func TestRefusals(t *testing.T) {
	const plan = "testdata/plan.json"
	all := []string{"--model", "chat-7b=org/a", "--model", "code-13b=/c", "--model", "sql=/s"}
	for _, c := range []struct {
		target    *export.Target
		plan      string
		arguments []string
		expected  string
	}{
		{vllm.Target(), plan, nil, "--model: found no files of the model chat-7b"},
		{vllm.Target(), plan, append(all, "--model", "other=/x"), "--model other: found no such model"},
		{vllm.Target(), plan, append(all, "--model", "chat-7b=/x"), "--model: found chat-7b twice"},
		{vllm.Target(), plan, append(all, "--model", "x"), `--model: found "x", expected MODEL=PATH`},
		{vllm.Target(), plan, []string{"--model", "chat-7b=./a"}, "expected an absolute path"},
		{vllm.Target(), plan, append(all, "--adapter", "sql=chat-7b"), "expected MODEL=BASE,PATH"},
		{vllm.Target(), plan, append(all[:4], "--adapter", "sql=code-13b,/s", "--adapter", "code-13b=chat-7b,/c"), "is an adapter, too"},
		{vllm.Target(), plan, append(all, "--per-node", "1"), "queue.instances[2]: found devices 2 to 3 of A100, which are on nodes of 1 devices"},
		{vllm.Target(), plan, append(all, "--per-node", "-1"), "--per-node: found -1"},
		{vllm.Target(), plan, append(all, "--port", "65530"), "--port: found 65530"},
		{llamacpp.Target(), plan, append([]string{"--port", "64535"}, engines[2].arguments...), "--port: found port 64536 of instance 1, expected at most 64534"},
		{vllm.Target(), plan, append(all, "--address", "a100-7=x"), "--address a100-7: found no such node"},
		{vllm.Target(), "../../testdata/compat/plan.v2.json", all, `kind: found "pool", expected "queue"`},
		{llamacpp.Target(), plan, []string{"--model", "chat-7b=/a", "--model", "code-13b=/c", "--adapter", "sql=chat-7b,/a/x.gguf"}, "expected one called sql.gguf"},
	} {
		_, err := exported(t, c.target, c.plan, c.arguments...)
		if err == nil || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%v: %v, expected %s", c.arguments, err, c.expected)
		}
	}
}
