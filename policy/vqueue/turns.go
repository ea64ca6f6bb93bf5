package vqueue

import "inferplan/policy/slots"

// turns is whose request goes next among those of a class that wait and have not begun:
// clients take turns, each with its requests in the order in which they came. A client
// alone has the order of its groups.
type turns struct {
	lines  []clientLine
	free   []int32
	places map[turnKey]int32 // in lines
	next   []int32           // by served model: the line whose turn it is; -1: nobody waits
}

// clientLine is the requests of a client in a class, in a ring of the class's lines.
type clientLine struct {
	turnKey
	first, last int32 // requests
	size        int32
	next, prev  int32 // lines
}

type turnKey struct{ model, client int32 }

func newTurns(models int) turns {
	t := turns{places: map[turnKey]int32{}, next: make([]int32, models)}
	for m := range t.next {
		t.next[m] = -1
	}
	return t
}

// lineUp puts a request behind the others of its client. The line of a client that had
// none is the last to come.
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

// open makes the line of a client, behind all others of the class.
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

// stepOut takes a request out of its client's line. A line without requests is free.
func (b *book) stepOut(req int32) {
	r, t := &b.requests[req], &b.turns
	if r.line < 0 {
		return
	}
	at, l := r.line, &t.lines[r.line]
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

// shared tells whether several clients wait in a class.
func (t *turns) shared(model int32) bool {
	at := t.next[model]
	return at >= 0 && t.lines[at].next != at
}

// pass ends the turn of a request's client.
func (b *book) pass(req int32) {
	if r := &b.requests[req]; r.line >= 0 && b.turns.next[r.model] == r.line {
		b.turns.next[r.model] = b.turns.lines[r.line].next
	}
}

// turn is the request that an instance takes for a group that is next: that of the
// client whose turn it is in the group's class, if it can run there, else the group's
// first. What has begun goes before.
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

// before is how many requests of a class go before a client's next one by their turns,
// and how many without them; the same where nobody else waits.
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
