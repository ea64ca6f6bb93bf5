package rayserve

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"inferplan/export"
	"inferplan/export/llmserver"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

//go:embed inferplan_serve.py
var module string

// Target returns the target.
func Target() *export.Target {
	rate := 0.0
	return &export.Target{
		Name: "rayserve", Summary: "A configuration of Ray Serve for a plan of pools or of cascades",
		Description: `Write a configuration of Ray Serve: an application for each model of a pool plan, or one for the cascade of a
gear plan, with a deployment for each stage (replicas, shares of devices, batches), and the module in Python
that runs the ONNX models.`,
		Example: `  plan export rayserve plan.json -o ray
  plan export rayserve cascade.json -o ray --rate 800`,
		DefineFlags: func(f *pflag.FlagSet) {
			f.Float64Var(&rate, "rate", 0, "cascades: requests per second whose gear is written (default: the last gear)")
		},
		AddFiles: func(_ context.Context, source *export.Source, folder *export.Folder) error {
			return addFiles(source, folder, rate)
		},
	}
}

// addFiles adds the configuration and the module.
func addFiles(source *export.Source, folder *export.Folder, rate float64) error {
	b := builder{plan: source.Plan, folder: folder}
	var c config
	var err error
	switch {
	case formats.PoolOf(source.Plan) != nil && rate != 0:
		err = usage.Errorf("--rate: found %g, expected none: only cascades have gears", rate)
	case formats.PoolOf(source.Plan) != nil:
		c, err = b.poolConfig()
	case formats.GearOf(source.Plan) != nil:
		c, err = b.gearConfig(formats.GearOf(source.Plan), rate)
	default:
		err = usage.Errorf("kind: found %q, expected %q or %q: Ray Serve runs neither the graphs nor the queues of other kinds", source.Plan.Kind, formats.PlanPool, formats.PlanGear)
	}
	if err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(c); err != nil {
		return err
	}
	folder.AddText("serve.yaml", text.String())
	folder.AddText("inferplan_serve.py", module)
	return b.describe(c)
}

// builder makes a configuration, and notes in the folder what is assumed and lost.
type builder struct {
	plan   *formats.Plan
	folder *export.Folder
}

// poolConfig returns an application for each model, or SLO class of a model.
func (b *builder) poolConfig() (config, error) {
	var c config
	for i := range b.plan.Deployment {
		d := &b.plan.Deployment[i]
		spec, deployments, err := b.model(i, nil)
		if err != nil {
			return c, err
		}
		name := d.Model
		if d.Class != "" {
			name += "-" + d.Class
		}
		c.Applications = append(c.Applications, newApplication(name, deployments, spec))
	}
	return c, nil
}

// gearConfig returns the application of the gear that serves a rate, or of the last gear if the rate is 0.
func (b *builder) gearConfig(g *formats.GearPlan, rate float64) (config, error) {
	gear := document.First(g.Gears, func(gear *formats.Gear) bool { return rate >= gear.FromQPS && rate < gear.ToQPS })
	switch {
	case rate == 0:
		gear = &g.Gears[len(g.Gears)-1]
	case gear == nil:
		return config{}, usage.Errorf("--rate: found %g, expected 0 to %g requests per second, the rates of the plan", rate, g.MaxQPS)
	}
	if g.Score != "" && g.Score != "top1-top2" {
		return config{}, usage.Errorf("gear.score: found %q, expected \"top1-top2\", the certainty that the module computes", g.Score)
	}
	var specs []modelSpec
	var all []deployment
	for k := range gear.Stages {
		stage := &gear.Stages[k]
		i := slices.IndexFunc(g.Models, func(m formats.GearModel) bool { return m.Model == stage.Model })
		spec, deployments, err := b.model(i, stage.Split)
		if err != nil {
			return config{}, err
		}
		if k < len(gear.Stages)-1 {
			threshold := rawThreshold(g.Models[i].Calibration, stage.Threshold)
			spec.Threshold = &threshold
		}
		specs, all = append(specs, spec), append(all, deployments...)
	}
	b.folder.Lost = append(b.folder.Lost, fmt.Sprintf("Gears do not switch: this is the gear of %g to %g requests per second. `--rate` writes another one.", gear.FromQPS, gear.ToQPS))
	return config{[]application{newApplication(formats.CascadeName, all, specs...)}}, nil
}

// rawThreshold returns the smallest raw certainty whose calibrated one is at least a threshold. No certainty is 2.
func rawThreshold(calibration formats.Calibration, threshold float64) float64 {
	if len(calibration) == 0 {
		return threshold
	}
	step := document.First(calibration, func(s *formats.CalibrationStep) bool { return s.Certainty >= threshold })
	switch {
	case step == nil:
		return 2
	case step == &calibration[0]:
		return 0
	}
	return step.MinRaw
}

