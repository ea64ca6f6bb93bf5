package pool

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
	"inferplan/planner/stages"
)

// resolvedProblem is the documents translated to numbers, with what is needed to write the plan.
type resolved struct {
	in      *kind.Problem
	run     *kind.Run
	opt     choices
	problem *Problem
	asked   formats.WorkloadModels
	models  []resolvedModel
	pools   []formats.Pool // of the cluster, with defaults filled in
	network bool           // some pool has a network rate, so that cuts cost time

	unknown                  kind.UnknownCuts
	unweighted, noPercentile []string // names of the models that have these defaults
}

// resolvedModel is one requested model with its profile.
type resolvedModel struct {
	workload *formats.WorkloadModel
	profile  *formats.ProfileModel
	cuts     []stages.Cut // after each block but the last
	headroom formats.Headroom
	weight   float64 // of the rate that is promised, before utilisation
}

// resolveDocuments translates the documents to a problem. The assumptions that it makes are noted in run.
func resolve(in *kind.Problem, run *kind.Run) (*resolved, error) {
	if err := in.Complete(); err != nil {
		return nil, err
	}
	r := &resolved{in: in, run: run, opt: choicesOf(in.Values)}
	r.asked = formats.ModelsOf(in.Workload)
	if len(r.asked) == 0 {
		return nil, r.in.Fail("workload", "models", "no model", "at least one", "")
	}
	opt := &r.opt
	r.problem = &Problem{Problem: stages.Problem{MaxPartitions: opt.MaxPartitions}, Rounding: opt.Rounding, Fluid: r.in.Attained > 0, MarginShare: opt.Margin}
	if err := r.resolvePools(); err != nil {
		return nil, err
	}
	for i := range r.asked {
		if err := r.resolveModel(i); err != nil {
			return nil, err
		}
	}

	// Merge blocks if the options or the number of possible pipelines ask for fewer.
	if r.opt.Blocks > 0 {
		by := stages.ByTime
		if r.opt.BlocksBy == "bytes" {
			by = stages.ByBytes
		}
		r.problem.PrePartition(r.opt.Blocks, by)
		r.run.Assume("models of more than %d blocks are cut as if they had %d, by %s (--blocks)", r.opt.Blocks, r.opt.Blocks, r.opt.BlocksBy)
	}
	if n := r.problem.limitBlocks(); n > 0 {
		limited := *r.in
		if err := limited.Values.Set("blocks", n); err != nil {
			return nil, err
		}
		r.in = &limited
		r.run.Assume("models of more than %d blocks are cut as if they had %d, where the fewest bytes cross: the problem has more than %d possible pipelines", n, n, siftable)
	}

	// Note the defaults.
	r.unknown.Warn(run)
	r.defaultClasses()
	if len(r.unweighted) > 0 {
		r.run.Assume("weight 1 for %s", strings.Join(r.unweighted, ", "))
	}
	if len(r.noPercentile) > 0 {
		r.run.Assume("percentile p99 for %s", strings.Join(r.noPercentile, ", "))
	}
	return r, r.measuredPools()
}

// noteDefaultClasses records which class of a model answers requests that name none.
func (r *resolved) defaultClasses() {
	w := r.asked
	for i := range w {
		if slices.ContainsFunc(w[:i], func(o formats.WorkloadModel) bool { return o.Model == w[i].Model }) {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(w), func(o formats.WorkloadModel) bool { return o.Model != w[i].Model })
		if len(of) > 1 && !slices.ContainsFunc(of, func(o formats.WorkloadModel) bool { return o.Class == "" }) {
			r.run.Assume("class %s answers requests for %s that name no class: it is the first of the workload", w[i].Class, w[i].Model)
		}
		if len(of) > 1 && !r.opt.SLO.IsZero() {
			r.run.Warn("the SLO of %s is set over the workload's: its %d classes differ in nothing but their queues", r.opt.SLO, len(of))
		}
	}
}

