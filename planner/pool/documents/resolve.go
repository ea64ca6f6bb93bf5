package documents

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/kind"
	"inferplan/planner/lists"
	"inferplan/planner/pool/problem"
	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// Resolved is the documents translated to numbers, with what is needed to write the plan.
type Resolved struct {
	Input           *kind.Problem
	run             *kind.SolveRun
	Problem         *problem.Problem
	requestedModels formats.WorkloadModels
	models          []resolvedModel
	Pools           []formats.Pool // of the cluster, with defaults filled in
	hasNetwork      bool           // some pool has a network rate, so that cuts cost time

	unknownCuts                      kind.UnknownCuts
	defaultWeight, defaultPercentile []string // names of the models that have these defaults
}

// resolvedModel is one requested model with its profile.
type resolvedModel struct {
	workload *formats.WorkloadModel
	profile  *formats.ProfileModel
	cuts     []stages.Cut // after each block but the last
	headroom formats.Headroom
	weight   float64 // of the rate that is promised, before utilisation
}

// Resolve translates the documents to a problem. The assumptions that it makes are noted in run.
func Resolve(in *kind.Problem, run *kind.SolveRun) (*Resolved, error) {
	if err := in.CheckPresent(); err != nil {
		return nil, err
	}
	r := &Resolved{Input: in, run: run}
	r.requestedModels = formats.ModelsOf(in.Workload)
	if len(r.requestedModels) == 0 {
		return nil, r.Input.FieldError("workload", "models", "no model", "at least one", "")
	}
	r.Problem = &problem.Problem{Problem: stages.Problem{MaxPartitions: in.Values.WholeNumber("max-partitions")}, Fluid: in.BoundAttainment > 0, MarginShare: in.Values.Number("margin")}
	if in.Values.Word("gpu-rounding") == "fractional" {
		r.Problem.Rounding = problem.Fractional
	}
	if err := r.resolvePools(); err != nil {
		return nil, err
	}
	for i := range r.requestedModels {
		if err := r.resolveModel(i); err != nil {
			return nil, err
		}
	}

	// Merge blocks if the options or the number of possible pipelines ask for fewer.
	if n := in.Values.WholeNumber("blocks"); n > 0 {
		r.Problem.PrePartition(n)
		r.run.Assume("models of more than %d blocks are cut as if they had %d, by bytes (--blocks)", n, n)
	}
	if n := templates.LimitBlocks(r.Problem); n > 0 {
		limitedInput := *r.Input
		if err := limitedInput.Values.Set("blocks", n); err != nil {
			return nil, err
		}
		r.Input = &limitedInput
		r.run.Assume("models of more than %d blocks are cut as if they had %d, where the fewest bytes cross: the problem has more than %d possible pipelines", n, n, templates.MaxSequences)
	}

	// Note the defaults.
	r.unknownCuts.Warn(run)
	r.noteDefaultClasses()
	if len(r.defaultWeight) > 0 {
		r.run.Assume("weight 1 for %s", strings.Join(r.defaultWeight, ", "))
	}
	if len(r.defaultPercentile) > 0 {
		r.run.Assume("percentile p99 for %s", strings.Join(r.defaultPercentile, ", "))
	}
	return r, r.checkMeasurements()
}

// noteDefaultClasses adds, for each model that is requested in several classes (each with its own SLO), an assumption which
// of them answers requests that name no class: the first, unless one has no name. It warns if the option slo sets one
// SLO for all classes.
func (r *Resolved) noteDefaultClasses() {
	w := r.requestedModels
	for i := range w {
		if slices.ContainsFunc(w[:i], func(o formats.WorkloadModel) bool { return o.Model == w[i].Model }) {
			continue
		}
		classes := slices.DeleteFunc(slices.Clone(w), func(o formats.WorkloadModel) bool { return o.Model != w[i].Model })
		if len(classes) > 1 && !slices.ContainsFunc(classes, func(o formats.WorkloadModel) bool { return o.Class == "" }) {
			r.run.Assume("class %s answers requests for %s that name no class: it is the first of the workload", w[i].Class, w[i].Model)
		}
		if len(classes) > 1 && !r.Input.Values.SLO("slo").IsZero() {
			r.run.Warn("the SLO of %s is set over the workload's: its %d classes differ in nothing but their queues", r.Input.Values.SLO("slo"), len(classes))
		}
	}
}

