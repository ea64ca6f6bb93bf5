package graph

import (
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/planner/lists"
	"inferplan/planner/stages"
)

// measuredModel is a model of the profile on the devices of the cluster.
type measuredModel struct {
	profile       *formats.ProfileModel
	costs         [][]stages.ShareCosts // by pool and by number of shares per device, less one
	minSingleTime time.Duration         // time of the fastest batch of one
}

// modelIndex returns the index of a model in the problem. If the model is not there yet, it is read from the profile and added, with its
// levels (limits on batch times, each with the best batch size for a device of each pool). docPath is the place, in the workload, of the
// module that asks for it.
func (r *resolvedProblem) modelIndex(name, docPath string) (int, error) {
	if u := slices.IndexFunc(r.problem.models, func(m model) bool { return m.name == name }); u >= 0 {
		return u, nil
	}

	// Find the model in the profile, and what its blocks cost on each pool.
	i, err := r.input.ModelIndex(name, docPath+".model")
	if err != nil {
		return 0, err
	}
	m, path := &r.input.Profile.Models[i], fmt.Sprintf("models[%d]", i)
	if len(m.Blocks) == 0 {
		return 0, r.input.FieldError("profile", path+".blocks", "no block", "at least one", "")
	}
	costs, err := stages.MeasuredCosts(m, r.pools, r.input.Values.WholeNumber("max-batch"), r.input.FileName("profile"), path)
	if err != nil {
		return 0, err
	}

	// Compute its templates, and from these the levels.
	measured := measuredModel{profile: m, costs: costs, minSingleTime: math.MaxInt64}
	byPool := make([][]template, len(r.pools))
	for k := range r.pools {
		byPool[k] = measured.deviceTemplates(&r.pools[k], k)
		for _, t := range byPool[k] {
			measured.minSingleTime = min(measured.minSingleTime, stages.MaxTime(&costs[k][t.sharesPerDevice-1], 1, 0, len(m.Blocks)))
		}
	}
	r.problem.models = append(r.problem.models, model{name: name, levels: levelsOf(byPool)})
	r.measuredModels = append(r.measuredModels, measured)
	return len(r.measuredModels) - 1, nil
}

// deviceTemplates returns the templates of a model on a device of pool k: every division of the device into equal shares with a replica
// in each, with every batch size that was measured and fits into the memory of a share. worstTime is there the longest time of any batch
// up to that size, rate that of all replicas.
func (m *measuredModel) deviceTemplates(pool *formats.Pool, k int) []template {
	weights := lists.Sum(len(m.profile.Blocks), func(i int) int64 { return m.profile.Blocks[i].WeightBytes })
	var templates []template
	if pool.Count == 0 {
		return nil
	}
	for v := range m.costs[k] {
		s := &m.costs[k][v]
		worstTime := time.Duration(0)
		for _, b := range s.PlannableSizes() {
			e := s.ExpectedTimes(b)
			worstTime = max(worstTime, stages.MaxTime(s, b, 0, len(m.profile.Blocks)))
			memory := max(weights, s.CostAt(b).Memory)
			if pool.Memory > 0 && memory > int64(pool.Memory)/int64(v+1) {
				continue
			}
			templates = append(templates, template{batch: b, sharesPerDevice: v + 1, worstTime: worstTime, rate: float64(v+1) * float64(b) / e.Mean(0, len(m.profile.Blocks)).Seconds(), memory: memory})
		}
	}
	return templates
}
