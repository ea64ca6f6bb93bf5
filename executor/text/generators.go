package text

import (
	"context"
	"fmt"
	"slices"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/httplimit"
	"inferplan/executor/oip"
	"inferplan/executor/steps"
	"inferplan/executor/turn"
	"inferplan/policy"
	flows "inferplan/policy/flow"
)

// generatorBackend is the backend of devices that run a language model for modules of applications. The server of
// each device (package engine/llm) answers prompts, which join and leave its batch one by one. The positions of its
// devices are the instances of Options.Servers.
type generatorBackend struct {
	serverBackend[*generator]
	answers      moduleAnswers
	workflows    *flows.WorkflowTables
	promptBuffer []byte // scratch of promptOf
}

// moduleAnswers are the answers of applications with modules that ask language models.
type moduleAnswers interface {
	turn.Answerer
	// Ask returns the number of a task's module among those that ask a language model, plus one. If the module does
	// not, it returns 0.
	Ask(task int32) int32
	// Draft returns the text of a task's answer that was made so far.
	Draft(task int32) *turn.AnswerDraft
	// Final reports whether a task makes the whole text of its request's answer.
	Final(task int32) bool
}

// Bytes in the tensors of prompts and answers for each token of the longest one. A token has 4 bytes on average;
// answers have room for the rare tokens with many.
const (
	promptTokenBytes = 8
	answerTokenBytes = 32
)

// Generators returns the backend for the devices that run language models in a plan of workflows, and the indexes of
// these devices in ascending order. If there are none, it returns nil. It also sets the tensors of the services of
// language models, which are texts: a prompt in, an answer out, each with a bound on its bytes.
func (o *Options) Generators(c *turn.Core) (turn.Backend, []int32) {
	answers, ok := c.Answerer.(moduleAnswers)
	workflows := flows.WorkflowTablesOf(c.Tables)
	if !ok || workflows == nil {
		return nil, nil
	}
	a := &generatorBackend{answers: answers, workflows: workflows}
	a.open(c, o)

	// Give each service of a language model its tensors, and each of its devices a generator.
	for s := range c.Services {
		if workflows.LanguageModelOf(int32(s)) == nil {
			continue
		}
		prompt, answer := maxTokensOf(workflows, int32(s))
		c.Services[s].Inputs = []turn.Tensor{textTensor("prompt", prompt*promptTokenBytes)}
		c.Services[s].Outputs = []turn.Tensor{textTensor("text", answer*answerTokenBytes)}
		service := &c.Tables.Services[s]
		for p := range service.NumPipelines {
			stage := c.Tables.Pipelines[service.FirstPipeline+p].FirstStage
			for _, d := range c.Tables.DevicesOf(stage) {
				a.byDevice[d] = newGenerator(a, d, stage)
				a.devices = append(a.devices, d)
			}
		}
	}
	if len(a.devices) == 0 {
		return nil, nil
	}
	slices.Sort(a.devices)
	return a, a.devices
}

// textTensor returns the form of a tensor that holds a text, padded with zeros.
func textTensor(name string, size int) turn.Tensor {
	return turn.Tensor{Name: name, Datatype: oip.Uint8, Shape: []int64{-1, int64(size)}, Bytes: size, Text: true}
}

// maxTokensOf returns the most tokens that a service's prompts and its answers may have, over all steps of the
// applications that ask for it. Buffers and time limits are sized by them.
func maxTokensOf(workflows *flows.WorkflowTables, service int32) (prompt, answer int) {
	for i := range workflows.GenerationSteps {
		ask := &workflows.GenerationSteps[i]
		step := &workflows.Apps[ask.App].Segments[ask.Segment].Steps[ask.Step]
		if slices.Contains(step.Services(), service) {
			prompt, answer = max(prompt, ask.Prompt.MaxTokens()), max(answer, ask.Output.MaxTokens())
		}
	}
	return prompt, answer
}

// Start gives each device the server of the options at its place in the list, and connects to all. It returns
// turn.ErrPlan if servers and devices do not match. A server that does not answer in time is tried again later, while
// the others work.
func (a *generatorBackend) Start(ctx context.Context) error {
	if err := checkServers(a.options.Servers, len(a.devices)); err != nil {
		return err
	}
	for i, d := range a.devices {
		if err := a.byDevice[d].bindServer(i); err != nil {
			return fmt.Errorf("%w: %w", turn.ErrPlan, err)
		}
	}
	return a.prepareAll(ctx, "a language model")
}

