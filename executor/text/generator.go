package text

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/policy"
)

// generator has the prompts of one device answered by its server.
type generator struct {
	*generators
	device  int32
	stage   int32
	name    string // in messages
	model   string
	servers *reach
	serverWatch
	why  string                 // what the watch logged last about the server
	live map[uint64]*generation // by the serial of the batch
}

// generation is a prompt that a server answers.
type generation struct {
	*generator
	b      *turn.Batch
	serial uint64
	began  time.Duration
	stream *oip.TextStream // receives the text as it comes; nil if nobody wants it before the end
	room   int             // most bytes that the answer may have
	limit  time.Duration   // longest time between two pieces until the server counts as stalled
	heard  atomic.Int64    // when the server answered last, in ns on the core's clock
	cancel context.CancelCauseFunc
	doubt  error // the error with which the server broke off, until it is known whether the server is gone

	before int // tokens of the answer that earlier generations have made

	mu     sync.Mutex
	text   []byte // the answer so far
	tokens int    // number of tokens of text
	over   bool   // another generation continues the answer
}

// generationResult is how a generation ended.
type generationEnd struct{ err error }

// Errors of answers that a tensor cannot hold.
var (
	errLong = errors.New("the answer has more bytes than were planned")
	errZero = errors.New("the answer has a zero byte")
)

// newGenerator returns the generator of a device, which runs a stage.
func newGenerator(a *generators, device, stage int32) *generator {
	d := &a.c.Tables.Devices[device]
	g := &generator{generators: a, device: device, stage: stage, live: map[uint64]*generation{}}
	g.model = a.c.Tables.Services[a.c.Tables.Pipelines[a.c.Tables.Stages[stage].Pipeline].Service].Name
	g.name = fmt.Sprintf("%s on %s %d", g.model, a.c.Tables.Kinds[d.Kind], d.GPU)
	g.ask = make(chan struct{}, 1)
	a.c.Metrics.Device(device, a.c.Tables.Kinds[d.Kind])
	return g
}

// bindServer sets the device's server: that of an instance in the options.
func (g *generator) find(instance int) (err error) {
	if g.servers, err = NewReach(g.opt.Servers, nil, instance); err != nil {
		return err
	}
	if !g.servers.has(g.model) {
		return fmt.Errorf("instance %d (%s) has no server (--server %d=URL)", instance, g.name, instance)
	}
	return nil
}

// prepare makes the server ready with the language model.
func (g *generator) prepare(ctx context.Context) error {
	return g.servers.Prepare(ctx, g.model, []string{g.model})
}

// startGeneration starts to answer a prompt. It continues the text that other generations have made of the answer.
func (g *generator) admit(b *turn.Batch, request *llm.Request, stream *oip.TextStream) {
	draft := g.answers.Draft(b.Tasks[0])
	r := &generation{generator: g, b: b, serial: b.Serial, stream: stream, room: b.Service.Outputs[0].Bytes, began: g.c.Now(), text: draft.Text, tokens: draft.Tokens, before: draft.Tokens}
	engine := &g.workflows.GenerationOf(b.Service.Index).On[g.c.Tables.Devices[g.device].Kind]

	// Bound the time of a piece by a multiple of the planned prefill and of an iteration of a full batch.
	prompt, answer := g.longest(b.Service.Index)
	r.limit = g.opt.Silence + stallsAfter*(engine.Iteration.Prefill(int32(prompt), engine.Budget)+engine.Iteration.PerToken(max(engine.Sequences, 1), float64(prompt+answer)))
	r.heard.Store(int64(r.began))
	g.live[b.Serial] = r
	ctx, cancel := context.WithCancelCause(g.ctx)
	r.cancel = cancel
	gen := g.gen.Load()

	// Ask the server. The end is an event.
	request.Prompt += string(draft.Text)
	request.MaxTokens -= draft.Tokens
	g.wg.Go(func() {
		err := r.answer(ctx, request)
		cancel(nil)
		g.c.Post(turn.News{Kind: generationEnded, Device: g.device, Gen: gen, Id: r.serial, Back: &generationEnd{err}})
	})
}

// detach ends a generation without a result. Its task keeps the text that was made.
func (g *generator) leave(r *generation) {
	delete(g.live, r.serial)
	r.cancel(errLeft)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	draft := g.answers.Draft(r.b.Tasks[0])
	draft.Text, draft.Tokens = r.text, r.tokens
}

// Pauses between two attempts at a server that is full. They double from the first to the longest.
const (
	firstRetry = 10 * time.Millisecond
	fullRetry  = time.Second
)

