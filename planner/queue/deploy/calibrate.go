package deploy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/lists"
	"inferplan/policy/vqueue"
	"inferplan/sim/llm"
)

// Estimators predict how long requests take. Each is fitted once, to a queue that the simulator drains.
type Estimators struct {
	problem *Problem
	cache   map[estimateKey]*estimate
}

type estimateKey struct{ model, kind, sequences int }

// estimate has the estimators of a model on a kind.
type estimate struct {
	rct        *vqueue.RCT
	mega       *vqueue.RCT // estimator for mega prompts. If there are too few of them, it is nil.
	megaTokens int         // length from which on a prompt is a mega prompt, in tokens
}

// drainedRequests is the number of requests of a queue that is drained, plus some batches of them.
const drainedRequests = 400

// A prompt is a mega prompt if it has megaFactor times the median's tokens, and if there are
// minMegaRequests of them to fit an estimator to.
const (
	megaFactor      = 8
	minMegaRequests = 40
)

// defaultTokenBudget is the number of tokens of an iteration if a profile has none.
const defaultTokenBudget = 2048

// tokenBudget returns how many tokens an iteration of an instance has at most.
func tokenBudget(in *formats.LLMInstance) int {
	if in.TokenBudget > 0 {
		return in.TokenBudget
	}
	return defaultTokenBudget
}

// estimateFor returns the estimators of how long requests of a model take on a kind of servers, with `sequences` requests running at once
// there: one for all requests and, if there are enough mega prompts (many times longer than the median), one for these. model and kind
// are indexes of the problem's Models and Kinds. Each is fitted to a simulation at the first call and cached for the next ones.
func (p *Estimators) estimateFor(model, kind, sequences int) (*estimate, error) {
	key := estimateKey{model, kind, sequences}
	if e, ok := p.cache[key]; ok {
		return e, nil
	}

	// Fit the estimator of all requests.
	list := p.sampleRequests(model, drainedRequests+4*sequences) // so many that batches are full for most of the time
	e := &estimate{}
	var err error
	if e.rct, err = p.fitDrainedQueue(key, list); err != nil {
		return nil, err
	}

	// Fit another one to mega prompts, if a long sample has enough of them.
	prompts := lists.Filled(len(list), func(i int) int32 { return list[i].Prompt })
	slices.Sort(prompts)
	megaTokens := megaFactor * max(prompts[len(prompts)/2], 1)
	var mega []llm.Request
	for _, r := range p.sampleRequests(model, 40*drainedRequests) {
		if r.Prompt >= megaTokens && len(mega) < drainedRequests {
			mega = append(mega, r)
		}
	}
	if len(mega) >= minMegaRequests {
		if r, err := p.fitDrainedQueue(key, mega); err == nil {
			e.mega, e.megaTokens = r, int(megaTokens)
		}
	}
	p.cache[key] = e
	return e, nil
}

// sampleRequests returns the lengths of n requests of a model, to fit an estimator to. They come from the samples of the model's items
// (an item is one class of its requests), which take turns in proportion to their rates. A sample that is used up starts again.
func (p *Estimators) sampleRequests(model, n int) []llm.Request {
	items := p.problem.itemsOf(model)
	total := lists.Sum(len(items), func(i int) float64 { return p.problem.Items[items[i]].RPS })
	requests := make([]llm.Request, 0, n)
	credits := make([]float64, len(items))
	drawnCounts := make([]int, len(items))
	for len(requests) < n {
		// The class that is furthest behind its rate comes next.
		next := 0
		for k, i := range items {
			if total > 0 {
				credits[k] += p.problem.Items[i].RPS / total
			} else {
				credits[k] += 1 / float64(len(items))
			}
			if credits[k] > credits[next] {
				next = k
			}
		}

		// Take the next request of that class's sample.
		credits[next]--
		sample := p.problem.Classes[p.problem.Items[items[next]].Class].Sample
		requests = append(requests, sample[drawnCounts[next]%len(sample)])
		drawnCounts[next]++
	}
	return requests
}

