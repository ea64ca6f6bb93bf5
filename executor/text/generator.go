package text

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/executor/tracing"
	"inferplan/executor/turn"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// generator has the prompts of one device answered by its server.
type generator struct {
	serverDevice
	answers       moduleAnswers
	workflows     *flows.WorkflowTables
	stage         int32
	model         string
	servers       *localServers
	loggedProblem string                 // what the watch logged last about the server
	generations   map[uint64]*generation // by the serial of the batch
}

// generation is a prompt that a server answers.
type generation struct {
	generator   *generator
	b           *turn.Batch
	serial      uint64
	beganAt     time.Duration
	stream      *oip.TextStream // receives the text as it comes; nil if nobody wants it before the end
	maxBytes    int             // most bytes that the answer may have
	maxPause    time.Duration   // longest time between two pieces until the server counts as stalled
	lastPieceAt atomic.Int64    // when the server answered last, in ns on the core's clock
	cancel      context.CancelCauseFunc
	brokenBy    error // the error with which the server broke off, until it is known whether the server is gone

	earlierTokens int // tokens of the answer that earlier generations have made

	mu       sync.Mutex
	text     []byte // the answer so far
	tokens   int    // number of tokens of text
	detached bool   // another generation continues the answer
}

// generationResult is how a generation ended.
type generationResult struct{ err error }

// Errors of answers that a tensor cannot hold.
var (
	errAnswerTooLong = errors.New("the answer has more bytes than were planned")
	errZeroByte      = errors.New("the answer has a zero byte")
)

// newGenerator returns the generator of a device of a plan of workflows: it has the prompts for a language model
// answered there, by a server. stage is the model's only stage, by its number in the plan's tables. It adds the device
// to the metrics. The server counts as lost until a check finds it.
func newGenerator(a *generatorBackend, device, stage int32) *generator {
	d := &a.core.Tables.Devices[device]
	g := &generator{
		serverDevice: serverDevice{core: a.core, options: a.options, requests: &a.requests, device: device, watch: newServerWatch()},
		answers:      a.answers, workflows: a.workflows, stage: stage, generations: map[uint64]*generation{},
	}
	g.model = a.core.Tables.Services[a.core.Tables.Pipelines[a.core.Tables.Stages[stage].Pipeline].Service].Name
	g.name = fmt.Sprintf("%s on %s %d", g.model, a.core.Tables.Kinds[d.Kind], d.GPU)
	a.core.Metrics.AddDevice(device, a.core.Tables.Kinds[d.Kind])
	return g
}

// bindServer gives the device the server that the options name for an instance number. It returns an error if the
// options have none for it that serves the device's model.
func (g *generator) bindServer(instance int) (err error) {
	if g.servers, err = NewLocalServers(g.options.Servers, nil, instance); err != nil {
		return err
	}
	if !g.servers.hasServer(g.model) {
		return fmt.Errorf("instance %d (%s) has no server (--server %d=URL)", instance, g.name, instance)
	}
	return nil
}

// prepare makes the server ready with the language model.
func (g *generator) prepare(ctx context.Context) error {
	return g.servers.Prepare(ctx, g.model, []string{g.model})
}

// startGeneration starts, on a goroutine, to answer the prompt of a batch, which has one task. The draft is the text
// that earlier generations of the task have written before they were lost; the server gets it behind the prompt and
// writes on from there. stream receives the text as it comes.
func (g *generator) startGeneration(b *turn.Batch, request *llm.Request, stream *oip.TextStream, parent tracing.Parent) {
	draft := g.answers.Draft(b.Tasks[0])
	r := &generation{generator: g, b: b, serial: b.Serial, stream: stream, maxBytes: b.Service.Outputs[0].Bytes, beganAt: g.core.Loop.Now(), text: draft.Text, tokens: draft.Tokens, earlierTokens: draft.Tokens}
	// Take the planned speed of the model on this kind of device.
	engine := &g.workflows.LanguageModelOf(b.Service.Index).Engines[g.core.Tables.Devices[g.device].Kind]

	// The answer counts as stalled if no piece of it comes for the timeout plus a multiple of the planned prefill (the
	// pass over the prompt) and of one iteration of a full batch.
	prompt, answer := maxTokensOf(g.workflows, b.Service.Index)
	r.maxPause = g.options.SilenceTimeout + stallFactor*(engine.Iteration.PrefillTime(int32(prompt), engine.TokenBudget)+engine.Iteration.TokenTime(max(engine.MaxSequences, 1), float64(prompt+answer)))
	r.lastPieceAt.Store(int64(r.beganAt))
	g.generations[b.Serial] = r
	ctx, cancel := context.WithCancelCause(llm.WithTrace(g.requests.ctx, parent.Traceparent, parent.Tracestate))
	r.cancel = cancel
	gen := g.watch.lossCount.Load()

	// Ask the server. The end comes back to the core as an event with the loss count: if the server was lost in between,
	// the count has grown, and the event is ignored.
	request.Prompt += string(draft.Text)
	request.MaxTokens -= draft.Tokens
	g.requests.wg.Go(func() {
		err := r.answer(ctx, request)
		cancel(nil)
		g.core.Inbox.PostEvents(turn.BackendEvent{Kind: eventRunEnded, Device: g.device, Generation: gen, Id: r.serial, Result: &generationResult{err}})
	})
}

