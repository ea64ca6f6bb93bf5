package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"inferplan/executor/tracing"
	"inferplan/planner/kind"
)

// traceOptions are the flags about spans of requests.
type traceOptions struct{ url string }

func (o *traceOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "trace-to", "", "send OpenTelemetry spans of requests to a collector, over OTLP with HTTP, such as http://127.0.0.1:4318; OTEL_* variables set the rest, such as OTEL_TRACES_SAMPLER (default: no spans)")
}

// check returns a usage error for a wrong address.
func (o *traceOptions) check() error {
	if o.url == "" {
		return nil
	}
	if err := tracing.CheckURL(o.url); err != nil {
		return usageErrorf("--trace-to: %w", err)
	}
	return nil
}

// closeTimeout bounds the time to send the last spans.
const closeTimeout = 5 * time.Second

// open returns the tracer, which is nil if no spans are wanted, and the function that sends its last spans and closes
// it.
func (o *traceOptions) open(ctx context.Context, p *printer, log *slog.Logger) (*tracing.Tracer, func(), error) {
	if o.url == "" {
		return nil, func() {}, nil
	}
	tracer, err := tracing.New(ctx, o.url, kind.Version, log)
	if err != nil {
		return nil, nil, withCode(exitUsage, err)
	}
	return tracer, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := tracer.Close(ctx); err != nil {
			p.PrintNote("the last spans were not sent: %v", err)
		}
	}, nil
}
