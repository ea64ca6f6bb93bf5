package verify

import (
	"fmt"
	"math"

	"inferplan/formats"
	"inferplan/formats/document"
)

// idleFigure returns, in seconds, the figure by which class q is judged (time to the first token, time per token,
// or the whole time) for a mean request on an idle server. The server reads the prompt in chunks of at most budget
// tokens, one per iteration; a budget of 0 stands for no limit. An iteration takes its base and the CPU's part of that
// (BaseNS, CPUNS), and for each sequence the CPU's part (CPUSequenceNS) and, if it decodes, SequenceNS.
func idleFigure(q *formats.QueueClass, instance *formats.LLMInstance, budget int) float64 {
	iteration := &instance.Iteration
	chunks, lastChunk := 0.0, q.PromptMean // whole chunks of the prompt, and the tokens of the last one
	if budget > 0 {
		chunks = math.Floor(q.PromptMean / float64(budget))
		lastChunk -= chunks * float64(budget) // 0 if the chunks are even
	}
	iterations := chunks
	if lastChunk > 0 {
		iterations++
	}

	// The time to the first token. Of each chunk only the tokens above HingeTokens cost time, because below it reading the weights takes
	// longer than computing the tokens. Each token of the prompt attends to those before it, PromptMean²/2 pairs in all.
	prefill := iterations*(iteration.BaseNS+iteration.CPUNS+iteration.CPUSequenceNS) + iteration.AttentionNS*q.PromptMean*q.PromptMean/2 +
		iteration.PromptNS*(chunks*max(0, float64(budget)-iteration.HingeTokens)+max(0, lastChunk-iteration.HingeTokens))

	// The time per further token, over a context of the prompt and, on average, half of the answer.
	perToken := iteration.BaseNS + iteration.CPUNS + iteration.CPUSequenceNS + iteration.SequenceNS + iteration.ContextNS*(q.PromptMean+q.OutputMean/2)
	switch q.Figure {
	case formats.FigureTTFT:
		return prefill / 1e9
	case formats.FigureTPOT:
		return perToken / 1e9
	}
	return (prefill + max(q.OutputMean-1, 0)*perToken) / 1e9
}

// minRequestTime returns the least time of an instance that a mean request of class q takes up, in seconds: if it always runs in a full
// batch of `sequences` requests, and its prompt is read beside decoding, where the first HingeTokens prompt tokens of an iteration cost
// nothing. Prompts of sessions count 0, because they may be in the cache. The planner computes the same in code of its own.
func minRequestTime(q *formats.QueueClass, instance *formats.LLMInstance, sequences int) float64 {
	iteration, decodedTokens := &instance.Iteration, max(q.OutputMean-1, 0)
	iterations := decodedTokens / float64(sequences)
	prompt, attention := q.PromptMean, q.PromptMean*q.PromptMean/2
	if q.Sessions != nil {
		prompt, attention = 0, 0
	}

	// A prompt token costs PromptNS. But every iteration hides HingeTokens of them, so a token costs no more than its part of a further
	// iteration.
	price := iteration.PromptNS
	if iteration.HingeTokens > 0 {
		price = min(price, (iteration.BaseNS+iteration.CPUNS)/iteration.HingeTokens)
	}

	// The time of its part of the iterations, of decoding over its context (the prompt and, on average, half of the answer), of attention
	// (each token of the prompt to those before it), and of its prompt. The prompt tokens that its part of the iterations hides are taken
	// off, even if the request has fewer: others in the batch may have more.
	meanContext := q.PromptMean + (decodedTokens-1)/2
	hiddenTokens := iteration.HingeTokens * iterations
	ns := (iteration.BaseNS+iteration.CPUNS)*iterations + (iteration.SequenceNS+iteration.CPUSequenceNS)*decodedTokens + iteration.ContextNS*decodedTokens*meanContext + iteration.AttentionNS*attention + price*(prompt-hiddenTokens)
	return max(ns, 0) / 1e9
}

// checkWork records an error if the requests that must be in time are more work than the plan's instances can do by today's times, even
// if every class goes to the instances that serve it fastest. It sums, over the classes, how many instances their work keeps busy.
func (c *checker) checkWork() {
	if c.Plan.Objective.Name == "goodput" {
		return // all requests may be late, and late requests need no work
	}
	requiredInstances, instances := 0.0, float64(len(c.plan.Instances))
	for i := range c.plan.Classes {
		q := &c.plan.Classes[i]
		// The least time of a request, on the instance that serves it fastest.
		minTime := math.Inf(1)
		for k := range c.plan.Instances {
			in := &c.plan.Instances[k]
			_, instance := c.Profile.LLMOn(q.Model, in.Device, in.TensorParallel)
			if instance == nil || !c.servesClass(in, q) {
				continue
			}
			for n, m := range in.Models {
				if m == q.Model {
					minTime = min(minTime, minRequestTime(q, instance, in.Sequences[n]))
				}
			}
		}
		requiredShare, err := document.ParsePercentile(q.Percentile)
		if err != nil || math.IsInf(minTime, 1) {
			continue // reported by other checks
		}

		// The requests with the longest answers may be the late ones. A share s of the requests, whichever these are, has at least a
		// part s - cv·sqrt(s(1-s)) of the tokens of all answers, where cv is the coefficient of variation of their lengths: that is the
		// bound on a covariance by standard deviations, as sqrt(s(1-s)) is that of being one of them. The time of requests is
		// taken to be divided like these tokens.
		outputCV := q.OutputSD / max(q.OutputMean, 1)
		minServed := max(0, requiredShare-outputCV*math.Sqrt(requiredShare*(1-requiredShare)))
		requiredInstances += q.RPS * minServed * minTime
	}
	if requiredInstances > instances {
		c.AddError("rps", "queue.instances", fmt.Sprintf("%d instances", len(c.plan.Instances)), fmt.Sprintf("at least %.4g", requiredInstances), "the work of the requests in time is more than the instances do in any order")
	}
}
