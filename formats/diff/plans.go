package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Plans returns the changes from plan a to plan b. section, if not nil, adds the changes between their sections.
func Plans(a, b *formats.Plan, section func(a, b *formats.Plan, r *Recorder)) *Result {
	r := &Recorder{Result: Result{Kind: formats.KindPlan, Changes: []Change{}}}

	// Who made the plan.
	r.section = "plan"
	r.addText("kind", a.Kind, b.Kind)
	r.addText("algorithm", a.Algorithm, b.Algorithm)
	r.addText("tool", a.Tool.Version, b.Tool.Version)
	r.addText("solver", a.Tool.Solver, b.Tool.Solver)
	if a.Seed != b.Seed {
		r.addText("seed", fmt.Sprint(a.Seed), fmt.Sprint(b.Seed))
	}

	// What it reaches. The objective's kind decides whether more is better.
	r.section = "objective"
	better := moreIsBetter
	if n := b.Objective.Name; n == "cost" || n == "power" || n == "gpus" || n == "latency" {
		better = lessIsBetter
	}
	if r.addText("name", a.Objective.Name, b.Objective.Name); a.Objective.Name != b.Objective.Name {
		better = neutral
	}
	r.addCertificate(a.Certificate, b.Certificate)
	if r.addText("basis", basisText(a), basisText(b)); basisText(a) != basisText(b) {
		better = neutral
	}
	r.addFigure("value", a.Objective.Value, b.Objective.Value, "", better)
	r.addOptional("bound", a.Objective.Bound, b.Objective.Bound, "", neutral)
	r.addShare("gap", a.Objective.Gap, b.Objective.Gap, lessIsBetter)
	r.addText("stopped by", a.StoppedBy, b.StoppedBy)

	// What it deploys, where, and the part that only plans of this kind have.
	r.addModels(a, b)
	r.addPipelines(a, b)
	if section != nil {
		section(a, b, r)
	}
	r.addPools(a.Pools, b.Pools)
	r.addUsage(a, b)

	// What it rests on.
	r.section = "policy"
	r.addText("name", a.Policy.Name, b.Policy.Name)
	r.addParams(a.Policy.Params, b.Policy.Params)
	r.addOptions(a.Options, b.Options)
	r.addArrivals(a.Arrivals, b.Arrivals)
	r.addInputs(a.Inputs, b.Inputs)
	r.section = "assumptions"
	r.addLines(a.Assumptions, b.Assumptions)
	r.section = "warnings"
	r.addLines(a.Warnings, b.Warnings)
	r.Summary = planChanges(r.Changes).summary(a, b)
	return &r.Result
}

// basisText returns how the value of a plan's objective was found, as text.
func basisText(p *formats.Plan) string { return cmp.Or(p.Objective.Basis, "rates without queueing") }

// addCertificate records what changed between two plans' certificates: the load that simulated runs confirmed.
// Either may be nil.
func (r *Recorder) addCertificate(a, b *formats.Certificate) {
	switch {
	case a == nil && b == nil:
	case b == nil:
		r.addChange(Removed, "certificate", fmt.Sprintf("load factor %g", a.LoadFactor), "", nil, "rates of the second plan are planned, and not certified")
	case a == nil:
		r.addChange(Added, "certificate", "", fmt.Sprintf("load factor %g", b.LoadFactor), nil, "rates of the first plan are planned, and not certified")
	default:
		r.addFigure("certified load factor", a.LoadFactor, b.LoadFactor, "", moreIsBetter)
		for n, p := range commonNames(a.Models, b.Models, func(m *formats.CertifiedModel) string { return m.Key().String() }) {
			r.addFigure("certified "+n, p.a.RPS, p.b.RPS, "rps", moreIsBetter)
			r.addTime("certified "+n+" p99", p.a.P99US, p.b.P99US, lessIsBetter)
		}
	}
}

func modelName(m *formats.Deployed) string { return m.Key().String() }

