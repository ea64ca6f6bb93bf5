package httplimit

import (
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

	mu      sync.Mutex
	used    int64
	leaving int64 // part of usedBytes: of holds that were cut off and have not been closed
	count   int   // number of holds with bytes
	holds   Hold  // anchor of the ring of the holds with bytes
	clients map[string]int64
	freed   chan struct{} // closed when memory is freed; nil if nobody waits
	warned  time.Time     // last line in the log
	evicted time.Time     // when a client was cut off last

	full atomic.Bool
}

// DefaultMemory is the default of the memory for requests, in bytes.
const DefaultMemory = 1 << 30

// Defaults of Budget.Patience, and the least time between two evictions.
const (
	patience         = 5 * time.Second
	betweenEvictions = 100 * time.Millisecond
)

// NewBudget returns a budget of limit bytes, or DefaultMemory if limit is 0.
func NewBudget(limit int64, log *slog.Logger) *Budget {
	if limit == 0 {
		limit = DefaultMemory
	}
	b := &Budget{limit: limit, Patience: patience, log: log, clients: map[string]int64{}}
	b.holds.prev, b.holds.next = &b.holds, &b.holds
	return b
}

// Full reports whether so little memory is free that new requests may be refused: less than a sixteenth.
func (b *Budget) Full() bool { return b.full.Load() }

// UsedBytes returns the number of bytes in use, without those of clients that were cut off.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used - b.leaving
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
type Hold struct {
	budget     *Budget
	client     string // the client's name or host
	n          int64
	sender     Sender // nil if the request has been received completely
	gone       bool   // cut off or closed
	prev, next *Hold
}

// Open prepares a hold without bytes. If b is nil, nothing will be booked.
func (h *Hold) Open(b *Budget, client string, sender Sender) {
	h.budget, h.client, h.sender = b, client, sender
}

// Grow books n more bytes, or frees them if n is negative. While the request is being received it may wait for
// memory. It returns an error if the client is refused or was cut off.
func (h *Hold) Grow(n int64) *Error {
	b := h.budget
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.await(h, n); err != nil {
		return err
	}

	// The first bytes bring the hold into the ring.
	if h.next == nil {
		h.prev, h.next = b.holds.prev, &b.holds
		h.prev.next, h.next.prev = h, h
		b.count++
	}
	h.n += n
	b.add(h.client, n)
	b.look()
	return nil
}

// waitForMemory waits until n more bytes may be booked. The caller holds b.mu, which is released while it waits.
func (b *Budget) await(h *Hold, n int64) *Error {
	var over, again *time.Timer
	for {
		// A request is small compared to the other clients, or to the other bodies, since clients may share an
		// address.
		total, clients := b.clients[h.client]+n, int64(len(b.clients))
		body, bodies := h.n+n, int64(b.count)
		if total == n {
			clients++
		}
		if h.next == nil {
			bodies++
		}
		much := h.sender != nil && total > b.limit/8/clients && body > b.limit/8/bodies

		// Decide whether it gets the memory, is refused, or gets that of others.
		switch {
		case h.gone:
			return ErrEvicted
		case n <= 0 || much && b.used+n <= b.limit-b.limit/8 || !much && b.used-b.leaving+n <= b.limit:
			return nil
		case h.sender == nil || n > b.limit || b.Patience <= 0:
			return b.orMakeRoom(h, n)
		case (total <= b.limit/clients || body <= b.limit/bodies) && time.Since(b.evicted) >= betweenEvictions && b.makeRoom(h, n):
			return nil
		}

		// Wait until memory is freed, an eviction is allowed again, or patience is over.
		if over == nil {
			over, again = time.NewTimer(b.Patience), time.NewTimer(betweenEvictions)
			defer over.Stop()
			defer again.Stop()
		}
		again.Reset(betweenEvictions)
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed, timely := b.freed, true
		b.mu.Unlock()
		select {
		case <-freed:
		case <-again.C:
		case <-over.C:
			timely = false
		}
		b.mu.Lock()
		if !timely && !h.gone {
			b.warn()
			return b.tooFull()
		}
	}
}

