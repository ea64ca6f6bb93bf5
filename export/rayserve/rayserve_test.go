package rayserve

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"inferplan/export"
	"inferplan/formats"
	"inferplan/formats/document"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

func planOf(t *testing.T, name string) *formats.Plan {
	plan, err := formats.ReadPlan(filepath.Join("../../testdata/compat", name))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A configuration is the one that was written before, has the fields of Ray's schema, and gives no device away twice.
func TestConfigurations(t *testing.T) {
	text, err := os.ReadFile("testdata/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var source any
	if err := json.Unmarshal(text, &source); err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", source); err != nil {
		t.Fatal(err)
	}
	schema := compiler.MustCompile("schema.json")
	for _, c := range []struct {
		name, plan string
		arguments  []string
	}{
		{"pool", "plan.v2.json", nil},
		{"classes", "plan-classes.v2.json", nil},
		{"gear", "plan-gear.v2.json", []string{"--rate", "800"}},
	} {
		plan := planOf(t, c.plan)
		files, err := exported(t, plan, c.arguments...)
		if err != nil {
			t.Fatal(err)
		}
		var read any
		if err := yaml.Unmarshal([]byte(files["serve.yaml"]), &read); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(read); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var typed config
		if err := yaml.Unmarshal([]byte(files["serve.yaml"]), &typed); err != nil {
			t.Fatal(err)
		}
		checkDevices(t, c.name, plan, &typed)

		golden := filepath.Join("testdata", c.name+".golden")
		got := files["README.md"] + "-- serve.yaml --\n" + files["serve.yaml"]
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		expected, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(expected), got); diff != "" {
			t.Errorf("%s (-update writes it): %s", c.name, diff)
		}
	}
}

// checkDevices reports names that are there twice, and device kinds of which more is given away than there is.
func checkDevices(t *testing.T, name string, plan *formats.Plan, c *config) {
	used := map[string]float64{}
	for _, a := range c.Applications {
		names := map[string]bool{}
		for _, d := range a.Deployments {
			if names[d.Name] {
				t.Errorf("%s: deployment %s is there twice", name, d.Name)
			}
			names[d.Name] = true
			for device, share := range d.RayActorOptions.Resources {
				used[device] += share * float64(d.NumReplicas)
			}
		}
		for _, m := range a.Args.Models {
			for _, p := range m.Pipelines {
				for _, s := range p.Stages {
					if !names[s.Name] {
						t.Errorf("%s: no deployment for the stage %s", name, s.Name)
					}
				}
			}
		}
	}
	for _, pool := range plan.Pools {
		if used[pool.Device] > float64(pool.Count)+1e-9 {
			t.Errorf("%s: %g of %d %s are given away", name, used[pool.Device], pool.Count, pool.Device)
		}
	}
}

// A gear has the thresholds of its rate, as raw certainties.
func TestGears(t *testing.T) {
	plan := planOf(t, "plan-gear.v2.json")
	for rate, expected := range map[string]float64{"0": .4415, "1499": .8455, "1500": .4415} {
		files, err := exported(t, plan, "--rate", rate)
		if err != nil {
			t.Fatal(err)
		}
		var c config
		if err := yaml.Unmarshal([]byte(files["serve.yaml"]), &c); err != nil {
			t.Fatal(err)
		}
		models := c.Applications[0].Args.Models
		if models[0].Threshold == nil || *models[0].Threshold != expected || models[1].Threshold != nil {
			t.Errorf("rate %s: %+v, expected %g and none", rate, models, expected)
		}
	}
	steps := formats.Calibration{{MinRaw: .1, Certainty: .3}, {MinRaw: .5, Certainty: .6}, {MinRaw: .9, Certainty: .8}}
	for threshold, expected := range map[float64]float64{.2: 0, .3: 0, .31: .5, .6: .5, .7: .9, .81: 2} {
		got := rawThreshold(steps, threshold)
		if got != expected {
			t.Errorf("threshold %g: %g, expected %g", threshold, got, expected)
		}
		// A raw certainty is at least the raw threshold just where the calibrated one is at least the threshold.
		for raw := 0.0; raw <= 1; raw += .05 {
			if (raw >= got) != (steps.Calibrated(raw) >= threshold) {
				t.Errorf("threshold %g: raw %g is on the other side", threshold, raw)
			}
		}
	}
}

