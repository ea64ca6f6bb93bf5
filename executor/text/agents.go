package text

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// agentBackend is the backend of instances: it has an agent for each. All its fields belong to the core's turn.
type agents struct {
	c      *turn.Core
	opt    *Options
	series *queueMetrics
	list   []*agent // nil for devices that another backend executes
	own    []int32
	serverCalls
}

// Kinds of events that agents post to the core.
const (
	streamEnded uint8 = iota
	streamCame        // a run has made tokens that the policy wants to know of
	orderDone
	serverAnswers // a check found that the server answers
	serverLost
	serverReady
)

// Instances returns the backend of the instances of a core's plan of queues, and their devices. If the plan is of
// another kind, it returns nil.
func (o *Options) Instances(c *turn.Core) (turn.Backend, []int32) {
	k, ok := c.Answers.(*Tokens)
	if !ok {
		return nil, nil
	}
	a := &agents{c: c, opt: o, series: k.series, list: make([]*agent, len(c.Tables.Devices))}
	a.open()
	for d := range c.Tables.Devices {
		if c.Tables.InstanceOf(int32(d)) >= 0 {
			a.list[d] = newAgent(a, int32(d))
			a.own = append(a.own, int32(d))
		}
	}
	return a, a.own
}

// Start checks the options and connects to the servers. A server that does not answer in time is waited for later,
// while the others work. A server that lacks an adapter is an error.
func (a *agents) Start(ctx context.Context) error {
	if err := checkServers(a.opt.Servers, len(a.own)); err != nil {
		return err
	}
	for _, m := range a.opt.Adapters {
		if !slices.ContainsFunc(a.c.Tables.Networks, func(n policy.Network) bool { return n.Name == m.Model }) {
			return fmt.Errorf("%w: adapter %s: found no model of this name in the plan", turn.ErrPlan, m.Model)
		}
	}
	for _, d := range a.own {
		if err := a.list[d].find(); err != nil {
			return fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
	}
	if a.opt.Agents != nil {
		return nil // agents of other processes are waited for later
	}
	ctx, cancel := context.WithTimeout(ctx, a.opt.Silence)
	defer cancel()

	// Prepare all servers at once.
	var wg sync.WaitGroup
	lacks := make([]error, len(a.own))
	for i, d := range a.own {
		wg.Go(func() {
			g := a.list[d]
			err := g.revive(ctx)
			if errors.Is(err, llm.ErrNoAdapter) {
				lacks[i] = fmt.Errorf("%w: instance %s: %w", turn.ErrPlan, g.name, err)
				return
			}
			if err != nil {
				a.c.Options.Log.Warn("the server of an instance does not answer yet", "instance", g.name, "error", err)
				return
			}
			g.alive.Store(true)
		})
	}
	wg.Wait()
	return errors.Join(lacks...)
}

// Begin starts to watch the servers. The policy learns of those that do not answer yet.
func (a *agents) Begin() {
	for _, d := range a.own {
		g := a.list[d]
		a.gauge(g)
		if !g.alive.Load() {
			a.c.Post(turn.News{Kind: serverLost, Device: d, Gen: g.gen.Load()})
		}
		a.wg.Go(func() { g.watch(a.ctx, g.check, g.reviveOnce) })
	}
}

// Up reports whether an instance works.
func (a *agents) Up(device int32) bool { return a.list[device].alive.Load() }

// Run has an instance answer a request. If the instance cannot take it now, the batch goes back to the policy with
// the reason.
func (a *agents) Run(b *turn.Batch) {
	g := a.list[b.Device()]
	q := a.c.Request(b.Tasks[0])
	switch room := int(g.room.Load()); {
	case q == nil || q.Job.Text == nil:
		a.c.Options.Log.Error("an instance was given what is no request for text", "instance", g.name)
		a.c.HandBack(b, policy.ReturnRefused)
	case !g.alive.Load(): // the event of the loss is under way
	case g.loaded != a.c.Tables.Pipelines[b.Pipeline].Network || g.loading:
		a.c.HandBack(b, policy.ReturnNotLoaded)
	case room >= 0 && len(g.live) >= room:
		a.c.HandBack(b, policy.ReturnFull)
	default:
		g.admit(b, q.Job)
		a.c.Began(b, g.device, a.c.Now())
	}
	a.gauge(g)
}

// Abort stops the run of a batch. Text that it still gets is ignored.
func (a *agents) Abort(b *turn.Batch) {
	g := a.list[b.Device()]
	if s := g.live[b.Serial]; s != nil {
		delete(g.live, b.Serial)
		s.text.stop(errLeft)
	}
	a.gauge(g)
}

// Evict ends the run of a batch, which goes back to the policy. The request keeps the text that was written. The
// server keeps only what its prefix cache holds.
func (a *agents) Evict(b *turn.Batch, _ bool) {
	g := a.list[b.Device()]
	s := g.live[b.Serial]
	if s == nil {
		a.c.Stats.Ignored++
		return
	}
	s.why = policy.ReturnEvicted
	a.series.evictions.WithLabelValues(g.name).Inc()
	a.series.sums.evictions++
	s.text.end(errEvicted)
}

// Load takes an order to load or unload a model. The orders of an instance are executed one after the other, and an
// unload once nothing runs.
func (a *agents) Load(o turn.Order) {
	g := a.list[o.Device]
	if !g.alive.Load() {
		return // when the instance returns, the policy learns what it holds
	}
	if o.Network < 0 {
		now := a.c.Now()
		a.c.Loaded(&o, now, now, policy.ReturnRefused)
		return
	}
	g.orders = append(g.orders, o)
	g.nextOrder()
}

// Place answers at once, because requests bring all that they read.
func (a *agents) Place(task, device, ticket int32) {
	now := a.c.Now()
	a.c.Placed(task, device, ticket, now, now)
}

// Took handles an event of an agent. Events from before the last loss of the server are ignored.
func (a *agents) Took(n *turn.News) {
	g := a.list[n.Device]
	if n.Gen != g.gen.Load() {
		return
	}
	switch n.Kind {
	case streamCame:
		if s := g.live[n.Id]; s != nil {
			a.c.Progressed(s.b, n.Tokens)
		}
	case streamEnded:
		if s := g.live[n.Id]; s != nil {
			g.ended(s, n.Back.(*streamEnd))
		}
		g.nextOrder()
	case orderDone:
		g.ordered(n)
	case serverAnswers:
		g.settle(n.Code == 1)
	case serverLost:
		g.lost(n.Text)
	case serverReady:
		g.ready()
	}
	a.gauge(g)
}

// updateGauges shows the state of an instance in the metrics.
func (a *agents) gauge(g *agent) {
	up := 0.0
	if g.alive.Load() {
		up = 1
	}
	g.show[0].Set(up)
	g.show[1].Set(float64(len(g.live)))
	g.show[2].Set(float64(g.room.Load()))
}

// Room does nothing: batches do not wait for slots here.
func (a *agents) Room() {}

// Look gives up servers that stand still: one of their requests has got no piece for longer than its maxPause. paused
// is added to the time of the last piece.
func (a *agents) Look(now, paused time.Duration) {
	for _, d := range a.own {
		g := a.list[d]
		for _, s := range g.live {
			if paused > 0 {
				s.heard.Add(int64(paused))
			}
		}
		if s := g.stalled(now); s != nil && g.alive.Load() {
			a.c.Options.Log.Error("a server stands still and is given up", "instance", g.name, "for", now-time.Duration(s.heard.Load()))
			g.lost("it stands still")
			a.c.Flush()
			a.gauge(g)
		}
	}
}

// Close ends all runs. The text that was written is stored.
func (a *agents) Close(ctx context.Context) { a.end(ctx, a.c.Options.Log) }

// nameOf returns the name of an instance in metrics and messages.
func nameOf(c *turn.Core, device int32) string {
	d := &c.Tables.Devices[device]
	return strconv.Itoa(int(c.Tables.InstanceOf(device))) + ":" + c.Tables.Kinds[d.Kind]
}
