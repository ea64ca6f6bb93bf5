package text

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inferplan/engine/llm"
	"inferplan/executor/completions"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// instanceAgent has the requests of one instance answered by its server, or by its servers if there is one for each
// model.
type instanceAgent struct {
	serverDevice
	series         *queueMetrics
	maxOwnRequests atomic.Int32 // requests that the server can hold of ours; -1 if unbounded
	loggedLack     string       // what the watch logged last that the servers lack
	gauges         [3]prometheus.Gauge
	remote         *remoteServers                     // nil if this process calls the servers
	local          atomic.Pointer[localServers]       // the servers that this process calls
	cancelRevive   atomic.Pointer[context.CancelFunc] // of the last preparation; nil before

	// The fields below belong to the core's turn.
	running         map[uint64]*servedRequest // by the serial of the batch
	loadedNetwork   int32                     // -1 if none
	previousNetwork int32                     // the network that was loaded before; -1 if none
	pendingOrders   []turn.LoadOrder
	orderRunning    bool
	currentOrder    turn.LoadOrder
	orderBeganAt    time.Duration // when currentOrder began, on the core's clock
	madeTokens      [1]int32
}

// servedRequest is a request that a server answers.
type servedRequest struct {
	agent        *instanceAgent
	b            *turn.Batch
	serial       uint64
	text         *requestText
	runNumber    uint64 // number of this run of the request
	beganAt      time.Duration
	maxPause     time.Duration       // longest time between two pieces until the server counts as stalled
	lastPieceAt  atomic.Int64        // when the last piece came, in ns on the core's clock
	returnReason policy.ReturnReason // why it was asked to leave; 0 if it was not
	brokenBy     error               // the error with which the server broke off, until it is known whether the server is gone
}

// newAgent returns the agent of a device. An agent has the requests of one instance answered: a server of language
// models, which the plan counts as a device. The server counts as lost until Start or a check finds it. A network of -1
// stands for no model, and maxOwnRequests is -1 as long as it is not known how many requests the server can hold.
func newAgent(a *agentBackend, device int32) *instanceAgent {
	g := &instanceAgent{
		serverDevice: serverDevice{core: a.core, options: a.options, requests: &a.requests, device: device, name: nameOf(a.core, device), watch: newServerWatch()}, series: a.series,
		running: map[uint64]*servedRequest{}, loadedNetwork: -1, previousNetwork: -1,
	}
	for i, figure := range []string{"up", "in_flight", "room"} {
		g.gauges[i] = a.series.instances.WithLabelValues(g.name, figure)
	}
	g.maxOwnRequests.Store(-1)
	if r := a.core.Tables.Resident[device]; len(r) > 0 {
		g.loadedNetwork = r[0]
	}
	return g
}

// instance returns the instance in the tables.
func (g *instanceAgent) instance() *policy.Instance {
	return &g.core.Tables.Instances[g.core.Tables.InstanceOf(g.device)]
}

// startRequest starts a run for the request of batch b and job j: one attempt to have the instance's server write the
// answer, or its rest. A goroutine calls the server; the end of the run comes back to the core as an event. It returns
// at once.
func (g *instanceAgent) startRequest(b *turn.Batch, j *turn.Job) {
	t := JobText(j)
	s := &servedRequest{agent: g, b: b, serial: b.Serial, text: t, runNumber: t.startRun(), beganAt: g.core.Loop.Now()}
	s.maxPause = g.pieceTimeout(j)
	s.lastPieceAt.Store(int64(s.beganAt))
	g.running[b.Serial] = s
	ctx, cancel := context.WithCancelCause(g.requests.ctx)
	t.cancel.Store(&cancel)
	if t.answered.Load() {
		cancel(errNobodyWaits)
	}
	// The event carries how often the server was lost so far. If it is lost before the event comes, the event is ignored.
	gen := g.watch.lossCount.Load()

	// The run ends with an event. If it failed, its text is stored first, so that another run can continue it.
	g.requests.wg.Go(func() {
		result := s.answer(ctx, gen)
		cancel(nil)
		if result.err != nil {
			if err := s.text.storePartial(); err != nil {
				g.core.Options.Log.Error("what a request has so far is not stored", "request", s.text.request.ID, "error", err)
			}
		}
		g.core.Inbox.PostEvents(turn.BackendEvent{Kind: eventRunEnded, Device: g.device, Generation: gen, Id: s.serial, Result: result})
	})
}

