package profiler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"inferplan/engine/certainty"
	"inferplan/engine/llm"
	"inferplan/formats"
	"inferplan/formats/importer/samples"
)

// Endpoint is a language model served with OpenAI's API.
type Endpoint struct {
	Name  string // the model's name in the profile
	Base  string // address of the API, such as http://host:8000/v1
	Model string // name of the model on the server
}

// CompletionOptions describes how a family of language models is recorded.
type CompletionOptions struct {
	Models  []Endpoint // the models in the order of the family
	Prompts *samples.Prompts
	Source  string   // the source of the prompts
	Options []string // possible answers; if empty, the labels that occur
	HeldOut float64  // share of the samples that are held out, 0 to below 1
	Score   string   // the formula of certainty; if empty, certainty.Default
	Seed    uint64   // the seed of the shuffle

	Key         string        // bearer token of the servers
	TopLogprobs int           // number of logprobs to request; 0 means 5, the maximum of OpenAI's API
	Parallel    int           // concurrent requests per model; 0 means 4
	Patience    time.Duration // the time for which busy servers are tried again

	Progress func(model string, done, samples int) // one call at a time
}

// RecordCompletions sends labelled questions to a family of language models. For every answer it records how certain
// the model was and whether the answer was right. The answer is the option whose first token is most likely.
// Certainty is the score of the options' probabilities, scaled to sum to 1. If none of the likely tokens begins an
// option, the answer counts as wrong and uncertain. A share HeldOut of the samples is kept from planning.
func RecordCompletions(ctx context.Context, o CompletionOptions) (*formats.Records, error) {
	if len(o.Models) == 0 {
		return nil, inputError("no model given")
	}
	out := &formats.Records{Source: o.Source, Score: o.Score, Seed: o.Seed, Samples: len(o.Prompts.Labels)}
	sampleOrder, score, err := splitSamples(out, o.HeldOut)
	if err != nil {
		return nil, err
	}
	o.TopLogprobs, o.Parallel = cmp.Or(o.TopLogprobs, 5), cmp.Or(o.Parallel, 4)
	if err := o.completeOptions(); err != nil {
		return nil, err
	}
	for _, m := range o.Models {
		if slices.ContainsFunc(out.Models, func(records formats.ModelRecords) bool { return records.Model == m.Name }) {
			return nil, inputError("model %s: given twice", m.Name)
		}
		client, err := llm.New(m.Base, llm.WithKey(o.Key))
		if err != nil {
			return nil, fmt.Errorf("%w: model %s: %w", ErrInput, m.Name, err)
		}
		rec, err := o.askModel(ctx, client, m, sampleOrder, score)
		if err != nil {
			return nil, fmt.Errorf("recording %s: %w", m.Name, err)
		}
		out.Models = append(out.Models, *rec)
	}
	return out, nil
}

// completeOptions sets the possible answers to the labels that occur if none are given, and checks that they can be
// told apart and contain every label.
func (o *CompletionOptions) completeOptions() error {
	if len(o.Options) == 0 {
		o.Options = slices.Compact(slices.Sorted(slices.Values(o.Prompts.Labels)))
	}
	if len(o.Options) < 2 {
		return inputError("the answers are %q: expected at least two", o.Options)
	}
	for i, option := range o.Options {
		if trimmedToken(option) == "" || slices.ContainsFunc(o.Options[:i], func(known string) bool { return trimmedToken(known) == trimmedToken(option) }) {
			return inputError("answer %q: expected answers that differ in more than spaces", option)
		}
	}
	for _, label := range o.Prompts.Labels {
		if !slices.Contains(o.Options, label) {
			return inputError("label %q is none of the answers %q", label, o.Options)
		}
	}
	return nil
}

// askModel asks one model all questions, several at a time, and returns how certain each answer was and whether it was
// right. Row i of the result is sample sampleOrder[i]. score computes the certainty from the options' probabilities.
func (o *CompletionOptions) askModel(ctx context.Context, client *llm.Client, m Endpoint, sampleOrder []int, score certainty.Func) (*formats.ModelRecords, error) {
	rec := &formats.ModelRecords{Model: m.Name, Certainty: make([]float64, len(sampleOrder))}
	// correct has a byte for each row: '1' for a right answer, '0' for a wrong one.
	correct := make([]byte, len(sampleOrder))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	nextRow, answered := 0, 0
	var wg sync.WaitGroup

	// Each worker takes the next sample until none is left.
	for range min(o.Parallel, len(sampleOrder)) {
		wg.Go(func() {
			for {
				mu.Lock()
				row := nextRow
				nextRow++
				mu.Unlock()
				if row >= len(sampleOrder) || ctx.Err() != nil {
					return
				}
				tokens, err := client.FirstTokenProbabilities(ctx, m.Model, o.Prompts.Texts[sampleOrder[row]], o.TopLogprobs, o.Patience)
				if err != nil {
					cancel(err) // only the first error counts
					return
				}
				p := optionProbabilities(tokens, o.Options)
				// Take the most likely option. Without one (class -1), the answer is wrong with certainty 0.
				class := -1
				if slices.Max(p) > 0 {
					class = slices.Index(p, slices.Max(p))
				}
				correct[row] = '0'
				if class >= 0 {
					rec.Certainty[row] = score(p)
					if o.Options[class] == o.Prompts.Labels[sampleOrder[row]] {
						correct[row] = '1'
					}
				}
				mu.Lock()
				if answered++; o.Progress != nil {
					o.Progress(m.Name, answered, len(sampleOrder))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	rec.Correct = string(correct)
	return rec, nil
}

// optionProbabilities returns the probabilities of the possible answers (options), scaled to sum to 1, or zeros if
// no token begins an option. tokens are the most likely first tokens with their probabilities. A token counts for
// the option that it equals, or for the only option that it begins.
func optionProbabilities(tokens map[string]float64, options []string) []float64 {
	p := make([]float64, len(options))

	// Add every token's probability to the only option that it may stand for. The order is fixed, so that sums are
	// rounded the same each time.
	for _, token := range slices.Sorted(maps.Keys(tokens)) {
		text, index, matches := trimmedToken(token), -1, 0
		if text == "" {
			continue
		}
		for i, option := range options {
			if option = trimmedToken(option); option == text {
				index, matches = i, 1
				break
			} else if strings.HasPrefix(option, text) {
				index = i
				matches++
			}
		}
		if matches == 1 {
			p[index] += tokens[token]
		}
	}

	// Scale to a sum of 1.
	sum := 0.0
	for _, v := range p {
		sum += v
	}
	if sum > 0 {
		for i := range p {
			p[i] /= sum
		}
	}
	return p
}

// trimmedToken returns a token without the spaces around it, as text or as the characters that tokenizers write
// for spaces.
func trimmedToken(token string) string {
	return strings.Trim(token, " \t\r\n\u2581\u0120\u010a")
}
