package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"inferplan/engine/worker"
)

// A worker's host is live from the start, and ready while a server has all its devices.
func TestWorkerHealth(t *testing.T) {
	state, log := &worker.JoinState{}, slog.New(slog.DiscardHandler)
	check := httptest.NewServer(healthServer(state, log).Handler)
	defer check.Close()
	status := func(path string) int {
		t.Helper()
		resp, err := http.Get(check.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	becomes := func(wanted int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); status("/ready") != wanted; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("/ready is not %d within a minute", wanted)
			}
		}
	}
	if live, ready := status("/live"), status("/ready"); live != 200 || ready != 503 {
		t.Errorf("before it joins: live %d, ready %d", live, ready)
	}

	// A server admits both devices, and leaves.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	token := []byte(strings.Repeat("0123456789", 4))
	lobby, err := worker.NewJoinServer(l, token, time.Minute, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Join(ctx, worker.JoinConfig{Address: l.Addr().String(), Token: token, Host: "far", Kind: "L4", Count: 2, Models: ".", Log: log, State: state})
	}()
	becomes(200)
	lobby.Close()
	becomes(503)
	if live := status("/live"); live != 200 {
		t.Errorf("after the server has left: live %d", live)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
