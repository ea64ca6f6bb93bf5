package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

// ErrNoLogprobs is returned when a server answers without probabilities.
var ErrNoLogprobs = errors.New("the answer holds no logprobs")

// FirstTokenProbabilities asks for one token after a prompt, and returns the most likely ones, at most top of them,
// with their probabilities. If the server is busy or does not answer, it tries again, after pauses that double,
// until patience has passed. Cascades of language models are planned on these probabilities (CascadeServe, section
// 2).
func (c *Client) FirstTokenProbabilities(ctx context.Context, model, prompt string, top int, patience time.Duration) (map[string]float64, error) {
	body := map[string]any{"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": top}
	deadline := time.Now().Add(patience)
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		data, err := c.Call(ctx, http.MethodPost, c.prefix+"/completions", body)
		var tokens map[string]float64
		if err == nil {
			tokens, err = firstTokens(data)
		}
		if err == nil {
			return tokens, nil
		}

		// Wait and ask again, if that can help and there is time.
		retry, retryAfter := retryable(err)
		err = fmt.Errorf("asking %s for a completion of %s: %w", c.root+c.prefix, model, err)
		if !retry || ctx.Err() != nil || time.Now().After(deadline) {
			return nil, err
		}
		wait := time.NewTimer(max(pause, retryAfter))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, err
		}
	}
}

// retryable reports whether a request that failed with err can be repeated, and after which time the server wants
// it. Busy and missing servers may be asked again, and a proxy that does not reach its server.
func retryable(err error) (bool, time.Duration) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false, 0
	}
	isProxyError := e.Status == http.StatusBadGateway || e.Status == http.StatusGatewayTimeout
	return isProxyError || e.Kind == ErrFull || e.Kind == ErrGone, e.RetryAfter
}

// firstTokens reads the probabilities of the first token from choices[0].logprobs, in
// the form of completions (top_logprobs: per token a map from token to logarithm) or in
// that of chat completions, which some servers use for both (content).
func firstTokens(data []byte) (map[string]float64, error) {
	var answer struct {
		Choices []struct {
			Logprobs struct {
				TopLogprobs []map[string]float64 `json:"top_logprobs"`
				Content     []struct {
					TopLogprobs []struct {
						Token   string  `json:"token"`
						Logprob float64 `json:"logprob"`
					} `json:"top_logprobs"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(answer.Choices) == 0 {
		return nil, fmt.Errorf("an answer without choices: %s", excerpt(string(data)))
	}

	// Completions list the alternatives of a token as an object, chats as a list.
	tokens, logprobs := map[string]float64{}, &answer.Choices[0].Logprobs
	if len(logprobs.TopLogprobs) > 0 {
		for token, v := range logprobs.TopLogprobs[0] {
			tokens[token] = math.Exp(v)
		}
	} else if len(logprobs.Content) > 0 {
		for _, t := range logprobs.Content[0].TopLogprobs {
			tokens[t.Token] += math.Exp(t.Logprob)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%w (does the server allow them?)", ErrNoLogprobs)
	}
	for token, p := range tokens {
		if !(p >= 0 && p <= 1.001) {
			return nil, fmt.Errorf("token %q has probability %v, expected the exponential of a logprob of at most 0", token, p)
		}
	}
	return tokens, nil
}
