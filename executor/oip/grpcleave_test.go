package oip

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"inferplan/executor/oip/oippb"
)

// connections counts the connections of a client.
type connections struct{}

var begun atomic.Int64

func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (connections) HandleRPC(context.Context, stats.RPCStats)                         {}
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (connections) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		begun.Add(1)
	}
}

// Clients of a server that leaves connect anew, and no call is lost by that. The server still drains.
func TestLeaveHasClientsConnectAnew(t *testing.T) {
	begun.Store(0)
	s, cc := startGRPC(t, newFake(t), Options{}, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(connections{}))
	c := oippb.NewGRPCInferenceServiceClient(cc)
	done := make(chan struct{})
	var calls atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := c.ModelInfer(t.Context(), goodPB()); err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	enough := func(n int64) {
		for began := calls.Load(); calls.Load() < began+n && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
	}
	enough(100)
	if n := begun.Load(); n != 1 {
		t.Errorf("%d connections before", n)
	}
	for range 2 { // the second time does nothing
		s.Leave()
		enough(100)
	}
	if n := begun.Load(); n != 2 {
		t.Errorf("%d connections after", n)
	}
	close(done)
	clients.Wait()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.ModelInfer(t.Context(), goodPB()); err == nil {
		t.Error("a call was answered after the end")
	}
}

// A server that has ended has no clients to send elsewhere, and nothing runs on.
func TestLeaveAfterDrain(t *testing.T) {
	s, cc := startGRPC(t, newFake(t), Options{})
	if _, err := oippb.NewGRPCInferenceServiceClient(cc).ServerLive(t.Context(), &oippb.ServerLiveRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Leave()
	ended := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
		t.Error("a server runs after the end")
	}
}
