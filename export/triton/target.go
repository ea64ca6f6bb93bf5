package triton

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"inferplan/engine/ort"
	"inferplan/engine/worker"
	"inferplan/export"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
	"inferplan/formats/triton/configpb"
	"inferplan/formats/usage"
)

// Target returns the target triton.
func Target() *export.Target {
	modelsDir := ""
	return &export.Target{
		Name: "triton", Summary: "Model repositories of Triton Inference Server, one for each host",
		Description: `Model repositories of Triton Inference Server, one for each host.

Each deployed part of the plan becomes a model: its configuration (config.pbtxt) has the plan's
instances on each device, batch size and waits, and its file is cut out of the model in --models-dir.
A pipeline of several stages on one host becomes an ensemble. The hosts are those of the cluster:
the nodes of a pool with a network (nic_gbps), else one for each pool, or one for all (host: shared).`,
		Example: `  plan export triton plan.json -o repository
  plan export triton plan.json --models-dir onnx -o repository`,
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&modelsDir, "models-dir", "models", "folder with the models, NAME.onnx")
		},
		AddFiles: func(ctx context.Context, source *export.Source, folder *export.Folder) error {
			return addFiles(ctx, source, folder, modelsDir)
		},
	}
}

// exporter is one export.
type exporter struct {
	plan     *formats.Plan
	isPool   bool
	hosts    []triton.Host
	variants []*variant
	cutters  map[bool]*worker.Cutter // by whether stages compute in float16
	// divided are the pipelines whose parts are not all on one host, with where they are.
	divided    []string
	takesTurns bool // stages on some GPUs take turns
	requests   []traffic
}

// traffic is the rate at which the plan sends requests to a variant on a host.
type traffic struct {
	host, model string
	rps         float64
}

// addFiles adds the repositories of a plan to the folder.
func addFiles(ctx context.Context, source *export.Source, folder *export.Folder, modelsDir string) error {
	x := &exporter{plan: source.Plan, isPool: formats.PoolOf(source.Plan) != nil}
	if err := checkKind(source); err != nil {
		return err
	}
	cluster, err := source.Cluster()
	if err != nil {
		return err
	}
	x.hosts = triton.Hosts(x.plan.Pools, cluster.Host == formats.HostShared)
	if x.variants, err = deployedVariants(x.plan, modelsDir); err != nil {
		return err
	}
	if err := x.readParts(ctx); err != nil {
		return err
	}
	for i := range x.hosts {
		if err := x.addRepository(ctx, &x.hosts[i], folder); err != nil {
			return err
		}
	}
	x.guide(folder)
	return nil
}

// checkKind returns an error if a plan serves language models, which other targets run.
func checkKind(source *export.Source) error {
	found := ""
	if formats.QueueOf(source.Plan) != nil {
		found = "a plan of kind " + source.Plan.Kind
	}
	if flow := formats.FlowOf(source.Plan); flow != nil && slices.ContainsFunc(flow.Modules, func(m formats.FlowModule) bool { return m.Generation != nil }) {
		found = "modules that generate text"
	}
	if found == "" {
		return nil
	}
	return &usage.Error{Err: &document.Error{File: source.Path, Path: "kind", Found: found, Expected: "a plan of ONNX models, of kind pool, gear or flow",
		Hint: "plan export lists the targets for servers of language models"}}
}

// readParts reads what crosses the boundaries of all parts. Files and devices that the plan does not fit are UsageErrors.
func (x *exporter) readParts(ctx context.Context) error {
	runtime, err := ort.Open("")
	if err != nil {
		return err
	}
	defer runtime.Close()
	x.cutters = map[bool]*worker.Cutter{false: worker.NewCutter(runtime.Probe, false), true: worker.NewCutter(runtime.Probe, true)}
	for _, v := range x.variants {
		for i := range v.parts {
			p := &v.parts[i]
			sub, err := x.cutters[p.fp16].Cut(ctx, &p.spec)
			if errors.Is(err, worker.ErrHash) {
				return &usage.Error{Err: err}
			}
			if err != nil {
				return err
			}
			p.weightFolder, p.weightFiles = sub.Folder, sub.WeightFiles
			p.inputs, p.outputs = sub.Inputs, sub.Outputs
		}
	}
	return nil
}

// model is a model of a repository: a part, or an ensemble if it has none.
type model struct {
	config *configpb.ModelConfig
	part   *part
}

// repository returns the models of a host: the parts with instances there, and an ensemble for each pipeline whose
// parts all have some. It notes the rates of requests, and pipelines whose parts are on different hosts.
func (x *exporter) repository(h *triton.Host) []model {
	var models []model
	for _, v := range x.variants {
		partsHere := 0
		for k := range v.parts {
			if groups := x.instanceGroups(v, k, h); len(groups) > 0 {
				models = append(models, model{x.partConfig(v, k, groups, x.shareOn(v, k, h)), &v.parts[k]})
				partsHere++
			}
		}
		switch {
		case partsHere == len(v.parts):
			x.requests = append(x.requests, traffic{h.Name, v.name, v.rate() * x.shareOn(v, 0, h)})
			if partsHere > 1 {
				models = append(models, model{config: v.ensembleConfig()})
			}
		case partsHere > 0:
			x.noteDivided(v)
		}
	}
	return models
}

// addRepository adds the files of a host's repository.
func (x *exporter) addRepository(ctx context.Context, h *triton.Host, folder *export.Folder) error {
	for _, m := range x.repository(h) {
		text, err := triton.FormatConfig(m.config)
		if err != nil {
			return err
		}
		path := h.Name + "/" + m.config.Name
		folder.AddText(path+"/"+triton.ConfigName, text)
		if m.part == nil {
			folder.AddText(path+"/1/.keep", "") // a version without files
			continue
		}
		for _, file := range m.part.weightFiles {
			folder.AddCopy(path+"/1/"+file, filepath.Join(m.part.weightFolder, filepath.FromSlash(file)))
		}
		folder.AddFile(path+"/1/"+triton.OnnxFile, func(w io.Writer) error {
			sub, err := x.cutters[m.part.fp16].Cut(ctx, &m.part.spec)
			if err != nil {
				return err
			}
			_, err = w.Write(sub.ONNX)
			return err
		})
	}
	return nil
}

// instancesOn returns the number of instances of part k of a variant on a host.
func (x *exporter) instancesOn(v *variant, k int, h *triton.Host) (n int) {
	for _, g := range x.instanceGroups(v, k, h) {
		n += int(g.Count) * max(len(g.Gpus), 1)
	}
	return n
}

// shareOn returns the part of the instances of part k of a variant that are on a host, which has some.
func (x *exporter) shareOn(v *variant, k int, h *triton.Host) float64 {
	all := 0
	for i := range x.hosts {
		all += x.instancesOn(v, k, &x.hosts[i])
	}
	return float64(x.instancesOn(v, k, h)) / float64(all)
}
