package triton

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
)

// The cluster of the tests: two L4 with shares, two T4 on which stages take turns, and three sets of CPU threads.
var cluster = &formats.Cluster{Host: formats.HostShared, Pools: []formats.Pool{
	{Device: "L4", Count: 2, MaxShares: 4}, {Device: "T4", Count: 2, Sharing: formats.SharingTime}, {Device: "cpu-1", Count: 2}, {Device: "cpu-4", Count: 1},
}}

var profile = &formats.Profile{Models: []formats.ProfileModel{{Model: "m", Blocks: []formats.Block{
	{Cut: []formats.TensorInfo{{Name: "a"}}}, {Cut: []formats.TensorInfo{{Name: "c"}, {Name: "b"}}}, {},
}}}}

// read returns what is read from configurations, which are given by the paths of their folders.
func read(t *testing.T, configs map[string]string) (lines string, err error) {
	t.Helper()
	dir := t.TempDir()
	for path, text := range configs {
		file := filepath.Join(dir, path, "config.pbtxt")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	observed, notes, err := Read(dir, profile, cluster)
	for i := range observed {
		for _, p := range observed[i].Pipelines {
			lines += fmt.Sprintf("%s batch %d", observed[i].Key(), p.Batch)
			for _, s := range p.Stages {
				lines += fmt.Sprintf(" %v 1/%d %s %v", s.Blocks, s.Share, s.Device, s.Placement)
			}
			lines += "; "
		}
	}
	return lines + strings.Join(notes, "; "), err
}

const parts = `max_batch_size: 4 ensemble_scheduling {
	step { model_name: "tail" input_map { key: "b" value: "u" } input_map { key: "c" value: "v" } output_map { key: "y" value: "y" } }
	step { model_name: "head" input_map { key: "x" value: "x" } output_map { key: "%s" value: "u" } output_map { key: "c" value: "v" } } }
	input { name: "x" }`

// Instances, batch sizes, shares and parts are read with Triton's defaults.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		configs  map[string]string
		expected string
	}{
		"no group: one instance on each GPU": {map[string]string{"m": "max_batch_size: 8"}, "m batch 8 [0 0] 1/1 L4 [{0 1 2}]; m batch 8 [0 0] 1/1 T4 [{0 1 2}]; "},
		"the instances of a GPU divide it": {map[string]string{"m": "max_batch_size: 2 instance_group { gpus: 0 count: 2 }", "n": "max_batch_size: 1 instance_group { gpus: [ 0, 1 ] kind: KIND_GPU }"},
			"m batch 2 [0 0] 1/3 L4 [{0 2 2}]; n batch 1 [0 0] 1/3 L4 [{0 1 1}]; n batch 1 [0 0] 1/1 L4 [{1 1 1}]; "},
		"the preferred batch":    {map[string]string{"m": "max_batch_size: 16 dynamic_batching { preferred_batch_size: [ 2, 8 ] } instance_group { gpus: 1 }"}, "m batch 8 [0 0] 1/1 L4 [{1 1 1}]; "},
		"two instances on CPUs":  {map[string]string{"m": `max_batch_size: 1 platform: "onnxruntime_onnx" instance_group { kind: KIND_CPU }`}, "m batch 1 [0 0] 1/1 cpu-1 [{0 1 2}]; "},
		"threads name the kind":  {map[string]string{"m": `max_batch_size: 1 instance_group { kind: KIND_CPU count: 1 } parameters { key: "intra_op_thread_count" value { string_value: "4" } }`}, "m batch 1 [0 0] 1/1 cpu-4 [{0 1 1}]; "},
		"turns":                  {map[string]string{"m": "max_batch_size: 1 instance_group { gpus: 2 count: 3 }"}, "m batch 1 [0 0] 1/1 T4 [{0 1 1}]; m: the 3 instances on a T4 count as one, because stages take turns on these devices (sharing: time)"},
		"passive instances wait": {map[string]string{"m": "max_batch_size: 1 instance_group { gpus: 0 } instance_group { gpus: 1 passive: true }"}, "m batch 1 [0 0] 1/1 L4 [{0 1 1}]; "},
		"a passive part": {map[string]string{
			"a": `max_batch_size: 1 instance_group { gpus: 0 passive: true } parameters { key: "inferplan_model" value { string_value: "m" } } parameters { key: "inferplan_blocks" value { string_value: "0-3" } } parameters { key: "inferplan_pipeline" value { string_value: "0" } }`,
			"m": "max_batch_size: 1 instance_group { gpus: 0 }"}, "m batch 1 [0 0] 1/1 L4 [{0 1 1}]; "},
		"no batches":                  {map[string]string{"m": "instance_group { gpus: 0 }"}, "m batch 1 [0 0] 1/1 L4 [{0 1 1}]; m has no max_batch_size: planned without batches (where Triton completes configurations it may set 4)"},
		"an ensemble of parts":        {map[string]string{"m": fmt.Sprintf(parts, "b"), "head": "max_batch_size: 4 instance_group { gpus: 0 }", "tail": "max_batch_size: 2 instance_group { kind: KIND_CPU count: 1 }"}, "m batch 2 [0 2] 1/1 L4 [{0 1 1}] [2 3] 1/1 cpu-1 [{0 1 1}]; the parts of m have different batch sizes: planned with the smallest"},
		"an ensemble of other models": {map[string]string{"all": fmt.Sprintf(parts, "b"), "head": "max_batch_size: 4 instance_group { gpus: 0 }", "tail": "max_batch_size: 4 instance_group { gpus: 1 }"}, "head batch 4 [0 0] 1/1 L4 [{0 1 1}]; tail batch 4 [0 0] 1/1 L4 [{1 1 1}]; the ensemble all is no model of the profile: its steps are read as models of their own"},
		"a host":                      {map[string]string{"host/m": "max_batch_size: 1 instance_group { gpus: 1 }"}, "m batch 1 [0 0] 1/1 L4 [{1 1 1}]; "},
	} {
		if got, err := read(t, c.configs); err != nil || got != c.expected {
			t.Errorf("%s: %s, %v\nwant %s", name, got, err, c.expected)
		}
	}
}

