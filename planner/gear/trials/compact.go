package trials

import (
	"slices"

	"inferplan/planner/gear/cascades"
	"inferplan/planner/gear/planspace"
	"inferplan/planner/lists"
)

// RemoveIdlePipelines removes from a finished plan what no gear (cascade of a range of rates) sends samples to: models
// from the sets that a kind of devices holds, and chains (members in stages). The shares of all gears lose the replicas
// that go.
func (plan *Plan) RemoveIdlePipelines(p *cascades.Problem) {
	plan.Configs = slices.Clone(plan.Configs)
	var chains []planspace.PlacedChain
	for m := range p.Models {
		next := 0 // index, in the shares of the model, of the next replica to look at
		for k := range p.Kinds {
			n := len(plan.Replicas(m, k))
			if n == 0 {
				continue
			}
			if !plan.removeIfIdle(m, next, n) {
				next += n
				continue
			}
			for c := range plan.Configs {
				if plan.Configs[c].Kind == k {
					plan.Configs[c].ModelSet &^= 1 << m
				}
			}
		}
		for _, chain := range plan.Chains {
			if chain.Chain.Model == m && !plan.removeIfIdle(m, next, chain.Replicas()) {
				next += chain.Replicas()
				chains = append(chains, chain)
			}
		}
	}
	plan.Chains = chains
}

// removeIfIdle removes n replicas of a model, from index first on in its list of shares, from all gears, if no gear
// sends them any samples, and reports whether it did. Cascades without the model send it none. Shares are copied, as
// plans may share them.
func (plan *Plan) removeIfIdle(model, first, n int) bool {
	for r := range plan.Gears {
		if g := &plan.Gears[r]; slices.Contains(g.Cascade.Models, uint8(model)) && lists.Total(g.Shares[model][first:first+n]) > 0 {
			return false
		}
	}
	for r := range plan.Gears {
		g := &plan.Gears[r]
		g.Shares = slices.Clone(g.Shares)
		g.Shares[model] = slices.Delete(slices.Clone(g.Shares[model]), first, first+n)
	}
	return true
}

// RemoveIdleDevices removes devices that hold neither a model nor a stage from the plan's configs and renumbers the
// others within their kind, in configs and chains. It returns, by kind, the number of devices that remain, which a plan
// of the fewest devices pays for.
func (plan *Plan) RemoveIdleDevices() []int {
	usedCounts := make([]int, len(plan.Problem.Kinds))
	var configs []planspace.Config
	for k := range usedCounts {
		usedConfigs, newNumber := usedDevices(plan, k)
		usedCounts[k] += lists.Sum(len(usedConfigs), func(i int) int { return usedConfigs[i].Count })
		configs = append(configs, usedConfigs...)
		renumberChains(plan.Chains, k, newNumber)
	}
	plan.Configs = configs
	return usedCounts
}

// usedDevices returns the plan's configs of kind k (how many devices hold which models) without devices that hold
// neither a model nor a stage, and a map from the number of each device that stays to its new number.
func usedDevices(plan *Plan, k int) (configs []planspace.Config, newNumber map[int]int) {
	hasStage := map[int]bool{} // by device
	for _, c := range plan.Chains {
		for s := range c.Devices {
			for _, d := range c.Devices[s] {
				hasStage[d] = hasStage[d] || c.Chain.Stages[s].Kind == k
			}
		}
	}

	// Number the devices that hold something. d is the old number.
	// Bits above those of the models are stages. Whether a device has one is in hasStage.
	allModels := uint32(1)<<len(plan.Problem.Models) - 1
	newNumber = map[int]int{}
	d := 0
	for _, c := range plan.Configs {
		if c.Kind != k {
			continue
		}
		usedConfig := c
		usedConfig.Count = 0
		for range c.Count {
			if c.ModelSet&allModels != 0 || hasStage[d] {
				newNumber[d] = len(newNumber)
				usedConfig.Count++
			}
			d++
		}
		if usedConfig.Count > 0 {
			configs = append(configs, usedConfig)
		}
	}
	return configs, newNumber
}

// renumberChains gives the stages of chains (members in stages) on devices of kind k the new numbers of these, by old
// number, after some devices were removed. The lists of devices are replaced, not changed, as other plans may share
// them.
func renumberChains(chains []planspace.PlacedChain, k int, newNumber map[int]int) {
	for c := range chains {
		chain := &chains[c]
		chain.Devices = slices.Clone(chain.Devices)
		for s := range chain.Devices {
			if chain.Chain.Stages[s].Kind != k {
				continue
			}
			chain.Devices[s] = slices.Clone(chain.Devices[s])
			for i, d := range chain.Devices[s] {
				chain.Devices[s][i] = newNumber[d]
			}
		}
	}
}
