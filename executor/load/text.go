package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/oip"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/seeded"
)

// Completions is the OpenAI protocol: streamed completions with the lengths of the arrivals, or with lengths drawn
// for their model.
const Completions Protocol = "completions"

// textTarget is a server of completions.
type textTarget struct {
	client  *llm.Client
	lengths [][2]func() int32    // by model: draws the lengths of prompts and of answers that the trace does not have
	sizes   map[string]tokenSize // by model
	seed    uint64
}

// tokenSize is the ratio of text to the tokens of a model.
type tokenSize struct {
	perWord    float64 // tokens per word
	characters float64 // characters per token
	assumed    bool    // the server did not count the tokens
}

// newTextTarget returns a target for requests of text from language models, whose lengths are drawn from the
// configured distributions unless the schedule has them.
func newTextTarget(cfg *Config) (*textTarget, error) {
	c, err := llm.New(cfg.URL, llm.WithKey(cfg.Token))
	if err != nil {
		return nil, err
	}
	t := &textTarget{client: c, seed: cfg.Seed, sizes: map[string]tokenSize{}}
	for i := range cfg.Models {
		m := &cfg.Models[i]
		rng := seeded.New(cfg.Seed, "load/lengths/"+m.Name+"/"+m.Class)
		t.lengths = append(t.lengths, [2]func() int32{arrivals.Lengths(m.Prompt, rng), arrivals.Lengths(m.Output, rng)})
	}
	return t, nil
}

// check returns an error unless the server has all models. It also has the server count the tokens of a sample for each
// model, from which the number of words of a prompt follows.
func (t *textTarget) check(ctx context.Context, models []Model) error {
	data, err := t.client.Call(ctx, "GET", "/v1/models", nil)
	if err != nil {
		return fmt.Errorf("asking %s for its models: %w", t.client.Address(), err)
	}
	for _, m := range models {
		if !strings.Contains(string(data), strconv.Quote(m.Name)) {
			return fmt.Errorf("%s does not have the model %q", t.client.Address(), m.Name)
		}
	}
	for i := range models {
		if name := models[i].Name; t.sizes[name] == (tokenSize{}) {
			t.sizes[name] = t.measureTokens(ctx, &models[i])
		}
	}
	return ctx.Err()
}

const (
	sampleWords = 32          // of the prompt whose tokens the server counts
	sampleLimit = time.Minute // bounds the wait for its answer, because the model may have to be loaded
)

// measureTokens returns how many tokens of a model a word has, by having the server count those of a sample. If
// the server does not count, one token per word is assumed.
func (t *textTarget) measureTokens(ctx context.Context, m *Model) tokenSize {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	sample := wordsOf(seeded.New(t.seed, "load/sample"), sampleWords)
	answer, err := t.client.Complete(ctx, &llm.Request{Model: m.Name, Prompt: sample, MaxTokens: 1, Fields: m.fields()}, nil)
	if err != nil || !answer.HasUsage || answer.Usage.PromptTokens <= 0 {
		return tokenSize{perWord: 1, assumed: true}
	}
	tokens := float64(answer.Usage.PromptTokens)
	return tokenSize{perWord: tokens / sampleWords, characters: float64(len(sample)) / tokens}
}

// fields returns the fields of a request to the model besides its prompt and length: the answer goes on to its
// full length, and the class of its SLO.
func (m *Model) fields() map[string]any {
	fields := map[string]any{"ignore_eos": true}
	if m.Class != "" {
		fields["slo_class"] = m.Class
	}
	return fields
}

// drawLengths draws the lengths of prompt and answer of a request, unless the schedule's trace has them.
func (t *textTarget) drawLengths(a *arrivals.Request) {
	if a.PromptTokens == 0 {
		a.PromptTokens = t.lengths[a.Model][0]()
	}
	if a.OutputTokens == 0 {
		a.OutputTokens = t.lengths[a.Model][1]()
	}
}

// tokenTimes are the TTFT and the TPOT of an answer.
type tokenTimes struct{ ttft, tpot time.Duration }

// complete sends a request that was scheduled at due, waits for its answer, and returns the times of its tokens,
// or the reason why it failed. The time to the first token counts from due.
func (t *textTarget) complete(ctx context.Context, m *Model, a *arrivals.Request, id requestID, due time.Time) (times tokenTimes, reason string) {
	sentAt := time.Now()
	answer, err := t.client.Complete(ctx, &llm.Request{Model: m.Name, Prompt: t.prompt(m.Name, a, id), MaxTokens: int(a.OutputTokens), Fields: m.fields()}, nil)
	if err != nil {
		return times, textReason(ctx, err)
	}
	times.ttft = sentAt.Sub(due) + answer.FirstTokenTime
	times.tpot = formats.TimePerToken(answer.FirstTokenTime, answer.LastTokenTime, answer.Usage.OutputTokens)
	return times, ""
}

