// Package openai asks servers that speak OpenAI's completions API (vLLM,
// llama.cpp and others) how likely the first tokens of an answer are. Cascades
// of language models are planned on that: CascadeServe, section 2, takes the
// certainty of an answer with options from the probabilities of its token.
//
// What is asked is POST {base}/completions with one token, temperature 0 and
// logprobs; what is read is choices[0].logprobs, either in the form of
// completions (top_logprobs: per token a map from token to logarithm) or in that
// of chat completions, which some servers use for both (content: per token a
// list top_logprobs of token and logprob).
package openai
