package diff

import (
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
	r.text("kind", a.Kind, b.Kind)
	r.text("algorithm", a.Algorithm, b.Algorithm)
	r.text("tool", a.Tool.Version, b.Tool.Version)
	r.text("solver", a.Tool.Solver, b.Tool.Solver)
	if a.Seed != b.Seed {
		r.text("seed", fmt.Sprint(a.Seed), fmt.Sprint(b.Seed))
	}

	// What it reaches. The objective's kind decides whether more is better.
	r.section = "objective"
	good := moreIsBetter
	if n := b.Objective.Name; n == "cost" || n == "power" || n == "gpus" || n == "latency" {
		good = lessIsBetter
	}
	if r.text("name", a.Objective.Name, b.Objective.Name); a.Objective.Name != b.Objective.Name {
		good = neutral
	}
	r.figure("value", a.Objective.Value, b.Objective.Value, "", good)
	r.optional("bound", a.Objective.Bound, b.Objective.Bound, "", neutral)
	r.share("gap", a.Objective.Gap, b.Objective.Gap, lessIsBetter)
	r.text("stopped by", a.StoppedBy, b.StoppedBy)
	r.certified(a.Certified, b.Certified)

	// What it deploys, where, and the part that only plans of this kind have.
	r.models(a, b)
	r.pipelines(a, b)
	if section != nil {
		section(a, b, r)
	}
	r.pools(a.Pools, b.Pools)
	r.usage(a, b)

	// What it rests on.
	r.section = "policy"
	r.text("name", a.Policy.Name, b.Policy.Name)
	r.params(a.Policy.Params, b.Policy.Params)
	r.options(a.Options, b.Options)
	r.arrivals(a.Arrivals, b.Arrivals)
	r.inputs(a.Inputs, b.Inputs)
	r.section = "assumptions"
	r.lines(a.Assumptions, b.Assumptions)
	r.section = "warnings"
	r.lines(a.Warnings, b.Warnings)
	r.Summary = changes(r.Changes).summary(a, b)
	return &r.Result
}

func (r *Recorder) certified(a, b *formats.Certificate) {
	switch {
	case a == nil && b == nil:
	case b == nil:
		r.add(Removed, "certificate", fmt.Sprintf("load factor %g", a.LoadFactor), "", nil, "")
	case a == nil:
		r.add(Added, "certificate", "", fmt.Sprintf("load factor %g", b.LoadFactor), nil, "")
	default:
		r.figure("certified load factor", a.LoadFactor, b.LoadFactor, "", moreIsBetter)
		for n, p := range shared(a.Models, b.Models, func(m *formats.CertifiedModel) string { return m.Key().String() }) {
			r.figure("certified "+n, p.a.RPS, p.b.RPS, "rps", moreIsBetter)
			r.span("certified "+n+" p99", p.a.P99US, p.b.P99US, lessIsBetter)
		}
	}
}

func modelName(m *formats.Deployed) string { return m.Key().String() }

func (r *Recorder) models(a, b *formats.Plan) {
	rate := func(m *formats.Deployed) string { return figureText(m.RPS(), "rps") }
	matched(r, "models", a.Deployment, b.Deployment, modelName, "model ", rate, func(_ string, x, y *formats.Deployed) {
		at, was, is := modelName(x)+" ", promised(a, x), promised(b, y)
		r.figure(at+"rps", was.RPS, is.RPS, "rps", moreIsBetter)
		r.span(at+"latency", slowest(x), slowest(y), lessIsBetter)
		r.span(at+"slo", was.SLOUS, is.SLOUS, neutral)
		r.span(at+"margin", was.MarginUS, is.MarginUS, neutral)
		r.text(at+"percentile", was.Percentile, is.Percentile)
		r.figure(at+"weight", was.Weight, is.Weight, "", neutral)
		r.count(at+"blocks", x.NumBlocks, y.NumBlocks, neutral)
		r.text(at+"file", short(x.SHA256), short(y.SHA256))
	})
}

// promiseText returns the promise for a deployed model.
func promised(p *formats.Plan, d *formats.Deployed) formats.Served {
	if p.Section == nil {
		return formats.Served{}
	}
	return p.Section.Promised(d)
}

// slowest returns the planned latency of a model: that of its slowest pipeline.
func slowest(m *formats.Deployed) document.Micros {
	worst := document.Micros(0)
	for i := range m.Pipelines {
		worst = max(worst, m.Pipelines[i].LatencyUS+m.Pipelines[i].BatchBuildUS)
	}
	return worst
}