// addModels records which models plan b adds and removes, and what changed for those that both have: rate,
// latency, target and file.
func (r *Recorder) addModels(a, b *formats.Plan) {
	rate := func(m *formats.Deployed) string { return figureText(m.RPS(), "rps") }
	eachPair(r, "models", a.Deployment, b.Deployment, modelName, "model ", rate, func(_ string, x, y *formats.Deployed) {
		path, oldModel, newModel := modelName(x)+" ", promiseText(a, x), promiseText(b, y)
		r.addFigure(path+"planned rps", oldModel.RPS, newModel.RPS, "rps", moreIsBetter)
		r.addTime(path+"latency", slowest(x), slowest(y), lessIsBetter)
		r.addTime(path+"slo", oldModel.SLOUS, newModel.SLOUS, neutral)
		r.addTime(path+"margin", oldModel.MarginUS, newModel.MarginUS, neutral)
		r.addText(path+"percentile", oldModel.Percentile, newModel.Percentile)
		r.addFigure(path+"weight", oldModel.Weight, newModel.Weight, "", neutral)
		r.addCount(path+"blocks", x.NumBlocks, y.NumBlocks, neutral)
		r.addText(path+"file", formatShort(x.SHA256), formatShort(y.SHA256))
	})
}

// promiseText returns what plan p promises for a deployed model, or zero values if the plan promises nothing.
func promiseText(p *formats.Plan, d *formats.Deployed) formats.Served {
	if p.Section == nil {
		return formats.Served{}
	}
	return p.Section.PromiseFor(d)
}

// slowest returns the planned latency of a model, that of its slowest pipeline, including the time that a batch
// takes to fill.
func slowest(m *formats.Deployed) document.Micros {
	maxLatency := document.Micros(0)
	for i := range m.Pipelines {
		maxLatency = max(maxLatency, m.Pipelines[i].LatencyUS+m.Pipelines[i].BatchBuildUS)
	}
	return maxLatency
}

// addPipelines records what changed between the pipelines of two plans, model by model.
func (r *Recorder) addPipelines(a, b *formats.Plan) {
	r.section = "pipelines"
	for _, p := range pairByName(a.Deployment, b.Deployment, modelName) {
		r.modelPipelines(p.name, orZero(p.a).Pipelines, orZero(p.b).Pipelines)
	}
}

// modelPipelines records what changed between a model's pipelines in two plans. Pipelines have no names, so it pairs
// them: first those of the same shape, then those on the same devices. What is left was removed or added. A pipeline
// is the copies of a model, cut into stages on devices.
func (r *Recorder) modelPipelines(model string, a, b []formats.Pipeline) {
	partner, isMatched := slices.Repeat([]int{-1}, len(a)), make([]bool, len(b))

	// Pair the pipelines.
	for _, key := range []func(*formats.Pipeline) string{shape, devices} {
		for i := range a {
			if partner[i] >= 0 {
				continue
			}
			for k := range b {
				if !isMatched[k] && key(&a[i]) == key(&b[k]) {
					partner[i], isMatched[k] = k, true
					break
				}
			}
		}
	}

	// Compare the pairs, and record what is left on either side.
	for i := range a {
		if k := partner[i]; k >= 0 {
			r.addPipeline(model+" "+devices(&a[i]), &a[i], &b[k])
		} else {
			r.addChange(Removed, model+" "+devices(&a[i]), describe(&a[i]), "", nil, "")
		}
	}
	for k := range b {
		if !isMatched[k] {
			r.addChange(Added, model+" "+devices(&b[k]), "", describe(&b[k]), nil, "")
		}
	}
}

