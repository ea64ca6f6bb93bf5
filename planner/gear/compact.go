package gear

import "slices"

// removeIdlePipelines removes pipelines that no gear sends samples to: models from the sets of a kind, and chains.
func (plan *Outcome) removeIdlePipelines(p *Problem) {
	plan.Configs = slices.Clone(plan.Configs)
	var chains []PlacedChain
	for m := range p.Models {
		firstReplica := 0

		// removeIfIdle removes the next n replicas of model m from the gears' shares if they are idle, and reports
		// whether it did. Else it moves on to the replicas behind them.
		removeIfIdle := func(n int) bool {
			for r := range plan.Gears {
				if g := &plan.Gears[r]; slices.Contains(g.Cascade.Models, uint8(m)) && sum(g.Shares[m][firstReplica:firstReplica+n]) > 0 {
					firstReplica += n
					return false
				}
			}
			for r := range plan.Gears {
				g := &plan.Gears[r]
				g.Shares = slices.Clone(g.Shares)
				g.Shares[m] = slices.Delete(slices.Clone(g.Shares[m]), firstReplica, firstReplica+n)
			}
			return true
		}
		for k := range p.Kinds {
			if n := len(plan.Replicas(m, k)); n > 0 && removeIfIdle(n) {
				for c := range plan.Configs {
					if plan.Configs[c].Kind == k {
						plan.Configs[c].ModelSet &^= 1 << m
					}
				}
			}
		}
		for _, chain := range plan.Chains {
			if chain.Chain.Model == m && !removeIfIdle(chain.Replicas()) {
				chains = append(chains, chain)
			}
		}
	}
	plan.Chains = chains
}

// removeIdleDevices removes devices that hold nothing and renumbers the others. It returns the remaining number of
// each kind.
func (plan *Outcome) removeIdleDevices() []int {
	p := plan.Problem
	models := uint32(1)<<len(p.Models) - 1
	kinds := p.Kinds
	usedCounts := make([]int, len(kinds))
	var configs []Config
	for k := range kinds {
		hasStage := map[int]bool{} // by device: whether it runs a stage
		for _, c := range plan.Chains {
			for s := range c.Devices {
				for _, d := range c.Devices[s] {
					hasStage[d] = hasStage[d] || c.Chain.Stages[s].Kind == k
				}
			}
		}

		// Renumber the devices that hold a model or a stage.
		newNumber, d := map[int]int{}, 0
		for _, c := range plan.Configs {
			if c.Kind != k {
				continue
			}
			usedConfig := c
			usedConfig.Count = 0
			for range c.Count {
				if c.ModelSet&models != 0 || hasStage[d] {
					newNumber[d] = usedCounts[k]
					usedCounts[k]++
					usedConfig.Count++
				}
				d++
			}
			if usedConfig.Count > 0 {
				configs = append(configs, usedConfig)
			}
		}

		// Renumber them in the chains.
		for c := range plan.Chains {
			chain := &plan.Chains[c]
			chain.Devices = slices.Clone(chain.Devices)
			for s := range chain.Devices {
				if chain.Chain.Stages[s].Kind == k {
					chain.Devices[s] = slices.Clone(chain.Devices[s])
					for i, d := range chain.Devices[s] {
						chain.Devices[s][i] = newNumber[d]
					}
				}
			}
		}
	}
	plan.Configs = configs
	return usedCounts
}
