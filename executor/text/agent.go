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
type agent struct {
	*agents
	device int32
	name   string
	serverWatch
	room  atomic.Int32 // requests that the server can hold of ours; -1 if unbounded
	lacks string       // what the watch logged last that the servers lack
	show  [3]prometheus.Gauge
	hand  hand

	// The fields below belong to the core's turn.
	live    map[uint64]*stream // by the serial of the batch
	loaded  int32              // -1 if none
	was     int32              // the network that was loaded before; -1 if none
	orders  []turn.Order
	loading bool
	doing   turn.Order
	began   time.Duration // when currentOrder began, on the core's clock
	made    [1]int32
}

// servedRequest is a request that a server answers.
type stream struct {
	*agent
	b      *turn.Batch
	serial uint64
	text   *text
	run    uint64 // number of this run of the request
	began  time.Duration
	limit  time.Duration // longest time between two pieces until the server counts as stalled
	heard  atomic.Int64  // when the last piece came, in ns on the core's clock
	why    policy.Return // why it was asked to leave; 0 if it was not
	doubt  error         // the error with which the server broke off, until it is known whether the server is gone
}

// newAgent returns the agent of a device. Its server counts as lost until Start or a check finds it.
func newAgent(a *agents, device int32) *agent {
	g := &agent{agents: a, device: device, name: nameOf(a.c, device), serverWatch: serverWatch{ask: make(chan struct{}, 1)}, live: map[uint64]*stream{}, loaded: -1, was: -1}
	for i, figure := range []string{"up", "in_flight", "room"} {
		g.show[i] = a.series.instances.WithLabelValues(g.name, figure)
	}
	g.room.Store(-1)
	if r := a.c.Tables.Resident[device]; len(r) > 0 {
		g.loaded = r[0]
	}
	return g
}

// startRequest starts a run that answers a request.
func (g *agent) admit(b *turn.Batch, j *turn.Job) {
	t := JobText(j)
	s := &stream{agent: g, b: b, serial: b.Serial, text: t, run: t.begin(), began: g.c.Now()}
	s.limit = g.patience(j)
	s.heard.Store(int64(s.began))
	g.live[b.Serial] = s
	ctx, cancel := context.WithCancelCause(g.ctx)
	t.cancel.Store(&cancel)
	if t.closed.Load() {
		cancel(errOver)
	}
	gen := g.gen.Load()

	// The run ends with an event. If it failed, its text is stored first, so that another run can continue it.
	g.wg.Go(func() {
		end := s.serve(ctx, gen)
		cancel(nil)
		if end.err != nil {
			if err := s.text.keep(); err != nil {
				g.c.Options.Log.Error("what a request has so far is not stored", "request", s.text.request.ID, "error", err)
			}
		}
		g.c.Post(turn.News{Kind: streamEnded, Device: g.device, Gen: gen, Id: s.serial, Back: end})
	})
}

// finishRun handles the end of a run: the request is answered, goes back to the policy, or waits until it is known
// whether the server is gone.
func (g *agent) ended(s *stream, end *streamEnd) {
	c := g.c
	if end.added {
		s.text.attempts = 0
	}
	switch {
	case end.err == nil:
		delete(g.live, s.serial)
		s.text.result = end.result
		c.Answers.Ran(s.b, nil)
		c.FinishHop(s.b, g.device, s.began, c.Now())
	case s.text.closed.Load(): // nobody waits for the answer, so the request ends here
		delete(g.live, s.serial)
		c.FinishHop(s.b, g.device, s.began, c.Now())
	case s.why != 0:
		g.back(s, s.why, end.tokens)
	case errors.Is(end.err, llm.ErrFull):
		g.back(s, policy.ReturnFull, end.tokens)
	case errors.Is(end.err, llm.ErrUnknownModel):
		g.loaded = -1
		g.back(s, policy.ReturnNotLoaded, end.tokens)
	case errors.Is(end.err, llm.ErrGone), errors.Is(end.err, llm.ErrBroken):
		s.doubt = end.err
		g.lookNow()
	case errors.Is(end.err, errLeft): // an agent could not take the request over, or lost it to another
		s.text.attempts++
		if s.text.attempts >= g.most() {
			g.giveUp(s, end.err)
			return
		}
		g.back(s, policy.ReturnFailed, end.tokens)
	default:
		g.giveUp(s, end.err)
	}
}

