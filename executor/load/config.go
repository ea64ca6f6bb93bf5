package load

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
)

// Protocol is the protocol of the requests.
type Protocol string

// The protocols.
const (
	HTTPBinary Protocol = "http-binary" // REST with binary tensors
	HTTPJSON   Protocol = "http-json"   // REST with JSON tensors
	GRPC       Protocol = "grpc"        // ModelInfer with raw contents
)

// ErrConfig is the error of a faulty configuration. Nothing was sent.
var ErrConfig = errors.New("load cannot be sent")

// Protocols lists the valid protocols, the default first.
var Protocols = []Protocol{HTTPBinary, HTTPJSON, GRPC, Completions}

// Model is one of the models of a schedule.
type Model struct {
	Name  string
	Class string // SLO class; if empty, the model's default
	// SLO is the budget of requests whose arrival names none. If it is 0, they have no deadline and cannot be late.
	SLO time.Duration
	// Batch is the first dimension of the inputs if the server allows any size. 0 stands for 1.
	Batch int
	// Samples, if set, are sent in turn in place of random inputs.
	Samples *Samples
	// Prompt and Output are the distributions of the lengths of completions that the trace does not name, in tokens;
	// nil stands for one token. SLOOf says what the SLO bounds: formats.FigureTTFT, FigureTPOT or, if it is empty, the time
	// to the end of the answer.
	Prompt, Output *formats.Lengths
	SLOOf          string
}

// Config is the configuration of a run.
type Config struct {
	// URL of the server: http(s)://host:port, or grpc(s)://host:port, which
	// sets the protocol.
	URL string
	// Protocol is the protocol. If it is empty, it is GRPC if the URL says so, else HTTPBinary.
	Protocol Protocol
	// Models are the models, indexed by Model of the arrivals.
	Models []Model
	// Seed is the seed of the random inputs.
	Seed uint64
	// Variants is the number of different requests per model. 0 stands for 4.
	Variants int
	// Warmup is the time before which requests are sent but not counted.
	Warmup time.Duration
	// Duration is the time from which on no requests are sent. 0 stands for the end of the schedule.
	Duration time.Duration
	// MaxInFlight is the most requests that may be open at once. A request that falls due beyond that is counted as
	// client_overload; it is never delayed. 0 stands for 2048.
	MaxInFlight int
	// Grace is how long the run waits for answers after the last arrival. 0 stands for 10 s.
	Grace time.Duration
	// NoTimeout omits the parameter "timeout".
	NoTimeout bool
	// Token is sent as bearer token.
	Token string
	// OnOutcome, if set, is called with the outcome of every counted request when it ends. Calls do not overlap.
	OnOutcome func(Outcome)
}

// Outcome is how one request ended.
type Outcome struct {
	Due     time.Duration // scheduled time, since the start of the run
	Model   int           // index in Config.Models
	Latency time.Duration // since Due; 0 if it was dropped
	Late    bool
	Reason  string // reason of the drop; empty if it was answered
}

// normalise checks the configuration of a load generator, sets defaults, and returns the server's address.
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

	// The protocol follows from the address if it is not set.
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
	u.Path = "/" + strings.Trim(u.Path, "/") // JoinPath keeps a path relative unless it begins like this

	// Check the models and the numbers.
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

	// Set defaults.
	c.Variants = cmp.Or(c.Variants, 4)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 2048)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	return u, nil
}
