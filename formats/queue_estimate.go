package formats

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"inferplan/formats/document"
)

// QueueEstimate is the model by which an estimator predicts request completion times, for a language model on a
// device (QLM, section 6). It was fitted to a queue that an instance drained. A request takes PromptNS per token
// of its prompt and OutputNS per token of its answer of the instance's time. It waits for the work of the requests
// before it, plus InterceptNS, which is negative because the first batch starts at once. Once started, it takes
// PrefillNS, and DecodeNS per token of its answer.
type QueueEstimate struct {
	Model  string `json:"model"`
	Device string `json:"device"`
	// TensorParallel is the number of devices of an instance. If it is absent, all instances on the device have as many.
	TensorParallel int     `json:"tensor_parallel,omitempty"`
	MegaTokens     int     `json:"mega_tokens,omitempty" check:"tokens"` // the estimate is only for prompts of at least this many tokens
	PromptNS       float64 `json:"prompt_ns" check:"estimate"`
	OutputNS       float64 `json:"output_ns" check:"estimate"`
	InterceptNS    float64 `json:"intercept_ns"`
	PrefillNS      float64 `json:"prefill_ns" check:"estimate"`
	DecodeNS       float64 `json:"decode_ns" check:"estimate"`          // ns per token of its answer, with a full batch
	AloneNS        float64 `json:"alone_ns,omitempty" check:"estimate"` // the same for a request alone; if absent, decode_ns
	Batch          float64 `json:"batch" check:"sequences"`             // requests that run at once
	PromptMean     float64 `json:"prompt_mean" check:"estimate"`        // tokens, as the next
	PromptSD       float64 `json:"prompt_sd,omitempty" check:"estimate"`
	OutputMean     float64 `json:"output_mean" check:"estimate"`
	OutputSD       float64 `json:"output_sd,omitempty" check:"estimate"`
	// How waiting times and residences vary. If absent, they vary like answers, with a normal distribution.
	FillingShare float64           `json:"filling,omitempty" check:"share"`      // the part of the first batch's work that it takes to start
	NoiseNS      float64           `json:"noise_ns,omitempty" check:"estimate"`  // variance of waiting per time waited
	FittedNS     float64           `json:"fitted_ns,omitempty" check:"estimate"` // work of the queue that it was fitted to
	ResidencesUS []document.Micros `json:"residences_us,omitempty"`              // times in a full batch, equally likely, ascending
}

// checkEstimates reports to p what is wrong with the estimates of a plan's queue section: how fast each model runs
// on each device kind, once for usual prompts and once for mega prompts, which are longer than MegaTokens.
func (q *QueuePlan) checkEstimates(p *planChecker) {
	type key struct {
		model, device  string
		tensorParallel int
		mega           bool
	}
	indexByKey := map[key]int{}
	for i := range q.Estimates {
		e, fieldPath := &q.Estimates[i], fmt.Sprintf("queue.estimates[%d]", i)
		k := key{e.Model, e.Device, e.TensorParallel, e.MegaTokens > 0}
		document.CheckUnique(p.Checker, indexByKey, i, k, fieldPath+".model", document.Quote(e.Model)+" on "+document.Quote(e.Device), "each model and size of instances once, and once for mega prompts")
		p.FailIf(!slices.ContainsFunc(q.Models, func(m LLMProfile) bool { return m.Model == e.Model }), fieldPath+".model", "the model "+document.Quote(e.Model), "one of queue.models")
		if _, ok := p.pools[e.Device]; !ok {
			p.Fail(fieldPath+".device", "the device "+document.Quote(e.Device), "a device of the plan's pools", p.didYouMean(e.Device))
		}
		p.FailIf(e.TensorParallel != 0 && !slices.ContainsFunc(q.Instances, func(in QueueInstance) bool {
			return in.Device == e.Device && in.TensorParallel == e.TensorParallel
		}), fieldPath+".tensor_parallel", strconv.Itoa(e.TensorParallel), "devices of an instance on "+document.Quote(e.Device))
		e.checkTimes(p, fieldPath)
	}
}

// maxEstimateNS bounds the figures of an estimate: eleven days, in ns.
const maxEstimateNS = 1e15

// checkTimes reports to p an estimate whose times contradict each other, or whose requests take no time.
func (e *QueueEstimate) checkTimes(p *planChecker, fieldPath string) {
	p.FailIf(e.PromptNS*e.PromptMean+e.OutputNS*e.OutputMean <= 0 || e.DecodeNS <= 0 || e.OutputMean <= 0, fieldPath+".output_ns", "requests that take no time", "an answer of positive length and times above 0")
	p.FailIf(!slices.IsSorted(e.ResidencesUS) || len(e.ResidencesUS) > 0 && e.ResidencesUS[0] < 0, fieldPath+".residences_us", "times that fall, or are below 0", "times of at least 0, ascending")
	p.FailIf(!(math.Abs(e.InterceptNS) <= maxEstimateNS), fieldPath+".intercept_ns", "the number "+document.FormatFloat(e.InterceptNS), "a time in ns")
}
