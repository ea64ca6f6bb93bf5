package httplimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Gate counts the requests that run and lets none in once it is closed. The zero value is open.
type Gate struct {
	mu       sync.Mutex
	requests int // number of requests that run
	closed   bool
	emptied  chan struct{} // made by Close, closed when no request runs any more
}

// Enter lets a request in and returns true, or returns false if the gate is closed. Leave must follow true.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.requests++
	return true
}

// Leave ends a request that was let in.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests--
	if g.closed && g.requests == 0 {
		close(g.emptied)
	}
}

// IsClosed reports whether no request is let in any more.
func (g *Gate) IsClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Close refuses requests from now on, and waits until none runs that has passed the gate. If ctx ends before, it returns
// an error; the gate stays closed. It may be called again.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.emptied = make(chan struct{})
		if g.requests == 0 {
			close(g.emptied)
		}
	}
	idle := g.emptied
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		return errors.Join(fmt.Errorf("%d requests still running", g.requests), ctx.Err())
	}
}
