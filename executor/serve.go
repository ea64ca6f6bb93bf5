package executor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"inferplan/engine/worker"
	"inferplan/executor/calls"
	"inferplan/executor/httplimit"
	"inferplan/executor/live"
	"inferplan/executor/oip"
	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats"
	form "inferplan/formats/calls"
)

// AddressOff as an address means that this server is left out.
const AddressOff = httplimit.AddressOff

// The addresses that plan serve listens on by default.
const (
	DefaultHTTP    = "127.0.0.1:8000"
	DefaultGRPC    = "127.0.0.1:8001"
	DefaultMetrics = "127.0.0.1:8002"
)

// ServeOptions are the options of plan serve. Serve sets Options.PlanSHA256.
type ServeOptions struct {
	Options
	Plan string // path of the plan's file

	// HTTP, GRPC and Metrics are the addresses to listen on. An address without a host means the
	// loopback interface; "0.0.0.0:8000" is every interface.
	HTTP, GRPC, Metrics string

	// Join is the address at which workers of other hosts join. If it is empty, they cannot. They must prove that
	// they know JoinToken, and TLS applies to them, too. A host that is silent for longer than JoinSilence counts as
	// lost. The default of JoinSilence is worker.DefaultSilence.
	Join        string
	JoinToken   []byte
	JoinSilence time.Duration
	// JoinCert is a file with a certificate of Join's own and its key. It is created if it does not exist
	// (worker.Certificate). If JoinCert is empty, Join uses TLSCert, if that is set.
	JoinCert string
	// OnJoinable is called once workers can join, before the plan waits for them.
	OnJoinable func(Addresses)

	// Door is the door for requests of all protocols. If TLSCert and TLSKey are set, Serve reads them into its TLS.
	Door            httplimit.Door
	TLSCert, TLSKey string
	// OIP holds the limits of both protocols for tensors. Serve sets its Door.
	OIP oip.Options

	// Queue has the options of plans of queues, whose HTTP address serves the OpenAI protocol.
	Queue text.QueueOptions

	// DrainDelay is how long requests are still accepted at the end while readiness is false, so that a load balancer
	// sends them elsewhere. If it is 0, there is no delay.
	DrainDelay time.Duration
	// DrainTimeout bounds the wait for accepted requests at the end and at a switch of plans. The default is 30 s.
	DrainTimeout time.Duration
	// WatchInterval is how often the plan's file is looked at: a file that was changed is switched to, as at a SIGHUP. 0
	// means that it is not looked at.
	WatchInterval time.Duration
	// View makes the page at / of the metrics server of its state. Without it there is only the state, as JSON.
	View *live.View
	// Record is a file to which the service times of the last plan are written at the end. It implies RecordService.
	Record string
	// OnReady is called once all servers listen.
	OnReady func(Addresses)
	// OnReloaded is called after every attempt to switch plans. A nil error means that the new plan is in force; so
	// does ErrSwitched.
	OnReloaded func(error)

	retryDelay time.Duration // before a failed switch is tried again for the first time; 0 stands for 1 s
}

// Addresses are the addresses on which the servers listen; empty for one that is off. JoinPin identifies the JoinCert
// to workers.
type Addresses struct{ HTTP, GRPC, Metrics, Join, JoinPin string }

