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
type JoinServer struct {
	listener net.Listener
	token    []byte
	silence  time.Duration
	log      *slog.Logger

	mu            sync.Mutex
	changeSignal  chan struct{} // closed and replaced whenever a worker joins or leaves
	closed        bool
	workers       map[*joinedWorker]struct{}
	wg            sync.WaitGroup
	unprovenSlots chan struct{} // limits connections that have not yet proved to know the token
}

// NewJoinServer accepts connections of other hosts that offer devices, on a listener, which it then owns. Hosts must
// know the token. One that is silent for longer than silence is taken for lost; 0 means DefaultSilence.
func NewJoinServer(l net.Listener, token []byte, silence time.Duration, log *slog.Logger) (*JoinServer, error) {
	if err := CheckToken(token); err != nil {
		return nil, err
	}
	if silence <= 0 {
		silence = DefaultSilence
	}
	b := &JoinServer{listener: l, token: token, silence: silence, log: log, changeSignal: make(chan struct{}), workers: map[*joinedWorker]struct{}{}, unprovenSlots: make(chan struct{}, 64)}
	b.wg.Go(b.accept)
	return b, nil
}

// Close closes the listener and all connections.
func (b *JoinServer) Close() error {
	err := b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for g := range b.workers {
		g.link.conn.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
	return err
}

// accept takes connections until the listener is closed. Beyond 64 connections that have not proved to know the token,
// it closes new ones.
func (b *JoinServer) accept() {
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
		case b.unprovenSlots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		b.wg.Go(func() { b.handleConnection(conn) })
	}
}

// handleConnection handles a connection of another host: it does the handshake, in which the host proves that it
// knows the token and offers a device, adds the device as a worker, and serves it until the connection ends.
func (b *JoinServer) handleConnection(conn net.Conn) {
	defer conn.Close()
	g := &joinedWorker{link: link{conn: conn, silence: handshakeTime}, ended: make(chan struct{})}

	// The handshake and the offer must come in time.
	timeout := time.AfterFunc(handshakeTime, func() { conn.Close() })
	var offered *offer
	var err error
	if t, ok := conn.(*tls.Conn); ok {
		if err = t.Handshake(); err != nil {
			err = fmt.Errorf("TLS: %w", err)
		}
	}
	if err == nil {
		offered, err = g.link.admitWorker(b.token)
	}
	<-b.unprovenSlots
	if !timeout.Stop() || err != nil {
		b.log.Warn("a worker was not admitted", "from", conn.RemoteAddr().String(), "error", err)
		return
	}

	// Add the worker, serve its connection, and remove it when that ends.
	g.link.silence, g.offer = b.silence, offered
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.workers[g] = struct{}{}
	b.notifyWaiters()
	b.mu.Unlock()
	b.log.Info("a worker joined", "host", offered.Host, "kind", offered.Kind, "index", offered.Index, "from", conn.RemoteAddr().String())
	err = g.serve()
	b.mu.Lock()
	delete(b.workers, g)
	b.notifyWaiters()
	b.mu.Unlock()
	b.log.Info("a worker's connection ended", "host", offered.Host, "kind", offered.Kind, "index", offered.Index, "error", err)
}

// notifyWaiters wakes the callers that wait in takeWorker. The caller holds b.mu.
func (b *JoinServer) notifyWaiters() {
	close(b.changeSignal)
	b.changeSignal = make(chan struct{})
}

// takeWorker waits for an idle worker (a connection of another host that offers a device) of a kind of device, and
// marks it as taken by owner. A device offers itself more than once, so that the next plan can load beside the plan
// in force. One owner gets each device at most once.
func (b *JoinServer) takeWorker(ctx context.Context, owner any, kind string) (*joinedWorker, error) {
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
		heldByOwner, workersTaken := map[device]bool{}, map[device]int{}
		for g := range b.workers {
			if g.owner != nil {
				d := device{g.offer.Host, g.offer.Index}
				workersTaken[d]++
				heldByOwner[d] = heldByOwner[d] || g.owner == owner
			}
		}

		// Take a worker of the least used device, by host and index among equals.
		var best *joinedWorker
		for g := range b.workers {
			d := device{g.offer.Host, g.offer.Index}
			if g.owner != nil || g.offer.Kind != kind || heldByOwner[d] {
				continue
			}
			if best == nil || workersTaken[d] < workersTaken[device{best.offer.Host, best.offer.Index}] ||
				workersTaken[d] == workersTaken[device{best.offer.Host, best.offer.Index}] && (d.host < best.offer.Host || d.host == best.offer.Host && d.index < best.offer.Index) {
				best = g
			}
		}
		if best != nil {
			best.owner = owner
			b.mu.Unlock()
			return best, nil
		}

		// Wait until a worker joins or leaves.
		changeSignal := b.changeSignal
		b.mu.Unlock()
		select {
		case <-changeSignal:
		case <-ctx.Done():
			return nil, fmt.Errorf("no worker of kind %s has joined: %w (start one on its host with: plan worker --join ADDRESS --token-file FILE --device %s)", kind, ctx.Err(), kind)
		}
	}
}

// Start starts a worker on a device of another host, as the function Start does on this one. It waits until one has
// joined. owner stands for the plan that takes the device, see takeWorker.
func (b *JoinServer) Start(ctx context.Context, owner any, c Config) (*Process, error) {
	g, err := b.takeWorker(ctx, owner, c.Hello.Device.Kind)
	if err != nil {
		return nil, err
	}
	p, fd, err := newProcess()
	if err != nil {
		g.link.conn.Close()
		return nil, err
	}
	ctl, err := parentConn(fd)
	if err != nil {
		p.conn.Close()
		g.link.conn.Close()
		return nil, err
	}
	if p, err = p.begin(ctx, c, func() error { return g.relay(ctl) }); err != nil {
		return nil, fmt.Errorf("host %s: %w", g.offer.Host, err)
	}
	return p, nil
}