// addPipeline records what changed between two pipelines that were matched, over the same device kinds.
func (r *Recorder) addPipeline(path string, a, b *formats.Pipeline) {
	r.addCount(path+" batch", a.Batch, b.Batch, neutral)
	r.addFigure(path+" rps", a.RPS, b.RPS, "rps", neutral)
	r.addTime(path+" latency", a.LatencyUS, b.LatencyUS, lessIsBetter)
	r.addTime(path+" batch building", a.BatchBuildUS, b.BatchBuildUS, neutral)
	for i := range a.Stages {
		x, y := &a.Stages[i], &b.Stages[i]
		stagePath := fmt.Sprintf("%s stage %d", path, i)
		if x.Blocks != y.Blocks {
			r.addText(stagePath+" blocks", blocks(x), blocks(y))
		}
		r.addCount(stagePath+" share 1/", x.Share, y.Share, neutral)
		r.addCount(stagePath+" replicas", x.Replicas, y.Replicas, neutral)
		if a.Batch == b.Batch && x.Blocks == y.Blocks && len(x.InferUS) > 0 && len(y.InferUS) > 0 {
			r.addTime(stagePath+" inference", x.InferUS[len(x.InferUS)-1], y.InferUS[len(y.InferUS)-1], lessIsBetter)
		}
		if x.Blocks == y.Blocks && x.Replicas == y.Replicas && !slices.Equal(x.Placement, y.Placement) {
			r.addText(stagePath+" placement", placement(x), placement(y))
		}
		if x.Cut != nil && y.Cut != nil {
			r.addText(stagePath+" cut dtype", x.Cut.DType, y.Cut.DType)
		}
	}
}

// shape returns the form of a pipeline as text, without its number of replicas and its rate: batch size, and for
// every stage its blocks and share of a device kind.
func shape(p *formats.Pipeline) string {
	stages := document.Map(p.Stages, func(s *formats.Stage) string { return fmt.Sprintf(" %s %s/%d", blocks(s), s.Device, s.Share) })
	return fmt.Sprintf("batch %d", p.Batch) + strings.Join(stages, "")
}

// devices returns the device kinds of a pipeline's stages as text, by which diffs name the pipeline.
func devices(p *formats.Pipeline) string {
	return strings.Join(document.Map(p.Stages, func(s *formats.Stage) string { return s.Device }), ">")
}

func blocks(s *formats.Stage) string { return fmt.Sprintf("[%d,%d)", s.Blocks[0], s.Blocks[1]) }

// placement returns a stage's place as text, such as "devices 0 to 3, 2 each": its devices, and how many of its
// replicas each of them holds.
func placement(s *formats.Stage) string {
	parts := document.Map(s.Placement, func(p *formats.Placement) string {
		text := fmt.Sprintf("device %d", p.FirstDevice)
		if n := p.DeviceCount(); n > 1 {
			text = fmt.Sprintf("devices %d to %d", p.FirstDevice, p.FirstDevice+n-1)
		}
		if p.PerDevice > 1 {
			text += fmt.Sprintf(", %d each", p.PerDevice)
		}
		return text
	})
	return strings.Join(parts, "; ")
}

// describe returns a pipeline as text: batch size, rate, and for every stage its blocks and replicas on which
// share of which device kind.
func describe(p *formats.Pipeline) string {
	parts := document.Map(p.Stages, func(s *formats.Stage) string {
		return fmt.Sprintf("%s on %dx %s/%d", blocks(s), s.Replicas, s.Device, s.Share)
	})
	return fmt.Sprintf("batch %d, %s, %s", p.Batch, figureText(p.RPS, "rps"), strings.Join(parts, ", "))
}

// addPools records which pools of devices were added and removed, and what changed in those that both plans have.
// It compares them with the defaults filled in: to write a default out is no change.
func (r *Recorder) addPools(a, b []formats.Pool) {
	count := func(p *formats.Pool) string { return plural(p.Count, "device") }
	eachPair(r, "devices", a, b, func(p *formats.Pool) string { return p.Device }, "pool ", count, func(n string, oldPool, newPool *formats.Pool) {
		x, y := oldPool.WithDefaults(), newPool.WithDefaults()
		path := "pool " + n + " "
		r.addCount(path+"count", x.Count, y.Count, neutral)
		r.addCount(path+"max_shares", x.MaxShares, y.MaxShares, neutral)
		r.addCount(path+"per_node", x.PerNode, y.PerNode, neutral)
		r.addFigure(path+"nic_gbps", x.NICGbps*x.NICEfficiency, y.NICGbps*y.NICEfficiency, "", neutral)
		if x.Memory != y.Memory {
			r.addText(path+"memory", bytesText(x.Memory), bytesText(y.Memory))
		}
		r.addFigure(path+"usd_per_hour", x.USDPerHour, y.USDPerHour, "", lessIsBetter)
		r.addFigure(path+"watts", x.Watts, y.Watts, "", lessIsBetter)
		r.addText(path+"sharing", x.Sharing, y.Sharing)
	})
}

