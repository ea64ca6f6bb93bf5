package oip

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"
)

// Options configure a server. The zero value of a field means what its comment says.
type Options struct {
	// Name and Version go into the server metadata; empty: "inferplan", "dev".
	Name, Version string
	// MaxBodyBytes bounds a request's body or message; 0: 64 MiB.
	MaxBodyBytes int64
	// Budget is the memory for requests, which servers may share; nil: one of
	// the server's own of MaxInFlightBytes; 0: 1 GiB.
	Budget           *Budget
	MaxInFlightBytes int64
	// Hosts are names under which clients reach the server, beside localhost and
	// addresses. Without a token a request to another name is refused, for a web
	// page may have pointed that name at this server; "*": any name.
	Hosts []string
	// MaxTensors bounds the inputs, and the outputs asked for; 0: 128.
	MaxTensors int
	// MaxHeaderBytes bounds HTTP headers and gRPC metadata; 0: 64 KiB.
	MaxHeaderBytes int
	// MaxStreams bounds concurrent requests on one gRPC connection; 0: 4096.
	MaxStreams uint32
	// ReadTimeout bounds reading a request or message, IdleTimeout an unused connection,
	// WriteTimeout an HTTP request from its head to the end of its answer;
	// 0: 1 minute, 5 minutes, 5 minutes.
	ReadTimeout, IdleTimeout, WriteTimeout time.Duration
	// TLS, when set, is used by Serve; it must hold a certificate.
	TLS *tls.Config
	// BearerToken, when set, must come with every request but health checks.
	BearerToken string
	// Fallback answers HTTP paths that begin with FallbackPath; nil: 404.
	Fallback     http.Handler
	FallbackPath string
	// Log receives panics and failures of the transport; nil: slog.Default.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	setDefault(&o.Name, "inferplan")
	setDefault(&o.Version, "dev")
	setDefault(&o.MaxBodyBytes, 64<<20)
	setDefault(&o.MaxTensors, 128)
	setDefault(&o.MaxHeaderBytes, 64<<10)
	setDefault(&o.MaxStreams, 4096)
	setDefault(&o.ReadTimeout, time.Minute)
	setDefault(&o.IdleTimeout, 5*time.Minute)
	setDefault(&o.WriteTimeout, 5*time.Minute)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Budget == nil {
		o.Budget = NewBudget(o.MaxInFlightBytes, o.Log)
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
