package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/executor/series"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
)

// Reload switches to another plan: its workers are started and warmed beside
// those in use (preload), requests go to it from one moment on (switch), and
// what the old plan has accepted is answered by it (flush), for at most
// Options.FlushTimeout; requests for text go to the new one at once instead, whose
// instances are the same servers. No request waits for the flush: until it is over, both
// plans' workers share the devices. What the flush leaves is answered with the
// reason draining, and the error is then ErrSwitched: the new plan is in force. On
// any other failure the old plan stays. ctx bounds the preload only: who ends the
// server still owes these answers.
func (x *Executor) Reload(ctx context.Context, plan *formats.Plan, sha256 string) error {
	x.reload.Lock()
	defer x.reload.Unlock()
	if x.closed || x.draining.Load() {
		return turn.ErrClosed
	}
	began := time.Now()
	next, err := x.start(ctx, plan, sha256)
	if err != nil {
		x.own.switches.WithLabelValues("failed").Inc()
		return fmt.Errorf("reload: %w", err)
	}
	old := x.core.Load()
	loaded := time.Now()
	x.install(next)
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.opt.FlushTimeout)
	defer cancel()
	if _, moves := old.Answers.(*text.Tokens); moves {
		old.Move() // what is not answered goes to the new plan, with the text so far
	} else if err = old.Drain(flush); err != nil {
		err = fmt.Errorf("requests of the old plan were still under way after %v: %w", x.opt.FlushTimeout, err)
	}
	flushed := time.Now()
	x.own.switched(loaded.Sub(began), flushed.Sub(loaded))
	x.opt.Log.Info("plan switched", "preload", loaded.Sub(began), "flush", flushed.Sub(loaded))
	if err = errors.Join(err, old.Stop(), x.history.end(old)); err != nil {
		return fmt.Errorf("reload: %w: %w", turn.ErrSwitched, err)
	}
	return nil
}

// executorMetrics are the series that outlive a plan.
type executorMetrics struct {
	registry *prometheus.Registry
	switches *prometheus.CounterVec
	phases   *prometheus.GaugeVec
	plans    prometheus.Gauge
}

func newExecutorMetrics() *executorMetrics {
	m := &executorMetrics{
		registry: prometheus.NewRegistry(),
		switches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: series.Prefix + "plan_switches_total", Help: "Switches to another plan, by outcome: done or failed.",
		}, []string{"outcome"}),
		phases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: series.Prefix + "plan_switch_seconds",
			Help: "What the last switch took: preload (both plans in memory, the old one serves) and flush (the new one serves, the old one answers what it accepted).",
		}, []string{"phase"}),
		plans: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "plans", Help: "1 while this process plans the queue that it shares with others."}),
	}
	m.registry.MustRegister(m.switches, m.phases, m.plans)
	return m
}

func (m *executorMetrics) switched(preload, flush time.Duration) {
	m.switches.WithLabelValues("done").Inc()
	m.phases.WithLabelValues("preload").Set(preload.Seconds())
	m.phases.WithLabelValues("flush").Set(flush.Seconds())
}
