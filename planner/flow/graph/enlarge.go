package graph

import "inferplan/planner/lists"

// enlargeBatches changes a solution so that the rest of the deadlines is spent on larger batches on the same devices, which carry more
// than the planned rates. Time after time, it takes the model whose capacity is the smallest multiple of its rate, and raises its level
// (the limit on its batch times) to the next one that carries more, until no model can be raised.
func (p *problem) enlargeBatches(s *solution) {
	rates := p.modelRates(s)
	exhausted := make([]bool, len(p.models))
	for {
		// Find the model with the least spare capacity.
		tightest, minSpare := -1, 0.0
		for u := range p.models {
			if s.level[u] < 0 || exhausted[u] || rates[u] == 0 {
				continue
			}
			if spareFactor := p.capacity(s, u) / rates[u]; tightest < 0 || spareFactor < minSpare {
				tightest, minSpare = u, spareFactor
			}
		}
		if tightest < 0 {
			return
		}
		exhausted[tightest] = !p.raiseLevel(s, tightest)
	}
}

// raiseLevel raises the level of model u (the limit on its batch times, and so its batches) to the next one at
// which its devices carry more. If some deadline then fails, or there is no such level, it leaves the level and
// returns false.
func (p *problem) raiseLevel(s *solution, u int) bool {
	raised := p.withNextLevel(s, u, 1)
	if raised == nil || !p.keepsDeadlines(raised) {
		return false
	}
	*s = *raised
	return true
}

// keepsDeadlines returns whether every application keeps its deadline.
func (p *problem) keepsDeadlines(s *solution) bool {
	return !lists.Contains(len(p.apps), func(a int) bool { return p.longestPathTime(s, a) > p.apps[a].budget() })
}
