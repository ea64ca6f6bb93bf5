package httplimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Gate counts the requests inside and lets no more in once it is closed. The zero
// value is open.
type Gate struct {
	mu     sync.Mutex
	inside int
	shut   bool
	idle   chan struct{} // made by Close, closed when nobody is inside
}

// Enter says whether a request may come in; Leave ends it.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.inside++
	return true
}

// Leave is for a request that was let in.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.shut && g.inside == 0 {
		close(g.idle)
	}
}

// Closed says whether nobody is let in any more.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// Close refuses from now on and waits until nobody is inside.
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
