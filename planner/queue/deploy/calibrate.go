package deploy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
)

// Estimators predict how long requests take. Each is fitted once, to a queue that the simulator drains.
type Estimators struct {
	*Problem
	kept map[estimateKey]*estimate
}

type estimateKey struct{ model, kind, sequences int }

// estimate has the estimators of a model on a kind.
type estimate struct {
	rct  *vqueue.RCT
	mega *vqueue.RCT // estimator for mega prompts. If there are too few of them, it is nil.
	from int         // length from which on a prompt is a mega prompt, in tokens
}

// drainedRequests is the number of requests of a queue that is drained, plus some batches of them.
const drained = 400

// A prompt is a mega prompt if it has megaFactor times the median's tokens, and if there are
// minMegaRequests of them to fit an estimator to.
const (
	megaTimes = 8
	megaLeast = 40
)

// defaultTokenBudget is the number of tokens of an iteration if a profile has none.
const budgetOf = 2048

// tokenBudget returns how many tokens an iteration of an instance has at most.
func budget(in *formats.LLMInstance) int {
	if in.TokenBudget > 0 {
		return in.TokenBudget
	}
	return budgetOf
}

// simulatedServer returns an instance in the form that the simulator takes.
func (p *Estimators) serverOf(model, kind, sequences int) (llm.Options, llm.Model) {
	m := &p.Models[model]
	in := m.On[kind]
	return llm.Options{Budget: int32(budget(in)), Block: int32(in.BlockTokens)},
		llm.Model{Iteration: in.Iteration, KV: in.KVTokens, Sequences: int32(sequences), KVBytes: m.Profile.KVBytesPerToken}
}

// estimateFor returns the estimators of a model on a kind with a number of concurrent sequences.
func (p *Estimators) estimated(model, kind, sequences int) (*estimate, error) {
	key := estimateKey{model, kind, sequences}
	if e, ok := p.kept[key]; ok {
		return e, nil
	}

	// Fit the estimator of all requests.
	list := p.mixture(model, drained+4*sequences)
	e := &estimate{}
	var err error
	if e.rct, err = p.drain(key, list); err != nil {
		return nil, err
	}

	// Fit another one to mega prompts, if a long sample has enough of them.
	prompts := make([]int32, len(list))
	for i := range list {
		prompts[i] = list[i].Prompt
	}
	slices.Sort(prompts)
	from := megaTimes * max(prompts[len(prompts)/2], 1)
	var mega []llm.Request
	for _, r := range p.mixture(model, 40*drained) {
		if r.Prompt >= from && len(mega) < drained {
			mega = append(mega, r)
		}
	}
	if len(mega) >= megaLeast {
		if r, err := p.drain(key, mega); err == nil {
			e.mega, e.from = r, int(from)
		}
	}
	p.kept[key] = e
	return e, nil
}

// sampleRequests returns the lengths of n requests of a model. Its classes take turns by their rates.
func (p *Estimators) mixture(model, n int) []llm.Request {
	items, total := p.of(model), 0.0
	for _, i := range items {
		total += p.Items[i].RPS
	}
	out := make([]llm.Request, 0, n)
	owed := make([]float64, len(items))
	taken := make([]int, len(items))
	for len(out) < n {
		// The class that is furthest behind its rate comes next.
		most := 0
		for k, i := range items {
			if total > 0 {
				owed[k] += p.Items[i].RPS / total
			} else {
				owed[k] += 1 / float64(len(items))
			}
			if owed[k] > owed[most] {
				most = k
			}
		}
		owed[most]--
		sample := p.Classes[p.Items[items[most]].Class].Sample
		out = append(out, sample[taken[most]%len(sample)])
		taken[most]++
	}
	return out
}

// fitDrainedQueue fits an estimator to a queue whose requests are all there at time 0.
func (p *Estimators) drain(key estimateKey, list []llm.Request) (*vqueue.RCT, error) {
	o, m := p.serverOf(key.model, key.kind, key.sequences)
	out, _, err := llm.Serve(o, m, list)
	if err != nil {
		return nil, fmt.Errorf("draining a queue of %s on %s: %w", p.Models[key.model].Name, p.Kinds[key.kind].Device, err)
	}

	// The mean batch is measured until the last request starts. After that, batches are not full any more.
	served := make([]vqueue.Served, len(list))
	var last, sum time.Duration
	for i := range list {
		last = max(last, out[i].Start)
		served[i] = vqueue.Served{Prompt: float64(list[i].Prompt), Output: float64(list[i].Output), Start: out[i].Start.Seconds(), End: out[i].End.Seconds()}
	}
	for _, o := range out {
		sum += min(o.End, last) - o.Start
	}
	slices.SortStableFunc(served, func(a, b vqueue.Served) int { return cmp.Compare(a.Start, b.Start) })
	batch := max(1, float64(sum)/float64(max(last, 1)))
	r, err := vqueue.Calibrate(served, batch)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", p.Models[key.model].Name, p.Kinds[key.kind].Device, err)
	}

	// Measure the time per token of a request alone.
	alone, _, err := llm.Serve(o, m, []llm.Request{{Prompt: int32(max(1, r.PromptMean)), Output: int32(max(1, r.OutputMean))}})
	if err != nil {
		return nil, fmt.Errorf("serving a request of %s alone: %w", p.Models[key.model].Name, err)
	}
	r.Alone = (alone[0].End - alone[0].First).Seconds() / math.Max(1, r.OutputMean-1)
	return r, nil
}

// requestTime returns how long an instance works for a mean request of a model, in seconds.
func (p *Estimators) each(model, kind, sequences int) (float64, error) {
	e, err := p.estimated(model, kind, sequences)
	if err != nil {
		return 0, err
	}
	work, _ := e.rct.Work(1)
	return work, nil
}

// planEstimate returns an estimator in the form that a plan has.
func planEstimate(r *vqueue.RCT, model, device string, from int) formats.QueueEstimate {
	out := formats.QueueEstimate{
		Model: model, Device: device, MegaTokens: from, PromptNS: round(1e9 * r.Alpha), OutputNS: round(1e9 * r.Beta), InterceptNS: round(1e9 * r.Intercept),
		PrefillNS: round(1e9 * r.Prefill), DecodeNS: round(1e9 * r.Decode), AloneNS: round(1e9 * r.Alone), Batch: math.Round(100*r.Batch) / 100,
		PromptMean: round(r.PromptMean), PromptSD: round(math.Sqrt(r.PromptVar)), OutputMean: round(r.OutputMean), OutputSD: round(math.Sqrt(r.OutputVar)),
		Filling: math.Round(1e4*r.Filling) / 1e4, NoiseNS: round(1e9 * r.Noise), FittedNS: round(1e9 * r.Fitted),
	}

	// A plan has the mean of every few residences.
	for part := range slices.Chunk(r.Stays, merged) {
		mean := 0.0
		for _, stay := range part {
			mean += stay / float64(len(part))
		}
		out.ResidencesUS = append(out.ResidencesUS, document.Micros(time.Duration(1e9*mean).Round(time.Microsecond)))
	}
	return out
}

// mergedResidences is how many residences of an estimator a plan merges into one.
const merged = 2

// roundToThousandths rounds to three decimals.
func round(x float64) float64 { return math.Round(1000*x) / 1000 }
