package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/policy"
)

// A server that works is looked at every aliveEvery, one that is gone every
// reviveEvery.
const (
	aliveEvery  = time.Second
	reviveEvery = 250 * time.Millisecond
)

// find takes the servers of the instance from the options.
func (g *agent) find() error {
	at := int(g.c.tables.InstanceOf(g.device))
	for _, s := range g.c.opt.Servers {
		if s.Instance != at {
			continue
		}
		if _, err := llm.New(s.URL); err != nil {
			return fmt.Errorf("instance %s: %w", g.name, err)
		}
		if g.servers[s.Model] != nil {
			return fmt.Errorf("instance %s: two servers for the same models: %s and %s", g.name, g.servers[s.Model].at.URL, s.URL)
		}
		g.servers[s.Model] = &endpoint{at: s}
	}
	for n := range g.c.tables.Networks {
		name := g.c.tables.Networks[n].Name
		if g.c.tables.Instances[at].Server.Costs[n].KV > 0 && g.servers[name] == nil && g.servers[""] == nil {
			return fmt.Errorf("instance %s has no server for %s (--server %d=URL)", g.name, name, at)
		}
	}
	return nil
}

// serverOf is the server of a model; nil: it has not answered yet.
func (g *agent) serverOf(model string) *llm.Server {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.servers[model]
	if f == nil {
		f = g.servers[""]
	}
	if f == nil {
		return nil
	}
	return f.server
}

// reached are the servers, each of which has been asked what it can do.
func (g *agent) reached(ctx context.Context) ([]*llm.Server, error) {
	var out []*llm.Server
	for _, key := range slices.Sorted(maps.Keys(g.servers)) {
		g.mu.Lock()
		f := *g.servers[key]
		g.mu.Unlock()
		if f.server == nil {
			s, err := llm.Probe(ctx, f.at.URL, llm.WithKey(f.at.Key))
			if err != nil {
				return nil, err
			}
			g.mu.Lock()
			g.servers[key].server = s
			g.mu.Unlock()
			f.server = s
		}
		out = append(out, f.server)
	}
	return out, nil
}

// watch looks after the server until ctx ends.
func (g *agent) watch(ctx context.Context) {
	for {
		pause := aliveEvery
		if !g.up.Load() {
			pause = reviveEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-g.ask:
			timer.Stop()
		}
		if g.up.Load() {
			g.check(ctx)
			continue
		}
		gen := g.gen.Load()
		limit, cancel := context.WithTimeout(ctx, g.c.opt.LoadTimeout)
		err := g.revive(limit)
		cancel()
		if err == nil {
			g.c.in.post(news{what: serverReady, device: g.device, gen: gen})
		}
	}
}

// lookNow has the server looked at.
func (g *agent) lookNow() {
	select {
	case g.ask <- struct{}{}:
	default:
	}
}