// addPipelines matches the pipelines of each model first by their form (cuts, devices, shares, batch), then the
// rest by their device kinds. Pipelines without a match are recorded as added or removed.
func (r *Recorder) pipelines(a, b *formats.Plan) {
	r.section = "pipelines"
	for _, p := range union(a.Deployment, b.Deployment, modelName) {
		r.modelPipelines(p.name, orZero(p.a).Pipelines, orZero(p.b).Pipelines)
	}
}

func (r *Recorder) modelPipelines(model string, a, b []formats.Pipeline) {
	partner, taken := slices.Repeat([]int{-1}, len(a)), make([]bool, len(b))
	for _, key := range []func(*formats.Pipeline) string{shape, devices} {
		for i := range a {
			if partner[i] >= 0 {
				continue
			}
			for k := range b {
				if !taken[k] && key(&a[i]) == key(&b[k]) {
					partner[i], taken[k] = k, true
					break
				}
			}
		}
	}
	for i := range a {
		if k := partner[i]; k >= 0 {
			r.pipeline(model+" "+devices(&a[i]), &a[i], &b[k])
		} else {
			r.add(Removed, model+" "+devices(&a[i]), describe(&a[i]), "", nil, "")
		}
	}
	for k := range b {
		if !taken[k] {
			r.add(Added, model+" "+devices(&b[k]), "", describe(&b[k]), nil, "")
		}
	}
}

// pipeline compares two pipelines over the same device kinds.
func (r *Recorder) pipeline(at string, a, b *formats.Pipeline) {
	r.count(at+" batch", a.Batch, b.Batch, neutral)
	r.figure(at+" rps", a.RPS, b.RPS, "rps", neutral)
	r.span(at+" latency", a.LatencyUS, b.LatencyUS, lessIsBetter)
	r.span(at+" batch building", a.BatchBuildUS, b.BatchBuildUS, neutral)
	for i := range a.Stages {
		x, y := &a.Stages[i], &b.Stages[i]
		where := fmt.Sprintf("%s stage %d", at, i)
		if x.Blocks != y.Blocks {
			r.text(where+" blocks", blocks(x), blocks(y))
		}
		r.count(where+" share 1/", x.Share, y.Share, neutral)
		r.count(where+" replicas", x.Replicas, y.Replicas, neutral)
		if a.Batch == b.Batch && x.Blocks == y.Blocks && len(x.InferUS) > 0 && len(y.InferUS) > 0 {
			r.span(where+" inference", x.InferUS[len(x.InferUS)-1], y.InferUS[len(y.InferUS)-1], lessIsBetter)
		}
		if x.Blocks == y.Blocks && x.Replicas == y.Replicas && !slices.Equal(x.Placement, y.Placement) {
			r.text(where+" placement", placement(x), placement(y))
		}
		if x.Cut != nil && y.Cut != nil {
			r.text(where+" cut dtype", x.Cut.DType, y.Cut.DType)
		}
	}
}

// shape describes the form of a pipeline, without its number of replicas and its rate.
func shape(p *formats.Pipeline) string {
	var b strings.Builder
	fmt.Fprintf(&b, "batch %d", p.Batch)
	for i := range p.Stages {
		s := &p.Stages[i]
		fmt.Fprintf(&b, " %s %s/%d", blocks(s), s.Device, s.Share)
	}
	return b.String()
}

// devices names a pipeline by the kinds of devices that it runs on.
func devices(p *formats.Pipeline) string {
	var kinds []string
	for i := range p.Stages {
		kinds = append(kinds, p.Stages[i].Device)
	}
	return strings.Join(kinds, ">")
}

func blocks(s *formats.Stage) string { return fmt.Sprintf("[%d,%d)", s.Blocks[0], s.Blocks[1]) }

