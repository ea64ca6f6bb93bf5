package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
)

// Protocol is how requests travel.
type Protocol string

// The protocols.
const (
	HTTPBinary Protocol = "http-binary" // REST with binary tensors
	HTTPJSON   Protocol = "http-json"   // REST with JSON tensors
	GRPC       Protocol = "grpc"        // ModelInfer with raw contents
)

// ErrConfig is behind errors about the configuration: nothing was sent.
var ErrConfig = errors.New("load cannot be sent")

// Protocols lists the valid values, the default first.
var Protocols = []Protocol{HTTPBinary, HTTPJSON, GRPC, Completions}

// Model is one of the models that a schedule speaks of.
type Model struct {
	Name    string
	Class   string // SLO class; empty: the model's default
	Version string // empty: the server's choice
	// SLO is the budget of a request whose arrival names none; 0: no deadline,
	// nothing is late.
	SLO time.Duration
	// Batch is the size of the first dimension where the server allows any; 0: 1.
	Batch int
	// Shapes overrides the shape of inputs by name; needed where a dimension
	// other than the first may have any size and 1 will not do.
	Shapes map[string][]int64
	// Inputs, when set, are sent instead of random ones, in turn.
	Inputs []Inputs
	// Samples, when set, are likewise.
	Samples *Samples
	// Prompt and Output draw the lengths of completions that a trace does not have; nil:
	// one token. Of is the figure that the SLO is of: formats.OfTTFT, OfTPOT or, empty
	// too, the end of the answer.
	Prompt, Output *formats.Lengths
	Of             string
}

// Config says what to drive and how.
type Config struct {
	// URL of the server: http(s)://host:port, or grpc(s)://host:port, which
	// sets the protocol.
	URL string
	// Protocol; empty: HTTPBinary, or GRPC when the URL says so.
	Protocol Protocol
	// Models are indexed by the arrivals' Model.
	Models []Model
	// Seed of the random inputs.
	Seed uint64
	// Variants is the number of different requests per model; 0: 4.
	Variants int
	// Warmup: earlier arrivals are sent but not counted.
	Warmup time.Duration
	// Duration: arrivals at or after it are not sent; 0: the schedule's end.
	Duration time.Duration
	// MaxInFlight requests may be open at once; one that falls due beyond that
	// is counted as client_overload, never delayed. 0: 2048.
	MaxInFlight int
	// Grace is how long the run waits for answers after the last arrival; 0: 10 s.
	Grace time.Duration
	// NoTimeout leaves the parameter "timeout" out.
	NoTimeout bool
	// Token is sent as bearer token.
	Token string
	// TLS for https and grpcs; nil: the system's defaults.
	TLS *tls.Config
	// Ended, where given, is told what became of every counted request as it
	// ends; not by two goroutines at once.
	Ended func(Outcome)
}

// Outcome is what became of one request.
type Outcome struct {
	Due     time.Duration // since the start of the run
	Model   int           // of Config.Models
	Latency time.Duration // from Due; 0 where it was dropped
	Late    bool
	Reason  string // of the drop; empty: answered
}

// normalise fills defaults and checks.
func (c *Config) normalise() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	grpcURL := u.Scheme == "grpc" || u.Scheme == "grpcs"
	if u.Host == "" || !grpcURL && u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server address %q: expected http://HOST:PORT, https://…, grpc://… or grpcs://…", c.URL)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("server address %q: found a query, fragment or user; expected scheme, host, port and at most a path prefix", c.URL)
	}
	switch {
	case c.Protocol == "" && grpcURL:
		c.Protocol = GRPC
	case c.Protocol == "":
		c.Protocol = HTTPBinary
	case !slices.Contains(Protocols, c.Protocol):
		return nil, fmt.Errorf("protocol %q: expected one of %v", c.Protocol, Protocols)
	case grpcURL && c.Protocol != GRPC:
		return nil, fmt.Errorf("protocol %s does not go with address %q", c.Protocol, c.URL)
	}
	u.Path = "/" + strings.Trim(u.Path, "/") // JoinPath keeps a path relative that begins so
	if len(c.Models) == 0 {
		return nil, fmt.Errorf("no models to send requests to")
	}
	for i, m := range c.Models {
		if m.Name == "" {
			return nil, fmt.Errorf("models[%d]: no name", i)
		}
		if m.SLO < 0 || m.Batch < 0 {
			return nil, fmt.Errorf("model %q: SLO %v and batch %d must not be negative", m.Name, m.SLO, m.Batch)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"warm-up", c.Warmup}, {"duration", c.Duration}, {"grace", c.Grace}} {
		if d.value < 0 {
			return nil, fmt.Errorf("%s %v is negative", d.name, d.value)
		}
	}
	if c.Variants < 0 || c.MaxInFlight < 0 {
		return nil, fmt.Errorf("variants %d and in-flight limit %d must not be negative", c.Variants, c.MaxInFlight)
	}
	if c.Duration > 0 && c.Warmup >= c.Duration {
		return nil, fmt.Errorf("warm-up %v leaves nothing of the duration %v", c.Warmup, c.Duration)
	}
	if c.Variants == 0 {
		c.Variants = 4
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 2048
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	return u, nil
}
