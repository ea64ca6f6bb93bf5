package llm

import "inferplan/policy/slots"

// blockStore is the KV memory of an instance, with the prefixes that free blocks still hold.
type blocks struct {
	size  int32 // tokens of a block
	total int64 // number of blocks
	used  int64
	most  int64 // most blocks in use at once so far

	cache  bool
	byKey  map[int64]int32 // index into prefixes
	kept   []cached
	unused []int32
	head   int32 // least recently used prefix, or -1
	tail   int32 // most recently used prefix, or -1
	held   int64 // blocks of all prefixes
}

// cachedPrefix is the prefix of a session that free blocks hold.
type cached struct {
	key        int64
	blocks     int64
	prev, next int32 // in the order of use; -1 at the ends
}

// init empties a memory of a number of tokens.
func (b *blocks) init(tokens int64, size int32, cache bool) {
	*b = blocks{size: size, total: tokens / int64(size), cache: cache, head: -1, tail: -1}
	if cache {
		b.byKey = map[int64]int32{}
	}
}

// blocksFor returns how many blocks a number of tokens takes.
func (b *blocks) of(tokens int32) int64 { return (int64(tokens) + int64(b.size) - 1) / int64(b.size) }

// freeBlocks returns the number of blocks that are not in use.
func (b *blocks) free() int64 { return b.total - b.used }

// takeBlocks uses free blocks. The prefixes in them are lost, the least recently used first.
func (b *blocks) take(n int64) {
	b.used += n
	b.most = max(b.most, b.used)
	b.shrink()
}

// dropPrefixes removes prefixes, the least recently used first and each from its end, until
// the rest fits the free blocks.
func (b *blocks) shrink() {
	for over := b.held - b.free(); over > 0; over = b.held - b.free() {
		if c := &b.kept[b.head]; c.blocks > over {
			c.blocks -= over
			b.held -= over
		} else {
			b.forget(b.head)
		}
	}
}

// returnBlocks frees blocks, which hold a prefix with some tokens of a session.
func (b *blocks) give(n int64, key int64, tokens int32) {
	b.used -= n
	if !b.cache || key == 0 {
		return
	}

	// Only full blocks can be reused. A longer prefix of the session stays.
	whole := int64(tokens / b.size)
	if at, ok := b.byKey[key]; ok {
		if b.kept[at].blocks >= whole {
			return
		}
		b.forget(at)
	}
	if whole == 0 {
		return
	}
	at := slots.Take(&b.kept, &b.unused)
	b.kept[at] = cached{key: key, blocks: whole, prev: b.tail, next: -1}
	if b.tail >= 0 {
		b.kept[b.tail].next = at
	} else {
		b.head = at
	}
	b.tail = at
	b.byKey[key] = at
	b.held += whole
	b.shrink()
}

// prefixTokens returns how many tokens of a session's prefix are cached.
func (b *blocks) hit(key int64) int32 {
	if !b.cache || key == 0 {
		return 0
	}
	if at, ok := b.byKey[key]; ok {
		return int32(b.kept[at].blocks) * b.size
	}
	return 0
}

// removePrefix removes the prefix of a session from the cache, because its blocks are about to
// be used again.
func (b *blocks) claim(key int64) {
	if at, ok := b.byKey[key]; ok {
		b.forget(at)
	}
}

// removeEntry removes a prefix.
func (b *blocks) forget(at int32) {
	c := &b.kept[at]
	if c.prev >= 0 {
		b.kept[c.prev].next = c.next
	} else {
		b.head = c.next
	}
	if c.next >= 0 {
		b.kept[c.next].prev = c.prev
	} else {
		b.tail = c.prev
	}
	b.held -= c.blocks
	delete(b.byKey, c.key)
	b.unused = append(b.unused, at)
}
