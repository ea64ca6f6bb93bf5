package text

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/executor/series"
)

// refusedMessages counts and logs the messages over a shared store that were refused. Anybody with access to the
// store's servers may send some; they have no other effect.
type refusedMessages struct {
	log    *slog.Logger
	stores []durable.Shared
	count  atomic.Uint64

	lines rate.Sometimes // in the log
}

// refusedLogInterval is the least time between two lines in the log about refused messages.
const refusedLogInterval = 10 * time.Second

// open sets where refused messages are logged, and the stores that have refused some themselves.
func (r *refusedMessages) open(log *slog.Logger, stores ...durable.Shared) {
	r.log, r.stores, r.lines.Interval = log, stores, refusedLogInterval
}

// add counts a refused message and logs the reason from time to time.
func (r *refusedMessages) add(reason error) {
	n := r.count.Add(1)
	r.lines.Do(func() { r.log.Warn("a message is refused that is none of ours", "why", reason, "so far", n) })
}

// series returns the counter of refused messages, which includes those that the stores themselves have refused.
func (r *refusedMessages) series() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: series.Prefix + "refused_messages_total", Help: "Messages over the shared queue that were refused: they are none of ours, or of another key."}, func() float64 {
		n := r.count.Load()
		for _, s := range r.stores {
			n += s.RefusedMessages()
		}
		return float64(n)
	})
}

// serve serves /metrics of an agent's process (it runs language models for a process elsewhere) at an address, until
// stop is called. The series are those of Go, of the process and of refused messages. If the address is empty or "off",
// it does nothing, and stop neither.
func (r *refusedMessages) serve(address string) (stop func(), err error) {
	if address == "" || address == httplimit.AddressOff {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), r.series())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	door := (&httplimit.Door{Log: r.log}).WithDefaults()
	server := door.Server(oip.Guard(door, mux))
	go server.Serve(l) //nolint:errcheck // it ends with Close
	r.log.Info("metrics", "address", l.Addr().String())
	return func() { server.Close() }, nil
}
