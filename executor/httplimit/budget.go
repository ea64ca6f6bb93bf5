package httplimit

import (
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Budget bounds the memory of requests, from their first byte until nobody
// needs their data any more, over both transports: bytes that were received and
// what decoding adds to them. What a client announces counts for nothing.
//
// The last eighth is for clients, and bodies, that take no more than their share of
// it. When the rest is full the others wait: what they send stays in their connections and costs
// nothing here. Who takes more than a fair share is refused when its patience is over.
// For one that takes less the client that takes most makes room: what it is still
// sending is cut off, its largest body first, but not so often that clients who come
// again at once keep the server busy. A request that has come whole is never cut off.
type Budget struct {
	// Patience is how long a client that takes much waits for room. NewBudget sets it.
	Patience time.Duration

	limit int64
	log   *slog.Logger

	mu      sync.Mutex
	used    int64
	leaving int64            // part of used: of holds that were told to go
	count   int              // of holds with bytes
	holds   Hold             // ring of the holds with bytes; this one is its anchor
	clients map[string]int64 // what each takes
	freed   chan struct{}    // closed when there is more room; nil: nobody waits
	warned  time.Time
	evicted time.Time // when somebody was cut off last

	full atomic.Bool
}

// DefaultMemory is the memory for requests where nobody says how much.
const DefaultMemory = 1 << 30

// How long a client that takes much waits for room, and how long nobody is cut off
// after somebody was.
const (
	patience         = 5 * time.Second
	betweenEvictions = 100 * time.Millisecond
)

// NewBudget makes a budget of so many bytes (0: DefaultMemory), to be given to both
// servers.
func NewBudget(limit int64, log *slog.Logger) *Budget {
	if limit == 0 {
		limit = DefaultMemory
	}
	b := &Budget{limit: limit, Patience: patience, log: log, clients: map[string]int64{}}
	b.holds.prev, b.holds.next = &b.holds, &b.holds
	return b
}

// Full says whether so little is left that new requests may be refused.
func (b *Budget) Full() bool { return b.full.Load() }

// Used is the number of bytes that are taken, but for those of clients that were told
// to go.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used - b.leaving
}

// Sender is what is being received, and can be told to stop: an HTTP request by its
// http.ResponseWriter, or what has a method Evict that does not wait.
type Sender any

// evict does not wait. Where the connection of an HTTP request cannot be told,
// ReadTimeout ends it, and the body gets no more memory anyway.
func evict(s Sender) {
	switch s := s.(type) {
	case interface{ Evict() }:
		s.Evict()
	case http.ResponseWriter:
		_ = http.NewResponseController(s).SetReadDeadline(time.Unix(1, 0))
	}
}

// Hold is what one request, or the unfinished requests of one gRPC connection,
// take. Its fields are the budget's to touch.
type Hold struct {
	budget     *Budget
	client     string // host
	n          int64
	sender     Sender // nil: the request has come whole
	gone       bool   // told to go, or closed
	prev, next *Hold
}

// Open sets up a hold with nothing in it. One without a budget books nothing.
func (h *Hold) Open(b *Budget, client string, sender Sender) {
	h.budget, h.client, h.sender = b, client, sender
}

// Grow takes n bytes more, or fewer where n is negative. It may wait where the hold is
// of something that is still being received.
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

// await returns when n bytes more may be taken, with b.mu held.
func (b *Budget) await(h *Hold, n int64) *Error {
	var over, again *time.Timer
	for {
		// What is little: of a client among clients, or of a body among bodies, for
		// clients may share an address.
		total, clients := b.clients[h.client]+n, int64(len(b.clients))
		body, bodies := h.n+n, int64(b.count)
		if total == n {
			clients++
		}
		if h.next == nil {
			bodies++
		}
		much := h.sender != nil && total > b.limit/8/clients && body > b.limit/8/bodies
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

// orMakeRoom finds n bytes with others, or refuses.
func (b *Budget) orMakeRoom(h *Hold, n int64) *Error {
	if b.used-b.leaving+n <= b.limit || b.makeRoom(h, n) {
		return nil
	}
	b.warn()
	return b.tooFull()
}

func (b *Budget) tooFull() *Error {
	return Unavailable("memory", "requests take %d bytes, at most %d are held; try again", b.used, b.limit)
}

// add counts n bytes for a client and wakes those that wait where n is negative.
func (b *Budget) add(client string, n int64) {
	b.used += n
	if b.clients[client] += n; b.clients[client] == 0 {
		delete(b.clients, client)
	}
	if n < 0 {
		b.wake()
	}
}

func (b *Budget) wake() {
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// Whole says that the request has been received: it is not cut off any more.
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

// Close gives everything back.
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

// look sets the sign for probes.
func (b *Budget) look() { b.full.Store(b.used-b.leaving > b.limit-b.limit/16) }

// warn tells of a full budget, every ten seconds at most.
func (b *Budget) warn() {
	if now := time.Now(); now.Sub(b.warned) > 10*time.Second {
		b.warned = now
		b.log.Warn("the memory for requests is full: clients are refused or cut off", "bytes", b.used, "limit", b.limit)
	}
}

// makeRoom cuts off senders until n bytes more fit, and some beyond that, so
// that the next ones find room without a search. Only a client that takes more
// than the asking one would has to give way; of the same client, a larger body.
func (b *Budget) makeRoom(asking *Hold, n int64) bool {
	if n > b.limit {
		return false
	}
	clients := map[string]int64{asking.client: n}
	for h := b.holds.next; h != &b.holds; h = h.next {
		if !h.gone {
			clients[h.client] += h.n // without what leaves
		}
	}
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
		b.wake() // they may wait for room
	}
	return free >= n
}

// ErrEvicted is what a client gets that was cut off for others.
var ErrEvicted = Unavailable("memory", "the memory for requests is full, and this client took most of it; try again")

// Host is the part of an address that says who the client is.
func Host(address string) string {
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			return address[:i]
		}
	}
	return address
}
