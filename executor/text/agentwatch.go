package text

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// bindServers sets the agent's control: the servers that this process calls, or those of an agent of another process.
func (g *agent) find() (err error) {
	at := int(g.c.Tables.InstanceOf(g.device))
	if a := g.opt.Agents; a != nil {
		g.hand = newAway(a, at)
		return nil
	}
	r, err := NewReach(g.opt.Servers, g.opt.Adapters, at)
	if err != nil {
		return err
	}
	for _, name := range g.models() {
		if !r.has(name) {
			return fmt.Errorf("instance %s has no server for %s (--server %d=URL)", g.name, name, at)
		}
	}
	g.hand = r
	return nil
}

// modelNames returns the models that the instance may run.
func (g *agent) models() []string {
	var out []string
	costs := g.c.Tables.Instances[g.c.Tables.InstanceOf(g.device)].Server.Costs
	for n := range g.c.Tables.Networks {
		if costs[n].KV > 0 {
			out = append(out, g.c.Tables.Networks[n].Name)
		}
	}
	return out
}

// prepareServers makes the servers ready with the model that the instance begins with.
func (g *agent) revive(ctx context.Context) error {
	model := ""
	if r := g.c.Tables.Resident[g.device]; len(r) > 0 {
		model = g.c.Tables.Networks[r[0]].Name
	}
	return g.hand.Prepare(ctx, model, g.models())
}

// tryRevive prepares the servers and posts an event if they are ready. A missing adapter is logged once.
func (g *agent) reviveOnce(ctx context.Context) {
	gen := g.gen.Load()
	limit, cancel := context.WithTimeout(ctx, g.c.Options.LoadTimeout)
	defer cancel()
	err := g.revive(limit)
	if err == nil {
		g.lacks = ""
		g.c.Post(turn.News{Kind: serverReady, Device: g.device, Gen: gen})
	}
	if errors.Is(err, llm.ErrNoAdapter) && err.Error() != g.lacks { // logged once, until the server is restarted
		g.lacks = err.Error()
		g.c.Options.Log.Error("an instance cannot work", "instance", g.name, "error", err)
	}
}

// checkStatus checks that the servers answer and how many requests they can hold, and posts an event. A server that
// refuses the connection is gone at once, one that does not answer is after Options.SilenceTimeout.
func (g *agent) check(ctx context.Context) {
	gen := g.gen.Load()
	limit, cancel := context.WithTimeout(ctx, g.opt.Silence)
	defer cancel()
	model, _ := g.holds()
	seen, err := g.hand.Look(limit, model, func() int { _, ours := g.holds(); return ours })
	switch {
	case ctx.Err() != nil || errors.Is(err, errUnseen):
	case err != nil:
		g.c.Post(turn.News{Kind: serverLost, Device: g.device, Gen: gen, Text: silent(err, g.opt.Silence).Error()})
	default:
		n := turn.News{Kind: serverAnswers, Device: g.device, Gen: gen, Code: 1}
		if seen.Room != roomUnseen {
			g.room.Store(int32(seen.Room))
		}
		if !seen.Loaded {
			n.Code = 0
		}
		g.c.Post(n)
	}
}

// modelAndRequests returns the loaded model, or "" if there is none or an order is running, and the number of our
// requests that the server has.
func (g *agent) holds() (model string, ours int) {
	g.c.Call(func() {
		if ours = len(g.live); g.loaded >= 0 && !g.loading {
			model = g.c.Tables.Networks[g.loaded].Name
		}
	})
	return model, ours
}

// startNextOrder starts the first order that waits, unless another is running. An unload waits until no request runs.
func (g *agent) nextOrder() {
	if g.loading || len(g.orders) == 0 || !g.alive.Load() {
		return
	}
	o := g.orders[0]
	if !o.Load && len(g.live) > 0 {
		return
	}
	g.orders = g.orders[:copy(g.orders, g.orders[1:])]
	g.loading, g.doing, g.began = true, o, g.c.Now()
	gen := g.gen.Load()

	// Bound its time by a multiple of the planned load time.
	planned := time.Duration(0)
	if l := g.c.Tables.Networks[o.Network].Load; l != nil {
		planned = l[g.c.Tables.Devices[g.device].Kind][1]
	}
	limit := max(turn.HangsAfter*planned, g.c.Options.LoadTimeout)

	// Execute it. Its end is an event.
	g.wg.Go(func() {
		ctx, cancel := context.WithTimeout(g.ctx, limit)
		defer cancel()
		n := turn.News{Kind: orderDone, Device: g.device, Gen: gen}
		if err := g.hand.Change(ctx, g.c.Tables.Networks[o.Network].Name, o.Load); err != nil {
			n.Code, n.Text = uint32(policy.ReturnFailed), err.Error()
			if errors.Is(err, llm.ErrUnknownModel) {
				n.Code = uint32(policy.ReturnRefused)
			}
		}
		g.c.Post(n)
	})
}

// finishOrder handles the end of the current order: it updates the loaded model, reports to the core, and starts the
// next one.
func (g *agent) ordered(n *turn.News) {
	o, now, why := g.doing, g.c.Now(), policy.Return(n.Code)
	g.loading = false
	switch name := g.c.Tables.Networks[o.Network].Name; {
	case why != 0:
		what := map[bool]string{true: "loaded", false: "unloaded"}[o.Load]
		g.c.Options.Log.Warn("a model is not "+what, "instance", g.name, "model", name, "error", strings.TrimSpace(n.Text))
		g.lookNow()
	case !o.Load:
		g.was, g.loaded = g.loaded, -1
	default:
		g.loaded = o.Network
		g.series.loads.WithLabelValues(g.name).Inc()
		g.series.sums.loads++
		if g.was >= 0 && g.was != o.Network {
			g.series.swaps.WithLabelValues(g.name).Inc()
			g.series.sums.swaps++
		}
	}
	g.c.Loaded(&o, g.began, now, why)
	g.c.Flush()
	g.nextOrder()
}