// What cannot be read is said with its file and field.
func TestReadErrors(t *testing.T) {
	part := func(blocks string) string {
		return fmt.Sprintf(`max_batch_size: 1 instance_group { gpus: 0 } parameters { key: "inferplan_blocks" value { string_value: "%s" } } parameters { key: "inferplan_pipeline" value { string_value: "0" } }`, blocks)
	}
	for name, c := range map[string]struct {
		configs  map[string]string
		expected string
	}{
		"no GPU of that number": {map[string]string{"m": "instance_group { gpus: 4 }"}, "m/config.pbtxt: instance_group[0].gpus: found 4, expected 0 to 3"},
		"other name":            {map[string]string{"m": `name: "n"`}, `name: found "n", expected the name of its folder, "m"`},
		"kind of the model":     {map[string]string{"m": "instance_group { kind: KIND_MODEL }"}, "instance_group[0].kind: found KIND_MODEL"},
		"count":                 {map[string]string{"m": "instance_group { count: -1 }"}, "instance_group[0].count: found -1"},
		"unknown host":          {map[string]string{"rack/m": ""}, `a repository in the folder "rack", expected folders that are named as the cluster's hosts: host`},
		"no cut":                {map[string]string{"m": fmt.Sprintf(parts, "z"), "head": "", "tail": ""}, "the outputs c, z of the step head, expected the tensors of a cut of m"},
		"no such step":          {map[string]string{"m": fmt.Sprintf(parts, "b"), "head": ""}, `step[0].model_name: found "tail"`},
		"blocks":                {map[string]string{"m": part("5-2")}, `parameters.inferplan_blocks: found "5-2"`},
		"a part is missing":     {map[string]string{"m": part("1-2")}, "the blocks 1-2, expected parts that follow one another from block 0 on"},
		"several kinds":         {map[string]string{"m": strings.Replace(part("0-2"), "gpus: 0", "gpus: [ 0, 2 ]", 1)}, "expected instances on equal shares of one kind of device"},
	} {
		_, err := read(t, c.configs)
		if _, ok := errors.AsType[*document.Error](err); !ok || !strings.Contains(err.Error(), c.expected) {
			t.Errorf("%s: %v\nwant %s", name, err, c.expected)
		}
	}
}

// Whatever configurations say, what is read has its replicas on devices of the cluster, or it is refused.
func FuzzDeployment(f *testing.F) {
	f.Add(fmt.Sprintf(parts, "b"), "max_batch_size: 4 instance_group { gpus: [ 0, 1 ] count: 2 }", `max_batch_size: 2 instance_group { kind: KIND_CPU name: "cpu-4 1/1" }`)
	f.Add("max_batch_size: 8", `parameters { key: "inferplan_blocks" value { string_value: "0-2" } } parameters { key: "inferplan_pipeline" value { string_value: "0" } }`, `instance_group { gpus: 1 name: "L4 1/3" }`)
	f.Fuzz(func(t *testing.T, ensemble, head, tail string) {
		repository := triton.Repository{}
		for name, text := range map[string]string{"m": ensemble, "head": head, "tail": tail} {
			config, err := triton.ParseConfig(name, []byte(text))
			if err != nil {
				return
			}
			config.Name = name
			repository.Models = append(repository.Models, triton.Model{File: name, Config: config})
		}
		observed, _, err := deployment("dir", []triton.Repository{repository}, profile, cluster)
		if _, ok := errors.AsType[*document.Error](err); err != nil && !ok {
			t.Fatal(err)
		}
		for _, d := range observed {
			for _, p := range d.Pipelines {
				for _, s := range p.Stages {
					placed := 0
					for _, g := range s.Placement {
						placed += g.Replicas
						if pool := cluster.FindPool(s.Device); g.FirstDevice < 0 || g.PerDevice < 1 || g.FirstDevice+g.DeviceCount() > pool.Count {
							t.Fatalf("%+v on %+v", g, pool)
						}
					}
					if placed != s.Replicas || placed < 1 || s.Share < 1 || p.Batch < 1 {
						t.Fatalf("%+v with batch %d", s, p.Batch)
					}
				}
			}
		}
	})
}

// The parts of a model on servers of different groups are pipelines of their own, and those of one group are one.
func TestGroupsOfServers(t *testing.T) {
	var models []triton.Model
	for name, text := range map[string]string{"m": fmt.Sprintf(parts, "b"), "head": "max_batch_size: 4", "tail": "max_batch_size: 4"} {
		config, err := triton.ParseConfig(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		config.Name = name
		models = append(models, triton.Model{File: name, Config: config})
	}
	var servers []Server
	for _, s := range []struct {
		pool, number int
		group        string
	}{{0, 0, "a"}, {0, 1, "a"}, {1, 0, "b"}} {
		servers = append(servers, Server{triton.Host{GPUs: []triton.Device{{Pool: s.pool, Number: s.number}}}, models, s.group})
	}
	observed, _, err := ReadServers(servers, profile, cluster)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, p := range observed[0].Pipelines {
		for _, s := range p.Stages {
			got += fmt.Sprintf("%s %v; ", s.Device, s.Placement)
		}
	}
	if expected := "L4 [{0 1 2}]; L4 [{0 1 2}]; T4 [{0 1 1}]; T4 [{0 1 1}]; "; len(observed) != 1 || got != expected {
		t.Errorf("%s, expected %s", got, expected)
	}
}
