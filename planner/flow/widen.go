package flow

// widen gives what is left of the deadlines to larger batches on the same devices.
// The model with the least to spare comes first, in steps from one level to the
// next that carries more.
func (p *problem) widen(s *picked) {
	asked := p.asked(s)
	done := make([]bool, len(p.models))
	for {
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

// raised moves a model to the next level that carries more, if the deadlines allow
// it.
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

// keeps tells whether all deadlines are kept.
func (p *problem) keeps(s *picked) bool {
	for a := range p.apps {
		if p.took(s, a) > p.apps[a].budget() {
			return false
		}
	}
	return true
}
