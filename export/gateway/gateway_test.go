package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
	pools "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	objectives "sigs.k8s.io/gateway-api-inference-extension/apix/v1alpha2"

	"inferplan/export"
	"inferplan/formats"
)

// exported returns the files of an export of a plan by path.
func exported(t *testing.T, plan *formats.Plan, arguments ...string) (map[string]string, error) {
	t.Helper()
	target := Target()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	target.DefineFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	source, folder, dir := &export.Source{Plan: plan, Path: "plan.json"}, &export.Folder{}, filepath.Join(t.TempDir(), "out")
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

func planOf(t *testing.T) *formats.Plan {
	plan, err := formats.ReadPlan("../llmserver/testdata/plan.json")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// published returns the schema of a resource that the extension publishes. It allows no field that it does not name.
func published(t *testing.T, file string) *jsonschema.Schema {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api-inference-extension").Output()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config/crd/bases", file))
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `yaml:"openAPIV3Schema"`
				} `yaml:"schema"`
			} `yaml:"versions"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(data, &definition); err != nil {
		t.Fatal(err)
	}
	root := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	for name, part := range root["properties"].(map[string]any) {
		if name != "metadata" {
			forbidOthers(part)
		}
	}
	forbidOthers(map[string]any{"properties": root["properties"]})
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", throughJSON(t, root)); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("schema.json")
}

// forbidOthers adds to every object of a schema that has no other fields.
func forbidOthers(part any) {
	switch part := part.(type) {
	case map[string]any:
		if _, ok := part["properties"].(map[string]any); ok {
			part["additionalProperties"] = false
		}
		for _, value := range part {
			forbidOthers(value)
		}
	case []any:
		for _, value := range part {
			forbidOthers(value)
		}
	}
}

// throughJSON returns a value as a reader of JSON would have it.
func throughJSON(t *testing.T, value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decoded reads the documents of a file strictly, as its Go type and by the published schema.
func decoded[T any](t *testing.T, text string, schema *jsonschema.Schema) (list []T) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document map[string]any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(throughJSON(t, document)); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		data, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		var one T
		strict := json.NewDecoder(bytes.NewReader(data))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&one); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		list = append(list, one)
	}
}

// The resources are those that the extension publishes, one pool for each first model and one objective for each class.
func TestResources(t *testing.T) {
	files, err := exported(t, planOf(t), "--namespace", "models", "--port", "8100")
	if err != nil {
		t.Fatal(err)
	}
	poolList := decoded[pools.InferencePool](t, files["pools.yaml"], published(t, "inference.networking.k8s.io_inferencepools.yaml"))
	if len(poolList) != 1 || poolList[0].Name != "chat-7b" || poolList[0].Namespace != "models" || poolList[0].Spec.TargetPorts[0].Number != 8100 ||
		poolList[0].Spec.Selector.MatchLabels["inference-pool"] != "chat-7b" || poolList[0].Spec.EndpointPickerRef.Name != "chat-7b-epp" {
		t.Errorf("pools %+v", poolList)
	}
	got := ""
	for _, o := range decoded[objectives.InferenceObjective](t, files["objectives.yaml"], published(t, "inference.networking.x-k8s.io_inferenceobjectives.yaml")) {
		got += o.Name + " " + string(o.Spec.PoolRef.Name) + " " + string(rune('0'+*o.Spec.Priority+5)) + "; "
	}
	// Priorities of the plan are 0, 5, -1 and 5; here they are 0, -5, 1 and -5.
	if expected := "chat-7b-interactive chat-7b 5; chat-7b-batch chat-7b 0; sql-interactive chat-7b 6; code-13b-batch chat-7b 0; "; got != expected {
		t.Errorf("objectives %s, expected %s", got, expected)
	}
	for _, expected := range []string{"| `inference-pool: chat-7b` | 1 | 2 x A100 | 128 |", "Instance 1 runs chat-7b, code-13b, one at a time", "x-gateway-inference-objective"} {
		if !strings.Contains(files["README.md"], expected) {
			t.Errorf("README lacks %q:\n%s", expected, files["README.md"])
		}
	}
}

// The published schema is as strict as the test says: a field that it does not name is an error.
func TestPublishedSchemaIsStrict(t *testing.T) {
	schema := published(t, "inference.networking.x-k8s.io_inferenceobjectives.yaml")
	for text, fits := range map[string]bool{
		`{"kind": "InferenceObjective", "spec": {"priority": 1, "poolRef": {"name": "a"}}}`:              true,
		`{"kind": "InferenceObjective", "spec": {"criticality": "High", "poolRef": {"name": "a"}}}`:      false,
		`{"kind": "InferenceObjective", "spec": {"priority": 1, "poolRef": {"name": "a", "pool": "b"}}}`: false,
		`{"kind": "InferenceObjective", "spec": {"priority": 1, "poolRef": {}}}`:                         false,
	} {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(document); (err == nil) != fits {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The name of a pool is also that of a Service and of a release of Helm. Objectives have longer ones.
func TestPoolNames(t *testing.T) {
	for model, fits := range map[string]bool{"7b-chat": false, "chat-7b": true, strings.Repeat("a", 53): true, strings.Repeat("a", 54): false} {
		plan := planOf(t)
		queue := formats.QueueOf(plan)
		queue.Classes = queue.Classes[:1]
		queue.Classes[0].Model, queue.Classes[0].Class = model, strings.Repeat("b", 62-len(model))
		for i := range queue.Instances {
			queue.Instances[i].Model, queue.Instances[i].Models, queue.Instances[i].Sequences = model, []string{model}, []int{1}
		}
		if _, err := exported(t, plan); (err == nil) != fits {
			t.Errorf("%s: %v", model, err)
		}
	}
}

// Wrong flags, names that Kubernetes cannot tell apart, and plans of other kinds are refused.
func TestRefusals(t *testing.T) {
	same := planOf(t)
	queue := formats.QueueOf(same)
	queue.Instances[0].Model, queue.Instances[2].Model = "Chat/7b", "chat-7b"
	other, err := formats.ReadPlan("../../testdata/compat/plan.v2.json")
	if err != nil {
		t.Fatal(err)
	}
	changed := func(change func(q *formats.QueuePlan)) *formats.Plan {
		plan := planOf(t)
		change(formats.QueueOf(plan))
		return plan
	}
	for _, c := range []struct {
		plan      *formats.Plan
		arguments []string
		expected  string
	}{
		{changed(func(q *formats.QueuePlan) { q.Classes = nil }), nil, "queue.classes: found no class of a model that an instance runs"},
		{changed(func(q *formats.QueuePlan) {
			for i := range q.Classes {
				q.Classes[i].Model = "other"
			}
		}), nil, "queue.classes: found no class of a model that an instance runs"},
		{changed(func(q *formats.QueuePlan) { q.Instances = nil }), nil, "queue.instances: found none"},
		{planOf(t), []string{"--port", "0"}, "--port: found 0"},
		{planOf(t), []string{"--namespace", "A b"}, "--namespace: found"},
		{same, nil, "both make the name chat-7b"},
		{other, nil, `kind: found "pool"`},
	} {
		if _, err := exported(t, c.plan, c.arguments...); err == nil || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%v: %v, expected %s", c.arguments, err, c.expected)
		}
	}
}