// Serve serves a plan until ctx ends. It then refuses new requests, finishes the accepted ones within DrainTimeout,
// and answers the rest with the reason draining. At a SIGHUP, or when WatchInterval finds it changed, it reads the plan's
// file again and switches to the plan.
func Serve(ctx context.Context, o ServeOptions) (*formats.Report, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	events := &live.EventLog{}
	o.Log = slog.New(events.Handler(o.Log.Handler()))
	// From here on signals are kept for watchSignals. Before the plan is in force, a signal must not end the process.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)

	file := &planFile{path: o.Plan}
	plan, hash, err := file.read()
	if err != nil {
		return nil, err
	}
	file.setInForce(hash)
	o.PlanSHA256 = hash
	// Listen before the models are loaded, so that addresses in use are found at once.
	if text.ServesText(plan) {
		o.GRPC = AddressOff
	}
	s := &servers{opt: &o, events: events}
	if err := s.listen(); err != nil {
		return nil, err
	}
	defer s.closeListeners()
	if s.metricsListener != nil {
		o.RatesURL = "http://" + s.addresses.Metrics + "/rates"
		if o.Door.TLS != nil {
			o.RatesURL = "https" + strings.TrimPrefix(o.RatesURL, "http")
		}
	}

	// Let workers of other hosts join.
	if s.joinListener != nil {
		if o.Lobby, err = worker.NewJoinServer(s.joinListener, o.JoinToken, o.JoinSilence, o.Log); err != nil {
			return nil, fmt.Errorf("%w: join: %w", turn.ErrPlan, err)
		}
		defer o.Lobby.Close()
		if o.OnJoinable != nil {
			o.OnJoinable(s.addresses)
		}
	}

	// Start the plan and its servers.
	agents, err := o.Queue.OpenAgents(ctx, plan)
	if err != nil {
		return nil, err
	}
	if agents != nil {
		o.Agents = agents
	}
	x, err := New(ctx, plan, o.Options)
	if err != nil {
		return nil, err
	}
	o.Door.Leaving = func() bool { return !x.Ready() }
	if s.queue, err = text.NewFront(ctx, x.textHost(), &o.Queue, &o.Door); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	x.metrics.registry.MustRegister(file.series())
	events.Add(time.Now(), slog.LevelInfo, "plan in force: "+o.Plan)
	s.start(x)
	// When ctx ends, readiness turns false at once, even in the middle of a switch of plans.
	defer context.AfterFunc(ctx, func() {
		if o.DrainDelay > 0 {
			o.Log.Info("leaving: not ready, and requests are still taken", "for", o.DrainDelay)
			x.notReady.Store(true)
			s.queue.Unready()
			if s.grpcServer != nil {
				s.grpcServer.Leave()
			}
			return
		}
		x.draining.Store(true)
	})()
	if o.OnReady != nil {
		o.OnReady(s.addresses)
	}

	// Serve until the end, and shut down.
	failure := s.watchSignals(ctx, x, file, hup)
	r, err := s.shutDown(x)
	if o.Record != "" {
		err = errors.Join(err, x.Service().WriteFile(o.Record))
	}
	return r, errors.Join(failure, err)
}

// prepare completes the options of `plan serve` in place: default addresses and times, the TLS certificate, and the door
// (who may enter the HTTP servers: keys, TLS, limits), which the protocol of tensors shares. It returns an error if the
// certificate cannot be read.
func (o *ServeOptions) prepare() error {
	o.HTTP = cmp.Or(o.HTTP, DefaultHTTP)
	o.GRPC = cmp.Or(o.GRPC, DefaultGRPC)
	o.Metrics = cmp.Or(o.Metrics, DefaultMetrics)
	o.Join = cmp.Or(o.Join, AddressOff)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 30*time.Second)
	o.FlushTimeout = cmp.Or(o.FlushTimeout, o.DrainTimeout)
	o.retryDelay = cmp.Or(o.retryDelay, time.Second)
	o.Options.SetDefaults()
	o.RecordService = o.RecordService || o.Record != ""
	if err := o.loadTLS(); err != nil {
		return err
	}
	if o.Door.Log == nil {
		o.Door.Log = o.Log
	}
	o.Door = *o.Door.WithDefaults()
	o.OIP.Door = &o.Door
	o.OIP.Tracer, o.Queue.Front.Tracer = o.CoreOptions.Tracer, o.CoreOptions.Tracer
	return nil
}

// watchSignals runs while the plan is served: at every SIGHUP, and whenever WatchInterval finds the file changed, it
// switches to the plan that the file has, and tries again, with pauses that double, after a failure that may pass. It returns nil when ctx has ended and then DrainDelay
// has passed, or the error of a server that has failed.
func (s *servers) watchSignals(ctx context.Context, x *Executor, file *planFile, hup <-chan os.Signal) error {
	wait, retry := s.opt.retryDelay, (<-chan time.Time)(nil)
	var look <-chan time.Time
	if s.opt.WatchInterval > 0 {
		ticker := time.NewTicker(s.opt.WatchInterval)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			if s.opt.DrainDelay == 0 {
				return nil
			}
			select {
			case err := <-s.failures:
				return err
			case <-time.After(s.opt.DrainDelay):
				return nil
			}
		case err := <-s.failures:
			return err
		case <-hup:
			wait = s.opt.retryDelay
			retry = s.putInForce(ctx, x, file, wait)
		case <-look:
			if file.changed() {
				wait = s.opt.retryDelay
				retry = s.putInForce(ctx, x, file, wait)
			}
		case <-retry:
			wait *= 2
			retry = s.putInForce(ctx, x, file, wait)
		}
	}
}

