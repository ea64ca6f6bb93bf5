package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// JoinServer accepts the workers of other hosts (see Join), which wait in it until a plan needs them. A worker
// that it starts looks like one of this machine: its outputs arrive in shared memory here, where other workers
// read them.
type Lobby struct {
	listener net.Listener
	token    []byte
	silence  time.Duration
	log      *slog.Logger

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever a worker joins or leaves
	closed   bool
	joined   map[*joinedWorker]struct{}
	wg       sync.WaitGroup
	unproven chan struct{} // limits connections that have not yet proved to know the token
}

// NewJoinServer accepts workers on a listener, which it then owns. A host that is silent for longer than silence
// is taken for lost; 0 means DefaultSilence.
func NewLobby(l net.Listener, token []byte, silence time.Duration, log *slog.Logger) (*Lobby, error) {
	if err := CheckToken(token); err != nil {
		return nil, err
	}
	if silence <= 0 {
		silence = DefaultSilence
	}
	b := &Lobby{listener: l, token: token, silence: silence, log: log, changed: make(chan struct{}), joined: map[*joinedWorker]struct{}{}, unproven: make(chan struct{}, 64)}
	b.wg.Go(b.accept)
	return b, nil
}

// Close closes the listener and all connections.
func (b *Lobby) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for g := range b.joined {
		g.conn.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
	return err
}

func (b *Lobby) accept() {
	for {
		conn, err := b.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			b.log.Error("accept a worker's connection", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case b.unproven <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		b.wg.Go(func() { b.welcome(conn) })
	}
}

// handleConnection does the handshake on a connection, then serves the worker behind it until the connection ends.
func (b *Lobby) welcome(conn net.Conn) {
	defer conn.Close()
	g := &joinedWorker{link: link{conn: conn, silence: handshakeTime}, lobby: b, sleeping: make(chan struct{})}

	// The handshake and the offer must come in time.
	over := time.AfterFunc(handshakeTime, func() { conn.Close() })
	var o *offer
	var err error
	if t, ok := conn.(*tls.Conn); ok {
		if err = t.Handshake(); err != nil {
			err = fmt.Errorf("TLS: %w", err)
		}
	}
	if err == nil {
		o, err = g.admit(b.token)
	}
	<-b.unproven
	if !over.Stop() || err != nil {
		b.log.Warn("a worker was not admitted", "from", conn.RemoteAddr().String(), "error", err)
		return
	}

	// Add the worker, serve its connection, and remove it when that ends.
	g.silence, g.offer = b.silence, o
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.joined[g] = struct{}{}
	b.news()
	b.mu.Unlock()
	b.log.Info("a worker joined", "host", o.Host, "kind", o.Kind, "index", o.Index, "from", conn.RemoteAddr().String())
	err = g.live()
	b.mu.Lock()
	delete(b.joined, g)
	b.news()
	b.mu.Unlock()
	b.log.Info("a worker's connection ended", "host", o.Host, "kind", o.Kind, "index", o.Index, "error", err)
}

// notifyWaiters wakes the callers that wait in takeWorker. The caller holds b.mu.
func (b *Lobby) news() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// takeWorker waits for an idle worker of a kind of device. A device offers itself more than once, so that the next
// plan can load beside the plan in force. One owner gets each device at most once.
func (b *Lobby) take(ctx context.Context, owner any, kind string) (*joinedWorker, error) {
	type device struct {
		host  string
		index int
	}
	for {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return nil, net.ErrClosed
		}

		// Count the workers taken per device, and note the devices that the owner has.
		mine, used := map[device]bool{}, map[device]int{}
		for g := range b.joined {
			if g.owner != nil {
				d := device{g.offer.Host, g.offer.Index}
				used[d]++
				mine[d] = mine[d] || g.owner == owner
			}
		}

		// Take a worker of the least used device, by host and index among equals.
		var best *joinedWorker
		for g := range b.joined {
			d := device{g.offer.Host, g.offer.Index}
			if g.owner != nil || g.offer.Kind != kind || mine[d] {
				continue
			}
			if best == nil || used[d] < used[device{best.offer.Host, best.offer.Index}] ||
				used[d] == used[device{best.offer.Host, best.offer.Index}] && (d.host < best.offer.Host || d.host == best.offer.Host && d.index < best.offer.Index) {
				best = g
			}
		}
		if best != nil {
			best.owner = owner
			b.mu.Unlock()
			return best, nil
		}

		// Wait until a worker joins or leaves.
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no worker of kind %s has joined: %w (start one on its host with: plan worker --join ADDRESS --token FILE --device %s)", kind, ctx.Err(), kind)
		}
	}
}

// Start starts a worker on a device of another host, as the function Start does on this one. owner stands for the
// plan that takes the device, see takeWorker.
func (b *Lobby) Start(ctx context.Context, owner any, c Config) (*Process, error) {
	g, err := b.take(ctx, owner, c.Hello.Device.Kind)
	if err != nil {
		return nil, err
	}
	p, fd, err := newProcess()
	if err != nil {
		g.conn.Close()
		return nil, err
	}
	ctl, err := parentConn(fd)
	if err != nil {
		p.conn.Close()
		g.conn.Close()
		return nil, err
	}
	if p, err = p.begin(ctx, c, func() error { return g.relay(ctl) }); err != nil {
		return nil, fmt.Errorf("host %s: %w", g.offer.Host, err)
	}
	return p, nil
}
