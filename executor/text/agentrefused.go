package text

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"inferplan/executor/durable"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/executor/series"
)

// refusals are messages that came over a shared store and are none of ours. Whoever may
// write to the store's servers may send some: they are counted and told of, and nothing
// else comes of them.
type refusals struct {
	log    *slog.Logger
	stores []durable.Shared
	n      atomic.Uint64

	mu   sync.Mutex
	told time.Time
}

// tellRefusedAfter is how long after a line in the log about refused messages the next
// one comes.
const tellRefusedAfter = 10 * time.Second

func (r *refusals) add(why error) {
	n := r.n.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.told) >= tellRefusedAfter {
		r.told = time.Now()
		r.log.Warn("a message is refused that is none of ours", "why", why, "so far", n)
	}
}

// series counts them, with those that the stores have refused.
func (r *refusals) series() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: series.Prefix + "refused_messages_total", Help: "Messages over the shared queue that were refused: they are none of ours, or of another key."}, func() float64 {
		n := r.n.Load()
		for _, s := range r.stores {
			n += s.Refused()
		}
		return float64(n)
	})
}

// serve serves the metrics of an agent's process at an address; empty or off: it does not.
func (r *refusals) serve(address string) (stop func(), err error) {
	if address == "" || address == httplimit.Off {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), r.series())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(own, promhttp.HandlerOpts{}))
	door := (&httplimit.Door{Log: r.log}).Open()
	server := door.Server(oip.Guard(door, mux))
	go server.Serve(l) //nolint:errcheck // it ends with Close
	r.log.Info("metrics", "address", l.Addr().String())
	return func() { server.Close() }, nil
}
