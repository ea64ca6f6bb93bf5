package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/baggage"
	proto "go.opentelemetry.io/proto/otlp/trace/v1"
	wire "google.golang.org/protobuf/proto"
)

// client sends spans to a collector: OTLP over HTTP with protobuf (OpenTelemetry protocol 1.11). The library's client,
// otlptracehttp, would have every gRPC server of this process take compressed messages, whose memory nobody counts. It
// implements otlptrace.Client.
type client struct {
	url     string
	headers map[string]string
	http    http.Client
}

// sendTimeout bounds one message to the collector. It is the default of the protocol's exporters.
const sendTimeout = 10 * time.Second

// newClient returns a client for an address. headers are those of the variable OTEL_EXPORTER_OTLP_HEADERS: KEY=VALUE,
// with commas between, percent-encoded. They may be secret, so that the error does not show them.
func newClient(url, headers string) (*client, error) {
	c := &client{url: url, headers: map[string]string{}, http: http.Client{Timeout: sendTimeout, CheckRedirect: refuseRedirect}}
	list, err := baggage.Parse(headers)
	if err != nil {
		return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: expected KEY=VALUE, with commas between, percent-encoded: a space is %20")
	}
	for _, member := range list.Members() {
		c.headers[member.Key()] = member.Value()
	}
	return c, nil
}

// refuseRedirect is the HTTP client's rule for redirects: it follows none, because the headers are only for the collector
// that the user named.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. It implements otlptrace.Client.
func (c *client) UploadTraces(ctx context.Context, spans []*proto.ResourceSpans) error {
	// TracesData has the fields of the request of the protocol's service.
	body, err := wire.Marshal(&proto.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	for name, value := range c.headers {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("%s: %s: %s", c.url, resp.Status, text)
	}
	return nil
}