// fitDrainedQueue fits an estimator of how long requests take: the simulator serves a queue whose requests are all there at time 0 until
// it is empty, and the estimator is fitted to their starts and ends. key says which model runs, on which kind of servers, and how many
// sequences run there at once.
func (p *Estimators) fitDrainedQueue(key estimateKey, list []llm.Request) (*vqueue.RCT, error) {
	instance := p.problem.Models[key.model].ByKind[key.kind]
	options := llm.Options{TokenBudget: int32(tokenBudget(instance)), BlockTokens: int32(instance.BlockTokens)}
	servedModel := llm.Model{Iteration: instance.Iteration, KVTokens: instance.KVTokens, MaxSequences: int32(key.sequences), TokenBytes: p.problem.Models[key.model].Profile.KVBytesPerToken}
	outcomes, _, err := llm.ServeAll(options, servedModel, list)
	if err != nil {
		return nil, fmt.Errorf("draining a queue of %s on %s: %w", p.problem.Models[key.model].Name, p.problem.Kinds[key.kind].Device, err)
	}

	// The mean batch is the time that all requests spend on the instance, divided by the time of the instance. It is measured until
	// the last request starts, as batches are not full after that.
	servedRequests := make([]vqueue.CalibrationRequest, len(list))
	var lastStart, sequenceTime time.Duration
	for i := range list {
		lastStart = max(lastStart, outcomes[i].FirstIteration)
		servedRequests[i] = vqueue.CalibrationRequest{Prompt: float64(list[i].Prompt), Output: float64(list[i].Output), Start: outcomes[i].FirstIteration.Seconds(), End: outcomes[i].LastToken.Seconds()}
	}
	sequenceTime += lists.Sum(len(outcomes), func(i int) time.Duration { return min(outcomes[i].LastToken, lastStart) - outcomes[i].FirstIteration })
	slices.SortStableFunc(servedRequests, func(a, b vqueue.CalibrationRequest) int { return cmp.Compare(a.Start, b.Start) })
	batch := max(1, float64(sequenceTime)/float64(max(lastStart, 1)))
	estimator, err := vqueue.Calibrate(servedRequests, batch)
	if err != nil {
		return nil, fmt.Errorf("%s on %s: %w", p.problem.Models[key.model].Name, p.problem.Kinds[key.kind].Device, err)
	}

	// Measure the time per token of a request alone.
	single, _, err := llm.ServeAll(options, servedModel, []llm.Request{{Prompt: int32(max(1, estimator.PromptMean)), Output: int32(max(1, estimator.OutputMean))}})
	if err != nil {
		return nil, fmt.Errorf("serving a request of %s alone: %w", p.problem.Models[key.model].Name, err)
	}
	estimator.DecodeAlone = (single[0].LastToken - single[0].FirstToken).Seconds() / math.Max(1, estimator.OutputMean-1)
	return estimator, nil
}

// requestTime returns how long an instance works for a mean request of a model, in seconds, by the model's
// estimator on a kind of servers with a number of concurrent sequences.
func (p *Estimators) requestTime(model, kind, sequences int) (float64, error) {
	e, err := p.estimateFor(model, kind, sequences)
	if err != nil {
		return 0, err
	}
	work, _ := e.rct.Work(1)
	return work, nil
}

// planEstimate returns an estimator as a plan document states it: times in nanoseconds instead of seconds, all numbers rounded, and every
// two residences (how long a request stays on the instance) merged into their mean. megaTokens is the least length of the prompts that
// the estimator is for, in tokens; 0 means all prompts. tensorParallel is the number of devices of its instances; 0 means all.
func planEstimate(r *vqueue.RCT, model, device string, tensorParallel, megaTokens int) formats.QueueEstimate {
	planned := formats.QueueEstimate{
		Model: model, Device: device, TensorParallel: tensorParallel, MegaTokens: megaTokens, PromptNS: roundToThousandths(1e9 * r.Alpha), OutputNS: roundToThousandths(1e9 * r.Beta), InterceptNS: roundToThousandths(1e9 * r.Intercept),
		PrefillNS: roundToThousandths(1e9 * r.Prefill), DecodeNS: roundToThousandths(1e9 * r.Decode), AloneNS: roundToThousandths(1e9 * r.DecodeAlone), Batch: math.Round(100*r.Batch) / 100,
		PromptMean: roundToThousandths(r.PromptMean), PromptSD: roundToThousandths(math.Sqrt(r.PromptVar)), OutputMean: roundToThousandths(r.OutputMean), OutputSD: roundToThousandths(math.Sqrt(r.OutputVar)),
		FillingShare: math.Round(1e4*r.FillShare) / 1e4, NoiseNS: roundToThousandths(1e9 * r.NoiseVariance), FittedNS: roundToThousandths(1e9 * r.FittedWork),
	}

	// A plan has the mean of every few residences.
	for part := range slices.Chunk(r.Residences, mergedResidences) {
		mean := lists.Sum(len(part), func(i int) float64 { return part[i] / float64(len(part)) })
		planned.ResidencesUS = append(planned.ResidencesUS, document.Micros(time.Duration(1e9*mean).Round(time.Microsecond)))
	}
	return planned
}

// mergedResidences is how many residences of an estimator a plan merges into one.
const mergedResidences = 2

// roundToThousandths rounds to three decimals.
func roundToThousandths(x float64) float64 { return math.Round(1000*x) / 1000 }