// textReason returns the reason to record for a request for text that failed with err, in the same words as for tensors.
// ctx ends when the run no longer waits for answers.
func textReason(ctx context.Context, err error) string {
	var e *llm.Error
	switch {
	case ctx.Err() != nil:
		return reasonUnanswered
	case errors.As(err, &e) && e.Status == 429:
		return "http_429"
	case errors.As(err, &e) && e.Status > 0:
		return errorPrefix + "http_" + strconv.Itoa(e.Status)
	}
	return errorPrefix + "connection"
}

// promptWords are the words of prompts. Most tokenizers of large models have one token for each.
var promptWords = strings.Fields("the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what all were we when your can said there use an each which she do how their if will up other about out many then them these so some her would make like him into time has look two more write go see number no way could people my than first water been call who oil its now find long down day did get come made may part")

// maxTokensPerWord is the most tokens per word with which prompts are made of whole words.
const maxTokensPerWord = 1.5

// prompt returns a random text with about as many tokens of the model as arrival a asks for. Prompts of one
// session begin with the same words, so that the server can reuse them.
func (t *textTarget) prompt(model string, a *arrivals.Request, id requestID) string {
	stream := "load/prompt/" + strconv.FormatUint(uint64(id), 10)
	if a.Session != 0 {
		stream = "load/session/" + strconv.FormatInt(a.Session, 10)
	}
	rng, size := seeded.New(t.seed, stream), t.sizes[model]
	if size.perWord <= maxTokensPerWord {
		return wordsOf(rng, max(1, int(math.Round(float64(a.PromptTokens)/size.perWord))))
	}
	// Words have too many tokens for a short prompt, so the text is cut.
	length := max(1, int(math.Round(float64(a.PromptTokens)*size.characters)))
	return wordsOf(rng, length)[:length]
}

// wordsOf returns a text of count random words.
func wordsOf(rng *rand.Rand, count int) string {
	var b strings.Builder
	for i := range count {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(promptWords[rng.IntN(len(promptWords))])
	}
	return b.String()
}

// warnings returns a warning that names the models whose tokens the server did not count.
func (t *textTarget) warnings() []string {
	var names []string
	for name, size := range t.sizes {
		if size.assumed {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []string{fmt.Sprintf("the server did not count the tokens of a sample for %s: each word of a prompt was taken for one", strings.Join(names, ", "))}
}

// describe, prepare and send are only for tensors.
func (t *textTarget) describe(context.Context, *Model) (*oip.ModelInfo, error) {
	return nil, errTensors
}
func (t *textTarget) prepare(*Model, Inputs) (payload, error) { return nil, errTensors }
func (t *textTarget) send(context.Context, payload, requestID, time.Duration) string {
	return errorPrefix + "tensors"
}
func (t *textTarget) close() {}

var errTensors = errors.New("completions are no tensors")

// classReports returns the figures of each class of requests, over all models that have it.
func (g *generator) classReports() []formats.ClassReport {
	var out []formats.ClassReport
	for i := range g.cfg.Models {
		name := g.cfg.Models[i].Class
		if slices.ContainsFunc(out, func(k formats.ClassReport) bool { return k.Class == name }) {
			continue
		}
		var times classTimes
		classRecorder := newRecorder()
		for k := range g.cfg.Models {
			if g.cfg.Models[k].Class == name {
				classRecorder.merge(g.recorders[k])
				times.ttft, times.tpot = append(times.ttft, g.recorders[k].ttft...), append(times.tpot, g.recorders[k].tpot...)
			}
		}
		out = append(out, formats.ClassReport{Class: name, Requests: classRecorder.requests, Attainment: classRecorder.counts(1).Attainment, E2EP99US: classRecorder.latency().P99US, TTFTP99US: times.p99(times.ttft), TPOTP99US: times.p99(times.tpot)})
	}
	return out
}

// classTimes are the TTFT and the TPOT of the answers of a class.
type classTimes struct{ ttft, tpot []time.Duration }

// p99 returns the 99th percentile of a list.
func (classTimes) p99(list []time.Duration) document.Micros {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return document.Micros(list[(99*len(list)+99)/100-1])
}
