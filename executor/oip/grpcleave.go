package oip

import (
	"net"
	"sync"
	"sync/atomic"
)

// Leave asks the clients of all connections to connect anew, through a load balancer that sends them elsewhere: each
// connection is closed when the calls on it have ended. New connections are still accepted. gRPC does not ask single
// connections, so another server takes the new ones while the first one ends. Before Serve, after Drain or Close, and
// after the first call, Leave does nothing.
func (s *GRPCServer) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil || s.leftServer != nil {
		return
	}
	select {
	case <-s.stop: // Drain and Close do not see a server that begins after them
		return
	default:
	}
	s.leftServer = s.server
	server := s.newServer()
	listener := &sharedListener{Listener: s.listener.Listener, next: make(chan accepted), closed: make(chan struct{})}
	s.listener.isLeft.Store(true)
	s.server, s.listener = server, listener
	s.serving.Go(func() { _ = server.Serve(listener) })
	s.serving.Go(s.leftServer.GracefulStop)
}

// stopServers closes all connections at once.
func (s *GRPCServer) stopServers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.Stop()
	if s.leftServer != nil {
		s.leftServer.Stop()
	}
}

// accept accepts connections and hands each to the server that takes new ones, until the listener is closed.
func (s *GRPCServer) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		for isTaken := false; !isTaken; {
			s.mu.Lock()
			listener := s.listener
			s.mu.Unlock()
			select {
			case listener.next <- accepted{conn, err}:
				isTaken = true
			case <-listener.closed:
				if isTaken = !listener.isLeft.Load(); isTaken && conn != nil {
					conn.Close()
				}
			}
		}
		if err != nil && !isTemporary(err) {
			return
		}
	}
}

// isTemporary reports whether a listener may accept connections after an error.
func isTemporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// accepted is the result of an Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// sharedListener is a listener for one of several servers. It gets its connections from the goroutine that accepts them
// for all. Closing it closes the listener below, unless its server has been left.
type sharedListener struct {
	net.Listener
	next      chan accepted
	closed    chan struct{}
	closeOnce sync.Once
	isLeft    atomic.Bool
}

// Accept implements net.Listener.
func (l *sharedListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.next:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *sharedListener) Close() (err error) {
	l.closeOnce.Do(func() {
		close(l.closed)
		if !l.isLeft.Load() {
			err = l.Listener.Close()
		}
	})
	return err
}