// newApplication returns an application with an ingress in front of its deployments. The ingress takes as many requests
// as they do together.
func newApplication(name string, deployments []deployment, models ...modelSpec) application {
	requests := 0
	for _, d := range deployments {
		requests += d.NumReplicas * d.MaxOngoingRequests
	}
	ingress := deployment{Name: "ingress", NumReplicas: 1, MaxOngoingRequests: requests, RayActorOptions: actorOptions{NumCPUs: 1}}
	return application{name, "/" + name, "inferplan_serve:build", arguments{models}, append([]deployment{ingress}, deployments...)}
}

// model returns what the module is told of the i-th model of the deployment, and the deployments of its stages. split
// has the parts of its requests by replica, or is nil if they go by the rates of the pipelines.
func (b *builder) model(i int, split []float64) (modelSpec, []deployment, error) {
	d := &b.plan.Deployment[i]
	fieldPath := fmt.Sprintf("deployment[%d]", i)
	if d.Bucket != nil || len(d.Constants) > 0 || len(d.Operators) > 0 {
		return modelSpec{}, nil, usage.Errorf("%s: found the model %s with buckets of lengths, constant inputs or operators of its own, expected none of them: the module runs plain models", fieldPath, d.Model)
	}
	if strings.ContainsAny(d.Model+d.Class, "/{}") {
		return modelSpec{}, nil, usage.Errorf("%s.model: found %q, expected a name without /, { and }: it is part of the address", fieldPath, d.Model)
	}
	spec := modelSpec{Model: d.Model, Outputs: document.Map(d.Outputs, func(t *formats.TensorInfo) string { return t.Name })}
	var deployments []deployment
	for k := range d.Pipelines {
		l := &d.Pipelines[k]
		pipeline := pipelineSpec{Weight: l.RPS}
		if split != nil {
			pipeline.Weight = 0
			for _, part := range split[:l.ChainCount()] {
				pipeline.Weight += part
			}
			split = split[l.ChainCount():]
		}
		for n := range l.Stages {
			stage, err := b.stage(d, l, k, n, fmt.Sprintf("%s.pipelines[%d].stages[%d]", fieldPath, k, n))
			if err != nil {
				return modelSpec{}, nil, err
			}
			pipeline.Stages = append(pipeline.Stages, stage)
			deployments = append(deployments, b.deployment(l, n, stage.Name, b.plan.PromiseFor(i).SLOUS))
		}
		spec.Pipelines = append(spec.Pipelines, pipeline)
	}
	return spec, deployments, nil
}

// stage returns what the module is told of a stage. A part of a model is named by the tensors at its cuts.
func (b *builder) stage(d *formats.Deployed, l *formats.Pipeline, pipeline, n int, fieldPath string) (stageSpec, error) {
	s := &l.Stages[n]
	spec := stageSpec{Name: fmt.Sprintf("%s-%d-%d", d.Model, pipeline, n), Model: d.Model}
	if d.Class != "" {
		spec.Name = fmt.Sprintf("%s-%s-%d-%d", d.Model, d.Class, pipeline, n)
	}
	spec.Threads, _ = formats.CPUThreads(s.Device)
	if spec.Threads == 0 && formats.IsCPU(s.Device) {
		return spec, usage.Errorf("%s.device: found %q, which does not say how many CPUs a device has, expected cpu-N for N CPUs", fieldPath, s.Device)
	}
	if n > 0 {
		spec.Inputs = l.Stages[n-1].Cut.Tensors
	}
	if s.Cut != nil {
		if spec.Outputs = s.Cut.Tensors; len(spec.Outputs) == 0 {
			return spec, usage.Errorf("%s.cut.tensors: found none, expected the names of the tensors that cross: plan profile of the ONNX file writes them", fieldPath)
		}
		if s.Cut.DType == "FP16" {
			b.lose("Between stages float tensors cross as they are, not as float16. Transfers take up to twice the planned time.")
		}
	}
	return spec, nil
}