// loadTLS reads the certificate and key that the user named into the door, which then asks for TLS 1.2 or later. Without
// names it does nothing.
func (o *ServeOptions) loadTLS() error {
	if o.TLSCert == "" && o.TLSKey == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return fmt.Errorf("TLS certificate %q with key %q: %w", o.TLSCert, o.TLSKey, err)
	}
	o.Door.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	return nil
}

// servers are the listeners and the servers on them.
type servers struct {
	opt                                         *ServeOptions
	httpListener, grpcListener, metricsListener net.Listener
	joinListener                                net.Listener
	addresses                                   Addresses
	failures                                    chan error
	wg                                          sync.WaitGroup

	httpServer    httpServer
	queue         *text.Front    // nil if tensors are served
	programs      *calls.Handler // nil if texts are served
	grpcServer    *oip.GRPCServer
	metricsServer *http.Server
	events        *live.EventLog
	stopSampling  context.CancelFunc // nil without a metrics server
}

// httpServer serves the plan's HTTP protocol.
type httpServer interface {
	Serve(net.Listener) error
	Drain(context.Context) error
}

// listen opens the listeners of HTTP, gRPC, metrics and of other hosts that join, and notes their addresses. An address
// AddressOff opens none; one without a host is on 127.0.0.1. It logs a warning for each address that other hosts can
// reach without a token or without TLS. If one fails, it closes all and returns the errors of all.
func (s *servers) listen() error {
	var errs []error
	listenOn := func(name, address string, bound *string) net.Listener {
		if address == AddressOff {
			return nil
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s address %q: expected HOST:PORT, :PORT or %s: %w", name, address, AddressOff, err))
			return nil
		}
		host = cmp.Or(host, "127.0.0.1")
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			errs = append(errs, fmt.Errorf("listen for %s: %w", name, err))
			return nil
		}
		*bound = l.Addr().String()
		if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && name != "join" {
			if s.opt.Door.Keys == nil {
				s.opt.Log.Warn("others can reach this address, and no bearer token is asked for", "server", name, "address", *bound)
			} else if s.opt.Door.TLS == nil {
				s.opt.Log.Warn("others can reach this address, and the bearer token travels in the clear: give --tls-cert and --tls-key", "server", name, "address", *bound)
			}
		}
		return l
	}
	s.httpListener = listenOn("HTTP", s.opt.HTTP, &s.addresses.HTTP)
	s.grpcListener = listenOn("gRPC", s.opt.GRPC, &s.addresses.GRPC)
	s.metricsListener = listenOn("metrics", s.opt.Metrics, &s.addresses.Metrics)
	// Wrap the listener of joining hosts in TLS: with its own certificate, which they check by its pin, or else with the
	// door's.
	if s.joinListener = listenOn("join", s.opt.Join, &s.addresses.Join); s.joinListener != nil {
		if s.opt.JoinCert != "" {
			cert, pin, err := worker.Certificate(s.opt.JoinCert)
			if err != nil {
				errs = append(errs, err)
			}
			s.addresses.JoinPin = pin
			s.joinListener = tls.NewListener(s.joinListener, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
		} else if s.opt.Door.TLS != nil {
			s.joinListener = tls.NewListener(s.joinListener, s.opt.Door.TLS)
		} else if a, ok := s.joinListener.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
			s.opt.Log.Warn("tensors of other hosts travel in the clear: keep to a network that you trust, or give --join-cert FILE", "address", s.addresses.Join)
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.closeListeners()
		return err
	}
	return nil
}

// closeListeners closes the listeners that no server has taken over. Closing one twice is harmless.
func (s *servers) closeListeners() {
	for _, l := range []net.Listener{s.httpListener, s.grpcListener, s.metricsListener, s.joinListener} {
		if l != nil {
			l.Close()
		}
	}
}

// newHTTPServer returns the server for the HTTP address of x. If the plan serves requests for text (s.queue is set), it
// is the front end for text. Otherwise it is the server of the protocol of tensors (OIP), which passes requests below
// form.Path to the handler of programs: clients that run workflows as code.
func (s *servers) newHTTPServer(x *Executor) httpServer {
	if s.queue != nil {
		return s.queue
	}
	s.programs = calls.NewHandler(x.Programs(), &s.opt.Door, calls.Limits{MaxBodyBytes: s.opt.OIP.MaxBodyBytes})
	opt := s.opt.OIP
	opt.Fallback, opt.FallbackPath = s.programs, form.Path
	return oip.NewHTTPServer(x, opt)
}

