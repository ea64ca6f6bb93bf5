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

// agents is the backend of instances: an agent for each, which has requests
// answered by the instance's server as it is. It belongs to the core's turn.
type agents struct {
	c      *turn.Core
	opt    *Options
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

// Instances is the backend of the instances of a core's plan of queues.
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

// Start finds the servers. One that does not answer yet is waited for later: others
// work meanwhile.
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
		return nil // agents come when they come
	}
	ctx, cancel := context.WithTimeout(ctx, a.opt.Silence)
	defer cancel()
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

// Begin watches the servers. The policy hears of those that are not there.
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

func (a *agents) Up(device int32) bool { return a.list[device].alive.Load() }

// Run has an instance answer a request.
func (a *agents) Run(b *turn.Batch) {
	g := a.list[b.Device()]
	q := a.c.Request(b.Tasks[0])
	switch room := int(g.room.Load()); {
	case q == nil || q.Job.Text == nil:
		a.c.Options.Log.Error("an instance was given what is no request for text", "instance", g.name)
		a.c.HandBack(b, policy.ReturnRefused)
	case !g.alive.Load(): // the policy hears of the loss, if it has not
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

// Abort takes the right to a request from the run that has it.
func (a *agents) Abort(b *turn.Batch) {
	g := a.list[b.Device()]
	if s := g.live[b.Serial]; s != nil {
		delete(g.live, b.Serial)
		s.text.stop(errLeft)
	}
	a.gauge(g)
}

// Evict has a batch leave. What it has written stays with the request; a server
// keeps of its state what its cache of prefixes does.
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

// Load takes an order. Loads and unloads of an instance are done one after the other,
// an unload once nothing runs.
func (a *agents) Load(o turn.Order) {
	g := a.list[o.Device]
	if !g.alive.Load() {
		return // what it holds follows from its return
	}
	if o.Network < 0 {
		now := a.c.Now()
		a.c.Loaded(&o, now, now, policy.ReturnRefused)
		return
	}
	g.orders = append(g.orders, o)
	g.nextOrder()
}

// Place answers at once: requests bring all that they read.
func (a *agents) Place(task, device, ticket int32) {
	now := a.c.Now()
	a.c.Placed(task, device, ticket, now, now)
}

// Took handles news of an agent.
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

func (a *agents) Room() {}

// Look finds servers that stand still: no answer goes on for much longer than the
// plan expects.
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

// Close ends what runs. What was written is stored.
func (a *agents) Close(ctx context.Context) { a.end(ctx, a.c.Options.Log) }

// nameOf returns the name of an instance in metrics and messages.
func nameOf(c *turn.Core, device int32) string {
	d := &c.Tables.Devices[device]
	return strconv.Itoa(int(c.Tables.InstanceOf(device))) + ":" + c.Tables.Kinds[d.Kind]
}