// finishRun runs in a round of the core when a run (one attempt to have a request answered) has ended with a result: the
// request is answered, goes back to the policy to be continued, or fails. If the server broke off, the request waits
// until a check has shown whether the server is gone (see resolveBroken and handleLoss).
func (g *instanceAgent) finishRun(s *servedRequest, result *runResult) {
	c := g.core
	if result.addedTokens {
		s.text.failedRuns = 0
	}
	switch {
	case result.err == nil:
		delete(g.running, s.serial)
		s.text.result = result.result
		c.Answerer.TakeOutputs(s.b, nil)
		c.Batches.FinishHop(s.b, g.device, s.beganAt, c.Loop.Now())
	case s.text.answered.Load(): // nobody waits for the answer, so the request ends here
		delete(g.running, s.serial)
		c.Batches.FinishHop(s.b, g.device, s.beganAt, c.Loop.Now())
	case s.returnReason != 0:
		g.returnToPolicy(s, s.returnReason, result.tokens)
	case errors.Is(result.err, llm.ErrFull):
		g.returnToPolicy(s, policy.ReturnFull, result.tokens)
	case errors.Is(result.err, llm.ErrUnknownModel):
		g.loadedNetwork = -1
		g.returnToPolicy(s, policy.ReturnNotLoaded, result.tokens)
	case errors.Is(result.err, llm.ErrGone), errors.Is(result.err, llm.ErrBroken):
		s.brokenBy = result.err
		g.watch.requestCheck()
	case errors.Is(result.err, errTakenOver): // an agent could not take the request over, or lost it to another
		s.text.failedRuns++
		if s.text.failedRuns >= g.maxAttempts() {
			g.failRequest(s, result.err)
			return
		}
		g.returnToPolicy(s, policy.ReturnFailed, result.tokens)
	default:
		g.failRequest(s, result.err)
	}
}

// returnToPolicy hands a request that its server did not answer to the end back to the policy, with the reason and
// the number of tokens that it has. The policy lets it wait again.
func (g *instanceAgent) returnToPolicy(s *servedRequest, reason policy.ReturnReason, tokens int) {
	delete(g.running, s.serial)
	g.series.returns.WithLabelValues(g.name, returnName(reason)).Inc()
	g.madeTokens[0] = int32(tokens)
	g.core.Batches.TellReturned(s.b, reason, g.madeTokens[:])
	g.core.Flush()
}

// returnNames are the names of reasons in the metrics.
var returnNames = map[policy.ReturnReason]string{policy.ReturnEvicted: "evicted", policy.ReturnFull: "full", policy.ReturnFailed: "failed", policy.ReturnNotLoaded: "not_loaded", policy.ReturnRefused: "refused"}

func returnName(reason policy.ReturnReason) string { return returnNames[reason] }

// failRequest ends a request with an error for its client, because no server will answer it. A refusal by the
// server (status 400 to 499) reaches the client as it is. An answer that cannot be continued is status 502, because
// the client may have seen a part of it.
func (g *instanceAgent) failRequest(s *servedRequest, err error) {
	delete(g.running, s.serial)
	if serverErr, ok := errors.AsType[*llm.Error](err); ok && serverErr.Status >= 400 && serverErr.Status < 500 {
		err = &completions.ServerError{Status: serverErr.Status, Type: "invalid_request_error", Msg: serverErr.Text}
	} else if errors.Is(err, llm.ErrNotResumed) || errors.Is(err, errDiverged) {
		err = &completions.ServerError{Status: http.StatusBadGateway, Type: "server_error", Code: "not_continued", Msg: "the answer was interrupted: " + err.Error()}
	}
	g.core.Batches.FailBatch(s.b, policy.ReasonFailed, err)
	g.core.Flush()
}

