package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"inferplan/engine/llm"
	"inferplan/policy"
)

// agents is the backend of instances: an agent for each, which has requests
// answered by the instance's server as it is. It belongs to the core's turn.
type agents struct {
	c      *core
	series *queueMetrics
	list   []*agent // by device; nil where another backend executes
	own    []int32
	serverCalls
}

// Kinds of news of agents.
const (
	streamEnded uint8 = iota
	streamCame        // a piece of an answer, of those that the policy hears of
	orderDone
	serverAnswers // it was looked at
	serverLost
	serverReady
)

// agentsOf is the backend of the instances of a core's plan of queues.
func agentsOf(c *core) (backend, []int32) {
	k, ok := c.answers.(*tokens)
	if !ok {
		return nil, nil
	}
	a := &agents{c: c, series: k.series, list: make([]*agent, len(c.tables.Devices))}
	a.open()
	for d := range c.tables.Devices {
		if c.tables.InstanceOf(int32(d)) >= 0 {
			a.list[d] = newAgent(a, int32(d))
			a.own = append(a.own, int32(d))
		}
	}
	return a, a.own
}

// start finds the servers. One that does not answer yet is waited for later: others
// work meanwhile.
func (a *agents) start(ctx context.Context) error {
	if err := checkServers(a.c.opt.Servers, len(a.own)); err != nil {
		return err
	}
	for _, m := range a.c.opt.Adapters {
		if !slices.ContainsFunc(a.c.tables.Networks, func(n policy.Network) bool { return n.Name == m.Model }) {
			return fmt.Errorf("%w: adapter %s: found no model of this name in the plan", ErrPlan, m.Model)
		}
	}
	for _, d := range a.own {
		if err := a.list[d].find(); err != nil {
			return fmt.Errorf("%w: %w", ErrPlan, err)
		}
	}
	if a.c.opt.Agents != nil {
		return nil // agents come when they come
	}
	ctx, cancel := context.WithTimeout(ctx, a.c.opt.Silence)
	defer cancel()
	var wg sync.WaitGroup
	lacks := make([]error, len(a.own))
	for i, d := range a.own {
		wg.Go(func() {
			g := a.list[d]
			err := g.revive(ctx)
			if errors.Is(err, llm.ErrNoAdapter) {
				lacks[i] = fmt.Errorf("%w: instance %s: %w", ErrPlan, g.name, err)
				return
			}
			if err != nil {
				a.c.opt.Log.Warn("the server of an instance does not answer yet", "instance", g.name, "error", err)
				return
			}
			g.alive.Store(true)
		})
	}
	wg.Wait()
	return errors.Join(lacks...)
}

// begin watches the servers. The policy hears of those that are not there.
func (a *agents) begin() {
	for _, d := range a.own {
		g := a.list[d]
		a.gauge(g)
		if !g.alive.Load() {
			a.c.in.post(news{what: serverLost, device: d, gen: g.gen.Load()})
		}
		a.wg.Go(func() { g.watch(a.ctx, g.check, g.reviveOnce) })
	}
}

func (a *agents) up(device int32) bool { return a.list[device].alive.Load() }

// run has an instance answer a request.
func (a *agents) run(b *batch) {
	g := a.list[b.device()]
	q := &a.c.book.reqs[b.tasks[0]]
	switch room := int(g.room.Load()); {
	case q.job == nil || q.job.text == nil:
		a.c.opt.Log.Error("an instance was given what is no request for text", "instance", g.name)
		a.refuse(b, policy.ReturnRefused)
	case !g.alive.Load(): // the policy hears of the loss, if it has not
	case g.loaded != a.c.tables.Pipelines[b.pipeline].Network || g.loading:
		a.refuse(b, policy.ReturnNotLoaded)
	case room >= 0 && len(g.live) >= room:
		a.refuse(b, policy.ReturnFull)
	default:
		g.admit(b, q.job)
		a.c.began(b, g.device, a.c.now())
	}
	a.gauge(g)
}

// refuse hands a batch back, once the policy can be told.
func (a *agents) refuse(b *batch, why policy.Return) {
	b.returns, b.why = true, why
	a.c.skips = append(a.c.skips, queued{batch: b, serial: b.serial})
}

// abort takes the right to a request from the run that has it.
func (a *agents) abort(b *batch) {
	g := a.list[b.device()]
	if s := g.live[b.serial]; s != nil {
		delete(g.live, b.serial)
		s.text.stop(errLeft)
	}
	a.gauge(g)
}

// evict has a batch leave. What it has written stays with the request; a server
// keeps of its state what its cache of prefixes does.
func (a *agents) evict(b *batch, _ bool) {
	g := a.list[b.device()]
	s := g.live[b.serial]
	if s == nil {
		a.c.stats.ignored++
		return
	}
	s.why = policy.ReturnEvicted
	a.series.evictions.WithLabelValues(g.name).Inc()
	a.series.sums.evictions++
	s.text.end(errEvicted)
}

// load takes an order. Loads and unloads of an instance are done one after the other,
// an unload once nothing runs.
func (a *agents) load(o order) {
	g := a.list[o.device]
	if !g.alive.Load() {
		return // what it holds follows from its return
	}
	if o.network < 0 {
		now := a.c.now()
		a.c.emit(queued{ev: o.event(now, now, policy.ReturnRefused)})
		return
	}
	g.orders = append(g.orders, o)
	g.nextOrder()
}

// place answers at once: requests bring all that they read.
func (a *agents) place(task, device, ticket int32) {
	now := a.c.now()
	a.c.placed(task, device, ticket, now, now)
}

// took handles news of an agent.
func (a *agents) took(n *news) {
	g := a.list[n.device]
	if n.gen != g.gen.Load() {
		return
	}
	switch n.what {
	case streamCame:
		if s := g.live[n.id]; s != nil {
			a.c.progressed(s.b, n.tokens)
		}
	case streamEnded:
		if s := g.live[n.id]; s != nil {
			g.ended(s, n.back.(*streamEnd))
		}
		g.nextOrder()
	case orderDone:
		g.ordered(n)
	case serverAnswers:
		g.settle(n.code == 1)
	case serverLost:
		g.lost(n.text)
	case serverReady:
		g.ready()
	}
	a.gauge(g)
}

// gauge shows the state of an instance.
func (a *agents) gauge(g *agent) {
	up := 0.0
	if g.alive.Load() {
		up = 1
	}
	g.show[0].Set(up)
	g.show[1].Set(float64(len(g.live)))
	g.show[2].Set(float64(g.room.Load()))
}

func (a *agents) room() {}

// look finds servers that stand still: no answer goes on for much longer than the
// plan expects.
func (a *agents) look(now, paused time.Duration) {
	for _, d := range a.own {
		g := a.list[d]
		for _, s := range g.live {
			if paused > 0 {
				s.heard.Add(int64(paused))
			}
		}
		if s := g.stalled(now); s != nil && g.alive.Load() {
			a.c.opt.Log.Error("a server stands still and is given up", "instance", g.name, "for", now-time.Duration(s.heard.Load()))
			g.lost("it stands still")
			a.c.Flush()
			a.gauge(g)
		}
	}
}

// close ends what runs. What was written is stored.
func (a *agents) close(ctx context.Context) { a.end(ctx, a.c.opt.Log) }

// nameOf is how an instance is called in metrics and messages.
func nameOf(c *core, device int32) string {
	d := &c.tables.Devices[device]
	return strconv.Itoa(int(c.tables.InstanceOf(device))) + ":" + c.tables.Kinds[d.Kind]
}
