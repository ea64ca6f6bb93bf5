package httplimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Gate counts the requests that run and lets none in once it is closed. The zero value is open.
type Gate struct {
	mu     sync.Mutex
	inside int // number of requests that run
	shut   bool
	idle   chan struct{} // made by Close, closed when no request runs any more
}

// Enter lets a request in and returns true, or returns false if the gate is closed. Leave must follow true.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside++
	return true
}

// Leave ends a request that was let in.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut && g.inside == 0 {
		close(g.idle)
	}
}

// IsClosed reports whether no request is let in any more.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// Close refuses requests from now on, and waits until none runs. It returns an error if ctx ends before.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.shut {
		g.shut = true
		g.idle = make(chan struct{})
		if g.inside == 0 {
			close(g.idle)
		}
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		return errors.Join(fmt.Errorf("%d requests still running", g.inside), ctx.Err())
	}
}
