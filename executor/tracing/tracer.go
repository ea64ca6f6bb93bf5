package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

// Tracer makes spans and sends them in the background. All methods may be called on a nil Tracer.
type Tracer struct {
	provider *trace.TracerProvider
	tracer   api.Tracer
}

// CheckURL returns an error if spans cannot be sent to an address.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("found %q, expected the address of a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318", address)
	}
	return nil
}

// New returns a tracer that sends spans to a collector at an address, over OTLP with HTTP: to the path /v1/traces if the
// address has none. Variables of the OpenTelemetry specification set the rest: OTEL_TRACES_SAMPLER,
// OTEL_TRACES_SAMPLER_ARG, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_* and
// OTEL_SPAN_*. version is that of this program. What goes wrong later is logged.
func New(ctx context.Context, address, version string, log *slog.Logger) (*Tracer, error) {
	if err := CheckURL(address); err != nil {
		return nil, err
	}
	u, _ := url.Parse(address)
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	c, err := newClient(u.String(), os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"))
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("the exporter of spans: %w", err)
	}
	// What the environment says of the service comes last, and so counts.
	service, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "inferplan"), attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans are lost", "error", err) }))
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(service))
	return &Tracer{provider, provider.Tracer("inferplan")}, nil
}

// Close sends the spans that were not sent yet.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// start starts a span at a time, below the one in ctx.
func (t *Tracer) start(ctx context.Context, name string, at time.Time, attributes ...attribute.KeyValue) (context.Context, api.Span) {
	return t.tracer.Start(ctx, name, api.WithTimestamp(at), api.WithAttributes(attributes...))
}

// add adds a span that has ended.
func (t *Tracer) add(ctx context.Context, name string, from, to time.Time, attributes ...attribute.KeyValue) {
	_, span := t.start(ctx, name, from, attributes...)
	span.End(api.WithTimestamp(to))
}

// Parent is a span of another process, in the form of W3C Trace Context. Without one both fields are empty.
type Parent struct {
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
}

// Names of the headers, in the form of HTTP and of gRPC's metadata.
const (
	HeaderTraceparent = "Traceparent"
	HeaderTracestate  = "Tracestate"
)

// ParentIn returns the parent that a request's headers name, by their values. Values that are not valid name none, as
// the recommendation says.
func ParentIn(traceparent, tracestate []string) Parent {
	if len(traceparent) != 1 {
		return Parent{}
	}
	p := Parent{Traceparent: traceparent[0]}
	for i, value := range tracestate {
		if i > 0 {
			p.Tracestate += ","
		}
		p.Tracestate += value
	}
	return parentOf(p.context())
}

// context returns a context in which the parent is the current span.
func (p Parent) context() context.Context {
	if p.Traceparent == "" {
		return context.Background()
	}
	return propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": p.Traceparent, "tracestate": p.Tracestate})
}

// parentOf returns the current span of a context as the parent for another process.
func parentOf(ctx context.Context) Parent {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return Parent{carrier["traceparent"], carrier["tracestate"]}
}
