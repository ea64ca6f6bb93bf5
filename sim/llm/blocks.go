package llm

import "inferplan/policy/slots"

// blocks is the KV memory of an instance, and what free blocks still hold.
type blocks struct {
	size  int32 // tokens of a block
	total int64
	used  int64
	most  int64 // used at once so far

	cache  bool
	byKey  map[int64]int32 // entries by session
	kept   []cached
	unused []int32
	head   int32 // least recently used; -1: none
	tail   int32
	held   int64 // blocks of all entries
}

// cached is a prefix that free blocks hold.
type cached struct {
	key        int64
	blocks     int64
	prev, next int32
}

func (b *blocks) init(tokens int64, size int32, cache bool) {
	*b = blocks{size: size, total: tokens / int64(size), cache: cache, head: -1, tail: -1}
	if cache {
		b.byKey = map[int64]int32{}
	}
}

// of is how many blocks so many tokens take.
func (b *blocks) of(tokens int32) int64 { return (int64(tokens) + int64(b.size) - 1) / int64(b.size) }

func (b *blocks) free() int64 { return b.total - b.used }

// take uses free blocks; what they held is lost, least recently used first.
func (b *blocks) take(n int64) {
	b.used += n
	b.most = max(b.most, b.used)
	b.shrink()
}

// shrink gives up prefixes, least recently used first, each from its end, until
// what is left fits the free blocks.
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

// give frees blocks, which hold a prefix of so many tokens of a session.
func (b *blocks) give(n int64, key int64, tokens int32) {
	b.used -= n
	if !b.cache || key == 0 {
		return
	}
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

// hit is how many tokens of a session's prefix are there.
func (b *blocks) hit(key int64) int32 {
	if !b.cache || key == 0 {
		return 0
	}
	if at, ok := b.byKey[key]; ok {
		return int32(b.kept[at].blocks) * b.size
	}
	return 0
}

// claim takes the prefix of a session out of the cache: its blocks are about to be
// used again.
func (b *blocks) claim(key int64) {
	if at, ok := b.byKey[key]; ok {
		b.forget(at)
	}
}

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
