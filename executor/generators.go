package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/oip"
	"inferplan/executor/steps"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// generators is the backend of devices that run a language model for modules of
// applications. The server of each device (package engine/llm) answers prompts, which join
// and leave it one by one. It belongs to the core's turn.
type generators struct {
	c         *core
	answers   *flow
	workflows *flows.Workflows
	list      []*generator // by device; nil where another backend executes
	devices   []int32      // of this backend, ascending: the instances of Options.Servers
	prompt    []byte       // scratch
	serverCalls
}

// Kinds of news of generators.
const (
	generationEnded  uint8 = iota
	generatorAnswers       // it was looked at
	generatorLost
	generatorReady
)

// Bytes of a prompt's and an answer's tensor for each token of the longest one. Tokens have
// 4 bytes on average; answers have room for the rare ones with many.
const (
	promptTokenBytes = 8
	answerTokenBytes = 32
)

// generatorsOf returns the backend of the devices that run language models of a plan of
// workflows. If there are none, it returns nil.
func generatorsOf(c *core) (backend, []int32) {
	answers, ok := c.answers.(*flow)
	workflows := flows.WorkflowsOf(c.tables)
	if !ok || workflows == nil {
		return nil, nil
	}
	a := &generators{c: c, answers: answers, workflows: workflows, list: make([]*generator, len(c.tables.Devices))}
	for s := range c.services {
		if workflows.GenerationOf(int32(s)) == nil {
			continue
		}
		prompt, answer := a.longest(int32(s))
		c.services[s].inputs = []tensor{textTensor("prompt", prompt*promptTokenBytes)}
		c.services[s].outputs = []tensor{textTensor("text", answer*answerTokenBytes)}
		service := &c.tables.Services[s]
		for p := range service.NumPipelines {
			stage := c.tables.Pipelines[service.FirstPipeline+p].FirstStage
			for _, d := range c.tables.DevicesOf(stage) {
				a.list[d] = newGenerator(a, d, stage)
				a.devices = append(a.devices, d)
			}
		}
	}
	if len(a.devices) == 0 {
		return nil, nil
	}
	slices.Sort(a.devices)
	a.open()
	return a, a.devices
}

// textTensor is a tensor that holds a text, filled up with zeros.
func textTensor(name string, size int) tensor {
	return tensor{name: name, datatype: oip.Uint8, shape: []int64{-1, int64(size)}, bytes: size, text: true}
}

// longest returns the most tokens of a service's prompts and of its answers.
func (a *generators) longest(service int32) (prompt, answer int) {
	for i := range a.workflows.Asks {
		ask := &a.workflows.Asks[i]
		step := &a.workflows.Apps[ask.App].Segments[ask.Segment].Steps[ask.Step]
		if slices.Contains(servicesOfStep(step), service) {
			prompt, answer = max(prompt, ask.Prompt.Longest()), max(answer, ask.Output.Longest())
		}
	}
	return prompt, answer
}

