package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client asks one server.
type Client struct {
	Base  string // up to and without /completions, such as http://host:8000/v1
	Model string // as the server calls it
	Key   string // bearer token; empty: none
	HTTP  *http.Client

	// Patience is for how long a server that is busy or not there is asked
	// again; 0: not at all.
	Patience time.Duration
}

// ErrNoLogprobs: the server answers without probabilities.
var ErrNoLogprobs = errors.New("the answer holds no logprobs")

// Bounds of what an answer may hold.
const maxBody = 1 << 20

// CheckBase refuses what is no address of a server.
func CheckBase(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q: expected the address of an OpenAI-compatible API, such as http://host:8000/v1", base)
	}
	return nil
}

type question struct {
	Model       string  `json:"model"`
	Prompt      string  `json:"prompt"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	Logprobs    int     `json:"logprobs"`
}

type answer struct {
	Choices []struct {
		Logprobs *logprobs `json:"logprobs"`
	} `json:"choices"`
}

type logprobs struct {
	TopLogprobs []map[string]float64 `json:"top_logprobs"`
	Content     []struct {
		TopLogprobs []struct {
			Token   string  `json:"token"`
			Logprob float64 `json:"logprob"`
		} `json:"top_logprobs"`
	} `json:"content"`
}

// First gives the likeliest first tokens after a prompt, up to top of them, with
// their probabilities.
func (c *Client) First(ctx context.Context, prompt string, top int) (map[string]float64, error) {
	body, err := json.Marshal(question{Model: c.Model, Prompt: prompt, MaxTokens: 1, Logprobs: top})
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", c.Base, err)
	}
	until := time.Now().Add(c.Patience)
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		got, again, err := c.ask(ctx, body)
		if err == nil {
			return got, nil
		}
		err = fmt.Errorf("asking %s for a completion of %s: %w", c.Base, c.Model, err)
		if !again.retry || ctx.Err() != nil || time.Now().After(until) {
			return nil, err
		}
		wait := time.NewTimer(max(pause, again.after))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, err
		}
	}
}

// later says whether to ask again, and when.
type later struct {
	retry bool
	after time.Duration
}

func (c *Client) ask(ctx context.Context, body []byte) (map[string]float64, later, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.Base, "/")+"/completions", bytes.NewReader(body))
	if err != nil {
		return nil, later{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, later{retry: true}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, later{retry: true}, fmt.Errorf("reading the answer: %w", err)
	case len(data) > maxBody:
		return nil, later{}, fmt.Errorf("an answer of more than %d bytes", maxBody)
	case resp.StatusCode != http.StatusOK:
		again := later{retry: resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 502 && resp.StatusCode <= 504}
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds < 3600 {
			again.after = time.Duration(seconds) * time.Second
		}
		return nil, again, fmt.Errorf("%s: %s", resp.Status, excerpt(data))
	}
	got, err := read(data)
	return got, later{}, err
}

// read takes the first token's probabilities from an answer.
func read(data []byte) (map[string]float64, error) {
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(a.Choices) == 0 {
		return nil, fmt.Errorf("an answer without choices: %s", excerpt(data))
	}
	out := map[string]float64{}
	l := a.Choices[0].Logprobs
	switch {
	case l == nil:
	case len(l.TopLogprobs) > 0:
		for token, v := range l.TopLogprobs[0] {
			out[token] = math.Exp(v)
		}
	case len(l.Content) > 0:
		for _, t := range l.Content[0].TopLogprobs {
			out[t.Token] += math.Exp(t.Logprob)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w (does the server allow them?)", ErrNoLogprobs)
	}
	for token, p := range out {
		if !(p >= 0 && p <= 1.001) {
			return nil, fmt.Errorf("token %q has probability %v, expected the exponential of a logprob of at most 0", token, p)
		}
	}
	return out, nil
}

// excerpt is the beginning of a body, for errors.
func excerpt(data []byte) string {
	const most = 200
	s := strings.ToValidUTF8(strings.Join(strings.Fields(string(data)), " "), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
