package text

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"inferplan/executor/turn"
	"inferplan/policy"
)

// agentBackend is the backend of instances: it has an agent for each.
type agentBackend struct {
	serverBackend[*instanceAgent]
	series     *queueMetrics
	discovered *discoveryFollower // nil if servers do not come and go
	servers    []InstanceServer   // of all instances, when the backend started
}

// Instances returns the backend for the instances of a core's plan of queues, and the indexes of their devices. An
// instance is a server of language models; the plan counts each as a device. If the plan is of another kind, it returns
// nil.
func (o *Options) Instances(c *turn.Core) (turn.Backend, []int32) {
	k, ok := c.Answerer.(*TextAnswers)
	if !ok {
		return nil, nil
	}
	a := &agentBackend{series: k.series}
	a.open(c, o)
	for d := range c.Tables.Devices {
		if c.Tables.InstanceOf(int32(d)) >= 0 {
			a.byDevice[d] = newAgent(a, int32(d))
			a.devices = append(a.devices, int32(d))
		}
	}
	return a, a.devices
}

// Start checks the options and connects to the servers of all instances at once. A server that does not answer in
// time is waited for later, while the others work. A server that lacks an adapter (an addition to its model) that
// the plan needs is an error.
func (a *agentBackend) Start(ctx context.Context) error {
	if err := checkServers(a.options.Servers, len(a.devices)); err != nil {
		return err
	}
	for _, m := range a.options.Adapters {
		if !slices.ContainsFunc(a.core.Tables.Networks, func(n policy.Network) bool { return n.Name == m.Model }) {
			return fmt.Errorf("%w: adapter %s: found no model of this name in the plan", turn.ErrPlan, m.Model)
		}
	}
	a.servers = a.options.Servers
	if d := a.options.Discovery; d != nil {
		a.discovered, a.servers = d.follow(ctx, a.options.Servers, len(a.devices))
		a.core.Metrics.Registry.MustRegister(d.series())
	}
	for _, d := range a.devices {
		if err := a.byDevice[d].bindServers(a.servers); err != nil {
			return fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
	}
	if a.options.Agents != nil {
		return nil // agents of other processes are waited for later
	}
	return a.prepareAll(ctx, "an instance")
}

// LoopStarted implements turn.Backend. It also has servers come and go from now on.
func (a *agentBackend) LoopStarted() {
	a.serverBackend.LoopStarted()
	if a.discovered != nil {
		a.followServers(a.servers)
	}
}

// Close implements turn.Backend.
func (a *agentBackend) Close(ctx context.Context) {
	if a.discovered != nil {
		a.discovered.end()
	}
	a.serverBackend.Close(ctx)
}

// RunBatch is called when the policy dispatches a request to an instance (a server of language models), and has it
// answered there. If the instance cannot take it now, because it is full or has another model, the batch goes back
// to the policy with the reason.
func (a *agentBackend) RunBatch(b *turn.Batch) {
	g := a.byDevice[b.Device()]
	q := a.core.Ledger.RequestIn(b.Tasks[0])
	switch maxRequests := int(g.maxOwnRequests.Load()); {
	case q == nil || q.Job.Text == nil:
		a.core.Options.Log.Error("an instance was given what is no request for text", "instance", g.name)
		a.core.Batches.ReturnBatch(b, policy.ReturnRefused)
	case !g.watch.alive.Load(): // the server is lost: the policy takes the batch back when it hears of that
	case g.loadedNetwork != a.core.Tables.Pipelines[b.Pipeline].Network || g.orderRunning:
		a.core.Batches.ReturnBatch(b, policy.ReturnNotLoaded)
	case maxRequests >= 0 && len(g.running) >= maxRequests:
		a.core.Batches.ReturnBatch(b, policy.ReturnFull)
	default:
		g.startRequest(b, q.Job)
		a.core.Batches.TellStarted(b, g.device, a.core.Loop.Now())
	}
	g.showState()
}

// AbortBatch stops the run of a batch that the policy aborts. Text that it still gets is ignored, because it is no
// longer the current run of the request.
func (a *agentBackend) AbortBatch(b *turn.Batch) {
	g := a.byDevice[b.Device()]
	if request := g.running[b.Serial]; request != nil {
		delete(g.running, b.Serial)
		request.text.revokeRun(errTakenOver)
	}
	g.showState()
}

// EvictBatch ends the run of a batch (one request), when the policy wants its instance for a more urgent one. The end of
// the run gives the batch back to the policy. The text written so far is stored with the request, which later continues
// from it. If no such run exists, the action is counted as ignored. It implements turn.Backend.
func (a *agentBackend) EvictBatch(b *turn.Batch, _ bool) {
	g := a.byDevice[b.Device()]
	s := g.running[b.Serial]
	if s == nil {
		a.core.Stats.IgnoredActions++
		return
	}
	s.returnReason = policy.ReturnEvicted
	a.series.evictions.WithLabelValues(g.name).Inc()
	a.series.totals.evictions++
	s.text.cancelRun(errEvicted)
}

// LoadNetwork queues an order of the policy to load or unload a network (a model) on an instance. An instance executes
// its orders one after the other, and an unload only when no request runs. The end is told to the policy. An order
// without a network (-1) is about session states, which instances do not store, so it is refused. While the instance is
// lost, orders are dropped.
func (a *agentBackend) LoadNetwork(o turn.LoadOrder) {
	g := a.byDevice[o.Device]
	if !g.watch.alive.Load() {
		return // when the instance returns, the policy learns what it holds
	}
	if o.Network < 0 {
		a.answerOrder(o, policy.ReturnRefused)
		return
	}
	g.pendingOrders = append(g.pendingOrders, o)
	g.startNextOrder()
}

// HandleEvent handles an event of an instance in a round of the core: progress or the end of a run, the end of an order,
// or the result of a check of the server. An event has in Generation how often the server was lost when its work began;
// if it was lost since, the event is ignored. Code 1 of eventServerAnswers means that the server has its model.
func (a *agentBackend) HandleEvent(n *turn.BackendEvent) {
	g := a.byDevice[n.Device]
	if n.Kind == eventServersChanged {
		g.changeServers(n.Result.(*localServers))
		g.showState()
		return
	}
	if n.Generation != g.watch.lossCount.Load() {
		return
	}
	switch n.Kind {
	case eventProgress:
		if s := g.running[n.Id]; s != nil {
			a.core.Batches.TellProgress(s.b, n.Tokens)
		}
	case eventRunEnded:
		if s := g.running[n.Id]; s != nil {
			g.finishRun(s, n.Result.(*runResult))
		}
		g.startNextOrder()
	case eventOrderDone:
		g.finishOrder(n)
	case eventServerAnswers:
		g.resolveBroken(n.Code == 1)
	case eventServerLost:
		g.handleLoss(n.Text)
	case eventServerReady:
		g.handleReady()
	}
	g.showState()
}

// showState shows the state of an instance in the metrics.
func (g *instanceAgent) showState() {
	upValue := 0.0
	if g.watch.alive.Load() {
		upValue = 1
	}
	g.gauges[0].Set(upValue)
	g.gauges[1].Set(float64(len(g.running)))
	g.gauges[2].Set(float64(g.maxOwnRequests.Load()))
}

// isBusy implements servedDevice.
func (g *instanceAgent) isBusy() bool { return len(g.running) > 0 }

// Watch is called in regular intervals in a round of the core. It gives up servers that stand still: one of their
// requests has got no piece of its answer for longer than its maxPause. paused is the time for which this process itself
// stood still since the last call; it does not count. The busy times of the instances are counted here, too.
func (a *agentBackend) Watch(now, paused time.Duration) {
	a.addBusyTime(now, paused)
	for _, d := range a.devices {
		g := a.byDevice[d]
		for _, s := range g.running {
			if paused > 0 {
				s.lastPieceAt.Add(int64(paused))
			}
		}
		if s := g.stalledRequest(now); s != nil && g.watch.alive.Load() {
			a.core.Options.Log.Error("a server stands still and is given up", "instance", g.name, "for", now-time.Duration(s.lastPieceAt.Load()))
			g.handleLoss("it stands still")
			a.core.Flush()
			g.showState()
		}
	}
}

// nameOf returns the name of an instance in metrics and messages.
func nameOf(c *turn.Core, device int32) string {
	d := &c.Tables.Devices[device]
	return strconv.Itoa(int(c.Tables.InstanceOf(device))) + ":" + c.Tables.Kinds[d.Kind]
}