// resolvePools checks the pools of the cluster and adds them to the problem.
func (r *resolved) resolvePools() error {
	seen := map[string]bool{}
	devices := 0
	for i, p := range r.in.Cluster.Pools {
		// Refuse what makes no sense.
		path := fmt.Sprintf("pools[%d]", i)
		switch {
		case p.Device == "":
			return r.in.Fail("cluster", path+".device", "nothing", "a device kind of the profile", "")
		case seen[p.Device]:
			return r.in.Fail("cluster", path+".device", p.Device+" a second time", "each device kind once", "add up the counts")
		case p.Count < 0:
			return r.in.Fail("cluster", path+".count", fmt.Sprint(p.Count), "at least 0", "")
		case p.NICGbps < 0 || p.NICEfficiency < 0 || p.Memory < 0 || p.MaxShares < 0 || p.PerNode < 0:
			return r.in.Fail("cluster", path, "a negative number", "at least 0", "")
		}

		// Fill in the defaults of sharing, shares and nodes.
		seen[p.Device] = true
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
		r.network = r.network || rate > 0
		devices += p.Count
		r.pools = append(r.pools, p)
		r.problem.Pools = append(r.problem.Pools, stages.Pool{
			Kind: p.Device, Count: p.Count, MaxShares: p.MaxShares, PerNode: p.PerNode,
			Gbps: rate, Memory: int64(p.Memory), Time: p.Sharing == formats.SharingTime,
			OneCopy: formats.IsCPU(p.Device),
		})
	}
	if devices == 0 {
		return r.in.Fail("cluster", "pools", "no device", "at least one", "")
	}
	r.problem.Apart = r.in.Cluster.Host != formats.HostShared
	if r.opt.MaxPartitions > 1 {
		r.run.AssumeHosts(r.in.Cluster)
	}
	return nil
}

// resolveModel checks requested model i against the profile and adds it to the problem.
func (r *resolved) resolveModel(i int) error {
	w := &r.asked[i]
	path := fmt.Sprintf("models[%d]", i)
	at, err := r.in.Model(w.Model, path+".model")
	if err != nil {
		return err
	}
	for j := range i {
		if r.asked[j].Key() == w.Key() {
			return r.in.Fail("workload", path+".model", fmt.Sprintf("%s a second time", w.Key()), "each model once, or each of its classes", "")
		}
	}
	m := &r.in.Profile.Models[at]
	mpath := fmt.Sprintf("models[%d]", at)
	if len(m.Blocks) == 0 {
		return r.in.Fail("profile", mpath+".blocks", "no block", "at least one", "")
	}
	slo, err := r.slo(w, path, m, mpath)
	if err != nil {
		return err
	}

	// What is kept back: the workload's own values, else the options'.
	kept := formats.Headroom{Margin: r.opt.Margin, Utilisation: cmp.Or(w.Utilisation, 1)}
	if w.Margin != nil {
		kept.Margin = *w.Margin
	}
	r.problem.Margins = append(r.problem.Margins, kept.Margin)
	pm := stages.Model{Name: w.Key().String(), Network: w.Model, SLO: slo, Margin: kind.Margin(slo, kept.Margin), Weight: w.Weight, MinRPS: w.MinRPS}
	switch {
	case math.IsNaN(w.Weight) || w.Weight < 0 || math.IsInf(w.Weight, 0):
		return r.in.Fail("workload", path+".weight", fmt.Sprint(w.Weight), "more than 0", "")
	case w.Weight == 0:
		pm.Weight = 1
		if len(r.asked) > 1 {
			r.unweighted = append(r.unweighted, pm.Name)
		}
	}
	if w.Percentile == "" {
		r.noPercentile = append(r.noPercentile, pm.Name)
	}
	pm.MinRPS = max(pm.MinRPS, r.opt.MinLoad*pm.Weight)
	rm := resolvedModel{workload: w, profile: m, headroom: kept, weight: pm.Weight}
	// A model that promises only a part of what its devices carry needs devices for more than it promises.
	pm.Weight, pm.MinRPS = pm.Weight/kept.Utilisation, pm.MinRPS/kept.Utilisation

	// Weights of the blocks and bytes of the cuts between them.
	var unknown []int // blocks after which the size of the cut is not known
	for b := range m.Blocks {
		pm.Weights = append(pm.Weights, m.Blocks[b].WeightBytes)
		if b+1 == len(m.Blocks) {
			break
		}
		c := stages.CutAfter(&m.Blocks[b], r.network, r.opt.CutDType)
		if c.Bytes < 0 && r.opt.MaxPartitions > 1 {
			unknown = append(unknown, b)
		}
		rm.cuts = append(rm.cuts, c)
		pm.CutBytes = append(pm.CutBytes, c.Bytes)
	}
	r.unknown.Add(m.Model, unknown, len(m.Blocks))

	// Times by pool, share and batch.
	if pm.Costs, err = stages.Costs(m, r.pools, r.opt.MaxBatch, r.in.File("profile"), mpath); err != nil {
		return err
	}
	r.problem.Models = append(r.problem.Models, pm)
	r.models = append(r.models, rm)
	return nil
}