func placement(s *formats.Stage) string {
	var parts []string
	for i := range s.Placement {
		p := &s.Placement[i]
		text := fmt.Sprintf("device %d", p.First)
		if n := p.Count(); n > 1 {
			text = fmt.Sprintf("devices %d to %d", p.First, p.First+n-1)
		}
		if p.PerDevice > 1 {
			text += fmt.Sprintf(", %d each", p.PerDevice)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func describe(p *formats.Pipeline) string {
	var parts []string
	for i := range p.Stages {
		s := &p.Stages[i]
		parts = append(parts, fmt.Sprintf("%s on %dx %s/%d", blocks(s), s.Replicas, s.Device, s.Share))
	}
	return fmt.Sprintf("batch %d, %s, %s", p.Batch, figureText(p.RPS, "rps"), strings.Join(parts, ", "))
}

func (r *Recorder) pools(a, b []formats.Pool) {
	count := func(p *formats.Pool) string { return plural(p.Count, "device") }
	matched(r, "devices", a, b, func(p *formats.Pool) string { return p.Device }, "pool ", count, func(n string, was, is *formats.Pool) {
		x, y := was.WithDefaults(), is.WithDefaults()
		at := "pool " + n + " "
		r.count(at+"count", x.Count, y.Count, neutral)
		r.count(at+"max_shares", x.MaxShares, y.MaxShares, neutral)
		r.count(at+"per_node", x.PerNode, y.PerNode, neutral)
		r.figure(at+"nic_gbps", x.NICGbps*x.NICEfficiency, y.NICGbps*y.NICEfficiency, "", neutral)
		if x.Memory != y.Memory {
			r.text(at+"memory", bytesText(x.Memory), bytesText(y.Memory))
		}
		r.figure(at+"usd_per_hour", x.USDPerHour, y.USDPerHour, "", lessIsBetter)
		r.figure(at+"watts", x.Watts, y.Watts, "", lessIsBetter)
		r.text(at+"sharing", x.Sharing, y.Sharing)
	})
}

func bytesText(b document.Bytes) string {
	if b == 0 {
		return "no limit"
	}
	return b.String()
}

// addUsage records how many devices of each kind each model gains or loses.
func (r *Recorder) usage(a, b *formats.Plan) {
	r.section = "devices"
	x, y := gpus(a), gpus(b)
	models := union(a.Deployment, b.Deployment, modelName)
	for _, k := range union(a.Pools, b.Pools, func(p *formats.Pool) string { return p.Device }) {
		total := [2]float64{}
		for _, m := range models {
			key := [2]string{m.name, k.name}
			total[0] += x[key]
			total[1] += y[key]
		}
		r.figure(k.name+" used", total[0], total[1], "", neutral)
		for _, m := range models {
			key := [2]string{m.name, k.name}
			r.figure(k.name+" used by "+m.name, x[key], y[key], "", neutral)
		}
	}
}

func gpus(p *formats.Plan) map[[2]string]float64 {
	out := map[[2]string]float64{}
	for s := range p.Stages() {
		out[[2]string{modelName(s.Deployed), s.Device}] += s.GPUs
	}
	return out
}

func (r *Recorder) params(a, b map[string]float64) {
	of := func(m map[string]float64, name string) *float64 {
		if v, ok := m[name]; ok {
			return &v
		}
		return nil
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		r.optional(n, of(a, n), of(b, n), "", neutral)
	}
}

// addOptions compares the options that both plans have, in the order of the first one's table.
func (r *Recorder) options(a, b document.Values) {
	r.section = "options"
	for _, o := range a.Options() {
		if o.Key == "" || !b.Has(o.Name) {
			continue
		}
		x, y := a.Get(o.Name), b.Get(o.Name)
		switch o.Type {
		case document.NumberOption:
			r.figure(o.Key, a.Number(o.Name), b.Number(o.Name), "", neutral)
		case document.WholeOption:
			r.count(o.Key, a.Whole(o.Name), b.Whole(o.Name), neutral)
		default:
			r.text(o.Key, o.Text(x), o.Text(y))
		}
	}
}

func (r *Recorder) arrivals(a, b *formats.Arrivals) {
	r.section = "arrivals"
	x, y := orZero(a), orZero(b)
	r.text("process", x.Process, y.Process)
	r.figure("cv", x.CV, y.CV, "", neutral)
	r.text("trace", x.Trace, y.Trace)
}

func (r *Recorder) inputs(a, b []formats.Input) {
	path := func(in *formats.Input) string { return in.Path }
	matched(r, "inputs", a, b, func(in *formats.Input) string { return in.Role }, "", path, func(role string, x, y *formats.Input) {
		r.text(role+" path", x.Path, y.Path)
		r.text(role+" content", short(x.SHA256), short(y.SHA256))
	})
}

// addLines compares lists of sentences as sets.
func (r *Recorder) lines(a, b []string) {
	for _, s := range a {
		if !slices.Contains(b, s) {
			r.add(Removed, s, "", "", nil, "")
		}
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			r.add(Added, s, "", "", nil, "")
		}
	}
}

// formatShort returns the beginning of a digest, enough to see a difference.
func short(sha string) string {
	return sha[:min(len(sha), 12)]
}
