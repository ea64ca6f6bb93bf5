package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client asks one server. It may be used by many goroutines at once.
type Client struct {
	root   string // of the address, without /v1 and slash
	prefix string // /v1, where the address has it
	key    string
	http   *http.Client
}

// Option changes a client.
type Option func(*Client)

// WithKey sends a bearer token.
func WithKey(key string) Option { return func(c *Client) { c.key = key } }

// WithHTTP takes another HTTP client. It must not have a Timeout, which would end
// long answers.
func WithHTTP(h *http.Client) Option { return func(c *Client) { c.http = h } }

// transport keeps as many connections as a server may have sequences. Answers are
// not compressed: that would hold tokens back.
var transport = &http.Transport{
	Proxy:               http.ProxyFromEnvironment,
	DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	MaxIdleConnsPerHost: 1024,
	IdleConnTimeout:     90 * time.Second,
	DisableCompression:  true,
}

// New gives a client of the server at an address, with or without /v1.
func New(address string, options ...Option) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q: expected the address of an OpenAI-compatible server, such as http://host:8000", address)
	}
	c := &Client{http: &http.Client{Transport: transport, CheckRedirect: stay}}
	full := strings.TrimRight(u.String(), "/")
	c.root = strings.TrimSuffix(full, "/v1")
	c.prefix = full[len(c.root):]
	for _, o := range options {
		o(c)
	}
	return c, nil
}

// stay follows no server that sends requests elsewhere: prompts and keys are for the one
// that was named.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Address is that of the server, without /v1.
func (c *Client) Address() string { return c.root }

// What a server's refusal means to its caller.
var (
	ErrFull         = errors.New("the server takes no more requests now")
	ErrUnknownModel = errors.New("the server does not have the model")
	ErrUnauthorized = errors.New("the server refuses the key")
	ErrRefused      = errors.New("the server refuses the request")
	ErrNoStream     = errors.New("the server does not stream its answers")
	ErrBroken       = errors.New("the server failed")
	ErrGone         = errors.New("the server is gone")
	ErrNoSuchPath   = errors.New("the server has no such endpoint")
	ErrNoAdapter    = errors.New("the server has no such adapter")
)

// Error is an answer that is none.
type Error struct {
	Kind       error // one of those above
	Status     int   // of HTTP; 0 where there was no answer, or it broke off
	RetryAfter time.Duration
	Text       string
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%v: %s", e.Kind, e.Text)
	}
	return fmt.Sprintf("%v: %d %s: %s", e.Kind, e.Status, http.StatusText(e.Status), e.Text)
}

func (e *Error) Unwrap() error { return e.Kind }

// Bounds of what is read.
const (
	maxBody  = 4 << 20 // of an answer that is not a stream
	maxError = 1 << 16
)

// Call sends a body (nil: none) as JSON and gives the answer's body. Paths start
// with a slash: /v1/models, /metrics.
func (c *Client) Call(ctx context.Context, method, path string, body any) ([]byte, error) {
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, c.lost(ctx, err)
	case len(data) > maxBody:
		return nil, &Error{Kind: ErrBroken, Status: resp.StatusCode, Text: fmt.Sprintf("%s: an answer of more than %d bytes", path, maxBody)}
	}
	return data, nil
}

// send gives the answer to a request where it is a good one.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w", c.root+path, err)
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.root+path, content)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", c.root+path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return resp, nil
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	e := &Error{Kind: meaning(resp.StatusCode, data), Status: resp.StatusCode, Text: said(data)}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds < 3600 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return nil, e
}

// lost is the error of a connection that broke, unless the caller ended it.
func (c *Client) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the address is said by the caller
	}
	return &Error{Kind: ErrGone, Text: err.Error()}
}

// meaning tells what a refusal means. Servers answer an overload with 429 or 503,
// and what is not there with 404; llama-server's router refuses an unknown model
// with 400.
func meaning(status int, body []byte) error {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return ErrUnauthorized
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return ErrFull
	case (status == http.StatusNotFound || status == http.StatusBadRequest) && aboutModel(body):
		return ErrUnknownModel
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented:
		return ErrNoSuchPath
	case status >= 500:
		return ErrBroken
	}
	return ErrRefused
}

// aboutModel tells whether an error says that a model is not there.
func aboutModel(body []byte) bool {
	text := strings.ToLower(said(body))
	if !strings.Contains(text, "model") {
		return false
	}
	for _, s := range []string{"not found", "not exist", "unknown", "no such", "not loaded", "invalid model"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// said is what an error's body says: its message where it is JSON.
func said(data []byte) string {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(data, &body) == nil {
		for _, raw := range []json.RawMessage{body.Error, body.Detail} {
			var text string
			var inner struct {
				Message string `json:"message"`
			}
			if json.Unmarshal(raw, &text) == nil && text != "" {
				return excerpt(text)
			}
			if json.Unmarshal(raw, &inner) == nil && inner.Message != "" {
				return excerpt(inner.Message)
			}
		}
		if body.Message != "" {
			return excerpt(body.Message)
		}
	}
	return excerpt(string(data))
}

// excerpt is the beginning of a text, for errors.
func excerpt(text string) string {
	const most = 200
	s := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
