package vqueue

import "inferplan/policy/slots"

// clientTurns decides whose request is next among those of a class that wait and have not started: clients take
// turns, each with its requests in the order of arrival. With a single client the order of the groups applies.
type turns struct {
	lines  []clientLine
	free   []int32           // unused lines
	places map[turnKey]int32 // index of a client's line
	next   []int32           // by served model: the line whose turn it is, or -1 if nobody waits
}

// clientLine has the waiting requests of a client in a class. The lines of a class form a ring.
type clientLine struct {
	turnKey
	first, last int32 // requests at both ends
	size        int32 // number of requests
	next, prev  int32 // neighbours in the ring
}

// turnKey identifies a line: the served model and the client.
type turnKey struct{ model, client int32 }

// newClientTurns returns turns for this many served models.
func newTurns(models int) turns {
	t := turns{places: map[turnKey]int32{}, next: make([]int32, models)}
	for m := range t.next {
		t.next[m] = -1
	}
	return t
}

// joinClientLine puts a request behind the others of its client. The line of a client that had no request becomes
// the last of the ring. A request that has started before joins no line.
func (b *book) lineUp(req int32) {
	r, t := &b.requests[req], &b.turns
	if r.made > 0 || r.evictions > 0 {
		return
	}
	at, ok := t.places[turnKey{r.model, r.client}]
	if !ok {
		at = t.open(turnKey{r.model, r.client})
	}
	l := &t.lines[at]
	r.line, r.behind, r.ahead = at, -1, l.last
	if l.last >= 0 {
		b.requests[l.last].behind = req
	} else {
		l.first = req
	}
	l.last = req
	l.size++
}

// openLine adds an empty line of a client behind all others of the class.
func (t *turns) open(key turnKey) int32 {
	at := slots.Take(&t.lines, &t.free)
	l := &t.lines[at]
	*l = clientLine{turnKey: key, first: -1, last: -1, next: at, prev: at}
	if head := t.next[key.model]; head >= 0 {
		l.next, l.prev = head, t.lines[head].prev
		t.lines[l.prev].next, t.lines[head].prev = at, at
	} else {
		t.next[key.model] = at
	}
	t.places[key] = at
	return at
}

// leaveClientLine removes a request from its client's line. An empty line is removed from the ring.
func (b *book) stepOut(req int32) {
	r, t := &b.requests[req], &b.turns
	if r.line < 0 {
		return
	}
	at, l := r.line, &t.lines[r.line]

	// Unlink the request.
	if r.ahead < 0 {
		l.first = r.behind
	} else {
		b.requests[r.ahead].behind = r.behind
	}
	if r.behind < 0 {
		l.last = r.ahead
	} else {
		b.requests[r.behind].ahead = r.ahead
	}
	r.line, r.ahead, r.behind = -1, -1, -1
	if l.size--; l.size > 0 {
		return
	}

	// Remove an empty line; if it has the turn, pass that on.
	switch {
	case l.next == at:
		t.next[l.model] = -1
	case t.next[l.model] == at:
		t.next[l.model] = l.next
	}
	t.lines[l.next].prev, t.lines[l.prev].next = l.prev, l.next
	delete(t.places, l.turnKey)
	t.free = append(t.free, at)
}

// hasSeveralClients reports whether several clients wait in a class.
func (t *turns) shared(model int32) bool {
	at := t.next[model]
	return at >= 0 && t.lines[at].next != at
}

// endTurn ends the turn of a request's client.
func (b *book) pass(req int32) {
	if r := &b.requests[req]; r.line >= 0 && b.turns.next[r.model] == r.line {
		b.turns.next[r.model] = b.turns.lines[r.line].next
	}
}

// nextByTurn returns the request that an instance takes for its next group: the first of the client whose turn it
// is in the group's class if it can run there, else the group's first. Requests that have started before are taken
// in any case.
func (s *serving) turn(q, g int32) int32 {
	req := s.groups[g].first
	r := &s.requests[req]
	if r.line < 0 || !s.turns.shared(r.model) {
		return req
	}
	if other := s.turns.lines[s.turns.next[r.model]].first; s.runs(s.requests[other].group, q) {
		return other
	}
	return req
}

// countBefore returns how many waiting requests of a class are served before a new request of a client: with
// turns, and in the order of arrival. If no other client waits, the two are equal.
func (t *turns) before(model, client int32) (byTurns, all int32) {
	lines, size := int32(0), int32(0)
	if at := t.next[model]; at >= 0 {
		for i := at; ; {
			lines, all = lines+1, all+t.lines[i].size
			if t.lines[i].client == client {
				size = t.lines[i].size
			}
			if i = t.lines[i].next; i == at {
				break
			}
		}
	}
	if size == 0 {
		lines++
	}
	if lines < 2 {
		return all, all
	}
	return min((size+1)*lines-1, all), all
}
