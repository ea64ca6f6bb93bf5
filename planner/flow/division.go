package flow

import (
	"cmp"
	"context"
	"math"
	"slices"

	"inferplan/formats"
	"inferplan/planner/flow/workflow"
	"inferplan/planner/lists"
)

// modelNeeds says how much of the devices the models of a plan need. Divisions of the devices between model
// groups are made from it.
type modelNeeds struct {
	pools          []formats.Pool
	devicesNeeded  map[string][]float64 // by model and pool: device time at the planned rates, in devices
	languageModels []string             // by falling need
	otherModels    []string
}

// newModelNeeds reads, from a plan in which all models share the devices, how much device time of each pool each model needs, in devices.
// Divisions of the devices between groups of models are made from it. Language models are listed apart, those of the largest needs first.
func newModelNeeds(plan *formats.Plan) *modelNeeds {
	needs := &modelNeeds{pools: plan.Pools, devicesNeeded: map[string][]float64{}}
	for i := range plan.Deployment {
		d := &plan.Deployment[i]
		need := make([]float64, len(needs.pools))
		for k := range d.Pipelines {
			s := &d.Pipelines[k].Stages[0]
			if s.GPUs > workflow.TimeTolerance {
				need[slices.IndexFunc(needs.pools, func(p formats.Pool) bool { return p.Device == s.Device })] += s.GPUs
			}
		}
		if needs.devicesNeeded[d.Model] = need; formats.FlowOf(plan).Modules[i].Generation != nil {
			needs.languageModels = append(needs.languageModels, d.Model)
		} else {
			needs.otherModels = append(needs.otherModels, d.Model)
		}
	}
	totalNeed := func(model string) (sum float64) {
		for _, need := range needs.devicesNeeded[model] {
			sum += need
		}
		return sum
	}
	slices.SortStableFunc(needs.languageModels, func(a, b string) int { return cmp.Compare(totalNeed(b), totalNeed(a)) })
	return needs
}

// candidateDivisions returns divisions of the devices between groups of models, for the search by simulation to try. In each, the
// language models with the largest needs have devices alone: all of them, one or two. The other language models are one group, together
// with the models that are no language models or apart from them. A last division has two groups: all language models, and all other
// models.
func (needs *modelNeeds) candidateDivisions() (divisions [][]workflow.ModelGroup) {
	// add appends the division whose groups have these sets of models, unless it is listed already, has one group only, or the devices do
	// not suffice for all groups.
	add := func(sets ...[]string) {
		sets = slices.DeleteFunc(sets, func(set []string) bool { return len(set) == 0 })
		if list := needs.apportionDevices(sets); list != nil && len(sets) > 1 && !slices.ContainsFunc(divisions, func(o []workflow.ModelGroup) bool { return sameModels(o, list) }) {
			divisions = append(divisions, list)
		}
	}
	// First all language models have devices alone, then the first one, then the first two. With few models these are the same, and add
	// drops the repetitions.
	n := len(needs.languageModels)
	for _, dedicatedModels := range []int{n, min(1, n), min(2, n)} {
		var sets [][]string
		for _, name := range needs.languageModels[:dedicatedModels] {
			sets = append(sets, []string{name})
		}
		otherLLMs := needs.languageModels[dedicatedModels:]
		add(append(slices.Clone(sets), slices.Concat(otherLLMs, needs.otherModels))...)
		add(append(slices.Clone(sets), otherLLMs, needs.otherModels)...)
	}
	add(needs.languageModels, needs.otherModels)
	return divisions
}

// sameModels returns whether two divisions have the same models in each group.
func sameModels(a, b []workflow.ModelGroup) bool {
	return slices.EqualFunc(a, b, func(x, y workflow.ModelGroup) bool { return slices.Equal(x.Models, y.Models) })
}

// apportionDevices divides the devices of each pool among groups of models (sets has their names) in proportion to what these need: one
// device after another goes to the group with the least devices / need. A pool that no group needs is left out. If some group gets no
// device at all, it returns nil.
func (needs *modelNeeds) apportionDevices(sets [][]string) []workflow.ModelGroup {
	groups := lists.Map(len(sets), func(i int) workflow.ModelGroup {
		return workflow.ModelGroup{Models: sets[i], Devices: make([]int, len(needs.pools))}
	})
	for k := range needs.pools {
		for range needs.pools[k].Count {
			if neediest := needs.neediestGroup(groups, k); neediest >= 0 {
				groups[neediest].Devices[k]++
			}
		}
	}
	if slices.ContainsFunc(groups, func(g workflow.ModelGroup) bool { return g.DeviceCount() == 0 }) {
		return nil
	}
	return groups
}

// neediestGroup returns the index of the group of models that gets the next device of a pool: the one whose devices there are the smallest
// multiple of its need. Among groups without devices it is the one with the largest need. If no group needs the pool, it returns -1.
func (needs *modelNeeds) neediestGroup(groups []workflow.ModelGroup, pool int) int {
	neediest, minRatio, maxNeed := -1, 0.0, 0.0
	for i := range groups {
		need := needs.groupNeed(&groups[i], pool)
		if need == 0 {
			continue
		}
		if ratio := float64(groups[i].Devices[pool]) / need; neediest < 0 || ratio < minRatio || ratio == 0 && minRatio == 0 && need > maxNeed {
			neediest, minRatio, maxNeed = i, ratio, need
		}
	}
	return neediest
}