// returnToPolicy hands the batch of a request back to the policy, with the number of tokens that it has.
func (g *agent) back(s *stream, why policy.Return, tokens int) {
	delete(g.live, s.serial)
	g.series.returns.WithLabelValues(g.name, returnName(why)).Inc()
	g.made[0] = int32(tokens)
	g.c.Returned(s.b, why, g.made[:])
	g.c.Flush()
}

// returnNames are the names of reasons in the metrics.
var returnNames = map[policy.Return]string{policy.ReturnEvicted: "evicted", policy.ReturnFull: "full", policy.ReturnFailed: "failed", policy.ReturnNotLoaded: "not_loaded", policy.ReturnRefused: "refused"}

func returnName(why policy.Return) string { return returnNames[why] }

// failRequest ends a request with an error, because no server will answer it.
func (g *agent) giveUp(s *stream, err error) {
	delete(g.live, s.serial)
	var said *llm.Error
	if errors.As(err, &said) && said.Status >= 400 && said.Status < 500 {
		err = &completions.ServerError{Status: said.Status, Type: "invalid_request_error", Msg: said.Text}
	} else if errors.Is(err, llm.ErrNotResumed) || errors.Is(err, errDiverged) {
		err = &completions.ServerError{Status: http.StatusBadGateway, Type: "server_error", Code: "not_continued", Msg: "the answer was interrupted: " + err.Error()}
	}
	g.c.FailBatch(s.b, policy.ReasonFailed, err)
	g.c.Flush()
}

// MaxAttempts is the number of consecutive runs without a new token after which a request fails. It is higher if
// other processes run the agents, because their runs also end early for reasons that are not the request's.
const (
	MostAttempts     = 5
	mostAttemptsAway = 60
)

// maxAttempts returns the number of consecutive failed runs after which a request fails.
func (g *agent) most() int {
	if g.opt.Agents != nil {
		return mostAttemptsAway
	}
	return MostAttempts
}

// resolveBroken decides about requests whose server broke off, now that a check has found that the server answers:
// they go back to the policy, to be continued. hasModel says that the server still has the model.
func (g *agent) settle(loaded bool) {
	for _, s := range g.inDoubt() {
		_, tokens, _ := s.text.SoFar(s.run)
		s.text.attempts++
		switch {
		case s.text.attempts >= g.most():
			g.giveUp(s, s.doubt)
		case loaded:
			g.back(s, policy.ReturnFailed, tokens)
		default:
			g.loaded = -1
			g.back(s, policy.ReturnNotLoaded, tokens)
		}
	}
	g.nextOrder()
}

// brokenRequests lists the requests whose server broke off, in the order in which they began.
func (g *agent) inDoubt() []*stream {
	var out []*stream
	for _, s := range g.streams() {
		if s.doubt != nil {
			out = append(out, s)
		}
	}
	return out
}

// handleLoss is called when the server is gone. All its requests go back to the policy.
func (g *agent) lost(why string) {
	g.gen.Add(1)
	g.alive.Store(false)
	if why != "" {
		g.c.Options.Log.Error("an instance is lost", "instance", g.name, "why", why, "requests", len(g.live))
	}
	g.orders, g.loading, g.loaded = g.orders[:0], false, -1
	g.room.Store(-1)
	g.c.Tell(policy.Event{Kind: policy.WorkerLost, Device: g.device})
	for _, s := range g.streams() { // they go back here because the policy did not abort them
		s.text.stop(errLeft)
		_, tokens, _ := s.text.SoFar(s.run)
		g.back(s, policy.ReturnFailed, tokens)
	}
	g.lookNow()
}

// handleReady is called when the servers work. The policy learns that the instance is back, with the model that it
// begins with.
func (g *agent) ready() {
	if g.alive.Load() {
		return
	}
	g.alive.Store(true)
	ev := policy.Event{Kind: policy.WorkerBack, Device: g.device}
	if r := g.c.Tables.Resident[g.device]; len(r) > 0 {
		g.loaded = r[0]
		cost := &g.c.Tables.Instances[g.c.Tables.InstanceOf(g.device)].Server.Costs[r[0]]
		ev.Value, ev.Limit = int64(cost.Sequences), int32(cost.KV)
	}
	g.c.Options.Log.Info("an instance works", "instance", g.name)
	g.c.Tell(ev)
	g.c.Flush()
}
