package httplimit

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget bounds the memory of requests, over all transports, from their first byte until their data is not needed any
// more. It counts the bytes that were received and what decoding adds to them. What a client announces, such as a
// Content-Length, counts for nothing.
//
// The last eighth is reserved for clients, and for bodies, that are small: that take no more than their share of it.
// When the rest is full, the others wait; what they send stays in their connections and costs nothing here. A client
// with more than a fair share is refused when its patience is over. For one with less, clients with more are cut off
// while they send, the largest first, and of one client the largest body first. Nobody is cut off within
// evictionInterval after somebody was, so that clients that retry at once do not keep the server busy. A request that
// has been received completely is never cut off.
type Budget struct {
	// Patience is how long a client that takes much waits for memory. NewBudget sets it.
	Patience time.Duration

	limit int64
	log   *slog.Logger

	mu            sync.Mutex
	usedBytes     int64
	leavingBytes  int64      // part of usedBytes: of holds that were cut off and have not been closed
	holdCount     int        // number of holds with bytes
	ring          MemoryHold // anchor of the ring of the holds with bytes
	bytesByClient map[string]int64
	freed         chan struct{} // closed when memory is freed; nil if nobody waits
	warnedAt      time.Time     // last line in the log
	evictedAt     time.Time     // when a client was cut off last

	nearlyFull atomic.Bool
}

// DefaultMemory is the default of the memory for requests, in bytes.
const DefaultMemory = 1 << 30

// Defaults of Budget.Patience, and the least time between two evictions.
const (
	defaultPatience  = 5 * time.Second
	evictionInterval = 100 * time.Millisecond
)

// NewBudget returns a budget of limit bytes, or DefaultMemory if limit is 0.
func NewBudget(limit int64, log *slog.Logger) *Budget {
	limit = cmp.Or(limit, DefaultMemory)
	b := &Budget{limit: limit, Patience: defaultPatience, log: log, bytesByClient: map[string]int64{}}
	b.ring.prev, b.ring.next = &b.ring, &b.ring
	return b
}

// NearlyFull reports whether so little memory is free that new requests may be refused: less than a sixteenth.
func (b *Budget) NearlyFull() bool { return b.nearlyFull.Load() }

// UsedBytes returns the number of bytes in use, without those of clients that were cut off.
func (b *Budget) UsedBytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usedBytes - b.leavingBytes
}

// Sender is a request that is being received and can be cut off: the http.ResponseWriter of an HTTP request, or a
// value with a method Evict that does not block.
type Sender any

// evict cuts off a sender. It does not block. If the connection of an HTTP request cannot be interrupted, ReadTimeout
// ends it, and the body gets no more memory anyway.
func evict(s Sender) {
	switch s := s.(type) {
	case interface{ Evict() }:
		s.Evict()
	case http.ResponseWriter:
		_ = http.NewResponseController(s).SetReadDeadline(time.Unix(1, 0))
	}
}

// MemoryHold is the memory that one request has booked, or the unfinished requests of one gRPC connection. Only the
// budget accesses its fields.
type MemoryHold struct {
	budget     *Budget
	client     string // the client's name or host
	bytes      int64
	sender     Sender // nil if the request has been received completely
	evicted    bool   // cut off or closed
	prev, next *MemoryHold
}

// Open prepares a hold without bytes. If b is nil, nothing will be booked.
func (h *MemoryHold) Open(b *Budget, client string, sender Sender) {
	h.budget, h.client, h.sender = b, client, sender
}

// Grow books n more bytes, or frees them if n is negative. While the request is being received it may wait for
// memory. It returns an error if the client is refused or was cut off.
func (h *MemoryHold) Grow(n int64) *Error {
	b := h.budget
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.waitForMemory(h, n); err != nil {
		return err
	}

	// The first bytes bring the hold into the ring.
	if h.next == nil {
		h.prev, h.next = b.ring.prev, &b.ring
		h.prev.next, h.next.prev = h, h
		b.holdCount++
	}
	h.bytes += n
	b.addBytes(h.client, n)
	b.updateFull()
	return nil
}

// waitForMemory waits until the hold h (the memory of one request that is being received) may book n more bytes of the
// budget for all requests. It returns nil if it may, and an error if the hold was evicted (its request is cut off in
// favour of smaller ones), or the memory stays full for b.Patience. The last eighth of the budget is for small requests.
// The caller holds b.mu, which is released while it waits.
func (b *Budget) waitForMemory(h *MemoryHold, n int64) *Error {
	var patienceTimer, retryTimer *time.Timer
	for {
		// A request is small compared to the other clients, or to the other bodies, since clients may share an
		// address.
		total, clients := b.bytesByClient[h.client]+n, int64(len(b.bytesByClient))
		body, bodies := h.bytes+n, int64(b.holdCount)
		if total == n {
			clients++
		}
		if h.next == nil {
			bodies++
		}
		isLarge := h.sender != nil && total > b.limit/8/clients && body > b.limit/8/bodies

		// Decide whether it gets the memory, is refused, or gets that of others.
		switch {
		case h.evicted:
			return ErrEvicted
		case n <= 0 || isLarge && b.usedBytes+n <= b.limit-b.limit/8 || !isLarge && b.usedBytes-b.leavingBytes+n <= b.limit:
			return nil
		case h.sender == nil || n > b.limit || b.Patience <= 0:
			return b.evictOrRefuse(h, n)
		case (total <= b.limit/clients || body <= b.limit/bodies) && time.Since(b.evictedAt) >= evictionInterval && b.evictOthers(h, n):
			return nil
		}

		// Wait until memory is freed, an eviction is allowed again, or patience is over.
		if patienceTimer == nil {
			patienceTimer, retryTimer = time.NewTimer(b.Patience), time.NewTimer(evictionInterval)
			defer patienceTimer.Stop()
			defer retryTimer.Stop()
		}
		retryTimer.Reset(evictionInterval)
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed, withinPatience := b.freed, true
		b.mu.Unlock()
		select {
		case <-freed:
		case <-retryTimer.C:
		case <-patienceTimer.C:
			withinPatience = false
		}
		b.mu.Lock()
		if !withinPatience && !h.evicted {
			b.warn()
			return b.fullError()
		}
	}
}

