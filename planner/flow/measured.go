package flow

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/stages"
)

// measuredModel is a model of the profile on the devices of the cluster.
type measured struct {
	profile *formats.ProfileModel
	costs   [][]stages.Share // by pool and by number of shares per device, less one
	alone   time.Duration    // time of the fastest batch of one
}

// modelIndex returns the index of a model in the problem. If the model is not there yet, it is read from
// the profile and added. docPath is the place of the module that asks for it.
func (r *resolved) model(name, at string) (int, error) {
	if u := slices.IndexFunc(r.problem.models, func(m model) bool { return m.name == name }); u >= 0 {
		return u, nil
	}

	// Find the model in the profile, and what its blocks cost on each pool.
	i, err := r.in.Model(name, at+".model")
	if err != nil {
		return 0, err
	}
	m, path := &r.in.Profile.Models[i], fmt.Sprintf("models[%d]", i)
	if len(m.Blocks) == 0 {
		return 0, r.in.Fail("profile", path+".blocks", "no block", "at least one", "")
	}
	costs, err := stages.Costs(m, r.pools, r.in.Values.Whole("max-batch"), r.in.File("profile"), path)
	if err != nil {
		return 0, err
	}

	// Compute its templates, and from these the levels.
	here := measured{profile: m, costs: costs, alone: math.MaxInt64}
	byPool := make([][]template, len(r.pools))
	for k := range r.pools {
		byPool[k] = here.templates(&r.pools[k], k)
		for _, t := range byPool[k] {
			here.alone = min(here.alone, stages.Infer(&costs[k][t.share-1], 1, 0, len(m.Blocks)))
		}
	}
	r.problem.models = append(r.problem.models, model{name: name, levels: levelsOf(byPool)})
	r.measured = append(r.measured, here)
	return len(r.measured) - 1, nil
}

// deviceTemplates returns the templates of a model on a device of pool k: every number of shares with every
// batch size that was measured and fits into the memory of a share.
func (m *measured) templates(pool *formats.Pool, k int) []template {
	var weights int64
	for i := range m.profile.Blocks {
		weights += m.profile.Blocks[i].WeightBytes
	}
	var out []template
	if pool.Count == 0 {
		return nil
	}
	for v := range m.costs[k] {
		s := &m.costs[k][v]
		worst := time.Duration(0)
		for _, b := range s.Sizes() {
			infer, e := stages.Infer(s, b, 0, len(m.profile.Blocks)), s.Expect(b)
			worst = max(worst, infer)
			memory := max(weights, s.At(b).Memory)
			if pool.Memory > 0 && memory > int64(pool.Memory)/int64(v+1) {
				continue
			}
			out = append(out, template{batch: b, share: v + 1, infer: infer, worst: worst, rate: float64(v+1) * float64(b) / e.Mean(0, len(m.profile.Blocks)).Seconds(), memory: memory})
		}
	}
	return out
}
