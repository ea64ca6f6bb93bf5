package oip

import (
	"cmp"
	"net/http"

	"inferplan/executor/httplimit"
	"inferplan/executor/tracing"
)

// Options configure a server. Each field's comment says what its zero value stands for.
type Options struct {
	// Door checks every request first; several servers may share one. If it is nil, the server makes its own, which
	// asks for no key.
	Door *httplimit.Door
	// Name and Version are in the server's metadata. The defaults are "inferplan" and "dev".
	Name, Version string
	// MaxBodyBytes bounds the body or message of a request. The default is 64 MiB.
	MaxBodyBytes int64
	// MaxTensors bounds the inputs, and the requested outputs. The default is 128.
	MaxTensors int
	// MaxStreams bounds the concurrent requests on one gRPC connection. The default is 4096.
	MaxStreams uint32
	// Tracer makes spans of inferences. It is nil if there is none.
	Tracer *tracing.Tracer
	// Fallback answers HTTP paths that begin with FallbackPath, behind its own door. If it is nil, they get 404.
	Fallback     http.Handler
	FallbackPath string
}

// withDefaults returns the options with defaults in place of zero fields.
func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, "inferplan")
	o.Version = cmp.Or(o.Version, "dev")
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 64<<20)
	o.MaxTensors = cmp.Or(o.MaxTensors, 128)
	o.MaxStreams = cmp.Or(o.MaxStreams, 4096)
	o.Door = o.Door.WithDefaults()
	return o
}
