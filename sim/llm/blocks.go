package llm

import "inferplan/policy/slots"

// blockStore is the KV memory of an instance, with the prefixes that free blocks still hold.
type blockStore struct {
	size       int32 // tokens of a block
	total      int64 // number of blocks
	usedBlocks int64
	maxUsed    int64 // most blocks in use at once so far

	cache           bool
	prefixBySession map[int64]int32 // index into prefixes
	prefixes        []cachedPrefix
	freePrefixes    []int32
	oldest          int32 // least recently used prefix, or -1
	newest          int32 // most recently used prefix, or -1
	prefixBlocks    int64 // blocks of all prefixes
}

// cachedPrefix is the prefix of a session that free blocks hold.
type cachedPrefix struct {
	session    int64
	blocks     int64
	prev, next int32 // in the order of use; -1 at the ends
}

// init empties a KV memory and sets its size to a number of tokens, in blocks of `size` tokens. With cache it keeps
// prefixes of sessions.
func (b *blockStore) init(tokens int64, size int32, cache bool) {
	*b = blockStore{size: size, total: tokens / int64(size), cache: cache, oldest: -1, newest: -1}
	if cache {
		b.prefixBySession = map[int64]int32{}
	}
}

// blocksFor returns how many blocks a number of tokens takes.
func (b *blockStore) blocksFor(tokens int32) int64 {
	return (int64(tokens) + int64(b.size) - 1) / int64(b.size)
}

// freeBlocks returns the number of blocks that are not in use.
func (b *blockStore) freeBlocks() int64 { return b.total - b.usedBlocks }

// takeBlocks uses free blocks. The prefixes in them are lost, the least recently used first.
func (b *blockStore) takeBlocks(n int64) {
	b.usedBlocks += n
	b.maxUsed = max(b.maxUsed, b.usedBlocks)
	b.dropPrefixes()
}

// dropPrefixes removes prefixes, the least recently used first and each from its end, until
// the rest fits the free blocks.
func (b *blockStore) dropPrefixes() {
	for excess := b.prefixBlocks - b.freeBlocks(); excess > 0; excess = b.prefixBlocks - b.freeBlocks() {
		if c := &b.prefixes[b.oldest]; c.blocks > excess {
			c.blocks -= excess
			b.prefixBlocks -= excess
		} else {
			b.removeEntry(b.oldest)
		}
	}
}

// returnBlocks frees n blocks of KV memory of a sequence that leaves. With a prefix cache, the full blocks of its
// first tokens stay as the cached prefix of its session, the newest one, until the memory is needed. Key 0 means no
// session.
func (b *blockStore) returnBlocks(n int64, key int64, tokens int32) {
	b.usedBlocks -= n
	if !b.cache || key == 0 {
		return
	}

	// Only full blocks can be reused. A longer prefix of the session stays.
	fullBlocks := int64(tokens / b.size)
	if index, ok := b.prefixBySession[key]; ok {
		if b.prefixes[index].blocks >= fullBlocks {
			return
		}
		b.removeEntry(index)
	}
	if fullBlocks == 0 {
		return
	}
	index := slots.Take(&b.prefixes, &b.freePrefixes)
	b.prefixes[index] = cachedPrefix{session: key, blocks: fullBlocks, prev: b.newest, next: -1}
	if b.newest >= 0 {
		b.prefixes[b.newest].next = index
	} else {
		b.oldest = index
	}
	b.newest = index
	b.prefixBySession[key] = index
	b.prefixBlocks += fullBlocks
	b.dropPrefixes()
}

// prefixTokens returns how many tokens of a session's prefix are cached.
func (b *blockStore) prefixTokens(key int64) int32 {
	if !b.cache || key == 0 {
		return 0
	}
	if index, ok := b.prefixBySession[key]; ok {
		return int32(b.prefixes[index].blocks) * b.size
	}
	return 0
}

// removePrefix removes the prefix of a session from the cache, because its blocks are about to
// be used again.
func (b *blockStore) removePrefix(key int64) {
	if index, ok := b.prefixBySession[key]; ok {
		b.removeEntry(index)
	}
}

// removeEntry removes a cached prefix from the list by age and from the index by session, and frees its slot.
func (b *blockStore) removeEntry(index int32) {
	c := &b.prefixes[index]
	if c.prev >= 0 {
		b.prefixes[c.prev].next = c.next
	} else {
		b.oldest = c.next
	}
	if c.next >= 0 {
		b.prefixes[c.next].prev = c.prev
	} else {
		b.newest = c.prev
	}
	b.prefixBlocks -= c.blocks
	delete(b.prefixBySession, c.session)
	b.freePrefixes = append(b.freePrefixes, index)
}
