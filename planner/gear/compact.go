package gear

import "slices"

// removeIdlePipelines removes pipelines that no gear sends samples to: models from the sets of a kind, and chains.
func (out *Outcome) leaveOut(p *Problem) {
	out.Configs = slices.Clone(out.Configs)
	var chains []PlacedChain
	for m := range p.Models {
		first := 0

		// removeIfIdle removes the next n replicas of model m from the gears' shares if they are idle, and reports
		// whether it did. Else it moves on to the replicas behind them.
		idle := func(n int) bool {
			for r := range out.Gears {
				if g := &out.Gears[r]; slices.Contains(g.Cascade.Models, uint8(m)) && sum(g.Shares[m][first:first+n]) > 0 {
					first += n
					return false
				}
			}
			for r := range out.Gears {
				g := &out.Gears[r]
				g.Shares = slices.Clone(g.Shares)
				g.Shares[m] = slices.Delete(slices.Clone(g.Shares[m]), first, first+n)
			}
			return true
		}
		for k := range p.Kinds {
			if n := len(out.Replicas(m, k)); n > 0 && idle(n) {
				for c := range out.Configs {
					if out.Configs[c].Kind == k {
						out.Configs[c].Set &^= 1 << m
					}
				}
			}
		}
		for _, chain := range out.Chains {
			if chain.Chain.Model == m && !idle(chain.Replicas()) {
				chains = append(chains, chain)
			}
		}
	}
	out.Chains = chains
}

// removeIdleDevices removes devices that hold nothing and renumbers the others. It returns the remaining number of
// each kind.
func (out *Outcome) compact() []int {
	p := out.Problem
	models := uint32(1)<<len(p.Models) - 1
	kinds := p.Kinds
	used := make([]int, len(kinds))
	var configs []Config
	for k := range kinds {
		stands := map[int]bool{} // by device: whether it runs a stage
		for _, c := range out.Chains {
			for s := range c.Devices {
				for _, d := range c.Devices[s] {
					stands[d] = stands[d] || c.Chain.Stages[s].Kind == k
				}
			}
		}

		// Renumber the devices that hold a model or a stage.
		now, d := map[int]int{}, 0
		for _, c := range out.Configs {
			if c.Kind != k {
				continue
			}
			kept := c
			kept.Count = 0
			for range c.Count {
				if c.Set&models != 0 || stands[d] {
					now[d] = used[k]
					used[k]++
					kept.Count++
				}
				d++
			}
			if kept.Count > 0 {
				configs = append(configs, kept)
			}
		}

		// Renumber them in the chains.
		for c := range out.Chains {
			chain := &out.Chains[c]
			chain.Devices = slices.Clone(chain.Devices)
			for s := range chain.Devices {
				if chain.Chain.Stages[s].Kind == k {
					chain.Devices[s] = slices.Clone(chain.Devices[s])
					for i, d := range chain.Devices[s] {
						chain.Devices[s][i] = now[d]
					}
				}
			}
		}
	}
	out.Configs = configs
	return used
}
