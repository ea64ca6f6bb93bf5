package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
)

// idleFigure returns the figure of a mean request on an idle server, in seconds. The prompt is read in
// chunks of budget tokens.
func idle(q *formats.QueueClass, on *formats.LLMInstance, budget int) float64 {
	it := &on.Iteration
	chunks, rest := 0.0, q.PromptMean // whole chunks of the prompt, and the tokens of the last one
	if budget > 0 {
		chunks = math.Floor(q.PromptMean / float64(budget))
		rest -= chunks * float64(budget)
	}
	iterations := chunks
	if rest > 0 {
		iterations++
	}

	// Time to the first token, then time per further token.
	first := iterations*(it.BaseNS+it.CPUNS+it.CPUSequenceNS) + it.AttentionNS*q.PromptMean*q.PromptMean/2 +
		it.PromptNS*(chunks*max(0, float64(budget)-it.HingeTokens)+max(0, rest-it.HingeTokens))
	each := it.BaseNS + it.CPUNS + it.CPUSequenceNS + it.SequenceNS + it.ContextNS*(q.PromptMean+q.OutputMean/2)
	switch q.Of {
	case formats.OfTTFT:
		return first / 1e9
	case formats.OfTPOT:
		return each / 1e9
	}
	return (first + max(q.OutputMean-1, 0)*each) / 1e9
}

// minRequestTime returns the least time of an instance that a mean request takes, in seconds: in a batch
// that is always full, with prompts that hide behind decoding.
func least(q *formats.QueueClass, on *formats.LLMInstance, sequences int) float64 {
	it, d := &on.Iteration, max(q.OutputMean-1, 0)
	iterations := d / float64(sequences)
	prompt, attention := q.PromptMean, q.PromptMean*q.PromptMean/2
	if q.Sessions != nil {
		prompt, attention = 0, 0
	}

	// A prompt token costs at most what further iterations that hide it would cost.
	price := it.PromptNS
	if it.HingeTokens > 0 {
		price = min(price, (it.BaseNS+it.CPUNS)/it.HingeTokens)
	}
	ns := (it.BaseNS+it.CPUNS)*iterations + (it.SequenceNS+it.CPUSequenceNS)*d + it.ContextNS*d*(q.PromptMean+(d-1)/2) + it.AttentionNS*attention + price*(prompt-it.HingeTokens*iterations)
	return max(ns, 0) / 1e9
}

// checkWork checks that the work of all requests that must be in time is no more than the instances can do,
// if every class goes to the instances that serve it fastest.
func (c *checker) work() {
	if c.Plan.Objective.Name == "goodput" {
		return // late requests need no work
	}
	need, have := 0.0, float64(len(c.plan.Instances))
	for i := range c.plan.Classes {
		q := &c.plan.Classes[i]
		each := math.Inf(1)
		for k := range c.plan.Instances {
			in := &c.plan.Instances[k]
			_, on := c.Profile.LLMOn(q.Model, in.Device, in.TensorParallel)
			if on == nil || !c.serves(in, q) {
				continue
			}
			for n, m := range in.Models {
				if m == q.Model {
					each = min(each, least(q, on, in.Sequences[n]))
				}
			}
		}
		share, err := document.ParsePercentile(q.Percentile)
		if err != nil || math.IsInf(each, 1) {
			continue // reported by other checks
		}

		// The longest answers may be those that are late. Of a distribution with this spread the others
		// have at least this part of the tokens.
		spread := q.OutputSD / max(q.OutputMean, 1)
		served := max(0, share-spread*math.Sqrt(share*(1-share)))
		need += q.RPS * served * each
	}
	if need > have {
		c.Fail("rps", "queue.instances", fmt.Sprintf("%d instances", len(c.plan.Instances)), fmt.Sprintf("at least %.4g", need), "the work of the requests in time is more than the instances do in any order")
	}
}