// start finds the servers. One that does not answer yet is waited for later: others work
// meanwhile.
func (a *generators) start(ctx context.Context) error {
	if err := checkServers(a.c.opt.Servers, len(a.devices)); err != nil {
		return err
	}
	for i, d := range a.devices {
		if err := a.list[d].find(i); err != nil {
			return fmt.Errorf("%w: %w", ErrPlan, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.c.opt.Silence)
	defer cancel()
	var wg sync.WaitGroup
	for _, d := range a.devices {
		g := a.list[d]
		wg.Go(func() {
			if err := g.prepare(ctx); err != nil {
				a.c.opt.Log.Warn("the server of a language model does not answer yet", "instance", g.name, "error", err)
				return
			}
			g.alive.Store(true)
		})
	}
	wg.Wait()
	return nil
}

// begin watches the servers. The policy hears of those that are not there.
func (a *generators) begin() {
	for _, d := range a.devices {
		g := a.list[d]
		a.c.metrics.up(d, g.alive.Load())
		if !g.alive.Load() {
			a.c.in.post(news{what: generatorLost, device: d, gen: g.gen.Load()})
		}
		a.wg.Go(func() { g.watch(a.ctx, g.check, g.revive) })
	}
}

func (a *generators) up(device int32) bool { return a.list[device].alive.Load() }

// run has the server of a device answer the prompt of a batch, which has one task.
func (a *generators) run(b *batch) {
	g, task := a.list[b.device()], b.tasks[0]
	q := a.c.book.at(a.answers.requestOf(task))
	switch {
	case !g.alive.Load(): // the policy hears of the loss, if it has not
		return
	case q == nil || q.job.answered: // nobody waits for it
		a.finish(b)
		return
	}
	prompt, err := a.promptOf(b.service, task)
	if err != nil && !q.job.answered {
		a.c.book.fail(q.job, err)
	}
	if q.job.answered {
		a.finish(b)
		return
	}
	longest := b.service.outputs[0].bytes / answerTokenBytes
	ta := &a.answers.tasks.list[task]
	if ta.ask > 0 {
		longest = a.workflows.Asks[ta.ask-1].Output.Longest()
	}
	g.admit(b, &llm.Request{Prompt: prompt, MaxTokens: longest}, a.streamOf(q, task))
	a.c.began(b, g.device, a.c.now())
}

// promptOf returns the prompt of a task of a service.
func (a *generators) promptOf(service *model, task int32) (string, error) {
	size := service.inputs[0].bytes
	a.prompt = slices.Grow(a.prompt[:0], size)[:size]
	if !a.answers.fill(task, 0, a.prompt) {
		made := steps.Text(a.answers.input(task, 0))
		if len(made) > size {
			return "", oip.Invalid("", "the language model %s: found a prompt of %d bytes, expected at most %d, as was planned", service.name, len(made), size)
		}
		clear(a.prompt[copy(a.prompt, made):])
	}
	prompt := string(steps.Text(a.prompt))
	if prompt == "" {
		return "", oip.Invalid("", "the language model %s: found an empty prompt, expected a text", service.name)
	}
	return prompt, nil
}

// streamOf returns the stream of the client that waits for a task's text. If the task is not
// the last of its request, or nobody wants the text before its end, it returns nil.
func (a *generators) streamOf(q *request, task int32) *oip.TextStream {
	ask, segments := a.answers.tasks.list[task].ask, a.answers.tasks.steps.flows
	if q.job.stream == nil || ask == 0 || segments == nil {
		return nil
	}
	at, app := &a.workflows.Asks[ask-1], &segments.apps[q.job.model.index]
	segment := &a.workflows.Apps[at.App].Segments[at.Segment]
	if slices.ContainsFunc(segment.To, func(to int32) bool { return to >= 0 }) {
		return nil
	}
	i := slices.IndexFunc(app.ends, func(e segmentEnd) bool { return a.workflows.GenerationOf(e.service) != nil })
	if i < 0 || app.ends[i].segment != at.Segment || app.ends[i].name != segment.Steps[at.Step].Name || app.ends[i].items != 1 {
		return nil
	}
	return q.job.stream
}

// finish ends a batch that has nothing to do, once the policy can be told.
func (a *generators) finish(b *batch) {
	b.failed = true
	a.c.skips = append(a.c.skips, queued{batch: b, serial: b.serial})
}

// abort ends the answer to a batch's prompt.
func (a *generators) abort(b *batch) {
	g := a.list[b.device()]
	if r := g.live[b.serial]; r != nil {
		g.leave(r)
	}
}

// evict does nothing: the policies of workflows take no sequence off its device.
func (a *generators) evict(*batch, bool) { a.c.stats.ignored++ }

// load answers at once. A server holds its language model from its start to its end.
func (a *generators) load(o order) {
	why := policy.Return(0)
	if network := a.c.tables.Pipelines[a.c.tables.Stages[a.list[o.device].stage].Pipeline].Network; !o.up || o.network != network {
		why = policy.ReturnRefused
	}
	now := a.c.now()
	a.c.emit(queued{ev: o.event(now, now, why)})
}

// place answers at once: a prompt goes to its server with the request.
func (a *generators) place(task, device, ticket int32) {
	now := a.c.now()
	a.c.placed(task, device, ticket, now, now)
}

// took handles news of a generator.
func (a *generators) took(n *news) {
	g := a.list[n.device]
	if n.gen != g.gen.Load() {
		return
	}
	switch n.what {
	case generationEnded:
		if r := g.live[n.id]; r != nil {
			g.ended(r, n.back.(*generationEnd).err)
		}
	case generatorAnswers:
		g.settle()
	case generatorLost:
		g.lost(n.text)
	case generatorReady:
		g.ready()
	}
}

func (a *generators) room() {}

// look ends answers that nobody waits for, and gives up servers that stand still.
func (a *generators) look(now, paused time.Duration) {
	for _, d := range a.devices {
		g := a.list[d]
		for _, r := range g.running() {
			r.heard.Add(int64(paused))
			q := a.c.book.at(a.answers.requestOf(r.b.tasks[0]))
			if q == nil || q.gone || q.job.answered {
				r.cancel(errOver)
				continue
			}
			if silent := now - time.Duration(r.heard.Load()); silent > r.limit && r.doubt == nil && g.alive.Load() {
				a.c.opt.Log.Error("a server stands still and is given up", "instance", g.name, "for", silent)
				g.lost("it stands still")
				a.c.Flush()
				break
			}
		}
	}
}

// close ends what runs.
func (a *generators) close(ctx context.Context) { a.end(ctx, a.c.opt.Log) }

// answerTensor implements outputs: the answer to a prompt.
type answerTensor []byte

func (t answerTensor) output(int) []byte { return t }