// evictOrRefuse makes n bytes free by cutting off others. If that fails, it returns an error.
func (b *Budget) orMakeRoom(h *Hold, n int64) *Error {
	if b.used-b.leaving+n <= b.limit || b.makeRoom(h, n) {
		return nil
	}
	b.warn()
	return b.tooFull()
}

// fullError returns the error for a client that gets no memory.
func (b *Budget) tooFull() *Error {
	return Unavailable("memory", "requests take %d bytes, at most %d are held; try again", b.used, b.limit)
}

// addBytes counts n bytes for a client. If n is negative, it wakes those that wait.
func (b *Budget) add(client string, n int64) {
	b.used += n
	if b.clients[client] += n; b.clients[client] == 0 {
		delete(b.clients, client)
	}
	if n < 0 {
		b.wake()
	}
}

// wakeWaiters wakes those that wait for memory.
func (b *Budget) wake() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// MarkReceived records that the request has been received completely, so that it cannot be cut off any more. It
// returns an error if it was cut off before.
func (h *Hold) Whole() *Error {
	b := h.budget
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.gone {
		return ErrEvicted
	}
	h.sender = nil
	return nil
}

// Close frees all bytes of the hold.
func (h *Hold) Close() {
	b := h.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.next != nil {
		h.prev.next, h.next.prev = h.next, h.prev
		h.prev, h.next = nil, nil
		b.count--
	}
	b.add(h.client, -h.n)
	if h.gone {
		b.leaving -= h.n
	}
	h.n, h.sender, h.gone = 0, nil, true
	b.look()
}

// updateFull updates what Full returns.
func (b *Budget) look() { b.full.Store(b.used-b.leaving > b.limit-b.limit/16) }

// warn logs that the budget is full, at most every ten seconds.
func (b *Budget) warn() {
	if now := time.Now(); now.Sub(b.warned) > 10*time.Second {
		b.warned = now
		b.log.Warn("the memory for requests is full: clients are refused or cut off", "bytes", b.used, "limit", b.limit)
	}
}

// evictOthers cuts off senders until n more bytes are free, and some more, so that the next ones need no search. Only
// senders of clients that take more than the requester would are cut off; of the requester's own client, those of
// larger bodies. It returns false if that does not free enough.
func (b *Budget) makeRoom(asking *Hold, n int64) bool {
	if n > b.limit {
		return false
	}

	// What each client takes, without what is being freed.
	clients := map[string]int64{asking.client: n}
	for h := b.holds.next; h != &b.holds; h = h.next {
		if !h.gone {
			clients[h.client] += h.n
		}
	}

	// The senders that may be cut off, those of the largest clients first.
	var senders []*Hold
	for h := b.holds.next; h != &b.holds; h = h.next {
		if h.sender == nil || h.gone || h == asking {
			continue
		}
		if h.client == asking.client && h.n > asking.n+n || h.client != asking.client && clients[h.client] > clients[asking.client] {
			senders = append(senders, h)
		}
	}
	slices.SortFunc(senders, func(x, y *Hold) int {
		if c := clients[y.client] - clients[x.client]; c != 0 {
			return int(max(min(c, 1), -1))
		}
		return int(max(min(y.n-x.n, 1), -1))
	})

	// Cut them off until there is enough.
	free := b.limit - (b.used - b.leaving)
	for _, h := range senders {
		if free >= n+b.limit/64 {
			break
		}
		h.gone = true
		b.leaving += h.n
		free += h.n
		evict(h.sender)
		h.sender = nil
	}
	if len(senders) > 0 {
		b.warn()
		b.evicted = time.Now()
		b.wake() // senders that were cut off may be waiting for memory
	}
	return free >= n
}

// ErrEvicted is returned to a client that was cut off for others.
var ErrEvicted = Unavailable("memory", "the memory for requests is full, and this client took most of it; try again")

// Host returns the host of an address, which identifies the client.
func Host(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			return address[:i]
		}
	}
	return address
}
