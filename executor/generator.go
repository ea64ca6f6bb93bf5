package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/oip"
	"inferplan/policy"
)

// generator has the prompts of one device answered by its server.
type generator struct {
	*generators
	device  int32
	stage   int32
	name    string // for messages
	model   string
	servers *reach
	serverWatch
	live map[uint64]*generation // by the serial of the batch's use
}

// generation is a prompt that a server answers.
type generation struct {
	*generator
	b      *batch
	serial uint64
	began  time.Duration
	stream *oip.TextStream // takes the text while it is made; nil: nobody wants it before the end
	limit  time.Duration   // that the next piece may take
	heard  atomic.Int64    // when a piece came last, on the core's clock
	cancel context.CancelCauseFunc
}

// generationEnd is how a generation ended.
type generationEnd struct {
	answer *llm.Answer
	err    error
}

func newGenerator(a *generators, device, stage int32) *generator {
	d := &a.c.tables.Devices[device]
	g := &generator{generators: a, device: device, stage: stage, live: map[uint64]*generation{}}
	g.model = a.c.tables.Services[a.c.tables.Pipelines[a.c.tables.Stages[stage].Pipeline].Service].Name
	g.name = fmt.Sprintf("%s on %s %d", g.model, a.c.tables.Kinds[d.Kind], d.GPU)
	g.ask = make(chan struct{}, 1)
	a.c.metrics.device(device, a.c.tables.Kinds[d.Kind])
	return g
}

// find takes the device's server from the options, as an instance of a number.
func (g *generator) find(instance int) (err error) {
	if g.servers, err = newReach(g.c.opt.Servers, nil, instance); err != nil {
		return err
	}
	if !g.servers.has(g.model) {
		return fmt.Errorf("instance %d (%s) has no server (--server %d=URL)", instance, g.name, instance)
	}
	return nil
}

// prepare has the server ready with the language model.
func (g *generator) prepare(ctx context.Context) error {
	return g.servers.prepare(ctx, g.model, []string{g.model})
}

// admit begins to answer a prompt.
func (g *generator) admit(b *batch, request *llm.Request, stream *oip.TextStream) {
	r := &generation{generator: g, b: b, serial: b.serial, stream: stream, began: g.c.now()}
	infer := g.c.tables.Stages[g.stage].Infer
	r.limit = g.c.opt.Silence + stallsAfter*infer[len(infer)-1]
	r.heard.Store(int64(r.began))
	g.live[b.serial] = r
	ctx, cancel := context.WithCancelCause(g.ctx)
	r.cancel = cancel
	gen := g.gen.Load()
	g.wg.Go(func() {
		answer, err := r.answer(ctx, request)
		cancel(nil)
		g.c.in.post(news{what: generationEnded, device: g.device, gen: gen, id: r.serial, back: &generationEnd{answer, err}})
	})
}

// Pauses until a server that takes no more requests is asked again. They double.
const (
	firstRetry = 10 * time.Millisecond
	fullRetry  = time.Second
)

// answer asks the server, again and again while it takes no more requests.
func (r *generation) answer(ctx context.Context, request *llm.Request) (*llm.Answer, error) {
	server, use, err := r.servers.use(r.model)
	if err != nil {
		return nil, err
	}
	request.Model, request.Fields = use.Model, use.Fields
	for pause := firstRetry; ; pause = min(2*pause, fullRetry) {
		var text strings.Builder
		answer, err := server.Complete(ctx, request, func(t llm.Token) error {
			r.heard.Store(int64(r.c.now()))
			text.WriteString(t.Text)
			if r.stream != nil && !r.stream.Add(text.String()) {
				return errDiverged
			}
			return nil
		})
		if cause := context.Cause(ctx); cause != nil {
			return answer, cause
		}
		if !errors.Is(err, llm.ErrFull) {
			return answer, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return answer, context.Cause(ctx)
		}
	}
}

// ended takes the end of a generation.
func (g *generator) ended(r *generation, end *generationEnd) {
	c, b, now := g.c, r.b, g.c.now()
	q := c.book.at(g.answers.requestOf(b.tasks[0]))
	waited := q != nil && !q.job.answered
	b.infer = now - r.began
	switch err := end.err; {
	case err == nil && waited:
		data := make(answerTensor, b.service.outputs[0].bytes)
		if copy(data, end.answer.Text) < len(end.answer.Text) {
			c.book.fail(q.job, fmt.Errorf("the language model %s: %w", g.model, errLong))
		}
		c.answers.ran(b, data)
	case err == nil, !waited, errors.Is(err, errOver): // nobody waits for it
	case errors.Is(err, llm.ErrGone), errors.Is(err, llm.ErrBroken):
		if ta := &g.answers.tasks.list[b.tasks[0]]; ta.failures < mostAttempts {
			ta.failures++
			g.lost(err.Error())
			return
		}
		fallthrough
	default:
		c.book.fail(q.job, fmt.Errorf("the language model %s: %w", g.model, err))
	}
	delete(g.live, r.serial)
	c.finishHop(b, g.device, r.began, now)
	c.Flush()
}

// running lists what the server answers, in the order in which it began.
func (g *generator) running() []*generation {
	out := make([]*generation, 0, len(g.live))
	for _, r := range g.live {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *generation) int { return cmp.Compare(a.serial, b.serial) })
	return out
}

// lost: the server is gone, and what it answered.
func (g *generator) lost(why string) {
	g.gen.Add(1)
	g.alive.Store(false)
	g.c.metrics.up(g.device, false)
	if why != "" {
		g.c.opt.Log.Error("the server of a language model is lost", "instance", g.name, "why", why, "requests", len(g.live))
	}
	g.c.handle(policy.Event{Kind: policy.WorkerLost, Device: g.device})
	for _, r := range g.running() { // the policy did not abort them
		r.cancel(errLeft)
		g.c.failBatch(r.b, policy.ReasonWorkerLost, nil)
	}
	g.c.Flush()
	g.lookNow()
}

// ready: the server works.
func (g *generator) ready() {
	if g.alive.Load() {
		return
	}
	g.alive.Store(true)
	g.c.metrics.up(g.device, true)
	g.c.opt.Log.Info("the server of a language model works", "instance", g.name)
	g.c.handle(policy.Event{Kind: policy.WorkerBack, Device: g.device})
	g.c.Flush()
}

// check looks whether the server answers.
func (g *generator) check(ctx context.Context) {
	gen := g.gen.Load()
	limit, cancel := context.WithTimeout(ctx, g.c.opt.Silence)
	defer cancel()
	err := g.servers.alive(limit)
	if err == nil || ctx.Err() != nil {
		return
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer for %v", g.c.opt.Silence)
	}
	g.c.in.post(news{what: generatorLost, device: g.device, gen: gen, text: err.Error()})
}

// revive looks whether the server works again.
func (g *generator) revive(ctx context.Context) {
	gen := g.gen.Load()
	limit, cancel := context.WithTimeout(ctx, g.c.opt.LoadTimeout)
	defer cancel()
	if g.prepare(limit) == nil {
		g.c.in.post(news{what: generatorReady, device: g.device, gen: gen})
	}
}
