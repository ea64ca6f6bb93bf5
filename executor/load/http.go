package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"inferplan/executor/oip"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 1 << 30

// httpTarget is a server over REST. It gets JSON or binary tensors.
type httpTarget struct {
	client      *http.Client
	base        *url.URL
	binary      bool
	sendTimeout bool
	token       string
	bufs        sync.Pool // holds *[]byte
}

// httpPayload is a request without id and timeout.
type httpPayload struct {
	url    *url.URL
	header http.Header // shared by all requests; not changed after prepare
	text   *requestTemplate
	tail   [][]byte // the binary tensors
	size   int64
}

// newHTTPTarget returns a target (a server that gets the load) over the REST form of the protocol. It has as many
// connections open as requests may be in flight, and follows no redirect.
func newHTTPTarget(base *url.URL, cfg *Config) *httpTarget {
	return &httpTarget{
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
				MaxIdleConns:        cfg.MaxInFlight,
				MaxIdleConnsPerHost: cfg.MaxInFlight,
				IdleConnTimeout:     time.Minute,
				DisableCompression:  true,
				ReadBufferSize:      16 << 10,
				WriteBufferSize:     16 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		base:        base,
		binary:      cfg.Protocol == HTTPBinary,
		sendTimeout: !cfg.NoTimeout,
		token:       cfg.Token,
		bufs:        sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }},
	}
}

func (t *httpTarget) close() { t.client.CloseIdleConnections() }

// modelURL returns the URL of a model.
func (t *httpTarget) modelURL(m *Model) *url.URL {
	return t.base.JoinPath("v2", "models", url.PathEscape(m.Name))
}

// describe implements target: it asks the server for a model's inputs.
func (t *httpTarget) describe(ctx context.Context, m *Model) (*oip.ModelInfo, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.modelURL(m).String(), nil)
	if err != nil {
		return nil, err
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}

	// Send it, and read the answer.
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(body, &e) != nil || e.Error == "" {
			e.Error = string(body[:min(len(body), 200)])
		}
		return nil, fmt.Errorf("the server answers %s: %s", resp.Status, e.Error)
	}
	info := &oip.ModelInfo{}
	if err := json.Unmarshal(body, info); err != nil {
		return nil, fmt.Errorf("reading the metadata: %w", err)
	}
	return info, nil
}

// prepare implements target: it encodes a request to model m once, before the run, with places for the id and the
// timeout, which differ each time that it is sent. In binary form, the tensors' bytes follow the JSON.
func (t *httpTarget) prepare(m *Model, in Inputs) (payload, error) {
	text, err := newTemplate(m.Class, in, t.binary, t.sendTimeout)
	if err != nil {
		return nil, err
	}
	p := &httpPayload{url: t.modelURL(m).JoinPath("infer"), text: text, size: int64(len(text.text))}
	p.header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"inferplan-load"}}
	if t.token != "" {
		p.header.Set("Authorization", "Bearer "+t.token)
	}
	if t.binary {
		p.header.Set("Content-Type", "application/octet-stream")
		p.header.Set(oip.HeaderJSONLength, strconv.Itoa(len(text.text)))
		for i := range in {
			p.tail = append(p.tail, in[i].Data)
			p.size += int64(len(in[i].Data))
		}
	}
	return p, nil
}

// send implements target: it sends a prepared request and returns the reason why it got no good answer, or
// nothing.
func (t *httpTarget) send(ctx context.Context, pl payload, id requestID, timeout time.Duration) string {
	p := pl.(*httpPayload)

	// Write the head of the request.
	head := t.bufs.Get().(*[]byte)
	defer t.bufs.Put(head)
	*head = p.text.fill((*head)[:0], id, timeout)
	// The transport may read the body after Do has returned an error. It holds a copy of the slices only, and head
	// goes back to the pool only after the body was closed.
	body := &requestBody{unsent: append(make([][]byte, 0, 4), *head), closed: make(chan struct{})}
	body.unsent = append(body.unsent, p.tail...)
	req := (&http.Request{
		Method: http.MethodPost, URL: p.url, Host: p.url.Host, Header: p.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: body, ContentLength: p.size,
	}).WithContext(ctx)

	// Send it and read the answer.
	resp, err := t.client.Do(req)
	if err != nil {
		<-body.closed // the transport closes it, also after errors
		return sendError(ctx, err)
	}
	defer resp.Body.Close()
	answer := t.bufs.Get().(*[]byte)
	defer t.bufs.Put(answer)
	if *answer, err = readAll((*answer)[:0], resp); err != nil {
		<-body.closed
		return sendError(ctx, err)
	}
	<-body.closed

	// Decode the answer and compare it with the request.
	if resp.StatusCode != http.StatusOK {
		return httpReason(resp)
	}
	text, tail := *answer, []byte(nil)
	if v := resp.Header[oip.HeaderJSONLength]; len(v) == 1 {
		n, err := strconv.Atoi(v[0])
		if err != nil || n < 0 || n > len(text) {
			return errorPrefix + "bad_answer"
		}
		text, tail = (*answer)[:n], (*answer)[n:]
	}
	var out oip.Response
	if err := oip.DecodeResponse(text, tail, &out); err != nil {
		return errorPrefix + "bad_answer"
	}
	return checkAnswer(&out, id)
}

// requestBody is a body that consists of several slices.
type requestBody struct {
	unsent    [][]byte
	closeOnce sync.Once
	closed    chan struct{}
}

// Read implements io.Reader: it reads the parts of the body that are not sent yet, one after the other.
func (b *requestBody) Read(p []byte) (int, error) {
	for len(b.unsent) > 0 {
		if n := copy(p, b.unsent[0]); n > 0 {
			b.unsent[0] = b.unsent[0][n:]
			return n, nil
		}
		b.unsent = b.unsent[1:]
	}
	return 0, io.EOF
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.closeOnce.Do(func() { close(b.closed) })
	return nil
}

// readAll reads the body of an answer into buf, which may grow, and returns it. An answer above maxAnswer bytes is
// an error.
func readAll(buf []byte, resp *http.Response) ([]byte, error) {
	if n := resp.ContentLength; n > maxAnswer {
		return buf, fmt.Errorf("an answer of %d bytes", n)
	} else if n > int64(cap(buf)) {
		buf = make([]byte, 0, n)
	}
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) == resp.ContentLength {
				return buf, nil
			}
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := resp.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) > maxAnswer:
			return buf, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
		}
	}
}

// sendError returns the reason to record for a request that got no answer: the run ended, no connection was made,
// or it broke.
func sendError(ctx context.Context, err error) string {
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return reasonUnanswered
	case errors.As(err, &op) && op.Op == "dial":
		return errorPrefix + "connect"
	}
	return errorPrefix + "connection"
}

// httpReason returns why the server refused a request, by its answer's status: the server's reason if it has given
// the request up, else the status of the error.
func httpReason(resp *http.Response) string {
	reason := resp.Header.Get(oip.HeaderReason)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusGatewayTimeout:
		if reason == "" {
			reason = "http_" + strconv.Itoa(resp.StatusCode)
		}
		return reason
	}
	return errorPrefix + "http_" + strconv.Itoa(resp.StatusCode)
}
