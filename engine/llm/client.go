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

// Client sends requests to one server. Many goroutines may use it at once.
type Client struct {
	root   string // the address, without /v1 and slash
	prefix string // /v1 if the address has it, else empty
	key    string
	http   *http.Client
}

// Option changes a client.
type Option func(*Client)

// WithKey makes the client send a bearer token.
func WithKey(key string) Option { return func(c *Client) { c.key = key } }

// WithHTTP makes the client use another HTTP client. That must not have a Timeout, which would end long answers.
func WithHTTP(h *http.Client) Option { return func(c *Client) { c.http = h } }

// transport keeps as many connections as a server may have sequences. Answers are not compressed, because
// compression would hold tokens back.
var transport = &http.Transport{
	Proxy:               http.ProxyFromEnvironment,
	DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	MaxIdleConnsPerHost: 1024,
	IdleConnTimeout:     90 * time.Second,
	DisableCompression:  true,
}

// New makes a client for the server at an address such as http://host:8000, with or without /v1. It sends nothing
// yet.
func New(address string, options ...Option) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q: expected the address of an OpenAI-compatible server, such as http://host:8000", address)
	}
	c := &Client{http: &http.Client{Transport: transport, CheckRedirect: refuseRedirect}}
	fullAddress := strings.TrimRight(u.String(), "/")
	c.root = strings.TrimSuffix(fullAddress, "/v1")
	c.prefix = fullAddress[len(c.root):]
	for _, o := range options {
		o(c)
	}
	return c, nil
}

// refuseRedirect is the HTTP client's rule for redirects: it follows none, because prompts and keys are only for the
// server that the user named.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Address returns the address of the server, without /v1.
func (c *Client) Address() string { return c.root }

// Kinds of a server's errors, by what the caller should do.
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

// Error is returned when a server answers with an error, or does not answer.
type Error struct {
	Kind       error // one of those above
	Status     int   // HTTP status; 0 if there was no answer, or it broke off
	RetryAfter time.Duration
	Text       string
}

// Error returns the kind of the error and the server's text, with the HTTP status if there was an answer.
func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%v: %s", e.Kind, e.Text)
	}
	return fmt.Sprintf("%v: %d %s: %s", e.Kind, e.Status, http.StatusText(e.Status), e.Text)
}

func (e *Error) Unwrap() error { return e.Kind }

// Limits of what is read, in bytes.
const (
	maxBody  = 4 << 20 // of an answer that is not a stream
	maxError = 1 << 16
)

// Call sends a request to the server, with body as JSON if it is not nil, and returns the body of the answer. Paths
// start with a slash: /v1/models, /metrics. An answer with an error status is returned as an Error.
func (c *Client) Call(ctx context.Context, method, path string, body any) ([]byte, error) {
	resp, err := c.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, c.connectionError(ctx, err)
	case len(data) > maxBody:
		return nil, &Error{Kind: ErrBroken, Status: resp.StatusCode, Text: fmt.Sprintf("%s: an answer of more than %d bytes", path, maxBody)}
	}
	return data, nil
}

// traceKey is the key of the headers of W3C Trace Context in a context.
type traceKey struct{}

type traceHeaders struct{ parent, state string }

// WithTrace returns a context with whose requests the headers traceparent and tracestate are sent. If parent is empty,
// it returns ctx.
func WithTrace(ctx context.Context, parent, state string) context.Context {
	if parent == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, traceHeaders{parent, state})
}

// Forward sends a request to the server as it is, a POST of JSON, and returns the response, whose body the caller closes.
// An answer with an error status is returned as an Error.
func (c *Client) Forward(ctx context.Context, path string, body []byte) (*http.Response, error) {
	return c.send(ctx, http.MethodPost, path, json.RawMessage(body))
}

// send sends a request and returns the response, whose body the caller closes. body, if not nil, is sent as JSON: a
// json.RawMessage as it is. A response with an error status becomes an Error, with the time after which the server wants
// to be asked again if it names one.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if raw, ok := body.(json.RawMessage); ok {
		content = bytes.NewReader(raw)
	} else if body != nil {
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
	if trace, ok := ctx.Value(traceKey{}).(traceHeaders); ok {
		req.Header.Set("Traceparent", trace.parent)
		if trace.state != "" {
			req.Header.Set("Tracestate", trace.state)
		}
	}

	// Send it. An answer with an error status holds a message, and perhaps the time to wait.
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.connectionError(ctx, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return resp, nil
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	e := &Error{Kind: errorKind(resp.StatusCode, data), Status: resp.StatusCode, Text: errorText(data)}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds < 3600 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return nil, e
}

// connectionError returns the error of a broken connection, or the context's error if the caller ended it.
func (c *Client) connectionError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the caller names the address itself
	}
	return &Error{Kind: ErrGone, Text: err.Error()}
}

// errorKind returns what kind of error an answer with this HTTP status means. Servers answer 429 or 503 when they are
// overloaded, and 404 when something does not exist; llama-server's router answers 400 for an unknown model. body is
// the answer's body.
func errorKind(status int, body []byte) error {
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

// aboutModel reports whether the body of an error says that the model does not exist, as its words show.
func aboutModel(body []byte) bool {
	text := strings.ToLower(errorText(body))
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

// errorText returns the message in the body of an error answer, shortened. Servers send it as JSON, in the field
// error, detail or message (a text, or an object with a message), or as plain text.
func errorText(data []byte) string {
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

// excerpt returns the first 200 bytes of a text, on one line, for errors.
func excerpt(text string) string {
	const maxLength = 200
	s := strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(s) > maxLength {
		s = strings.ToValidUTF8(s[:maxLength], "") + "…"
	}
	return s
}