// resolveSLO returns a model's SLO. A value such as "5x" is a multiple of the latency of the whole model at
// batch 1 on the fastest kind.
func (r *resolved) slo(w *formats.WorkloadModel, path string, m *formats.ProfileModel, mpath string) (time.Duration, error) {
	target := w.SLO
	if !r.opt.SLO.IsZero() {
		target = r.opt.SLO
	}
	if target.IsZero() {
		return 0, r.in.Fail("workload", path+".slo", "nothing", "a latency target such as 200ms or 5x", "--slo sets it for all models")
	}

	// The latency of the whole model, if the SLO is a multiple of it.
	var base time.Duration
	if target.Times > 0 {
		kind := ""
		for _, ms := range m.Measurements {
			if ms.Batch != 1 || ms.Share > 1 || ms.Whole == nil || ms.Whole.WallUS <= 0 {
				continue
			}
			if d := ms.Whole.WallUS.D(); base == 0 || d < base {
				base, kind = d, ms.Device
			}
		}
		if base == 0 {
			return 0, r.in.Fail("profile", mpath+".measurements", "no measurement of the whole model at batch 1",
				fmt.Sprintf("one, because the SLO of %s is %s", w.Key(), target), "measure it (plan profile) or write the SLO as a time")
		}
		r.run.Assume("slo of %s: %s of its %s on %s is %s", w.Key(), target, document.Duration(base), kind, document.Duration(target.Of(base)))
	}
	slo := target.Of(base)
	if slo <= 0 {
		return 0, r.in.Fail("workload", path+".slo", target.String(), "more than 0", "")
	}
	return slo, nil
}

// checkMeasurements returns an error if a pool was measured for no model or a model on no pool, and warns of
// pools on which a model was not measured.
func (r *resolved) measuredPools() error {
	var models []*formats.ProfileModel
	for _, m := range r.models {
		models = append(models, m.profile)
	}
	if err := r.in.MeasuredPools(models); err != nil {
		return err
	}

	// Every model must be measured on some pool that has devices.
	for d := range r.models {
		pm := &r.problem.Models[d]
		measured, nowhere := false, []string(nil)
		for k := range pm.Costs {
			here := slices.ContainsFunc(pm.Costs[k], func(s stages.Share) bool { return len(s.Batches) > 0 })
			measured = measured || here && r.pools[k].Count > 0
			if !here {
				nowhere = append(nowhere, r.pools[k].Device)
			}
		}
		if !measured {
			i := slices.IndexFunc(r.in.Profile.Models, func(m formats.ProfileModel) bool { return m.Model == r.models[d].profile.Model })
			return r.in.Fail("profile", fmt.Sprintf("models[%d].measurements", i), "none of "+r.models[d].profile.Model+" on a device of the cluster",
				"at least one", "measure it there: plan profile --device …")
		}
		if len(nowhere) > 0 {
			r.run.Warn("%s was not measured on %s: it is not placed there", r.models[d].profile.Model, strings.Join(nowhere, ", "))
		}
	}
	return nil
}