// resolvePools checks the pools of the cluster (devices of one kind each) and adds them to the problem, with defaults for
// sharing, shares and nodes. It notes whether some pool has a network, and adds assumptions and warnings to the run.
func (r *Resolved) resolvePools() error {
	devices := 0
	for i, p := range r.Input.Cluster.Pools {
		if err := checkPool(r.Input, i); err != nil {
			return err
		}

		// Fill in the defaults of sharing, shares and nodes.
		if p.TimeShared() {
			if p.Sharing == "" {
				r.run.Assume("sharing: time on %s: its stages take turns on every device", p.Device)
			}
			if p.MaxShares > 1 {
				r.run.Warn("pools[%d].max_shares is %d, but a time-shared pool has no shares: taken as 1", i, p.MaxShares)
			}
			p.Sharing, p.MaxShares = formats.SharingTime, 1
		}
		p.MaxShares, p.PerNode = max(p.MaxShares, 1), max(p.PerNode, 1)

		// Add the pool to the problem.
		rate := p.NICRate()
		r.hasNetwork = r.hasNetwork || rate > 0
		devices += p.Count
		r.Pools = append(r.Pools, p)
		r.Problem.Pools = append(r.Problem.Pools, stages.Pool{
			Kind: p.Device, Count: p.Count, MaxShares: p.MaxShares, PerNode: p.PerNode,
			Gbps: rate, Memory: int64(p.Memory), TimeShared: p.Sharing == formats.SharingTime,
			SharedWeights: formats.IsCPU(p.Device),
		})
	}
	if devices == 0 {
		return r.Input.FieldError("cluster", "pools", "no device", "at least one", "")
	}
	r.Problem.SeparateHosts = r.Input.Cluster.Host != formats.HostShared
	if r.Input.Values.WholeNumber("max-partitions") > 1 {
		r.run.AssumeNetwork(r.Input.Cluster)
	}
	return nil
}

// checkPool returns an error if pool i of the cluster makes no sense: no device kind, one that stands there
// already, or a negative number.
func checkPool(in *kind.Problem, i int) error {
	p := &in.Cluster.Pools[i]
	path := fmt.Sprintf("pools[%d]", i)
	switch {
	case p.Device == "":
		return in.FieldError("cluster", path+".device", "nothing", "a device kind of the profile", "")
	case slices.ContainsFunc(in.Cluster.Pools[:i], func(o formats.Pool) bool { return o.Device == p.Device }):
		return in.FieldError("cluster", path+".device", p.Device+" a second time", "each device kind once", "add up the counts")
	case p.Count < 0:
		return in.FieldError("cluster", path+".count", fmt.Sprint(p.Count), "at least 0", "")
	case p.NICGbps < 0 || p.NICEfficiency < 0 || p.Memory < 0 || p.MaxShares < 0 || p.PerNode < 0:
		return in.FieldError("cluster", path, "a negative number", "at least 0", "")
	}
	return nil
}

// resolveModel checks model i of the workload against the profile and adds it to the problem, with its SLO, margin, weight
// and floor (least rate), and its blocks, cuts and times from the profile.
func (r *Resolved) resolveModel(i int) error {
	workload := &r.requestedModels[i]
	path := fmt.Sprintf("models[%d]", i)
	profileIndex, err := r.Input.ModelIndex(workload.Model, path+".model")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.requestedModels[:i], func(o formats.WorkloadModel) bool { return o.Key() == workload.Key() }) {
		return r.Input.FieldError("workload", path+".model", fmt.Sprintf("%s a second time", workload.Key()), "each model once, or each of its classes", "")
	}
	profile := &r.Input.Profile.Models[profileIndex]
	profilePath := fmt.Sprintf("models[%d]", profileIndex)
	if len(profile.Blocks) == 0 {
		return r.Input.FieldError("profile", profilePath+".blocks", "no block", "at least one", "")
	}
	slo, err := r.resolveSLO(workload, path, profile, profilePath)
	if err != nil {
		return err
	}

	// What is kept back: the workload's own values, else the options'.
	headroom := formats.Headroom{Margin: r.Input.Values.Number("margin"), Utilisation: cmp.Or(workload.Utilisation, 1)}
	if workload.Margin != nil {
		headroom.Margin = *workload.Margin
	}
	r.Problem.Margins = append(r.Problem.Margins, headroom.Margin)
	weight, err := r.resolveWeight(workload, path)
	if err != nil {
		return err
	}
	if workload.Percentile == "" {
		r.defaultPercentile = append(r.defaultPercentile, workload.Key().String())
	}

	// A model that promises only a part of what its devices carry needs devices for more than it promises.
	model := stages.Model{
		Name: workload.Key().String(), Network: workload.Model, SLO: slo, Margin: kind.Margin(slo, headroom.Margin),
		Weight: weight / headroom.Utilisation, MinRPS: max(workload.MinRPS, r.Input.Values.Number("min-load")*weight) / headroom.Utilisation,
	}

	// Blocks, the cuts between them, and times by pool, share and batch.
	cuts := r.resolveCuts(profile)
	model.Weights = lists.Map(len(profile.Blocks), func(b int) int64 { return profile.Blocks[b].WeightBytes })
	model.CutBytes = lists.Map(len(cuts), func(i int) int64 { return cuts[i].Bytes })
	if model.ShareCosts, err = stages.MeasuredCosts(profile, r.Pools, r.Input.Values.WholeNumber("max-batch"), r.Input.FileName("profile"), profilePath); err != nil {
		return err
	}
	r.Problem.Models = append(r.Problem.Models, model)
	r.models = append(r.models, resolvedModel{workload: workload, profile: profile, cuts: cuts, headroom: headroom, weight: weight})
	return nil
}

