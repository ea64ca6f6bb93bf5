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

// Reload switches to another plan. The workers of the new plan are started and warmed beside those in use (preload).
// Requests then go to the new plan from one moment on (switch), and the old plan answers what it has accepted
// (flush), for at most Options.FlushTimeout. Requests for text move to the new plan at once, because its instances
// are the same servers. No request waits for the flush; until it is over, the workers of both plans share the
// devices.
// Requests that the flush leaves are answered with the reason draining. The error is then ErrSwitched, and the new
// plan is in force. After any other error the old plan stays in force. ctx bounds only the preload, because a server
// that ends still owes the answers.
func (x *Executor) Reload(ctx context.Context, plan *formats.Plan, sha256 string) error {
	x.reload.Lock()
	defer x.reload.Unlock()
	if x.closed || x.draining.Load() {
		return turn.ErrClosed
	}

	// Preload.
	startedAt := time.Now()
	newCore, err := x.start(ctx, plan, sha256)
	if err != nil {
		x.metrics.switches.WithLabelValues("failed").Inc()
		return fmt.Errorf("reload: %w", err)
	}

	// Switch and flush.
	oldCore := x.core.Load()
	loadedAt := time.Now()
	x.install(newCore)
	flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), x.opt.FlushTimeout)
	defer cancel()
	if _, isText := oldCore.Answerer.(*text.TextAnswers); isText {
		oldCore.MoveRequests() // requests without a result move to the new plan with their text
	} else if err = oldCore.Drain(flushCtx); err != nil {
		err = fmt.Errorf("requests of the old plan were still under way after %v: %w", x.opt.FlushTimeout, err)
	}

	// Stop the old plan and keep its counts.
	flushedAt := time.Now()
	x.metrics.recordSwitch(loadedAt.Sub(startedAt), flushedAt.Sub(loadedAt))
	x.opt.Log.Info("plan switched", "preload", loadedAt.Sub(startedAt), "flush", flushedAt.Sub(loadedAt))
	if err = errors.Join(err, oldCore.Stop(), x.history.addEnded(oldCore)); err != nil {
		return fmt.Errorf("reload: %w: %w", turn.ErrSwitched, err)
	}
	return nil
}

// executorMetrics are the series that outlive a plan.
type executorMetrics struct {
	registry *prometheus.Registry
	switches *prometheus.CounterVec
	phases   *prometheus.GaugeVec
	planning prometheus.Gauge
}

// newExecutorMetrics registers the series that outlive a plan (switches of plans, their times, and whether this process
// plans for others) in a registry of their own.
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
		planning: prometheus.NewGauge(prometheus.GaugeOpts{Name: series.Prefix + "plans", Help: "1 while this process plans the queue that it shares with others."}),
	}
	m.registry.MustRegister(m.switches, m.phases, m.planning)
	return m
}

// recordSwitch records a switch that succeeded, with the times of its phases.
func (m *executorMetrics) recordSwitch(preload, flush time.Duration) {
	m.switches.WithLabelValues("done").Inc()
	m.phases.WithLabelValues("preload").Set(preload.Seconds())
	m.phases.WithLabelValues("flush").Set(flush.Seconds())
}
