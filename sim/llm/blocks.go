package llm

import "inferplan/policy/slots"

// blockStore is the KV memory of an instance in blocks of some tokens, with the prefixes of sessions that free blocks
// still hold.
type blockStore struct {
	blockTokens   int32 // tokens of a block
	totalBlocks   int64 // number of blocks
	usedBlocks    int64
	maxUsedBlocks int64 // most blocks in use at once so far

	hasCache        bool            // free blocks keep prefixes
	prefixBySession map[int64]int32 // by session: index in prefixes
	prefixes        []cachedPrefix
	freePrefixes    []int32
	byUse           slots.List // prefixes by their last use, the oldest first
	byUseLinks      slots.Links
	prefixBlocks    int64 // blocks of all prefixes
}

// cachedPrefix is the prefix of a session that free blocks hold.
type cachedPrefix struct {
	session int64
	blocks  int64
}

// init empties a KV memory and sets its size to a number of tokens, in blocks of blockTokens tokens. With hasCache it
// keeps prefixes of sessions.
func (b *blockStore) init(tokens int64, blockTokens int32, hasCache bool) {
	*b = blockStore{blockTokens: blockTokens, totalBlocks: tokens / int64(blockTokens), hasCache: hasCache, byUse: slots.EmptyList}
	if hasCache {
		b.prefixBySession = map[int64]int32{}
	}
}

// blocksFor returns how many blocks of KV memory a number of tokens takes; the last one may be partly filled.
func (b *blockStore) blocksFor(tokens int32) int64 {
	return (int64(tokens) + int64(b.blockTokens) - 1) / int64(b.blockTokens)
}

// freeBlocks returns the number of blocks that are not in use.
func (b *blockStore) freeBlocks() int64 { return b.totalBlocks - b.usedBlocks }

// takeBlocks takes free blocks into use. The prefixes in them are lost, the least recently used first.
func (b *blockStore) takeBlocks(blocks int64) {
	b.usedBlocks += blocks
	b.maxUsedBlocks = max(b.maxUsedBlocks, b.usedBlocks)
	b.dropPrefixes()
}

// dropPrefixes removes prefixes, the least recently used first and each from its end, until the rest fits the free
// blocks. A prefix is the start of a session's context, which free blocks still hold.
func (b *blockStore) dropPrefixes() {
	for {
		excess := b.prefixBlocks - b.freeBlocks()
		if excess <= 0 {
			return
		}
		if prefix := &b.prefixes[b.byUse.First]; prefix.blocks > excess {
			prefix.blocks -= excess
			b.prefixBlocks -= excess
		} else {
			b.removePrefixAt(b.byUse.First)
		}
	}
}

// returnBlocks frees the blocks of a sequence that leaves. With a prefix cache, the full blocks of its first tokens stay
// as the cached prefix of its session, the newest one, until the memory is needed. Session 0 means none. tokens is the
// length of the sequence's context.
func (b *blockStore) returnBlocks(blocks int64, session int64, tokens int32) {
	b.usedBlocks -= blocks
	if !b.hasCache || session == 0 {
		return
	}

	// Only full blocks can be reused. A longer prefix of the session stays.
	fullBlocks := int64(tokens / b.blockTokens)
	if index, ok := b.prefixBySession[session]; ok {
		if b.prefixes[index].blocks >= fullBlocks {
			return
		}
		b.removePrefixAt(index)
	}
	if fullBlocks == 0 {
		return
	}
	index := slots.Take(&b.prefixes, &b.freePrefixes)
	b.prefixes[index] = cachedPrefix{session: session, blocks: fullBlocks}
	b.byUseLinks.Append(&b.byUse, index)
	b.prefixBySession[session] = index
	b.prefixBlocks += fullBlocks
	b.dropPrefixes()
}

// prefixTokens returns how many tokens of a session's prefix are cached; 0 if the session has none.
func (b *blockStore) prefixTokens(session int64) int32 {
	if !b.hasCache || session == 0 {
		return 0
	}
	if index, ok := b.prefixBySession[session]; ok {
		return int32(b.prefixes[index].blocks) * b.blockTokens
	}
	return 0
}

// removePrefix removes the prefix of a session from the cache, because its blocks are about to
// be used again.
func (b *blockStore) removePrefix(session int64) {
	if index, ok := b.prefixBySession[session]; ok {
		b.removePrefixAt(index)
	}
}

// removePrefixAt removes the cached prefix at an index of prefixes from the list by age and from the index by
// session, and frees its slot.
func (b *blockStore) removePrefixAt(index int32) {
	prefix := &b.prefixes[index]
	b.byUseLinks.Remove(&b.byUse, index)
	b.prefixBlocks -= prefix.blocks
	delete(b.prefixBySession, prefix.session)
	b.freePrefixes = append(b.freePrefixes, index)
}