// start starts the HTTP, gRPC and metrics servers on the listeners that are open, each on a goroutine that s.wg counts.
// An error that ends one goes to s.failures, which has a place for each of the three.
func (s *servers) start(x *Executor) {
	s.failures = make(chan error, 3)
	goServe := func(serve func() error) {
		s.wg.Go(func() {
			if err := serve(); err != nil {
				s.failures <- err
			}
		})
	}
	if s.httpListener != nil {
		s.httpServer = s.newHTTPServer(x)
		goServe(func() error { return s.httpServer.Serve(s.httpListener) })
	}
	if s.grpcListener != nil {
		s.grpcServer = oip.NewGRPCServer(x, s.opt.OIP)
		goServe(func() error { return s.grpcServer.Serve(s.grpcListener) })
	}
	if s.metricsListener != nil {
		// The metrics server also has the page of the server, the rates of a gear plan (/rates) and, for text, the lengths of
		// answers.
		processRegistry := prometheus.NewRegistry()
		processRegistry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{x.Gatherer(), processRegistry}, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
		mux.HandleFunc("GET /rates", x.serveRates)
		if s.queue != nil {
			text.AddLengths(mux, x.core.Load)
		}
		sampler := live.NewSampler(x.snapshot, s.events)
		pages := http.NewServeMux()
		live.AddPages(pages, sampler, s.opt.View)
		guardedPages, guarded := oip.GuardPage(&s.opt.Door, pages), http.NewServeMux()
		guarded.Handle("/{$}", guardedPages)
		guarded.Handle("/live.json", guardedPages)
		guarded.Handle("/", oip.Guard(&s.opt.Door, mux))
		var ctx context.Context
		ctx, s.stopSampling = context.WithCancel(context.Background())
		s.wg.Go(func() { sampler.Run(ctx) })
		s.metricsServer = s.opt.Door.Server(guarded)
		goServe(func() error { return httplimit.Serve(s.metricsServer, s.metricsListener, "metrics") })
	}
}

// answerGrace is the time to write answers at the end once they are there.
const answerGrace = 2 * time.Second

// shutDown drains and closes everything. Both transports refuse new requests while the executor finishes; its
// refusals are still written to the clients.
func (s *servers) shutDown(x *Executor) (*formats.Report, error) {
	// The executor drains first, and then the connections.
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.DrainTimeout+answerGrace)
	defer cancel()
	drainCtx, stop := context.WithTimeout(ctx, s.opt.DrainTimeout)
	defer stop()
	var errs [2]error
	var wg sync.WaitGroup
	x.draining.Store(true)
	s.queue.StopPlanning()
	if s.programs != nil {
		s.programs.Drain(drainCtx) // programs send further calls, so connections stay open until they are done
	}
	if s.httpServer != nil {
		wg.Go(func() { errs[0] = s.httpServer.Drain(ctx) })
	}
	if s.grpcServer != nil {
		wg.Go(func() { errs[1] = s.grpcServer.Drain(ctx) })
	}
	if err := x.Drain(drainCtx); err != nil {
		s.opt.Log.Warn("not all requests could be finished", "error", err)
	}
	if err := s.queue.DrainForwarded(drainCtx); err != nil {
		s.opt.Log.Warn("not all requests that pass through could be finished", "error", err)
	}
	err := x.Close()
	if s.queue != nil {
		err = errors.Join(err, s.queue.CloseAll())
	}
	// All complete requests are answered now. The remaining clients do not finish sending, or do not read; they get
	// only a short time.
	defer time.AfterFunc(answerGrace, cancel).Stop()
	wg.Wait()
	for i := range errs {
		if errors.Is(errs[i], context.Canceled) || errors.Is(errs[i], context.DeadlineExceeded) {
			s.opt.Log.Warn("connections were cut off whose clients did not finish", "error", errs[i])
			errs[i] = nil
		}
	}
	if s.metricsServer != nil {
		s.stopSampling()
		s.metricsServer.Close()
	}
	s.wg.Wait()
	return x.Report(), errors.Join(err, errs[0], errs[1])
}