// resolveWeight returns the weight of a model's rate. 0 stands for a workload that names none: the weight is then 1. If
// several models are requested, so that weights matter, it notes the model in defaultWeight, for the plan's assumptions.
func (r *Resolved) resolveWeight(workload *formats.WorkloadModel, path string) (float64, error) {
	switch {
	case math.IsNaN(workload.Weight) || workload.Weight < 0 || math.IsInf(workload.Weight, 0):
		return 0, r.Input.FieldError("workload", path+".weight", fmt.Sprint(workload.Weight), "more than 0", "")
	case workload.Weight > 0:
		return workload.Weight, nil
	}
	if len(r.requestedModels) > 1 {
		r.defaultWeight = append(r.defaultWeight, workload.Key().String())
	}
	return 1, nil
}

// resolveCuts returns the cut after each block of a model but the last: the tensors that cross, and as which type. Blocks
// behind which no cut is possible, because its size is not known, are noted for a warning, if models may be cut at all.
func (r *Resolved) resolveCuts(profile *formats.ProfileModel) []stages.Cut {
	var cuts []stages.Cut
	var unknownAfter []int // blocks
	for b := range profile.Blocks[:len(profile.Blocks)-1] {
		c := stages.CutAfterBlock(&profile.Blocks[b], r.hasNetwork, r.Input.Values.Word("cut-dtype"))
		if c.Bytes < 0 && r.Input.Values.WholeNumber("max-partitions") > 1 {
			unknownAfter = append(unknownAfter, b)
		}
		cuts = append(cuts, c)
	}
	r.unknownCuts.Add(profile.Model, unknownAfter, len(profile.Blocks))
	return cuts
}

// resolveSLO returns a model's SLO. A value such as "5x" is a multiple of the latency of the whole model at
// batch 1 on the fastest kind.
func (r *Resolved) resolveSLO(workload *formats.WorkloadModel, path string, profile *formats.ProfileModel, profilePath string) (time.Duration, error) {
	target := workload.SLO
	if !r.Input.Values.SLO("slo").IsZero() {
		target = r.Input.Values.SLO("slo")
	}
	if target.IsZero() {
		return 0, r.Input.FieldError("workload", path+".slo", "nothing", "a latency target such as 200ms or 5x", "--slo sets it for all models")
	}

	// The latency of the whole model, if the SLO is a multiple of it.
	var wholeLatency time.Duration
	if target.Factor > 0 {
		kind := ""
		for _, measurement := range profile.Measurements {
			if measurement.Batch != 1 || measurement.Share > 1 || measurement.WholeModel == nil || measurement.WholeModel.WallUS <= 0 {
				continue
			}
			if d := measurement.WholeModel.WallUS.D(); wholeLatency == 0 || d < wholeLatency {
				wholeLatency, kind = d, measurement.Device
			}
		}
		if wholeLatency == 0 {
			return 0, r.Input.FieldError("profile", profilePath+".measurements", "no measurement of the whole model at batch 1",
				fmt.Sprintf("one, because the SLO of %s is %s", workload.Key(), target), "measure it (plan profile) or write the SLO as a time")
		}
		r.run.Assume("slo of %s: %s of its %s on %s is %s", workload.Key(), target, document.Duration(wholeLatency), kind, document.Duration(target.Resolve(wholeLatency)))
	}
	slo := target.Resolve(wholeLatency)
	if slo <= 0 {
		return 0, r.Input.FieldError("workload", path+".slo", target.String(), "more than 0", "")
	}
	return slo, nil
}

