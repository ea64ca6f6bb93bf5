package text

import (
	"context"
	"errors"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// bindServers sets what the agent controls: the servers that this process calls, or those behind the agent of another
// process. It is called at the start, with the servers of all instances. If a model of the instance has no server, it
// returns an error, unless servers come and go.
func (g *instanceAgent) bindServers(list []InstanceServer) error {
	if a := g.options.Agents; a != nil {
		g.remote = newRemoteServers(a, int(g.core.Tables.InstanceOf(g.device)))
		return nil
	}
	r := g.bind(list)
	g.local.Store(r)
	if g.options.Discovery != nil {
		return nil
	}
	return r.unusable
}

// modelNames returns the models that the instance may run: those for whose KV cache (the memory of the tokens of running
// requests) the plan has room there.
func (g *instanceAgent) modelNames() []string {
	var out []string
	costs := g.instance().Server.Costs
	for n := range g.core.Tables.Networks {
		if costs[n].KVTokens > 0 {
			out = append(out, g.core.Tables.Networks[n].Name)
		}
	}
	return out
}

// prepare makes the servers ready with the model that the instance begins with, the resident one of the
// plan. It is called at the start and after a loss.
func (g *instanceAgent) prepare(ctx context.Context) error {
	model := ""
	if r := g.core.Tables.Resident[g.device]; len(r) > 0 {
		model = g.core.Tables.Networks[r[0]].Name
	}
	return g.control().Prepare(ctx, model, g.modelNames())
}

// tryRevive is called from time to time while the instance is lost. It prepares the servers and posts an event if
// they are ready. A missing adapter is logged once, until another one is missing.
func (g *instanceAgent) tryRevive(ctx context.Context) {
	gen := g.watch.lossCount.Load()
	reviveCtx, cancel := context.WithTimeout(ctx, g.core.Options.LoadTimeout)
	defer cancel()
	g.cancelRevive.Store(&cancel)
	err := g.prepare(reviveCtx)
	if err == nil {
		g.loggedLack = ""
		g.post(eventServerReady, gen, "")
	}
	if errors.Is(err, llm.ErrNoAdapter) && err.Error() != g.loggedLack { // logged once, until the server is restarted
		g.loggedLack = err.Error()
		g.core.Options.Log.Error("an instance cannot work", "instance", g.name, "error", err)
	}
}

// checkStatus checks that the servers answer and how many requests they can hold, and posts an event. A server that
// refuses the connection is gone at once, one that does not answer is after Options.SilenceTimeout.
func (g *instanceAgent) checkStatus(ctx context.Context) {
	gen := g.watch.lossCount.Load()
	checkCtx, cancel := context.WithTimeout(ctx, g.options.SilenceTimeout)
	defer cancel()
	model, _ := g.modelAndRequests()
	status, err := g.control().Status(checkCtx, model, func() int { _, ours := g.modelAndRequests(); return ours })
	switch {
	case ctx.Err() != nil || errors.Is(err, errStatusUnknown):
	case err != nil:
		g.post(eventServerLost, gen, describeTimeout(err, g.options.SilenceTimeout).Error())
	default:
		n := turn.BackendEvent{Kind: eventServerAnswers, Device: g.device, Generation: gen, Code: 1}
		if status.Room != roomUnknown {
			g.maxOwnRequests.Store(int32(status.Room))
		}
		if !status.Loaded {
			n.Code = 0
		}
		g.core.Inbox.PostEvents(n)
	}
}

// modelAndRequests returns the loaded model, or "" if there is none or an order is running, and the number of our
// requests that the server has.
func (g *instanceAgent) modelAndRequests() (model string, ours int) {
	g.core.Loop.CallInRound(func() {
		if ours = len(g.running); g.loadedNetwork >= 0 && !g.orderRunning {
			model = g.core.Tables.Networks[g.loadedNetwork].Name
		}
	})
	return model, ours
}

// startNextOrder starts the first waiting order to load or unload a model, unless another is running or the server
// is down. An unload waits until no request runs. It is called whenever one of these may have changed.
func (g *instanceAgent) startNextOrder() {
	if g.orderRunning || len(g.pendingOrders) == 0 || !g.watch.alive.Load() {
		return
	}
	o := g.pendingOrders[0]
	if !o.Load && len(g.running) > 0 {
		return
	}
	g.pendingOrders = g.pendingOrders[:copy(g.pendingOrders, g.pendingOrders[1:])]
	g.orderRunning, g.currentOrder, g.orderBeganAt = true, o, g.core.Loop.Now()
	gen := g.watch.lossCount.Load()

	// Bound its time by a multiple of the planned load time.
	plannedTime := time.Duration(0)
	if l := g.core.Tables.Networks[o.Network].LoadTimes; l != nil {
		// Index 1 is the planned time of a cold load, from disk.
		plannedTime = l[g.core.Tables.Devices[g.device].Kind][1]
	}
	limit := max(turn.HangFactor*plannedTime, g.core.Options.LoadTimeout)

	// Execute it. Its end is an event.
	g.requests.wg.Go(func() {
		ctx, cancel := context.WithTimeout(g.requests.ctx, limit)
		defer cancel()
		n := turn.BackendEvent{Kind: eventOrderDone, Device: g.device, Generation: gen}
		if err := g.control().SetLoaded(ctx, g.core.Tables.Networks[o.Network].Name, o.Load); err != nil {
			n.Code, n.Text = uint32(policy.ReturnFailed), err.Error()
			if errors.Is(err, llm.ErrUnknownModel) {
				n.Code = uint32(policy.ReturnRefused)
			}
		}
		g.core.Inbox.PostEvents(n)
	})
}

// finishOrder runs in a round of the core when the current order to load or unload a model has ended: it notes which
// model the instance has, counts loads and swaps (a load of another model than before), tells the policy, and starts the
// next order. n.Code is the reason of a failure, after which the server is checked, or 0.
func (g *instanceAgent) finishOrder(n *turn.BackendEvent) {
	o, now, reason := g.currentOrder, g.core.Loop.Now(), policy.ReturnReason(n.Code)
	g.orderRunning = false
	switch name := g.core.Tables.Networks[o.Network].Name; {
	case reason != 0:
		action := map[bool]string{true: "loaded", false: "unloaded"}[o.Load]
		g.core.Options.Log.Warn("a model is not "+action, "instance", g.name, "model", name, "error", strings.TrimSpace(n.Text))
		g.watch.requestCheck()
	case !o.Load:
		g.previousNetwork, g.loadedNetwork = g.loadedNetwork, -1
	default:
		g.loadedNetwork = o.Network
		g.series.loads.WithLabelValues(g.name).Inc()
		g.series.totals.loads++
		if g.previousNetwork >= 0 && g.previousNetwork != o.Network {
			g.series.swaps.WithLabelValues(g.name).Inc()
			g.series.totals.swaps++
		}
	}
	g.core.TellLoaded(&o, g.orderBeganAt, now, reason)
	g.core.Flush()
	g.startNextOrder()
}
