package vqueue

// sessionTable remembers which instance holds the context of a session. A session is a number that requests share of which each repeats
// the tokens of the one before and its answer, as the turns of a conversation do. Its context is what the KV memory of an instance has
// computed of it: the latest prompt and answer. After an answer the context stays in free memory until that is needed, and is the prefix of
// the next prompt.
//
// The table has a fixed number of entries, in sets by the hash of the session. A new session takes the place of the one in its set that was
// used longest ago.
type sessionTable struct {
	fleet    *instanceFleet
	entries  []sessionEntry // nil until the first request of a session
	useCount int64          // uses of entries so far
}

// sessionEntry says where the latest request of a session ran, and how much of its context the memory there holds.
type sessionEntry struct {
	session      int64 // 0 if the entry is free
	usedAt       int64 // sessionTable.useCount at the last use
	lastRequest  int32 // number of its latest request that has started
	isRunning    bool  // that request has not been answered
	keptTokens   int32 // of the context before that request, which the same memory still had when the request started
	queueIndex   int32 // queue of the instance that ran it
	tokens       int32 // of the context
	memoryEpoch  int32 // instance.memoryEpoch when the request started
	freedThrough int64 // instance.freedTokens when the context became free, itself included
}

const (
	// sessionSets is the number of sets, a power of 2, and sessionWays that of the entries of a set.
	sessionSets, sessionWays = 1 << 12, 4
	sessionSetBits           = 12
	// hashFactor spreads sessions over the sets: 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
	hashFactor = 0x9E3779B97F4A7C15
)

// set returns the entries in which a session may be: those of the set that the hash of the session names. The table is
// allocated at the first call.
func (t *sessionTable) set(session int64) []sessionEntry {
	if t.entries == nil {
		t.entries = make([]sessionEntry, sessionSets*sessionWays)
	}
	first := uint64(session) * hashFactor >> (64 - sessionSetBits) * sessionWays
	return t.entries[first : first+sessionWays]
}

// find returns the entry of a session, or nil if the table does not have it.
func (t *sessionTable) find(session int64) *sessionEntry {
	set := t.set(session)
	for way := range set {
		if set[way].session == session {
			return &set[way]
		}
	}
	return nil
}

// noteStart notes that a request starts on its instance, and takes free memory there for its prompt and what it has of its answer. Of its
// session's context it uses the rest again.
func (t *sessionTable) noteStart(requestNumber int32, request *Request) {
	instance := &t.fleet.instances[request.instanceIndex]
	keptTokens := int32(0)
	if request.Session != 0 {
		keptTokens = t.replaceEntry(requestNumber, request, instance)
	}
	request.takenTokens = int64(max(request.promptTokens+request.producedTokens-keptTokens, 0))
	instance.takenTokens += request.takenTokens
	t.noteMemory(instance, request.Model, 0)
}

// replaceEntry makes the entry of a session that of its request that starts now on an instance. It returns how many tokens of the session's
// context the instance still has.
func (t *sessionTable) replaceEntry(requestNumber int32, request *Request, instance *Instance) (keptTokens int32) {
	entry := t.find(request.Session)
	if entry == nil { // take the entry that was used longest ago; free ones were never used
		set := t.set(request.Session)
		entry = &set[0]
		for way := range set {
			if set[way].usedAt < entry.usedAt {
				entry = &set[way]
			}
		}
	}
	if entry.session == request.Session && entry.queueIndex == request.instanceIndex && entry.memoryEpoch == instance.memoryEpoch {
		keptTokens = int32(entry.leftTokens(instance))
	}
	t.useCount++
	*entry = sessionEntry{session: request.Session, usedAt: t.useCount, lastRequest: requestNumber, isRunning: true, keptTokens: keptTokens, queueIndex: request.instanceIndex, memoryEpoch: instance.memoryEpoch}
	return keptTokens
}