// checkMeasurements returns an error if the profile has no measurement on some pool's device kind, or none of some model on
// any pool with devices. For each other model it warns of the device kinds on which it was not measured.
func (r *Resolved) checkMeasurements() error {
	if err := r.Input.CheckPools(r.Profiles()); err != nil {
		return err
	}

	// Every model must be measured on some pool that has devices.
	for d := range r.models {
		model := &r.Problem.Models[d]
		isMeasured, unmeasuredKinds := false, []string(nil)
		for k := range model.ShareCosts {
			measuredHere := slices.ContainsFunc(model.ShareCosts[k], func(s stages.ShareCosts) bool { return len(s.Batches) > 0 })
			isMeasured = isMeasured || measuredHere && r.Pools[k].Count > 0
			if !measuredHere {
				unmeasuredKinds = append(unmeasuredKinds, r.Pools[k].Device)
			}
		}
		if !isMeasured {
			i := slices.IndexFunc(r.Input.Profile.Models, func(m formats.ProfileModel) bool { return m.Model == r.models[d].profile.Model })
			return r.Input.FieldError("profile", fmt.Sprintf("models[%d].measurements", i), "none of "+r.models[d].profile.Model+" on a device of the cluster",
				"at least one", "measure it there: plan profile --device …")
		}
		if len(unmeasuredKinds) > 0 {
			r.run.Warn("%s was not measured on %s: it is not placed there", r.models[d].profile.Model, strings.Join(unmeasuredKinds, ", "))
		}
	}
	return nil
}

// Profiles returns the profile of each requested model.
func (r *Resolved) Profiles() (profiles []*formats.ProfileModel) {
	return lists.Map(len(r.models), func(i int) *formats.ProfileModel { return r.models[i].profile })
}

// SetBatchBuilding sets, for each model, how many microseconds a batch waits for each further request that fills it: the
// option batch-build divided by a rate. The rate is that of the workload or, if that names none, the one of
// unpartitionedRates, which the model gets in a plan without partitioning. All batch sizes may then be planned, not only
// measured ones. If the option is 0, nothing is set.
func (r *Resolved) SetBatchBuilding(unpartitionedRates func() ([]float64, error)) (err error) {
	if r.Input.Values.Number("batch-build") == 0 {
		return nil
	}

	// The rates at which the batches of each model fill.
	var unpartitioned []float64
	if slices.ContainsFunc(r.models, func(m resolvedModel) bool { return m.workload.BatchBuildRPS <= 0 }) {
		if unpartitioned, err = unpartitionedRates(); err != nil {
			return err
		}
	}
	for d := range r.models {
		m, rate := &r.Problem.Models[d], r.models[d].workload.BatchBuildRPS
		if rate <= 0 {
			rate = unpartitioned[d]
			r.run.Assume("batch_build_rps %.6g for %s: its rate in the plan without partitioning that takes the fewest devices", rate, m.Name)
		}
		m.BatchWaitMicros = r.Input.Values.Number("batch-build") * 1e6 / rate
		m.EveryBatch = true
	}
	return nil
}

// SearchOptions returns the options of a search that reports no progress and starts from no running plan.
func (r *Resolved) SearchOptions() problem.Options {
	effort := 1 << (r.Input.Values.WholeNumber("effort") - 1) // each step of the option doubles the work, from 1
	return problem.Options{
		Gap: r.Input.Values.Number("gap"), Effort: effort, Seed: int32(r.Input.Seed % math.MaxInt32),
		NoPolish: r.Input.FeasibilityOnly, NoDiagnosis: r.Input.FeasibilityOnly, Hurry: r.Input.Quick, LeastRPS: r.Input.MinObjective,
	}
}

// ModelIndex returns the index in the problem of a requested model or class, or -1 if it is not requested.
func (r *Resolved) ModelIndex(key formats.ModelClass) int {
	return slices.IndexFunc(r.models, func(m resolvedModel) bool { return m.workload.Key() == key })
}