// groupNeed returns how much the models of a group need of a pool, in devices.
func (needs *modelNeeds) groupNeed(g *workflow.ModelGroup, pool int) (need float64) {
	return lists.Sum(len(g.Models), func(i int) float64 { return needs.devicesNeeded[g.Models[i]][pool] })
}

// neighbours returns the divisions of the devices in which one device has moved from one group of models to another that needs its pool,
// for the search by simulation to try next. Those come first whose devices carry the highest rates without queueing. A group is left at
// least one device.
func (needs *modelNeeds) neighbours(groups []workflow.ModelGroup) (divisions [][]workflow.ModelGroup) {
	for source := range groups {
		for target := range groups {
			for k := range needs.pools {
				if source == target || groups[source].Devices[k] == 0 || groups[source].DeviceCount() == 1 || needs.groupNeed(&groups[target], k) == 0 {
					continue
				}
				division := slices.Clone(groups)
				for i := range division {
					division[i].Devices = slices.Clone(division[i].Devices)
				}
				division[source].Devices[k]--
				division[target].Devices[k]++
				divisions = append(divisions, division)
			}
		}
	}
	slices.SortStableFunc(divisions, func(a, b []workflow.ModelGroup) int { return cmp.Compare(needs.rateFactor(b), needs.rateFactor(a)) })
	return divisions
}

// rateFactor returns an estimate of which multiple of the planned rates all groups of models carry without queueing. A group carries its
// devices divided by its need, both as numbers of devices of all pools together, and the group that carries the least decides. Devices of
// different pools count alike, as the estimate only orders divisions.
func (needs *modelNeeds) rateFactor(groups []workflow.ModelGroup) float64 {
	minFactor := math.Inf(1)
	for i := range groups {
		devices, need := 0.0, 0.0
		for k := range needs.pools {
			devices, need = devices+float64(groups[i].Devices[k]), need+needs.groupNeed(&groups[i], k)
		}
		minFactor = min(minFactor, devices/need)
	}
	return minFactor
}

// maxDivisions limits how many divisions a search simulates.
const maxDivisions = 16

// divisionSearch looks for the division of the devices with which a plan sustains the highest rate.
type divisionSearch struct {
	tuner          *tuner
	needs          *modelNeeds
	baseSetting    tuneSetting           // setting of all plans, but for the dedicated devices
	bestGroups     []workflow.ModelGroup // groups of the best plan. If it is nil, all models share all devices.
	triedDivisions map[string]bool       // by the text of the division
}

// searchDivisions finds, by simulation, the best plan among those that divide the devices between groups of models and the one in which
// all models share them, and leaves it as t.bestAttempt. It does so only if the option dedicated is auto and some language model is asked
// for. All other options are those of baseSetting.
func (t *tuner) searchDivisions(ctx context.Context, baseSetting tuneSetting) error {
	if t.p.Values.Word("dedicated") != workflow.DedicatedAuto || !asksLanguageModels(t.p.Workload) {
		return nil
	}

	// Simulate the candidate divisions, then the plan in which all models share the devices.
	sharedAttempt, err := t.solveSetting(ctx, baseSetting)
	if sharedAttempt == nil || err != nil {
		return err
	}
	d := &divisionSearch{tuner: t, needs: newModelNeeds(sharedAttempt.result.Plan), baseSetting: baseSetting, triedDivisions: map[string]bool{}}
	for _, groups := range d.needs.candidateDivisions() {
		if proceed, err := d.tryDivision(ctx, groups); !proceed || err != nil {
			return err
		}
	}
	if proceed, err := t.consider(ctx, sharedAttempt); !proceed || err != nil {
		return err
	}

	// From the best division, move one device at a time from group to group, as long as that helps.
	for improved := t.bestAttempt != sharedAttempt; improved; {
		previousBest := t.bestAttempt
		for _, groups := range d.needs.neighbours(d.bestGroups) {
			if proceed, err := d.tryDivision(ctx, groups); !proceed || err != nil {
				return err
			}
			if t.bestAttempt != previousBest {
				break
			}
		}
		improved = t.bestAttempt != previousBest
	}
	return nil
}

// tryDivision plans with a division of the devices between groups of models and simulates the plan, unless that was tried. If it is the
// best so far, the division is recorded as bestGroups. proceed is false if the search should end: enough divisions were tried, the work
// is done, or the gap to the bound is reached.
func (d *divisionSearch) tryDivision(ctx context.Context, groups []workflow.ModelGroup) (proceed bool, err error) {
	setting := d.baseSetting
	// The last group is not named, as it has the remaining devices.
	if setting.dedicatedDevices = workflow.GroupsText(groups[:len(groups)-1], d.needs.pools); d.triedDivisions[setting.dedicatedDevices] {
		return true, nil
	}
	if len(d.triedDivisions) == maxDivisions || ctx.Err() != nil || d.tuner.isGapReached() {
		return false, nil
	}
	d.triedDivisions[setting.dedicatedDevices] = true
	current, err := d.tuner.solveSetting(ctx, setting)
	if current == nil || err != nil {
		return true, err
	}
	proceed, err = d.tuner.consider(ctx, current)
	if d.tuner.bestAttempt == current {
		d.bestGroups = groups
	}
	return proceed, err
}

// asksLanguageModels returns whether some workflow of the workload has modules that generate text.
func asksLanguageModels(w *formats.Workload) bool {
	for _, a := range formats.ApplicationsOf(w) {
		for i := range a.Segments {
			if slices.ContainsFunc(a.Segments[i].Modules, func(m formats.Module) bool { return m.Generates() }) {
				return true
			}
		}
	}
	return false
}