// RunBatch is called when the policy dispatches a batch to a device that runs a language model. It has the device's
// server answer the prompt of its one task. If nobody waits for the answer, or the prompt is invalid, the batch
// ends at once.
func (a *generatorBackend) RunBatch(b *turn.Batch) {
	g, task := a.byDevice[b.Device()], b.Tasks[0]
	q := a.core.Ledger.RequestIn(a.answers.RequestOf(task))
	switch {
	case !g.watch.alive.Load(): // the server is lost: the policy takes the batch back when it hears of that
		return
	case q == nil || q.Job.Answered: // nobody waits for the answer
		a.core.Batches.EndUnwanted(b)
		return
	}

	// Read the prompt. If it is invalid, the request fails.
	prompt, err := a.promptOf(b.Service, task)
	if err != nil && !q.Job.Answered {
		a.core.Ledger.FailJob(q.Job, err)
	}
	if q.Job.Answered {
		a.core.Batches.EndUnwanted(b)
		return
	}

	// Bound the answer, and stream it only if it is the whole answer of the request.
	longest := b.Service.Outputs[0].Bytes / answerTokenBytes
	if ask := a.answers.Ask(task); ask > 0 {
		longest = a.workflows.GenerationSteps[ask-1].Output.MaxTokens()
	}
	stream := q.Job.Stream
	if stream != nil && !a.answers.Final(task) {
		stream = nil
	}
	g.startGeneration(b, &llm.Request{Prompt: prompt, MaxTokens: longest}, stream, q.Job.Trace.Parent())
	a.core.Batches.TellStarted(b, g.device, a.core.Loop.Now())
}

// promptOf returns the prompt of a task: what a step before the model makes, or the text that the task reads. Texts
// are padded with zero bytes, which are cut off. It returns an error if the prompt is empty or longer than planned.
func (a *generatorBackend) promptOf(service *turn.Model, task int32) (string, error) {
	size := service.Inputs[0].Bytes
	a.promptBuffer = slices.Grow(a.promptBuffer[:0], size)[:size]
	if !a.answers.FillInput(task, 0, a.promptBuffer) {
		promptText := steps.TrimPadding(a.answers.TaskInput(task, 0))
		if len(promptText) > size {
			return "", httplimit.Invalid("", "the language model %s: found a prompt of %d bytes, expected at most %d, as was planned", service.Name, len(promptText), size)
		}
		clear(a.promptBuffer[copy(a.promptBuffer, promptText):])
	}
	prompt := string(steps.TrimPadding(a.promptBuffer))
	if prompt == "" {
		return "", httplimit.Invalid("", "the language model %s: found an empty prompt, expected a text", service.Name)
	}
	return prompt, nil
}

// AbortBatch ends the generation (a prompt that is being answered) of a batch that the policy aborts. Its task
// keeps the text that was made.
func (a *generatorBackend) AbortBatch(b *turn.Batch) {
	g := a.byDevice[b.Device()]
	if r := g.generations[b.Serial]; r != nil {
		g.detach(r)
	}
}

// EvictBatch does nothing: the policies of workflows evict no sequence.
func (a *generatorBackend) EvictBatch(*turn.Batch, bool) { a.core.Stats.IgnoredActions++ }

// LoadNetwork answers at once. A server holds its one language model from its start to its end, so any other order is
// refused.
func (a *generatorBackend) LoadNetwork(o turn.LoadOrder) {
	reason := policy.ReturnReason(0)
	if network := a.core.Tables.Pipelines[a.core.Tables.Stages[a.byDevice[o.Device].stage].Pipeline].Network; !o.Load || o.Network != network {
		reason = policy.ReturnRefused
	}
	a.answerOrder(o, reason)
}

// HandleEvent handles an event of a generator (the part that runs a device's language model): a generation ended,
// or the server answers, is lost, or is ready. Events from before the last loss of the server are ignored, because
// their generations were given back then.
func (a *generatorBackend) HandleEvent(n *turn.BackendEvent) {
	g := a.byDevice[n.Device]
	if n.Generation != g.watch.lossCount.Load() {
		return
	}
	switch n.Kind {
	case eventRunEnded:
		if r := g.generations[n.Id]; r != nil {
			g.finishGeneration(r, n.Result.(*generationResult).err)
		}
	case eventServerAnswers:
		g.retryBroken()
	case eventServerLost:
		g.handleLoss(n.Text)
	case eventServerReady:
		g.handleReady()
	}
}

// Watch ends generations (prompts that are being answered) that nobody waits for, and gives up servers that have sent
// no piece of an answer for too long. It is called in regular intervals in a round of the core. paused is the time for
// which this process itself stood still since the last call; it must not count against the servers, so it is added to
// the time of the last piece.
func (a *generatorBackend) Watch(now, paused time.Duration) {
	a.addBusyTime(now, paused)
	for _, d := range a.devices {
		g := a.byDevice[d]
		for _, r := range inOrder(g.generations) {
			r.lastPieceAt.Add(int64(paused))
			q := a.core.Ledger.RequestIn(a.answers.RequestOf(r.b.Tasks[0]))
			if q == nil || q.IsDropped || q.Job.Answered {
				r.cancel(errNobodyWaits)
				continue
			}
			if silent := now - time.Duration(r.lastPieceAt.Load()); silent > r.maxPause && r.brokenBy == nil && g.watch.alive.Load() {
				a.core.Options.Log.Error("a server stands still and is given up", "instance", g.name, "for", silent)
				g.handleLoss("it stands still")
				a.core.Flush()
				break
			}
		}
	}
}

// answerTensor is the answer to a prompt as bytes. It implements turn.BatchOutputs.
type answerTensor []byte

// Output implements turn.Outputs.
func (t answerTensor) Output(int) []byte { return t }
