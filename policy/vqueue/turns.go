package vqueue

import "inferplan/policy/slots"

// clientTurns decides whose request is next among those of a class that wait and have not started: clients take
// turns, each with its requests in the order of arrival. With a single client the order of the groups applies.
type clientTurns struct {
	lines     []clientLine
	freeLines []int32           // indexes of unused lines
	lineOf    map[turnKey]int32 // by model and client: index in lines
	nextLine  []int32           // by served model: the line whose turn it is; -1 if nobody waits
}

// clientLine has the waiting requests of a client for a served model. The lines of a model form a ring.
type clientLine struct {
	turnKey
	firstRequest, lastRequest int32 // numbers of the requests at both ends
	size                      int32 // number of requests
	nextLine, prevLine        int32 // neighbours in the ring, indexes in clientTurns.lines
}

// turnKey identifies a line: the served model and the client.
type turnKey struct{ model, client int32 }

// newClientTurns returns the turns of clients, in which the clients of a served model alternate, for this many models. At first no client waits (-1).
func newClientTurns(models int) clientTurns {
	turns := clientTurns{lineOf: map[turnKey]int32{}, nextLine: make([]int32, models)}
	for model := range turns.nextLine {
		turns.nextLine[model] = -1
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
	lineIndex, ok := turns.lineOf[turnKey{request.model, request.client}]
	if !ok {
		lineIndex = turns.openLine(turnKey{request.model, request.client})
	}

	// Link it behind the last request of the line.
	line := &turns.lines[lineIndex]
	request.clientLine, request.behindInLine, request.aheadInLine = lineIndex, -1, line.lastRequest
	if line.lastRequest >= 0 {
		t.byNumber[line.lastRequest].behindInLine = requestNumber
	} else {
		line.firstRequest = requestNumber
	}
	line.lastRequest = requestNumber
	line.size++
}

// openLine adds an empty line for a client that had no waiting request, and returns its index.
// It becomes the last of the ring of its model, which is just before the line whose turn is next.
func (t *clientTurns) openLine(key turnKey) int32 {
	lineIndex := slots.Take(&t.lines, &t.freeLines)
	line := &t.lines[lineIndex]
	*line = clientLine{turnKey: key, firstRequest: -1, lastRequest: -1, nextLine: lineIndex, prevLine: lineIndex}
	if head := t.nextLine[key.model]; head >= 0 {
		line.nextLine, line.prevLine = head, t.lines[head].prevLine
		t.lines[line.prevLine].nextLine, t.lines[head].prevLine = lineIndex, lineIndex
	} else {
		t.nextLine[key.model] = lineIndex
	}
	t.lineOf[key] = lineIndex
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

	// Unlink the request.
	if request.aheadInLine < 0 {
		line.firstRequest = request.behindInLine
	} else {
		t.byNumber[request.aheadInLine].behindInLine = request.behindInLine
	}
	if request.behindInLine < 0 {
		line.lastRequest = request.aheadInLine
	} else {
		t.byNumber[request.behindInLine].aheadInLine = request.aheadInLine
	}
	request.clientLine, request.aheadInLine, request.behindInLine = -1, -1, -1
	if line.size--; line.size > 0 {
		return
	}

	// Remove an empty line; if it has the turn, pass that on.
	switch {
	case line.nextLine == lineIndex:
		turns.nextLine[line.model] = -1
	case turns.nextLine[line.model] == lineIndex:
		turns.nextLine[line.model] = line.nextLine
	}
	turns.lines[line.nextLine].prevLine, turns.lines[line.prevLine].nextLine = line.prevLine, line.nextLine
	delete(turns.lineOf, line.turnKey)
	turns.freeLines = append(turns.freeLines, lineIndex)
}

// hasSeveralClients reports whether requests of several clients wait for a served model.
func (t *clientTurns) hasSeveralClients(model int32) bool {
	lineIndex := t.nextLine[model]
	return lineIndex >= 0 && t.lines[lineIndex].nextLine != lineIndex
}

// endTurn passes the turn on if a request that starts belongs to the client whose turn it is.
func (t *requestTable) endTurn(requestNumber int32) {
	if request := &t.byNumber[requestNumber]; request.clientLine >= 0 && t.turns.nextLine[request.model] == request.clientLine {
		t.turns.nextLine[request.model] = t.turns.lines[request.clientLine].nextLine
	}
}

// nextByTurn returns the number of the request that an instance takes when its queue is to serve a group: the first request of the client
// whose turn it is if that can run there, else the group's first. Requests that have started before are taken in any case.
func (s *queueServer) nextByTurn(queueIndex, groupIndex int32) int32 {
	requestNumber := s.groups.members[groupIndex].firstRequest
	request := &s.requests.byNumber[requestNumber]
	if request.clientLine < 0 || !s.requests.turns.hasSeveralClients(request.model) {
		return requestNumber
	}
	if turnRequest := s.requests.turns.lines[s.requests.turns.nextLine[request.model]].firstRequest; s.groups.canRun(s.requests.byNumber[turnRequest].groupIndex, queueIndex) {
		return turnRequest
	}
	return requestNumber
}

// countBefore returns how many waiting requests of a served model are served before a new request of a client: byTurns if clients take
// turns, and inOrder in the order of arrival. If no other client waits, the two are equal.
func (t *clientTurns) countBefore(model, client int32) (byTurns, inOrder int32) {
	// Count the waiting requests, and the lines of clients with the new one's.
	lines, size := int32(0), int32(0)
	if firstLine := t.nextLine[model]; firstLine >= 0 {
		for i := firstLine; ; {
			lines, inOrder = lines+1, inOrder+t.lines[i].size
			if t.lines[i].client == client {
				size = t.lines[i].size
			}
			if i = t.lines[i].nextLine; i == firstLine {
				break
			}
		}
	}
	if size == 0 {
		lines++
	}

	// It is served in round size+1 of the turns: each earlier round serves every client once, and in its own round all other clients may go first.
	if lines < 2 {
		return inOrder, inOrder
	}
	return min((size+1)*lines-1, inOrder), inOrder
}