// deployment returns the deployment of a stage: its replicas with a share of a device each, and how it makes batches
// within the SLO.
func (b *builder) deployment(l *formats.Pipeline, n int, name string, slo document.Micros) deployment {
	s := &l.Stages[n]
	pool := document.First(b.plan.Pools, func(p *formats.Pool) bool { return p.Device == s.Device })
	share := 1 / float64(max(s.Share, 1))
	if pool.TimeShared() {
		share = s.GPUs / float64(s.Replicas)
		b.assume("Replicas on devices that stages share in time have a part of the device by the time that they take. Ray does not make them take turns.")
	}
	// Ray counts in ten-thousandths.
	share = max(math.Floor(share*1e4)/1e4, 1e-4)
	options := actorOptions{NumGPUs: share, Resources: map[string]float64{s.Device: share}}
	if threads, isCPU := formats.CPUThreads(s.Device); isCPU {
		options.NumCPUs, options.NumGPUs = math.Floor(share*float64(threads)*1e4)/1e4, 0
	}
	return deployment{
		Name: name, NumReplicas: s.Replicas,
		MaxOngoingRequests: 2 * l.Batch, // one batch runs while the next one fills
		UserConfig:         &batching{l.Batch, fillTime(l, n, slo)},
		RayActorOptions:    options,
	}
}

// fillTime returns how long a stage waits for a batch to fill, in seconds: at the first stage as long as the planned
// rate takes to bring it to one replica, but no longer than the SLO leaves beside the batch and the one that occupies a
// replica when it is formed (at most the longest stage). At a later stage the requests of a batch come together.
func fillTime(l *formats.Pipeline, n int, slo document.Micros) float64 {
	if n > 0 || l.RPS <= 0 {
		return 0
	}
	longest := document.Micros(0)
	for i := range l.Stages {
		longest = max(longest, l.Stages[i].InferUS[l.Batch-1])
	}
	fill := float64((l.Batch-1)*l.Stages[0].Replicas) / l.RPS
	return math.Round(min(fill, max(0, (slo-l.LatencyUS-longest).D().Seconds()))*1e6) / 1e6
}

func (b *builder) assume(line string) {
	if !slices.Contains(b.folder.Assumed, line) {
		b.folder.Assumed = append(b.folder.Assumed, line)
	}
}

func (b *builder) lose(line string) {
	if !slices.Contains(b.folder.Lost, line) {
		b.folder.Lost = append(b.folder.Lost, line)
	}
}

// loseExecution notes kinds of devices on which the plan executes models otherwise than the module, whose providers have
// their default options.
func (b *builder) loseExecution() {
	for _, e := range b.plan.Execution {
		var how []string
		if e.Provider != "" && e.Provider != "cuda" {
			how = append(how, "the provider "+e.Provider)
		}
		if e.Precision != "" {
			how = append(how, "precision "+e.Precision)
		}
		for _, name := range slices.Sorted(maps.Keys(e.Options)) {
			how = append(how, name+"="+e.Options[name])
		}
		if len(how) > 0 {
			b.lose(fmt.Sprintf("How the plan executes models on %s: with %s. The module does not, so that the measured times do not hold.", e.Device, strings.Join(how, ", ")))
		}
	}
}

// describe adds to the README what to run.
func (b *builder) describe(c config) error {
	var nodes, requests strings.Builder
	for i := range b.plan.Pools {
		pool := b.plan.Pools[i].WithDefaults()
		device := fmt.Sprintf("--num-gpus %d ", pool.PerNode)
		threads, known := formats.CPUThreads(pool.Device)
		switch {
		case known:
			device = fmt.Sprintf("--num-cpus %d ", threads*pool.PerNode)
		case formats.IsCPU(pool.Device):
			device = ""
		}
		resources, err := json.Marshal(map[string]int{pool.Device: pool.PerNode})
		if err != nil {
			return err
		}
		fmt.Fprintf(&nodes, "ray start --address HEAD:6379 %s--resources %s   # on each node with %s\n", device, llmserver.Quote(string(resources)), pool.Device)
	}
	for _, a := range c.Applications {
		fmt.Fprintf(&requests, "curl -d @request.json http://HEAD:8000%s\n", a.RoutePrefix)
	}
	b.folder.Steps = append(b.folder.Steps,
		export.Step{Title: "Start the nodes", Text: "A device kind of the plan is a resource of Ray: a node has as many as it has devices. The head starts with `ray start --head`, and needs a CPU for each application.", Commands: nodes.String()},
		export.Step{Title: "Deploy", Text: "Every node needs `inferplan_serve.py` on its PYTHONPATH, the packages that it names, and the folder `INFERPLAN_MODELS` with `NAME.onnx` of every model. The module was not run by those who wrote it: the configuration was checked against the fields of Ray's schema, no more.", Commands: "serve deploy serve.yaml"},
		export.Step{Title: "Ask", Text: "A request is one sample, as the Open Inference Protocol has it in JSON.", Commands: requests.String()})
	b.assume("A batch waits at its first stage as long as the planned rate takes to fill it, and no longer than the SLO leaves.")
	b.loseExecution()
	b.lose("The policy of the plan, which keeps deadlines and drops hopeless requests. Ray sends a request to a replica with few others.")
	b.lose("Which device of its kind a replica is on: Ray chooses.")
	return nil
}