// MaxAttempts is the number of consecutive runs without a new token after which a request fails. It is higher if
// other processes run the agents, because their runs also end early for reasons that are not the request's.
const (
	MaxAttempts       = 5
	maxRemoteAttempts = 60
)

// maxAttempts returns the number of runs (attempts to have a request answered) that may fail in a row before the
// request fails: more if agents of other processes are used, which may be restarted.
func (g *instanceAgent) maxAttempts() int {
	if g.options.Agents != nil {
		return maxRemoteAttempts
	}
	return MaxAttempts
}

// resolveBroken decides about broken requests, whose server broke off, now that a check has found that the server
// answers: they go back to the policy, to be continued, or fail after too many attempts. hasModel says that the
// server still has the model; if not, the policy has to load it again first.
func (g *instanceAgent) resolveBroken(hasModel bool) {
	for _, s := range g.brokenRequests() {
		_, tokens, _ := s.text.PartialOf(s.runNumber)
		s.text.failedRuns++
		switch {
		case s.text.failedRuns >= g.maxAttempts():
			g.failRequest(s, s.brokenBy)
		case hasModel:
			g.returnToPolicy(s, policy.ReturnFailed, tokens)
		default:
			g.loadedNetwork = -1
			g.returnToPolicy(s, policy.ReturnNotLoaded, tokens)
		}
	}
	g.startNextOrder()
}

// brokenRequests lists the requests whose server broke off, in the order in which they began.
func (g *instanceAgent) brokenRequests() []*servedRequest {
	var out []*servedRequest
	for _, s := range inOrder(g.running) {
		if s.brokenBy != nil {
			out = append(out, s)
		}
	}
	return out
}

// handleLoss runs in a round of the core when the server is gone or stands still, for a reason that goes to the log
// unless it is empty. All its runs and orders to load models end here: the policy is told of the loss, gets the requests
// back with the text that they have, and the server is checked until it works again. The loss count grows, by which
// later events of the lost runs are ignored.
func (g *instanceAgent) handleLoss(reason string) {
	g.watch.lossCount.Add(1)
	g.watch.alive.Store(false)
	if reason != "" {
		g.core.Options.Log.Error("an instance is lost", "instance", g.name, "why", reason, "requests", len(g.running))
	}
	g.pendingOrders, g.orderRunning, g.loadedNetwork = g.pendingOrders[:0], false, -1
	g.maxOwnRequests.Store(-1)
	g.core.Loop.TellPolicy(policy.Event{Kind: policy.WorkerLost, Device: g.device})
	for _, s := range inOrder(g.running) { // they go back here because the policy did not abort them
		s.text.revokeRun(errTakenOver)
		_, tokens, _ := s.text.PartialOf(s.runNumber)
		g.returnToPolicy(s, policy.ReturnFailed, tokens)
	}
	g.watch.requestCheck()
}

// handleReady is called when the servers work again after a loss or for the first time. The policy learns that the
// instance is back, with the model that it begins with (the resident one of the plan) and the limits of that model.
// If the instance works already, nothing changes.
func (g *instanceAgent) handleReady() {
	if g.watch.alive.Load() {
		return
	}
	g.watch.alive.Store(true)
	ev := policy.Event{Kind: policy.WorkerBack, Device: g.device}
	if r := g.core.Tables.Resident[g.device]; len(r) > 0 {
		g.loadedNetwork = r[0]
		cost := &g.instance().Server.Costs[r[0]]
		ev.Value, ev.Limit = int64(cost.MaxSequences), int32(cost.KVTokens)
	}
	g.core.Options.Log.Info("an instance works", "instance", g.name)
	g.core.Loop.TellPolicy(ev)
	g.core.Flush()
}