// detach ends a generation (a prompt that is being answered) without a result. Its task keeps the text that was
// made, so that another generation continues it.
func (g *generator) detach(r *generation) {
	delete(g.generations, r.serial)
	r.cancel(errTakenOver)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.detached = true
	draft := g.answers.Draft(r.b.Tasks[0])
	draft.Text, draft.Tokens = r.text, r.tokens
}

// Pauses between two attempts at a server that is full. They double from the first to the longest.
const (
	firstRetryPause = 10 * time.Millisecond
	maxRetryPause   = time.Second
)

// answer asks the server for the answer, again and again while the server is full, and returns when it is written or has
// failed, or when ctx has ended, with its cause. Pauses double between the attempts, up to maxRetryPause, or are as long
// as the server asks. A pause does not count as standing still.
func (r *generation) answer(ctx context.Context, request *llm.Request) error {
	if request.MaxTokens <= 0 { // the whole answer was made before
		return nil
	}
	server, use, err := r.generator.servers.ServerAndUse(r.generator.model)
	if err != nil {
		return err
	}
	request.Model, request.Fields = use.Model, use.Fields
	for pause := firstRetryPause; ; pause = min(2*pause, maxRetryPause) {
		_, err := server.Complete(ctx, request, r.addPiece)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		fullErr, _ := errors.AsType[*llm.Error](err)
		if !errors.Is(err, llm.ErrFull) {
			return err
		}
		r.lastPieceAt.Store(int64(r.generator.core.Loop.Now()))
		timer := time.NewTimer(max(pause, min(fullErr.RetryAfter, maxRetryPause)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// addPiece is called for each piece of an answer. It adds it to the text and to the client's stream. It returns an
// error, which ends the generation, if the answer has no space for it, it contains a zero byte (texts are padded
// with these), it differs from what was streamed before, or the generation no longer counts.
func (r *generation) addPiece(t llm.Token) error {
	r.lastPieceAt.Store(int64(r.generator.core.Loop.Now()))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.detached:
		return errTakenOver
	case len(r.text)+len(t.Text) > r.maxBytes:
		return errAnswerTooLong
	case strings.IndexByte(t.Text, 0) >= 0:
		return errZeroByte
	}
	if r.stream != nil && !r.stream.Add(len(r.text), t.Text) {
		return errDiverged
	}
	r.text, r.tokens = append(r.text, t.Text...), r.earlierTokens+t.Count
	return nil
}

// finishGeneration runs in a round of the core when a generation (a prompt that is being answered) has ended, with its
// error: the task ends, its request fails, or the generation waits until it is known whether the server is gone. A
// refusal by the server (status 400 to 499) is the request's fault; an unknown model or key is that of the server, which
// counts as lost.
func (g *generator) finishGeneration(r *generation, err error) {
	c, b, now := g.core, r.b, g.core.Loop.Now()
	q := c.Ledger.RequestIn(g.answers.RequestOf(b.Tasks[0]))
	b.InferTime = now - r.beganAt
	b.TraceHop(r.beganAt, now)
	refusedErr, _ := errors.AsType[*llm.Error](err)
	switch {
	case q == nil || q.Job.Answered || errors.Is(err, errNobodyWaits): // nobody waits for the answer
	case err == nil:
		data := make(answerTensor, b.Service.Outputs[0].Bytes)
		copy(data, r.text)
		c.Answerer.TakeOutputs(b, data)
	case errors.Is(err, llm.ErrGone), errors.Is(err, llm.ErrBroken):
		r.brokenBy = err
		g.watch.requestCheck()
		return
	case errors.Is(err, llm.ErrUnknownModel), errors.Is(err, llm.ErrUnauthorized), errors.Is(err, llm.ErrNoSuchPath), errors.Is(err, llm.ErrNoStream):
		g.handleLoss(err.Error())
		return
	case refusedErr != nil && refusedErr.Status >= 400 && refusedErr.Status < 500:
		c.Ledger.FailJob(q.Job, httplimit.Invalid("", "the language model %s: %v", g.model, err))
	default:
		c.Ledger.FailJob(q.Job, fmt.Errorf("the language model %s: %w", g.model, err))
	}
	delete(g.generations, r.serial)
	c.Batches.FinishHop(b, g.device, r.beganAt, now)
	c.Flush()
}

// retryBroken is called when a check has found that the server answers. Generations whose server broke off go back
// to the policy, which has them continued. If the server has broken off MaxAttempts times on an answer, without
// progress between, its request fails.
func (g *generator) retryBroken() {
	for _, r := range inOrder(g.generations) {
		if r.brokenBy == nil {
			continue
		}
		task := r.b.Tasks[0]
		draft, q := g.answers.Draft(task), g.core.Ledger.RequestIn(g.answers.RequestOf(task))
		if r.tokens > r.earlierTokens {
			draft.Failures = 0
		}
		if draft.Failures++; draft.Failures >= MaxAttempts && q != nil && !q.Job.Answered {
			g.core.Ledger.FailJob(q.Job, fmt.Errorf("the language model %s broke off %d times: %w", g.model, draft.Failures, r.brokenBy))
		}
		g.detach(r)
		g.core.Batches.FailBatch(r.b, policy.ReasonFailed, r.brokenBy)
		g.core.Flush()
	}
}

// showState shows in the metrics whether the server works.
func (g *generator) showState() { g.core.Metrics.SetUp(g.device, g.watch.alive.Load()) }

// isBusy implements servedDevice.
func (g *generator) isBusy() bool { return len(g.generations) > 0 }

// handleLoss runs in a round of the core when the server is gone, stands still or can no longer serve, for a reason that
// goes to the log unless it is empty. The policy is told and gets all generations (prompts being answered) back, and
// their text so far is stored with their tasks. The server is checked until it works again.
func (g *generator) handleLoss(reason string) {
	g.watch.lossCount.Add(1)
	g.watch.alive.Store(false)
	g.showState()
	if reason != "" {
		g.core.Options.Log.Error("the server of a language model is lost", "instance", g.name, "why", reason, "requests", len(g.generations))
	}
	g.core.Loop.TellPolicy(policy.Event{Kind: policy.WorkerLost, Device: g.device})
	for _, r := range inOrder(g.generations) { // they go back here because the policy did not abort them
		g.detach(r)
		g.core.Batches.FailBatch(r.b, policy.ReasonWorkerLost, nil)
	}
	g.core.Flush()
	g.watch.requestCheck()
}

// handleReady runs in a round of the core when a lost server works again: the policy is told that the device is back. If
// the server was not lost, nothing changes.
func (g *generator) handleReady() {
	if g.watch.alive.Load() {
		return
	}
	g.watch.alive.Store(true)
	g.showState()
	g.core.Options.Log.Info("the server of a language model works", "instance", g.name)
	g.core.Loop.TellPolicy(policy.Event{Kind: policy.WorkerBack, Device: g.device})
	g.core.Flush()
}

// checkStatus asks the server whether it is alive, and posts an event with the answer: eventServerAnswers, or
// eventServerLost if it refuses the connection or is silent for SilenceTimeout.
func (g *generator) checkStatus(ctx context.Context) {
	gen := g.watch.lossCount.Load()
	checkCtx, cancel := context.WithTimeout(ctx, g.options.SilenceTimeout)
	defer cancel()
	switch err := g.servers.checkAlive(checkCtx); {
	case ctx.Err() != nil:
	case err != nil:
		g.post(eventServerLost, gen, describeTimeout(err, g.options.SilenceTimeout).Error())
	default:
		g.post(eventServerAnswers, gen, "")
	}
}

// tryRevive is called from time to time while the server is lost. It prepares the server and, if it is ready, posts
// an event. A problem is logged when it first appears or changes, not at each try.
func (g *generator) tryRevive(ctx context.Context) {
	gen := g.watch.lossCount.Load()
	reviveCtx, cancel := context.WithTimeout(ctx, g.core.Options.LoadTimeout)
	defer cancel()
	err := g.prepare(reviveCtx)
	switch {
	case err == nil:
		g.loggedProblem = ""
		g.post(eventServerReady, gen, "")
	case ctx.Err() == nil && err.Error() != g.loggedProblem:
		g.loggedProblem = err.Error()
		g.core.Options.Log.Warn("the server of a language model does not work", "instance", g.name, "error", err)
	}
}
