package flow

// enlargeBatches spends the rest of the deadlines on larger batches on the same devices. Time after time,
// it takes the model whose capacity is the smallest multiple of its rate, and raises its level to the next
// one that carries more.
func (p *problem) widen(s *picked) {
	asked := p.asked(s)
	done := make([]bool, len(p.models))
	for {
		// Find the model with the least spare capacity.
		at, least := -1, 0.0
		for u := range p.models {
			if s.level[u] < 0 || done[u] || asked[u] == 0 {
				continue
			}
			if spare := p.capacity(s, u) / asked[u]; at < 0 || spare < least {
				at, least = u, spare
			}
		}
		if at < 0 {
			return
		}
		done[at] = !p.raised(s, at)
	}
}

// raiseLevel raises the level of a model to the next one that carries more, and returns true, if all
// deadlines hold with it.
func (p *problem) raised(s *picked, u int) bool {
	was, carried := s.level[u], p.capacity(s, u)
	for s.level[u]++; s.level[u] < len(p.models[u].levels); s.level[u]++ {
		if p.capacity(s, u) <= carried {
			continue
		}
		if p.keeps(s) {
			return true
		}
		break
	}
	s.level[u] = was
	return false
}

// keepsDeadlines returns whether every application keeps its deadline.
func (p *problem) keeps(s *picked) bool {
	for a := range p.apps {
		if p.took(s, a) > p.apps[a].budget() {
			return false
		}
	}
	return true
}
