package oip

import (
	"net/http"

	"inferplan/executor/httplimit"
)

// Options configure a server. The zero value of a field means what its comment says.
type Options struct {
	// Door is what every request passes first; servers may share one. nil: one of the
	// server's own that asks for nothing.
	Door *httplimit.Door
	// Name and Version go into the server metadata; empty: "inferplan", "dev".
	Name, Version string
	// MaxBodyBytes bounds a request's body or message; 0: 64 MiB.
	MaxBodyBytes int64
	// MaxTensors bounds the inputs, and the outputs asked for; 0: 128.
	MaxTensors int
	// MaxStreams bounds concurrent requests on one gRPC connection; 0: 4096.
	MaxStreams uint32
	// Fallback answers HTTP paths that begin with FallbackPath, by its own door; nil: 404.
	Fallback     http.Handler
	FallbackPath string
}

func (o Options) withDefaults() Options {
	setDefault(&o.Name, "inferplan")
	setDefault(&o.Version, "dev")
	setDefault(&o.MaxBodyBytes, 64<<20)
	setDefault(&o.MaxTensors, 128)
	setDefault(&o.MaxStreams, 4096)
	o.Door = o.Door.Open()
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
