package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"inferplan/formats/modelfile"
)

// JoinConfig describes the devices that a host offers to a server.
type JoinConfig struct {
	Address string // the server's address, HOST:PORT
	Token   []byte
	TLS     *tls.Config // for a plain connection it is nil
	Host    string      // the host's name, unique among the hosts of a server

	Kind   string // kind of the devices, as the plan names it
	Count  int    // number of devices of that kind; 0 means 1
	Models string // folder with NAME.onnx
	// CPUs are the CPUs of all devices if these are CPU sets. They are divided among the devices evenly.
	CPUs []int
	// Threads work on one operator on a device without CPUs of its own. 0 means one per CPU of this process.
	Threads int
	Library string
	// Operators are the libraries of custom operators that stages may need. The server names a library by its
	// hash.
	Operators []modelfile.OperatorLibrary
	// CacheBytes bounds the models that are kept in this host's memory for devices that swap them. 0 means
	// DefaultCache.
	CacheBytes int64

	Silence time.Duration // the server counts as lost if it is silent for longer; 0 means DefaultSilence
	Command []string      // the worker's command line, as in Config
	Env     []string
	Log     *slog.Logger
	State   *JoinState // where Join notes which devices have joined; if nil, nowhere

	cache    *Cache     // made by Join
	hintOnce *sync.Once // logs the hint on a silent server once
}

// JoinState says which devices of a host a server has admitted. Several goroutines may use it at once.
type JoinState struct {
	mu          sync.Mutex
	connections []int // by device: connections that the server has admitted
}

// AllJoined reports whether the server has admitted every device, and none of their connections has ended since.
func (s *JoinState) AllJoined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.connections) > 0 && !slices.Contains(s.connections, 0)
}

// begin sets the number of devices.
func (s *JoinState) begin(devices int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections = make([]int, devices)
}

// add counts connections of a device.
func (s *JoinState) add(device, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections[device] += count
}

const (
	// offersPerDevice is the number of offers for each device: while one offer serves the plan in force, the other can
	// load the next plan.
	offersPerDevice = 2
	// agentSlots is the number of batches of a stage that this host holds at once.
	agentSlots = 8

	// Pauses between attempts to join: the first, which doubles up to the longest.
	firstRetry   = 100 * time.Millisecond
	longestRetry = 2 * time.Second
)

// Join offers devices to a server until ctx ends, and offers them again whenever the connection breaks. It returns
// an error only if the token or the server's certificate is refused.
func Join(ctx context.Context, c JoinConfig) error {
	if err := CheckToken(c.Token); err != nil {
		return err
	}
	if c.Kind == "" || c.Count < 0 {
		return fmt.Errorf("offer %d devices of kind %q: expected a kind and at least one", c.Count, c.Kind)
	}
	c.Count = max(c.Count, 1)
	if n := len(c.CPUs); n > 0 && n%c.Count != 0 {
		return fmt.Errorf("%d CPUs cannot be divided evenly among %d devices", n, c.Count)
	}
	if c.Silence <= 0 {
		c.Silence = DefaultSilence
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.CacheBytes <= 0 {
		c.CacheBytes = DefaultCache
	}

	if c.State == nil {
		c.State = &JoinState{}
	}
	c.State.begin(c.Count)

	// Offer every device more than once, and end if an offer fails for good.
	c.cache, c.hintOnce = NewCache(c.CacheBytes), new(sync.Once)
	defer c.cache.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range c.Count {
		for range offersPerDevice {
			wg.Go(func() {
				if err := c.offer(ctx, i); err != nil {
					cancel(err)
				}
			})
		}
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// offer offers device number index to the server, again whenever the connection ends, until ctx ends. It returns an
// error if the server refuses the token, or if the host does not trust the server's certificate. The pause before the
// next try doubles from firstRetry to longestRetry, and begins anew after a connection that the server admitted.
func (c *JoinConfig) offer(ctx context.Context, index int) error {
	pause := firstRetry
	for ctx.Err() == nil {
		admitted, err := c.session(ctx, index)
		if errors.Is(err, ErrToken) || errors.Is(err, ErrCertificate) {
			return fmt.Errorf("join %s: %w", c.Address, err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if admitted {
			pause = firstRetry
		}
		c.Log.Info("not joined", "server", c.Address, "kind", c.Kind, "index", index, "error", err, "again_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestRetry)
	}
	return nil
}

// session runs one connection to the server until it ends: it connects, does the handshake, and serves device number
// index. admitted says whether the server took the offer.
func (c *JoinConfig) session(ctx context.Context, index int) (admitted bool, err error) {
	// Connect.
	dialer := &net.Dialer{Timeout: handshakeTime}
	var conn net.Conn
	if c.TLS != nil {
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: c.TLS}).DialContext(ctx, "tcp", c.Address)
		err = untrustedError(err)
	} else {
		conn, err = dialer.DialContext(ctx, "tcp", c.Address)
	}
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	a := &agent{config: c, index: index, link: link{conn: conn, silence: handshakeTime}, setUps: make(chan setUpStep, 16)}

	// A server that expects TLS says nothing to a plain connection: log a hint, once.
	stopHint := func() bool { return true }
	if c.TLS == nil {
		stopHint = time.AfterFunc(time.Second, func() {
			c.hintOnce.Do(func() {
				c.Log.Info("connected, and the server says nothing: one that was started with --join-cert or --tls-cert waits for TLS (--tls-pin as it printed it, --tls-ca or --tls)", "server", c.Address)
			})
		}).Stop
		defer stopHint()
	}

	// Offer this host's device and serve until the connection ends.
	if err := a.link.proveToServer(c.Token, offer{Host: c.Host, Kind: c.Kind, Index: index}); err != nil {
		if errors.Is(err, errUnanswered) && c.TLS == nil {
			err = fmt.Errorf("%w; does it expect TLS?", err)
		}
		return false, err
	}
	a.link.silence = c.Silence
	stopHint()
	c.Log.Info("joined", "server", c.Address, "kind", c.Kind, "index", index)
	c.State.add(index, 1)
	defer c.State.add(index, -1)
	return true, a.serve(ctx)
}