// The first stage waits until the planned rate has filled a batch, if the SLO leaves so much.
func TestFillTime(t *testing.T) {
	const millisecond = document.Micros(time.Millisecond)
	times := []document.Micros{0, 0, 0, 10 * millisecond}
	l := &formats.Pipeline{Batch: 4, RPS: 100, LatencyUS: 15 * millisecond, Stages: []formats.Stage{{Replicas: 2, InferUS: times}, {Replicas: 1, InferUS: times}}}
	for slo, expected := range map[document.Micros]float64{200 * millisecond: .06, 85 * millisecond: .06, 45 * millisecond: .02, 25 * millisecond: 0, 5 * millisecond: 0} {
		if got := fillTime(l, 0, slo); math.Abs(got-expected) > 1e-9 || fillTime(l, 1, slo) != 0 {
			t.Errorf("SLO %s: %g and %g, expected %g and 0", slo.D(), got, fillTime(l, 1, slo), expected)
		}
	}
}

// The README says how the plan executes models and the module does not.
func TestExecution(t *testing.T) {
	plan := planOf(t, "plan.v2.json")
	plan.Execution = []formats.Execution{
		{Device: "L4", Provider: "tensorrt", Precision: formats.PrecisionFP16, Options: map[string]string{"b": "2", "a": "1"}}, {Device: "P4", Provider: "cuda"},
	}
	files, err := exported(t, plan)
	if err != nil {
		t.Fatal(err)
	}
	readme, lost := files["README.md"], "How the plan executes models on "
	if !strings.Contains(readme, lost+"L4: with the provider tensorrt, precision fp16, a=1, b=2.") || strings.Contains(readme, lost+"P4") {
		t.Error(readme)
	}
}

// The command that starts a node has its kind as JSON in a word of the shell, whatever it is called.
func TestNamesOfKinds(t *testing.T) {
	plan := planOf(t, "plan.v2.json")
	plan.Pools = append(plan.Pools, formats.Pool{Device: `L"4's`, Count: 2, PerNode: 2})
	files, err := exported(t, plan)
	if expected := `--resources '{"L\"4'\''s":2}'`; err != nil || !strings.Contains(files["README.md"], expected) {
		t.Errorf("%s, %v, expected %s", files["README.md"], err, expected)
	}
}

// The module is Python.
func TestModule(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here")
	}
	cmd := exec.Command(python, "-c", "import ast, sys; ast.parse(sys.stdin.read())")
	cmd.Stdin = strings.NewReader(module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// What Ray Serve or the module cannot run is refused.
func TestRefusals(t *testing.T) {
	noTensors, slash, operators, noCPUs, score := planOf(t, "plan.v2.json"), planOf(t, "plan.v2.json"), planOf(t, "plan.v2.json"), planOf(t, "plan.v2.json"), planOf(t, "plan-gear.v2.json")
	noTensors.Deployment[0].Pipelines[0].Stages[0].Cut.Tensors = nil
	slash.Deployment[0].Model = "a/b"
	operators.Deployment[0].Constants = []formats.TensorInfo{{Name: "c"}}
	noCPUs.Pools[0].Device, noCPUs.Deployment[0].Pipelines[0].Stages[0].Device = "cpu-a", "cpu-a"
	formats.GearOf(score).Score = "entropy"
	for i, c := range []struct {
		plan      *formats.Plan
		arguments []string
		expected  string
	}{
		{planOf(t, "plan-queue.v2.json"), nil, `kind: found "queue"`},
		{planOf(t, "plan.v2.json"), []string{"--rate", "5"}, "--rate: found 5"},
		{planOf(t, "plan-gear.v2.json"), []string{"--rate", "3000"}, "--rate: found 3000, expected 0 to 3000"},
		{noTensors, nil, "deployment[0].pipelines[0].stages[0].cut.tensors: found none"},
		{slash, nil, `deployment[0].model: found "a/b"`},
		{operators, nil, "deployment[0]: found the model encnet with buckets"},
		{noCPUs, nil, `deployment[0].pipelines[0].stages[0].device: found "cpu-a", which does not say how many CPUs`},
		{score, nil, `gear.score: found "entropy"`},
	} {
		if _, err := exported(t, c.plan, c.arguments...); err == nil || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%s: %v, expected %s", fmt.Sprint(i, c.arguments), err, c.expected)
		}
	}
}