// noteMemory notes up to where the contexts of an instance are lost for good, after a start or an answer of a request of a model. The memory
// loses first what became free first, so the rest are the latest tokens that fit beside those that running requests took and answerTokens,
// which a request without a session held until now:
//
//	lostThrough = freedTokens - (kvTokens - takenTokens - answerTokens)
//
// What was lost does not come back when requests leave, and no more than all can be lost. Without a figure of the memory (0) nothing is.
func (t *sessionTable) noteMemory(instance *Instance, model int32, answerTokens int64) {
	if _, kvTokens := t.fleet.Capacity(instance, t.fleet.networkOf(model)); kvTokens > 0 {
		lost := instance.freedTokens + instance.takenTokens + answerTokens - kvTokens
		instance.lostThrough = max(instance.lostThrough, min(lost, instance.freedTokens))
	}
}

// leftTokens returns how many tokens of the context of an entry are not lost for good on its instance.
func (e *sessionEntry) leftTokens(instance *Instance) int64 {
	return max(min(int64(e.tokens), e.freedThrough-instance.lostThrough), 0)
}

// noteAnswer notes that a request, which has left its instance, was answered with a number of tokens, 0 if that is not known: the context
// of its session is in free memory now.
func (t *sessionTable) noteAnswer(requestNumber int32, request *Request, answerTokens int32) {
	contextTokens, instance := request.promptTokens+answerTokens, &t.fleet.instances[request.instanceIndex]
	if request.Session == 0 {
		t.noteMemory(instance, request.Model, int64(contextTokens))
		return
	}
	defer t.noteMemory(instance, request.Model, 0)
	entry := t.find(request.Session)
	isLatest := entry != nil && entry.isRunning && entry.lastRequest == requestNumber
	if !isLatest { // its context is in free memory, but no later request of the session will find it
		instance.freedTokens += int64(contextTokens)
		return
	}

	// Only what the context has grown by takes memory from others.
	instance.freedTokens += int64(max(contextTokens-entry.keptTokens, 0))
	entry.isRunning, entry.tokens, entry.freedThrough = false, contextTokens, instance.freedTokens
}

// prefixOf returns the queue of the instance whose free memory holds the context of a waiting request's session, and how many tokens of the
// prompt that saves. If there is none, it returns noQueue: the session is new, its latest request runs, or the instance is not up, has
// another network, or has used the memory for others.
//
// Memory is used up from the context that became free longest ago on, each from its end.
func (t *sessionTable) prefixOf(request *Request) (queueIndex, tokens int32) {
	if request.Session == 0 {
		return noQueue, 0
	}
	entry := t.find(request.Session)
	if entry == nil || entry.isRunning {
		return noQueue, 0
	}
	instance, network := &t.fleet.instances[entry.queueIndex], t.fleet.networkOf(request.Model)
	if !instance.IsUp() || instance.LoadedNetwork != network || instance.memoryEpoch != entry.memoryEpoch || !t.fleet.keepsPrefixes(instance) {
		return noQueue, 0
	}

	// Contexts that became free later, and requests that run or ran since, have a part of the memory. Its size may not be known (0).
	remaining := entry.leftTokens(instance)
	if _, kvTokens := t.fleet.Capacity(instance, network); kvTokens > 0 {
		freedLater := instance.freedTokens - entry.freedThrough
		remaining = min(remaining, kvTokens-instance.reservedKVTokens-freedLater)
	}
	remaining = min(remaining, int64(request.promptTokens)-1) // the last token of a prompt is always computed
	if remaining <= 0 {
		return noQueue, 0
	}
	return entry.queueIndex, int32(remaining)
}

// keepsPrefixes reports whether the free memory of an instance serves as a cache of prefixes: as the plan says, else as servers do by
// default.
func (f *instanceFleet) keepsPrefixes(instance *Instance) bool {
	server := f.tables.Instances[f.tables.InstanceOf(instance.Device)].Server
	return server == nil || server.PrefixCache
}