// check looks whether the server answers, and how busy it is. One that refuses the
// connection is gone; one that says nothing, after Options.Silence.
func (g *agent) check(ctx context.Context) {
	gen := g.gen.Load()
	limit, cancel := context.WithTimeout(ctx, g.c.opt.Silence)
	defer cancel()
	servers, err := g.reached(limit)
	for _, s := range servers {
		if err == nil {
			err = s.Alive(limit)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil && !errors.Is(err, llm.ErrFull) {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer for %v", g.c.opt.Silence)
		}
		g.c.in.post(news{what: serverLost, device: g.device, gen: gen, text: err.Error()})
		return
	}
	n := news{what: serverAnswers, device: g.device, gen: gen, code: 1}
	for _, s := range servers {
		if g.busy(limit, s, &n) != nil {
			return // the next look tells
		}
	}
	g.c.in.post(n)
}

// busy reads how busy a server is, and whether it still has the model.
func (g *agent) busy(ctx context.Context, s *llm.Server, n *news) error {
	model, ours := g.holds()
	if model == "" || g.serverOf(model) != s {
		return nil
	}
	there, err := s.Loaded(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(there, model) {
		n.code = 0
		return nil
	}
	if !s.Can.Metrics {
		if s.Can.Slots > 0 {
			g.room.Store(int32(s.Can.Slots))
		}
		return nil
	}
	state, err := s.State(ctx, model)
	if errors.Is(err, llm.ErrGone) {
		return err
	}
	if err == nil { // what began or ended meanwhile is ours, too
		_, now := g.holds()
		g.room.Store(int32(state.Room(max(ours, now))))
	}
	return nil
}

// holds is the model that is loaded (empty: none, or one is on its way) and how many
// requests of ours the server has.
func (g *agent) holds() (model string, ours int) {
	g.c.call(func() {
		if ours = len(g.live); g.loaded >= 0 && !g.loading {
			model = g.c.tables.Networks[g.loaded].Name
		}
	})
	return model, ours
}

// revive has the server ready with what the instance begins with: nothing else is
// loaded, and a first token comes.
func (g *agent) revive(ctx context.Context) error {
	servers, err := g.reached(ctx)
	if err != nil {
		return err
	}
	r := g.c.tables.Resident[g.device]
	if len(r) == 0 {
		return nil
	}
	model := g.c.tables.Networks[r[0]].Name
	for _, s := range servers {
		if err := s.Alive(ctx); err != nil {
			return err
		}
		there, err := s.Loaded(ctx)
		if err != nil {
			return err
		}
		for _, other := range there {
			if other != model && g.serverOf(other) == s && g.mine(other) {
				if err := s.Unload(ctx, other); err != nil && !errors.Is(err, llm.ErrStays) {
					return err
				}
			}
		}
	}
	s := g.serverOf(model)
	if err := s.Load(ctx, model); err != nil {
		return err
	}
	_, err = s.Canary(ctx, model, 1)
	return err
}

// mine tells whether the instance may run a model.
func (g *agent) mine(model string) bool {
	costs := g.c.tables.Instances[g.c.tables.InstanceOf(g.device)].Server.Costs
	at := slices.IndexFunc(g.c.tables.Networks, func(n policy.Network) bool { return n.Name == model })
	return at >= 0 && costs[at].KV > 0
}

// nextOrder begins the first order that waits, unless another is under way. An unload
// waits until nothing runs.
func (g *agent) nextOrder() {
	if g.loading || len(g.orders) == 0 || !g.up.Load() {
		return
	}
	o := g.orders[0]
	if !o.up && len(g.live) > 0 {
		return
	}
	g.orders = g.orders[:copy(g.orders, g.orders[1:])]
	g.loading, g.doing, g.began = true, o, g.c.now()
	gen := g.gen.Load()
	planned := time.Duration(0)
	if l := g.c.tables.Networks[o.network].Load; l != nil {
		planned = l[g.c.tables.Devices[g.device].Kind][1]
	}
	limit := max(hangsAfter*planned, g.c.opt.LoadTimeout)
	g.wg.Go(func() {
		ctx, cancel := context.WithTimeout(g.ctx, limit)
		defer cancel()
		n := news{what: orderDone, device: g.device, gen: gen}
		if err := g.carryOut(ctx, o); err != nil {
			n.code, n.text = uint32(policy.ReturnFailed), err.Error()
			if errors.Is(err, llm.ErrUnknownModel) {
				n.code = uint32(policy.ReturnRefused)
			}
		}
		g.c.in.post(n)
	})
}

// carryOut loads or unloads.
func (g *agent) carryOut(ctx context.Context, o order) error {
	model := g.c.tables.Networks[o.network].Name
	s := g.serverOf(model)
	if s == nil {
		return errors.New("its server has not answered yet")
	}
	if o.up {
		return s.Load(ctx, model)
	}
	if err := s.Unload(ctx, model); !errors.Is(err, llm.ErrStays) {
		return err
	}
	return nil // it may stay: it takes nothing from others
}

// ordered takes the end of an order.
func (g *agent) ordered(n *news) {
	o, now, why := g.doing, g.c.now(), policy.Return(n.code)
	g.loading = false
	switch name := g.c.tables.Networks[o.network].Name; {
	case why != 0:
		what := map[bool]string{true: "loaded", false: "unloaded"}[o.up]
		g.c.opt.Log.Warn("a model is not "+what, "instance", g.name, "model", name, "error", strings.TrimSpace(n.text))
		g.lookNow()
	case !o.up:
		g.was, g.loaded = g.loaded, -1
	default:
		g.loaded = o.network
		g.series.loads.WithLabelValues(g.name).Inc()
		g.series.sums.loads++
		if g.was >= 0 && g.was != o.network {
			g.series.swaps.WithLabelValues(g.name).Inc()
			g.series.sums.swaps++
		}
	}
	g.c.emit(queued{ev: o.event(g.began, now, why)})
	g.c.Flush()
	g.nextOrder()
}