// answer asks the server, again and again while it is full.
func (r *generation) answer(ctx context.Context, request *llm.Request) error {
	if request.MaxTokens <= 0 { // the whole answer was made before
		return nil
	}
	server, use, err := r.servers.Use(r.model)
	if err != nil {
		return err
	}
	request.Model, request.Fields = use.Model, use.Fields
	for pause := firstRetry; ; pause = min(2*pause, fullRetry) {
		_, err := server.Complete(ctx, request, r.take)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		full, _ := errors.AsType[*llm.Error](err)
		if !errors.Is(err, llm.ErrFull) {
			return err
		}
		r.heard.Store(int64(r.c.Now()))
		timer := time.NewTimer(max(pause, min(full.RetryAfter, fullRetry)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// addPiece adds a piece of the answer. It returns an error if the answer cannot hold it.
func (r *generation) take(t llm.Token) error {
	r.heard.Store(int64(r.c.Now()))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return errLeft
	case len(r.text)+len(t.Text) > r.room:
		return errLong
	case strings.IndexByte(t.Text, 0) >= 0:
		return errZero
	}
	if r.stream != nil && !r.stream.Add(len(r.text), t.Text) {
		return errDiverged
	}
	r.text, r.tokens = append(r.text, t.Text...), r.before+t.Count
	return nil
}

// finishGeneration handles the end of a generation: the task ends, its request fails, or the generation waits until
// it is known whether the server is gone.
func (g *generator) ended(r *generation, err error) {
	c, b, now := g.c, r.b, g.c.Now()
	q := c.Request(g.answers.RequestOf(b.Tasks[0]))
	b.Infer = now - r.began
	refused, _ := errors.AsType[*llm.Error](err)
	switch {
	case q == nil || q.Job.Answered || errors.Is(err, errOver): // nobody waits for the answer
	case err == nil:
		data := make(answerTensor, b.Service.Outputs[0].Bytes)
		copy(data, r.text)
		c.Answers.Ran(b, data)
	case errors.Is(err, llm.ErrGone), errors.Is(err, llm.ErrBroken):
		r.doubt = err
		g.lookNow()
		return
	case errors.Is(err, llm.ErrUnknownModel), errors.Is(err, llm.ErrUnauthorized), errors.Is(err, llm.ErrNoSuchPath), errors.Is(err, llm.ErrNoStream):
		g.lost(err.Error())
		return
	case refused != nil && refused.Status >= 400 && refused.Status < 500:
		c.Fail(q.Job, oip.Invalid("", "the language model %s: %v", g.model, err))
	default:
		c.Fail(q.Job, fmt.Errorf("the language model %s: %w", g.model, err))
	}
	delete(g.live, r.serial)
	c.FinishHop(b, g.device, r.began, now)
	c.Flush()
}

// retryBroken has answers made again whose server broke off, now that a check has found that the server answers. If
// the server breaks off too often on an answer, its request fails.
func (g *generator) settle() {
	for _, r := range g.running() {
		if r.doubt == nil {
			continue
		}
		task := r.b.Tasks[0]
		draft, q := g.answers.Draft(task), g.c.Request(g.answers.RequestOf(task))
		if r.tokens > r.before {
			draft.Failures = 0
		}
		if draft.Failures++; draft.Failures >= MostAttempts && q != nil && !q.Job.Answered {
			g.c.Fail(q.Job, fmt.Errorf("the language model %s broke off %d times: %w", g.model, draft.Failures, r.doubt))
		}
		g.leave(r)
		g.c.FailBatch(r.b, policy.ReasonFailed, r.doubt)
		g.c.Flush()
	}
}

// runningGenerations lists what the server answers, in the order in which it began.
func (g *generator) running() []*generation {
	out := make([]*generation, 0, len(g.live))
	for _, r := range g.live {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *generation) int { return cmp.Compare(a.serial, b.serial) })
	return out
}

// handleLoss is called when the server is gone. Its generations go back to the policy.
func (g *generator) lost(why string) {
	g.gen.Add(1)
	g.alive.Store(false)
	g.c.Metrics.Up(g.device, false)
	if why != "" {
		g.c.Options.Log.Error("the server of a language model is lost", "instance", g.name, "why", why, "requests", len(g.live))
	}
	g.c.Tell(policy.Event{Kind: policy.WorkerLost, Device: g.device})
	for _, r := range g.running() { // they go back here because the policy did not abort them
		g.leave(r)
		g.c.FailBatch(r.b, policy.ReasonWorkerLost, nil)
	}
	g.c.Flush()
	g.lookNow()
}

// handleReady is called when the server works.
func (g *generator) ready() {
	if g.alive.Load() {
		return
	}
	g.alive.Store(true)
	g.c.Metrics.Up(g.device, true)
	g.c.Options.Log.Info("the server of a language model works", "instance", g.name)
	g.c.Tell(policy.Event{Kind: policy.WorkerBack, Device: g.device})
	g.c.Flush()
}

// checkServers checks that the server answers, and posts an event.
func (g *generator) check(ctx context.Context) {
	gen := g.gen.Load()
	limit, cancel := context.WithTimeout(ctx, g.opt.Silence)
	defer cancel()
	switch err := g.servers.alive(limit); {
	case ctx.Err() != nil:
	case err != nil:
		g.c.Post(turn.News{Kind: generatorLost, Device: g.device, Gen: gen, Text: silent(err, g.opt.Silence).Error()})
	default:
		g.c.Post(turn.News{Kind: generatorAnswers, Device: g.device, Gen: gen})
	}
}

// tryRevive prepares the server and posts an event if it is ready. A problem is logged once.
func (g *generator) revive(ctx context.Context) {
	gen := g.gen.Load()
	limit, cancel := context.WithTimeout(ctx, g.c.Options.LoadTimeout)
	defer cancel()
	err := g.prepare(limit)
	switch {
	case err == nil:
		g.why = ""
		g.c.Post(turn.News{Kind: generatorReady, Device: g.device, Gen: gen})
	case ctx.Err() == nil && err.Error() != g.why:
		g.why = err.Error()
		g.c.Options.Log.Warn("the server of a language model does not work", "instance", g.name, "error", err)
	}
}
