package formats

import "time"

// Iteration gives the time of one iteration of an instance of a language model. An iteration is one forward pass
// over all sequences that decode, and over as many tokens of prompts as the token budget allows. All coefficients
// are in nanoseconds:
//
//	base + sequence*D + context*KV + attention*A + prompt*max(0, D + N - hinge)
//	+ cpu + cpu_sequence*S
//
// D sequences decode and read KV tokens of context. N tokens of prompts run, and the term with prompt counts only
// if N > 0. A is the number of pairs of a prompt token and a token before it. S is the number of sequences in the
// iteration, with those that run prompts.
//
// The form is that of the fits in DistServe (OSDI 2024, appendix A), with a hinge: up to it, reading the weights
// takes longer than computing the tokens.
type Iteration struct {
	BaseNS      float64 `json:"base_ns" check:"coefficient"`      // the time of every iteration, in which the weights are read once
	SequenceNS  float64 `json:"sequence_ns" check:"coefficient"`  // per sequence that decodes
	ContextNS   float64 `json:"context_ns" check:"coefficient"`   // per token of their context
	PromptNS    float64 `json:"prompt_ns" check:"coefficient"`    // per token above the hinge
	HingeTokens float64 `json:"hinge_tokens" check:"coefficient"` // tokens that a prompt's iteration runs at no further cost
	AttentionNS float64 `json:"attention_ns" check:"coefficient"` // per pair of a prompt token and a token before it
	// CPU time of the server. It is 0 if the coefficients above were measured end to end, and so include it.
	CPUNS         float64 `json:"cpu_ns,omitempty" check:"coefficient"`
	CPUSequenceNS float64 `json:"cpu_sequence_ns,omitempty" check:"coefficient"`
}

// IterationWork is the work of one iteration.
type IterationWork struct {
	DecodingSequences int32   // sequences
	PrefillSequences  int32   // sequences with a chunk of their prompt
	ContextTokens     int64   // tokens of context that decoding sequences read
	PromptTokens      int32   // tokens of chunks
	AttentionPairs    float64 // pairs of a chunk's token and a token before it: chunk * (before + chunk/2), summed
}

// Duration returns the time of an iteration of an LLM server with the work w: a base, parts per sequence and per
// token in the context, and for prompts a part per token beyond HingeTokens, up to which the device would be idle
// otherwise.
func (it *Iteration) Duration(w IterationWork) time.Duration {
	ns := it.BaseNS + it.CPUNS + it.SequenceNS*float64(w.DecodingSequences) + it.ContextNS*float64(w.ContextTokens) + it.CPUSequenceNS*float64(w.DecodingSequences+w.PrefillSequences)
	if w.PromptTokens > 0 {
		ns += it.AttentionNS*w.AttentionPairs + it.PromptNS*max(0, float64(w.DecodingSequences+w.PromptTokens)-it.HingeTokens)
	}
	return time.Duration(ns + 0.5)
}

// SlowedDown returns the iteration with all times longer by a share, such as 0.1 for a tenth.
func (it Iteration) SlowedDown(share float64) Iteration {
	for _, ns := range []*float64{&it.BaseNS, &it.SequenceNS, &it.ContextNS, &it.PromptNS, &it.AttentionNS, &it.CPUNS, &it.CPUSequenceNS} {
		*ns *= 1 + share
	}
	return it
}

// PrefillTime returns the time from the start of a prompt on an otherwise idle instance until its first token. The
// prompt runs in chunks of budget tokens, or in one piece if budget is 0. An iteration's attention is counted in
// pairs of tokens: each of n tokens attends to those done before and, on average, to half of its own chunk.
func (it *Iteration) PrefillTime(prompt, budget int32) time.Duration {
	total := time.Duration(0)
	for tokensDone := int32(0); tokensDone < prompt; {
		n := prompt - tokensDone
		if budget > 0 {
			n = min(n, budget)
		}
		total += it.Duration(IterationWork{PrefillSequences: 1, PromptTokens: n, AttentionPairs: float64(n) * (float64(tokensDone) + float64(n)/2)})
		tokensDone += n
	}
	return total
}

// TokenTime returns the time of a token in a batch of sequences that each hold context tokens of context.
func (it *Iteration) TokenTime(sequences int32, context float64) time.Duration {
	return it.Duration(IterationWork{DecodingSequences: sequences, ContextTokens: int64(float64(sequences) * context)})
}

// ResidenceTime returns the time of a sequence from its first iteration to its last token, on a server that always
// runs the given number of sequences, each with prompt and output tokens. It is the sum of its own prompt, its own
// tokens, and the prompts of the sequences that replace the others meanwhile. A sequence that runs alone takes
// only the first two. budget limits the tokens of a prompt in an iteration.
func (it *Iteration) ResidenceTime(sequences int32, prompt, output float64, budget int32) time.Duration {
	n, p, o := float64(max(1, sequences)), max(1, prompt), max(1, output)
	context := p + (o-2)/2 // mean of a sequence while it decodes
	// The prompt, while the others decode beside it.
	prefillTime := float64(it.PrefillTime(int32(p+.5), budget))
	prefillTime += (n-1)*(it.SequenceNS+it.CPUSequenceNS+it.ContextNS*context) + it.PromptNS*(max(0, n-1+p-it.HingeTokens)-max(0, p-it.HingeTokens))
	// The iterations that make its further tokens, and what the prompts of the replacing sequences add to them.
	tokens := (o - 1) * (it.BaseNS + it.CPUNS + n*(it.SequenceNS+it.CPUSequenceNS+it.ContextNS*context))
	otherPrefills := (n - 1) * (it.AttentionNS*p*p/2 + it.PromptNS*max(0, n-1+p-it.HingeTokens))
	return time.Duration(prefillTime + tokens + otherPrefills + 0.5)
}

// maxIterationNS bounds a coefficient: no server takes a minute for a token.
const maxIterationNS = 6e10
