package llmserver

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"inferplan/engine/llm"
	"inferplan/testkit/llm/simserver"
)

// serve starts a server that nothing but memory connects: in a bubble of
// testing/synctest its times are exact.
func serve(t *testing.T, s *simserver.Server) *llm.Server {
	t.Helper()
	l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	end := s.Serve(l)
	transport := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 1024}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		end()
	})
	server, err := llm.Probe(context.Background(), "http://server", llm.WithHTTP(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// pipes is a network in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "server" }

// lines counts the lines of a text that hold a word.
func lines(text, word string) int {
	n := 0
	for l := range strings.Lines(text) {
		if strings.Contains(l, word) {
			n++
		}
	}
	return n
}
