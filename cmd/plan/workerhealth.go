package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"inferplan/engine/worker"
	"inferplan/executor/httplimit"
)

// serveHealth serves the health check of a worker's host at --health until stop is called. GET /live is 200 while the process answers. GET
// /ready is 200 while the server has admitted every device of the host, else 503. If the flag is off, it serves nothing.
func (o *workerOptions) serveHealth(state *worker.JoinState, log *slog.Logger) (stop func(), err error) {
	if o.health == "" || o.health == httplimit.AddressOff {
		return func() {}, nil
	}
	if !isHostPort(o.health) {
		return nil, usageErrorf("--health: found %q, expected HOST:PORT or off", o.health)
	}
	l, err := net.Listen("tcp", o.health)
	if err != nil {
		return nil, fmt.Errorf("--health: %w", err)
	}
	log.Info("health check", "address", l.Addr().String())
	server := healthServer(state, log)
	go server.Serve(l) //nolint:errcheck // it ends with Close
	return func() { server.Close() }, nil
}

// healthServer returns the server of the health check of a worker's host.
func healthServer(state *worker.JoinState, log *slog.Logger) *http.Server {
	door := (&httplimit.Door{Log: log}).WithDefaults()
	refuse := func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusServiceUnavailable) }
	mux := http.NewServeMux()
	mux.Handle("GET /live", door.Probe(refuse, func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Holder) error {
		_, err := io.WriteString(w, "live\n")
		return err
	}))
	mux.Handle("GET /ready", door.Probe(refuse, func(w http.ResponseWriter, _ *http.Request, _ *httplimit.Holder) error {
		if !state.AllJoined() {
			return httplimit.Unavailable("not_joined", "the server has not admitted all devices of this host")
		}
		_, err := io.WriteString(w, "ready\n")
		return err
	}))
	return door.Server(mux)
}
