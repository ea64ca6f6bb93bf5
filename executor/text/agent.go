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

// agent has the requests of one instance answered by its server, or by its servers
// where it has one for each model.
type agent struct {
	*agents
	device int32
	name   string
	serverWatch
	room  atomic.Int32 // requests that the server has room for; -1: no bound
	lacks string       // the adapter that it lacks, as the log says; of its watch
	show  [3]prometheus.Gauge
	hand  hand

	// Of the core's turn.
	live    map[uint64]*stream // by the serial of the batch's use
	loaded  int32              // network; -1: none
	was     int32              // the one before
	orders  []turn.Order
	loading bool
	doing   turn.Order
	began   time.Duration // of it
	made    [1]int32
}

// stream is a request that a server answers.
type stream struct {
	*agent
	b      *turn.Batch
	serial uint64
	text   *text
	run    uint64
	began  time.Duration
	limit  time.Duration // that the next piece may take
	heard  atomic.Int64  // when a piece came last, on the core's clock
	why    policy.Return // it was asked to leave; 0: it was not
	doubt  error         // the server broke off; whether it is gone is being looked at
}

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

// admit begins to answer a request.
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
	g.wg.Go(func() {
		end := s.serve(ctx, gen)
		cancel(nil)
		if end.err != nil { // what came is durable before anybody continues it
			if err := s.text.keep(); err != nil {
				g.c.Options.Log.Error("what a request has so far is not stored", "request", s.text.request.ID, "error", err)
			}
		}
		g.c.Post(turn.News{Kind: streamEnded, Device: g.device, Gen: gen, Id: s.serial, Back: end})
	})
}

// ended takes a stream that ended.
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
	case s.text.closed.Load(): // nobody waits for it: it ends here
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
	case errors.Is(end.err, errLeft): // an agent could not take the request over, or had it taken
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

// back hands a batch back to the policy.
func (g *agent) back(s *stream, why policy.Return, tokens int) {
	delete(g.live, s.serial)
	g.series.returns.WithLabelValues(g.name, returnName(why)).Inc()
	g.made[0] = int32(tokens)
	g.c.Returned(s.b, why, g.made[:])
	g.c.Flush()
}

var returnNames = map[policy.Return]string{policy.ReturnEvicted: "evicted", policy.ReturnFull: "full", policy.ReturnFailed: "failed", policy.ReturnNotLoaded: "not_loaded", policy.ReturnRefused: "refused"}

func returnName(why policy.Return) string { return returnNames[why] }

// giveUp answers a request that no server will answer with an error.
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

// MostAttempts is how many runs in a row may add nothing until a request is given up.
// Between processes runs also end early for reasons that are not the request's.
const (
	MostAttempts     = 5
	mostAttemptsAway = 60
)

func (g *agent) most() int {
	if g.opt.Agents != nil {
		return mostAttemptsAway
	}
	return MostAttempts
}

// settle decides about streams that broke off, now that the server was seen to
// answer: they go back, and begin again where they were. loaded: it has the model.
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

// inDoubt lists the streams that broke off, in the order in which they began.
func (g *agent) inDoubt() []*stream {
	var out []*stream
	for _, s := range g.streams() {
		if s.doubt != nil {
			out = append(out, s)
		}
	}
	return out
}

// lost: the server is gone, and what it ran.
func (g *agent) lost(why string) {
	g.gen.Add(1)
	g.alive.Store(false)
	if why != "" {
		g.c.Options.Log.Error("an instance is lost", "instance", g.name, "why", why, "requests", len(g.live))
	}
	g.orders, g.loading, g.loaded = g.orders[:0], false, -1
	g.room.Store(-1)
	g.c.Tell(policy.Event{Kind: policy.WorkerLost, Device: g.device})
	for _, s := range g.streams() { // the policy did not abort them
		s.text.stop(errLeft)
		_, tokens, _ := s.text.SoFar(s.run)
		g.back(s, policy.ReturnFailed, tokens)
	}
	g.lookNow()
}

// ready: the server works, with what the instance begins with.
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
