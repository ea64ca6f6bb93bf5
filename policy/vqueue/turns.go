package vqueue

import "inferplan/policy/slots"

// clientTurns decides whose request is next among those of a class that wait and have not started: clients take
// turns, each with its requests in the order of arrival. With a single client the order of the groups applies.
type clientTurns struct {
	lines      []clientLine
	freeLines  []int32           // indexes of unused lines
	lineByKey  map[turnKey]int32 // by model and client: index in lines
	lineOfTurn []int32           // by served model: the line whose turn it is; -1 if nobody waits
}

// clientLine has the waiting requests of a client for a served model. The lines of a model form a ring.
type clientLine struct {
	turnKey
	requests               slots.List // request numbers
	nextInRing, prevInRing int32      // neighbours in the ring, indexes in clientTurns.lines
}

// turnKey identifies a line: the served model and the client.
type turnKey struct{ model, client int32 }

// newClientTurns returns the turns of clients for this many served models, when the policy is made. The waiting requests of a client for a model
// form a line, and the lines of a model take turns. At first no client waits, so that no line has the turn (-1).
func newClientTurns(models int) clientTurns {
	turns := clientTurns{lineByKey: map[turnKey]int32{}, lineOfTurn: make([]int32, models)}
	for model := range turns.lineOfTurn {
		turns.lineOfTurn[model] = -1
	}
	return turns
}

// joinClientLine puts a waiting request behind the others of its client.
// The clients of a served model take turns: their lines stand in a ring, and each turn serves the first request of the next line.
// A request that has started before joins no line, because it does not wait for a turn again.
func (t *requestTable) joinClientLine(requestNumber int32) {
	request, turns := &t.byNumber[requestNumber], &t.turns
	if request.producedTokens > 0 || request.evictionCount > 0 {
		return
	}
	lineIndex, ok := turns.lineByKey[turnKey{request.Model, request.client}]
	if !ok {
		lineIndex = turns.openLine(turnKey{request.Model, request.client})
	}

	request.clientLine = lineIndex
	t.lineLinks.Append(&turns.lines[lineIndex].requests, requestNumber)
}

// openLine adds an empty line for a client that had no waiting request, and returns its index.
// The lines of a model form a ring, in which it becomes the last: just before the line whose turn it is. The only line has the turn, and is
// its own neighbour.
func (t *clientTurns) openLine(key turnKey) int32 {
	lineIndex := slots.Take(&t.lines, &t.freeLines)
	line := &t.lines[lineIndex]
	*line = clientLine{turnKey: key, requests: slots.EmptyList, nextInRing: lineIndex, prevInRing: lineIndex}
	if turnLine := t.lineOfTurn[key.model]; turnLine >= 0 {
		line.nextInRing, line.prevInRing = turnLine, t.lines[turnLine].prevInRing
		t.lines[line.prevInRing].nextInRing, t.lines[turnLine].prevInRing = lineIndex, lineIndex
	} else {
		t.lineOfTurn[key.model] = lineIndex
	}
	t.lineByKey[key] = lineIndex
	return lineIndex
}

// leaveClientLine removes a request that starts or is dropped from its client's line.
// An empty line leaves the ring of the clients that take turns, and passes the turn on.
func (t *requestTable) leaveClientLine(requestNumber int32) {
	request, turns := &t.byNumber[requestNumber], &t.turns
	if request.clientLine < 0 {
		return
	}
	lineIndex, line := request.clientLine, &turns.lines[request.clientLine]

	request.clientLine = -1
	t.lineLinks.Remove(&line.requests, requestNumber)
	if line.requests.Len > 0 {
		return
	}

	// Remove an empty line; if it has the turn, pass that on.
	switch {
	case line.nextInRing == lineIndex: // it is the only line of the model
		turns.lineOfTurn[line.model] = -1
	case turns.lineOfTurn[line.model] == lineIndex:
		turns.lineOfTurn[line.model] = line.nextInRing
	}
	turns.lines[line.nextInRing].prevInRing, turns.lines[line.prevInRing].nextInRing = line.prevInRing, line.nextInRing
	delete(turns.lineByKey, line.turnKey)
	turns.freeLines = append(turns.freeLines, lineIndex)
}

// hasSeveralClients reports whether requests of several clients wait for a served model.
func (t *clientTurns) hasSeveralClients(model int32) bool {
	lineIndex := t.lineOfTurn[model]
	return lineIndex >= 0 && t.lines[lineIndex].nextInRing != lineIndex
}

// endTurn passes the turn on if a request that starts belongs to the client whose turn it is.
func (t *requestTable) endTurn(requestNumber int32) {
	if request := &t.byNumber[requestNumber]; request.clientLine >= 0 && t.turns.lineOfTurn[request.Model] == request.clientLine {
		t.turns.lineOfTurn[request.Model] = t.turns.lines[request.clientLine].nextInRing
	}
}

// nextByTurn returns the number of the request that an instance takes when its queue is to serve a group: the first request of the client
// whose turn it is if that can run there, else the group's first. Requests that have started before are taken in any case.
func (s *queueServer) nextByTurn(queueIndex, groupIndex int32) int32 {
	// A request in no line has started before, and a single client needs no turns.
	requestNumber := s.groups.members[groupIndex].requests.First
	request := &s.requests.byNumber[requestNumber]
	if request.clientLine < 0 || !s.requests.turns.hasSeveralClients(request.Model) {
		return requestNumber
	}

	// Take the first request of the client whose turn it is, if its group can run here.
	turnLine := s.requests.turns.lineOfTurn[request.Model]
	turnRequest := s.requests.turns.lines[turnLine].requests.First
	if s.groups.canRun(s.requests.byNumber[turnRequest].groupIndex, queueIndex) {
		return turnRequest
	}
	return requestNumber
}

// countAhead returns how many waiting requests of a served model are served before a new request of a client: aheadByTurns if clients take
// turns, and aheadByArrival, which is all of them, in the order of arrival. If no other client waits, the two are equal.
func (t *clientTurns) countAhead(model, client int32) (aheadByTurns, aheadByArrival int32) {
	// Go round the ring of the model's lines. Count the lines, the requests in them, and those of the client.
	lines, clientRequests := int32(0), int32(0)
	if firstLine := t.lineOfTurn[model]; firstLine >= 0 {
		for lineIndex := firstLine; ; {
			line := &t.lines[lineIndex]
			lines++
			aheadByArrival += line.requests.Len
			if line.client == client {
				clientRequests = line.requests.Len
			}
			lineIndex = line.nextInRing
			if lineIndex == firstLine {
				break
			}
		}
	}
	if clientRequests == 0 {
		lines++ // the new request opens a line for the client
	}
	if lines < 2 {
		return aheadByArrival, aheadByArrival
	}

	// The new request is served in round clientRequests+1 of the turns. Each earlier round serves one request of every line,
	// and in its own round all other clients may go first.
	return min((clientRequests+1)*lines-1, aheadByArrival), aheadByArrival
}