// evictOrRefuse makes n bytes free by cutting off others. If that fails, it returns an error.
func (b *Budget) evictOrRefuse(h *MemoryHold, n int64) *Error {
	if b.usedBytes-b.leavingBytes+n <= b.limit || b.evictOthers(h, n) {
		return nil
	}
	b.warn()
	return b.fullError()
}

// fullError returns the error for a client that gets no memory.
func (b *Budget) fullError() *Error {
	return Unavailable("memory", "requests take %d bytes, at most %d are held; try again", b.usedBytes, b.limit)
}

// addBytes counts n bytes for a client. If n is negative, it wakes those that wait.
func (b *Budget) addBytes(client string, n int64) {
	b.usedBytes += n
	if b.bytesByClient[client] += n; b.bytesByClient[client] == 0 {
		delete(b.bytesByClient, client)
	}
	if n < 0 {
		b.wakeWaiters()
	}
}

// wakeWaiters wakes those that wait for memory.
func (b *Budget) wakeWaiters() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// MarkReceived records that the request of the hold has been received completely: from now on it cannot be cut off when
// memory is short. If it was cut off before, it returns ErrEvicted. A hold without a budget has nothing to record.
func (h *MemoryHold) MarkReceived() *Error {
	b := h.budget
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.evicted {
		return ErrEvicted
	}
	h.sender = nil
	return nil
}

// Close frees all bytes of the hold in the budget and wakes requests that wait for memory. A closed hold books no more.
// Closing twice is allowed.
func (h *MemoryHold) Close() {
	b := h.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.next != nil {
		h.prev.next, h.next.prev = h.next, h.prev
		h.prev, h.next = nil, nil
		b.holdCount--
	}
	b.addBytes(h.client, -h.bytes)
	if h.evicted {
		b.leavingBytes -= h.bytes
	}
	h.bytes, h.sender, h.evicted = 0, nil, true
	b.updateFull()
}

// updateFull updates what Full returns.
func (b *Budget) updateFull() { b.nearlyFull.Store(b.usedBytes-b.leavingBytes > b.limit-b.limit/16) }

// warn logs that the budget is full, at most every ten seconds.
func (b *Budget) warn() {
	if now := time.Now(); now.Sub(b.warnedAt) > 10*time.Second {
		b.warnedAt = now
		b.log.Warn("the memory for requests is full: clients are refused or cut off", "bytes", b.usedBytes, "limit", b.limit)
	}
}

// evictOthers cuts off senders until n more bytes are free, and some more, so that the next ones need no search. Only
// senders of clients that take more than the requester would are cut off; of the requester's own client, those of
// larger bodies. It returns false if that does not free enough.
func (b *Budget) evictOthers(requester *MemoryHold, n int64) bool {
	if n > b.limit {
		return false
	}

	// What each client takes, without what is being freed.
	clients := map[string]int64{requester.client: n}
	for h := b.ring.next; h != &b.ring; h = h.next {
		if !h.evicted {
			clients[h.client] += h.bytes
		}
	}

	// The senders that may be cut off, those of the largest clients first.
	var senders []*MemoryHold
	for h := b.ring.next; h != &b.ring; h = h.next {
		if h.sender == nil || h.evicted || h == requester {
			continue
		}
		if h.client == requester.client && h.bytes > requester.bytes+n || h.client != requester.client && clients[h.client] > clients[requester.client] {
			senders = append(senders, h)
		}
	}
	slices.SortFunc(senders, func(x, y *MemoryHold) int {
		if c := clients[y.client] - clients[x.client]; c != 0 {
			return int(max(min(c, 1), -1))
		}
		return int(max(min(y.bytes-x.bytes, 1), -1))
	})

	// Cut them off until there is enough.
	freeBytes := b.limit - (b.usedBytes - b.leavingBytes)
	for _, h := range senders {
		if freeBytes >= n+b.limit/64 {
			break
		}
		h.evicted = true
		b.leavingBytes += h.bytes
		freeBytes += h.bytes
		evict(h.sender)
		h.sender = nil
	}
	if len(senders) > 0 {
		b.warn()
		b.evictedAt = time.Now()
		b.wakeWaiters() // senders that were cut off may be waiting for memory
	}
	return freeBytes >= n
}

// ErrEvicted is returned to a client that was cut off for others.
var ErrEvicted = Unavailable("memory", "the memory for requests is full, and this client took most of it; try again")

// HostOf returns the host of an address, which identifies the client.
func HostOf(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			return address[:i]
		}
	}
	return address
}