// bytesText returns a memory limit as text. 0 means that there is none.
func bytesText(b document.Bytes) string {
	if b == 0 {
		return "no limit"
	}
	return b.String()
}

// addUsage records how the number of devices that plans use changed, for each kind in all and by model. The keys of
// use are the model and the kind of device.
func (r *Recorder) addUsage(a, b *formats.Plan) {
	r.section = "devices"
	oldUse, newUse := gpus(a), gpus(b)
	models := pairByName(a.Deployment, b.Deployment, modelName)
	for _, k := range pairByName(a.Pools, b.Pools, func(p *formats.Pool) string { return p.Device }) {
		total := [2]float64{}
		for _, m := range models {
			key := [2]string{m.name, k.name}
			total[0] += oldUse[key]
			total[1] += newUse[key]
		}
		r.addFigure(k.name+" used", total[0], total[1], "", neutral)
		for _, m := range models {
			key := [2]string{m.name, k.name}
			r.addFigure(k.name+" used by "+m.name, oldUse[key], newUse[key], "", neutral)
		}
	}
}

// gpus returns the GPUs that a plan uses, by model and device kind, which are fractions where models share a GPU.
func gpus(p *formats.Plan) map[[2]string]float64 {
	out := map[[2]string]float64{}
	for s := range p.Stages() {
		out[[2]string{modelName(s.Deployed), s.Device}] += s.GPUs
	}
	return out
}

// addParams records the parameters that were added, removed or changed between a and b, by name in order.
func (r *Recorder) addParams(a, b map[string]float64) {
	paramOf := func(m map[string]float64, name string) *float64 {
		if v, ok := m[name]; ok {
			return &v
		}
		return nil
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		r.addOptional(n, paramOf(a, n), paramOf(b, n), "", neutral)
	}
}

// addOptions records changed options that both plans have, in the order of the first one's table.
func (r *Recorder) addOptions(a, b document.Values) {
	r.section = "options"
	for _, o := range a.Options() {
		if o.Key == "" || !b.Has(o.Name) {
			continue
		}
		x, y := a.Get(o.Name), b.Get(o.Name)
		switch o.Type {
		case document.NumberOption:
			r.addFigure(o.Key, a.Number(o.Name), b.Number(o.Name), "", neutral)
		case document.WholeOption:
			r.addCount(o.Key, a.WholeNumber(o.Name), b.WholeNumber(o.Name), neutral)
		default:
			r.addText(o.Key, o.Text(x), o.Text(y))
		}
	}
}

// addArrivals records what changed in the arrivals that two plans are made for. Either may be nil.
func (r *Recorder) addArrivals(a, b *formats.Arrivals) {
	r.section = "arrivals"
	x, y := orZero(a), orZero(b)
	r.addText("process", x.Process, y.Process)
	r.addFigure("cv", x.CV, y.CV, "", neutral)
	r.addText("trace", x.Trace, y.Trace)
}

// addInputs records what changed in the files that two plans were made from: path and hash, by role.
func (r *Recorder) addInputs(a, b []formats.Input) {
	path := func(in *formats.Input) string { return in.Path }
	eachPair(r, "inputs", a, b, func(in *formats.Input) string { return in.Role }, "", path, func(role string, x, y *formats.Input) {
		r.addText(role+" path", x.Path, y.Path)
		r.addText(role+" content", formatShort(x.SHA256), formatShort(y.SHA256))
	})
}

// addLines records the sentences that only one of two lists has, such as warnings.
func (r *Recorder) addLines(a, b []string) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			r.addChange(Removed, s, "", "", nil, "")
		}
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			r.addChange(Added, s, "", "", nil, "")
		}
	}
}

// formatShort returns the beginning of a digest, enough to see a difference.
func formatShort(sha string) string {
	return sha[:min(len(sha), 12)]
}
