package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"inferplan/engine/worker"
	"inferplan/executor"
	"inferplan/executor/httplimit"
	"inferplan/executor/live"
	"inferplan/executor/oip"
	"inferplan/executor/turn"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/pages"
	"inferplan/planner/kind"
	"inferplan/policy/policies"
)

type serveOptions struct {
	http, grpc, metrics string
	models, engine      string
	policy              string
	record, eventLog    string
	out                 string
	maxBody             string
	maxBodyGiven        bool // set by flag, environment or file; requests for text have another default
	memoryLimit         string
	hosts               []string
	maxQueue            int
	shareCPUs           bool
	tlsCert, tlsKey     string
	token, keys         string
	places, remote      []string
	join, joinToken     string
	joinCert            string
	modelCache          string
	joinSilence         time.Duration
	drain, drainDelay   time.Duration
	watchPlan           time.Duration
	logFormat           string
	accessLog           bool
	trace               traceOptions
	text                textOptions
	executionOptions
}

// newServeCommand makes the verb serve, which executes a plan.
func newServeCommand(g *globalFlags) *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve [plan.json]",
		Short: "Execute a plan: one worker per device, standard protocols",
		Long: `Execute a plan: one worker process per device, the plan's policy in front of them, the Open
Inference Protocol over HTTP and gRPC, Prometheus metrics, and a page for a browser beside them.

A plan of language models is executed by servers as they are, one for each of its instances
(--server): OpenAI's protocol over HTTP, and accepted requests are kept on disk until they are answered.
It listens on loopback unless told otherwise. SIGTERM drains and exits 0; SIGHUP reads the plan
again and switches, and so does a change of the file with --watch-plan. --engine replay serves a plan without its models: runs last as planned.`,
		Example: `  plan serve plan.json
  plan serve plan.json --http 0.0.0.0:8000 --token-file token.txt --models-dir /srv/models
  plan serve plan.json --engine replay --record service.json
  plan serve plan.json --server http://gpu1:8000 --server http://gpu2:8000 --queue requests.db
  plan serve plan.json --join-listen 0.0.0.0:8003 --join-token-file token.txt --join-cert join.pem --remote L4=2`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.maxBodyGiven = cmd.Flags().Changed("max-body")
			return runServe(cmd.Context(), newPrinter(cmd, g), o, planArgument(args))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.http, "http", executor.DefaultHTTP, "address of HTTP, or off; without a host it is 127.0.0.1")
	f.StringVar(&o.grpc, "grpc", executor.DefaultGRPC, "address of gRPC, or off; without a host it is 127.0.0.1")
	f.StringVar(&o.metrics, "metrics", executor.DefaultMetrics, "address of the metrics and of a page that shows the server, or off; without a host it is 127.0.0.1")
	f.StringVar(&o.models, "models-dir", "models", "folder with the models, NAME.onnx")
	f.StringVar(&o.engine, "engine", "onnx", "onnx or replay")
	policyFlag(cmd, f, &o.policy)
	f.StringVar(&o.record, "record", "", "write the actual service times at the end, for 'plan simulate --service'")
	f.StringVar(&o.eventLog, "event-log", "", "write every event and action of the policy")
	f.StringVarP(&o.out, "output", "o", "", "report to write at the end")
	f.StringVar(&o.maxBody, "max-body", "64MiB", "largest request body (of requests for text the default is 8MiB)")
	f.StringVar(&o.memoryLimit, "memory-limit", "", "memory that the front end should keep to, such as 4GiB; requests get half of it, outputs between the modules of applications a quarter (default: no limit, and 1GiB for each)")
	f.StringArrayVar(&o.hosts, "host", nil, "name under which clients reach the server without a token, beside localhost and addresses; * for any (repeatable)")
	f.StringVar(&o.modelCache, "model-cache", document.Bytes(worker.DefaultCache).String(), modelCacheHelp)
	f.IntVar(&o.maxQueue, "max-queue", 0, "most samples inside the server (default 65536)")
	f.BoolVar(&o.shareCPUs, "share-cpus", false, "let workers share CPUs where the plan has more CPU devices than this machine")
	f.StringVar(&o.tlsCert, "tls-cert", "", "TLS certificate (PEM)")
	f.StringVar(&o.tlsKey, "tls-key", "", "TLS key (PEM)")
	f.StringVar(&o.token, "token-file", "", "file with a bearer token that clients must send")
	f.StringVar(&o.keys, "keys", "", "file with the keys of clients, one a line: TOKEN [name=NAME] [class=CLASS] [rps=N] [burst=N] [open=N]; beside --token-file, or instead")
	f.StringArrayVar(&o.places, "place", nil, "KIND=CPUS[/CPUS_PER_DEVICE]: CPUs of the devices of a kind, such as cpu-a=0-3 (repeatable)")
	f.StringArrayVar(&o.remote, "remote", nil, "KIND=N: the plan's last N devices of a kind are on other hosts (repeatable); all: all devices of any plan are")
	f.StringVar(&o.join, "join-listen", executor.AddressOff, "address at which workers of other hosts join, such as 0.0.0.0:8003")
	f.StringVar(&o.joinToken, "join-token-file", "", "file with the token that joining workers must know, made if it is missing")
	f.StringVar(&o.joinCert, "join-cert", "", "file with a certificate and key for --join-listen only, made if it is missing; workers trust it by the printed pin")
	f.DurationVar(&o.joinSilence, "join-silence", worker.DefaultSilence, "how long another host may be silent before it counts as lost")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json: a line for each thing that happens, on stderr")
	f.BoolVar(&o.accessLog, "access-log", false, "log a line for every request: client, path or method, status, bytes, time")
	o.trace.flags(f)
	f.DurationVar(&o.drainDelay, "drain-delay", 0, "at the end, how long to accept requests while readiness is false, so that load balancers send new ones elsewhere (behind Kubernetes 10s)")
	f.DurationVar(&o.watchPlan, "watch-plan", 0, "how often to check the plan's file and switch to it if it has changed; 0: only at SIGHUP")
	f.DurationVar(&o.drain, "drain", 30*time.Second, "at the end, how long accepted requests may take")
	o.text.flags(f)
	o.executionOptions.flags(f, "as the plan's numbers were measured")
	annotateKinds(cmd)
	completeExecution(cmd)
	completeFlag(cmd, "engine", "onnx", "replay")
	completeFlag(cmd, "log-format", "text", "json")
	return cmd
}

// memoryLimits parses --max-body and --memory-limit. It returns the largest body, the memory for requests, and the
// memory for tensors that wait between modules. It also sets the limit of Go's collector, from the memory for
// requests.
func (o *serveOptions) memoryLimits() (body, requests, store document.Bytes, err error) {
	if body, err = document.ParseBytes(o.maxBody); err != nil {
		return 0, 0, 0, usageErrorf("--max-body: %w", err)
	}
	requests, store = httplimit.DefaultMemory, httplimit.DefaultMemory
	if o.memoryLimit != "" {
		memory, err := document.ParseMemory(o.memoryLimit)
		if err != nil {
			return 0, 0, 0, usageErrorf("--memory-limit: %w", err)
		}
		if memory < minMemory {
			return 0, 0, 0, usageErrorf("--memory-limit: found %s, expected %s or more", memory, document.Bytes(minMemory))
		}
		if int64(body) > int64(memory)/4 {
			return 0, 0, 0, usageErrorf("--max-body: found %s, expected at most a quarter of --memory-limit, %s", body, memory/4)
		}
		requests, store = memory/2, memory/4
	}
	// Without a limit the heap may grow to twice the used memory before Go's collector runs. A limit that the user
	// has set is kept.
	collectAt(int64(requests))
	return body, requests, store, nil
}

// collectAt sets the limit of Go's collector so that it runs before requests, and their remains, take more than so
// many bytes.
func collectAt(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes + baseMemory)
	}
}

// runServe executes plan serve for the plan at path: it checks the flags, serves until a signal, and writes and
// prints the report of the served requests.
func runServe(ctx context.Context, p *printer, o *serveOptions, path string) (endErr error) {
	body, requests, store, err := o.memoryLimits()
	if err != nil {
		return err
	}
	if err := o.checkFlags(int64(body)); err != nil {
		return err
	}
	if err := errors.Join(p.checkOutput("output", o.out, formats.KindReport), p.checkOutput("record", o.record, "record"), p.checkOutput("event-log", o.eventLog, "log")); err != nil {
		return err
	}

	// Check all flags before anything is started.
	places, err := parsePlaces(o.places)
	if err != nil {
		return usageErrorf("%w", err)
	}
	remote, allRemote, err := parseRemote(o.remote)
	if err != nil {
		return usageErrorf("%w", err)
	}
	execute, err := o.forServe(p.PrintNote)
	if err != nil {
		return err
	}
	cache, err := modelCacheBytes(o.modelCache)
	if err != nil {
		return err
	}
	plan, err := p.readPlan(path)
	if err != nil {
		return err
	}
	if err := o.checkPolicy(p, plan); err != nil {
		return err
	}
	keys, err := o.clientKeys(plan)
	if err != nil {
		return err
	}
	joinToken, err := o.readJoinToken(p)
	if err != nil {
		return err
	}
	log := p.logAs(o.logFormat)
	tracer, closeTracer, err := o.trace.open(ctx, p, log)
	if err != nil {
		return err
	}
	defer closeTracer()

	// Collect the options of the server.
	options := executor.ServeOptions{
		Options: executor.Options{
			CoreOptions:   turn.Options{Engine: o.engine, ModelsDir: o.models, Policy: o.policy, MaxQueue: o.maxQueue, Log: log, Tracer: tracer},
			WorkerOptions: executor.WorkerOptions{ShareCPUs: o.shareCPUs, CPUPlaces: places, Remote: remote, AllRemote: allRemote, OverrideExecution: execute, CacheBytes: cache},
			TaskOptions:   executor.TaskOptions{StoreBytes: int64(store), OnStart: func(n int64) { collectAt(int64(requests) + n) }},
		},
		Join: o.join, JoinToken: joinToken, JoinSilence: o.joinSilence, JoinCert: o.joinCert,
		OnJoinable: func(a executor.Addresses) { p.PrintNote("%s", o.howToJoin(a)) },
		Plan:       path, HTTP: o.http, GRPC: o.grpc, Metrics: o.metrics, TLSCert: o.tlsCert, TLSKey: o.tlsKey,
		Door:         httplimit.Door{Keys: keys, Hosts: o.hosts, Budget: httplimit.NewBudget(int64(requests), log)},
		OIP:          oip.Options{Version: kind.Version, MaxBodyBytes: int64(body)},
		View:         &live.View{Render: pages.LiveHTML, SecurityPolicy: pages.LiveSecurityPolicy},
		DrainTimeout: o.drain, DrainDelay: o.drainDelay, WatchInterval: o.watchPlan, Record: o.record,
		OnReady: func(a executor.Addresses) {
			p.PrintNote("serving %s: HTTP %s, gRPC %s, metrics %s; SIGTERM drains", path, cmp.Or(a.HTTP, executor.AddressOff), cmp.Or(a.GRPC, executor.AddressOff), cmp.Or(a.Metrics, executor.AddressOff))
		},
	}
	if o.accessLog {
		options.Door.Access = log
	}
	if o.maxBodyGiven {
		options.Queue.Front.MaxBodyBytes = int64(body)
	}
	if err := o.text.setServeOptions(&options); err != nil {
		return err
	}
	if o.eventLog != "" {
		eventLog, err := o.openEventLog()
		if err != nil {
			return err
		}
		defer func() { endErr = errors.Join(endErr, eventLog.Close()) }()
		options.EventLog = eventLog
	}

	// Serve until the end, and report.
	endsWellOnInterrupt(ctx)
	rep, err := executor.Serve(ctx, options)
	if errors.Is(err, turn.ErrPlan) || errors.Is(err, worker.ErrHash) {
		err = withCode(exitUsage, err)
	}
	// The report is valid even if the record or the log failed.
	if rep == nil {
		return err
	}
	return errors.Join(err, o.writeReport(p, rep))
}

// checkPolicy returns an error if --policy names no policy of the plan.
func (o *serveOptions) checkPolicy(p *printer, plan *formats.Plan) error {
	if o.policy == "" {
		return nil
	}
	tables, err := policies.Compile(plan)
	if err != nil {
		return withCode(exitUsage, err)
	}
	return p.checkPolicy(o.policy, tables)
}

// openEventLog opens the file of the event log, or standard output for "-".
func (o *serveOptions) openEventLog() (*os.File, error) {
	if o.eventLog == toStdout {
		return os.Stdout, nil
	}
	f, err := os.Create(o.eventLog)
	if err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("event log: %w", err))
	}
	return f, nil
}

// writeReport writes the report of the served requests into the file that --output names, if any, and prints it.
func (o *serveOptions) writeReport(p *printer, rep *formats.Report) error {
	var saveErr error
	if o.out != "" {
		saveErr = p.SaveDocument(o.out, rep)
	}
	if p.json {
		return errors.Join(saveErr, p.PrintJSON(rep))
	}
	if rep.Requests == 0 {
		p.PrintNote("no requests came")
	}
	return errors.Join(saveErr, printReport(p, rep))
}

// clientKeys returns the keys that clients of a plan may send, or nil if no key is required. They come from
// --token-file and --keys. A class of a key must be one of the plan.
func (o *serveOptions) clientKeys(plan *formats.Plan) (*httplimit.Keyring, error) {
	token, err := readToken(o.token)
	if err != nil {
		return nil, err
	}
	var keys []httplimit.Key
	if token != "" {
		if worker.CheckToken([]byte(token)) != nil {
			return nil, usageErrorf("--token-file %s: found a token of %d characters, expected 16 or more that nobody guesses, such as openssl rand -hex 32 makes", o.token, len(token))
		}
		keys = append(keys, httplimit.Key{Token: token, Name: "token"})
	}
	if o.keys != "" {
		data, err := worker.ReadSecret(o.keys)
		if err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("--keys: %w", err))
		}
		fileKeys, err := httplimit.ParseKeys(data)
		if err != nil {
			return nil, usageErrorf("%s: %w", o.keys, err)
		}
		keys = append(keys, fileKeys...)
	}
	ring, err := httplimit.NewKeyring(keys...)
	if err != nil {
		return nil, usageErrorf("--token-file, --keys: %w", err)
	}
	for _, c := range ring.Classes() {
		if !slices.ContainsFunc(plan.ServedModels(), func(m formats.Served) bool { return m.Class == c }) {
			return nil, usageErrorf("--keys: found class=%s, which no model of the plan has", c)
		}
	}
	return ring, nil
}

// readJoinToken returns the token that workers of other hosts must know; if none may join, it returns nil. A certificate for workers
// that may not join is an error.
func (o *serveOptions) readJoinToken(p *printer) ([]byte, error) {
	if o.join == executor.AddressOff && o.joinCert != "" {
		return nil, usageErrorf("--join-cert %s: expected --join-listen, too: it is for the workers of other hosts", o.joinCert)
	}
	if o.join == executor.AddressOff {
		return nil, nil
	}
	if o.joinToken == "" {
		return nil, usageErrorf("--join-listen needs --join-token-file FILE: workers of other hosts run models and see requests")
	}
	token, created, err := worker.Token(o.joinToken)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	if created {
		p.PrintNote("made %s: the other hosts need a copy", o.joinToken)
	}
	return token, nil
}

// howToJoin returns the command line for another host.
func (o *serveOptions) howToJoin(a executor.Addresses) string {
	secure := ""
	switch {
	case a.JoinPin != "":
		secure = " --tls-pin " + a.JoinPin
	case o.tlsCert != "":
		secure = " --tls-ca FILE"
	}
	return fmt.Sprintf("other hosts join with: plan worker --join %s --token-file FILE --device KIND%s", a.Join, secure)
}

// logger returns a logger for the events of the server. With --quiet it logs only warnings and errors.
func (p *printer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(p.err, &slog.HandlerOptions{Level: p.level()}))
}

func (p *printer) level() slog.Level {
	if p.quiet {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// logAs makes a logger in a format, to which all later notes go, too.
func (p *printer) logAs(format string) *slog.Logger {
	log := p.logger()
	if format == "json" {
		log = slog.New(slog.NewJSONHandler(p.err, &slog.HandlerOptions{Level: p.level()}))
		p.log = log
	}
	return log
}

// baseMemory is the memory of the front end besides that for requests, as Go's collector counts it: its own state,
// and bodies that are not used any more.
const baseMemory = 80 << 20

// minMemory is the smallest memory with which the front end works.
const minMemory = 256 << 20

// checkFlags checks flags before any file is read. body is the largest request body in bytes.
func (o *serveOptions) checkFlags(body int64) error {
	if body < 1 || body > math.MaxInt32 {
		return usageErrorf("--max-body: found %s, expected 1 byte to 2GiB, less one", document.Bytes(body))
	}
	for _, a := range []struct{ flag, address string }{{"http", o.http}, {"grpc", o.grpc}, {"metrics", o.metrics}, {"join-listen", o.join}} {
		if err := checkAddress(a.flag, a.address); err != nil {
			return err
		}
	}
	if (o.tlsCert == "") != (o.tlsKey == "") {
		return usageErrorf("--tls-cert and --tls-key go together: found %s alone", map[bool]string{true: "--tls-key", false: "--tls-cert"}[o.tlsCert == ""])
	}
	if o.tlsCert != "" {
		if _, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey); err != nil {
			return usageErrorf("--tls-cert %s, --tls-key %s: %w", o.tlsCert, o.tlsKey, err)
		}
		if _, err := worker.ReadSecret(o.tlsKey); err != nil {
			return usageErrorf("--tls-key: %w", err)
		}
	}
	return firstError(o.trace.check(), usage.CheckWord("engine", o.engine, "onnx", "replay"), usage.CheckWord("log-format", o.logFormat, "text", "json"), checkDuration("drain-delay", o.drainDelay), checkDuration("watch-plan", o.watchPlan), usage.CheckWhole("max-queue", o.maxQueue, 0, 1<<30), usage.CheckPositiveDuration("drain", o.drain), usage.CheckPositiveDuration("join-silence", o.joinSilence))
}

// checkAddress refuses texts other than HOST:PORT before anything is started.
func checkAddress(flag, address string) error {
	if address == executor.AddressOff {
		return nil
	}
	if !isHostPort(address) {
		return usageErrorf("--%s: found %q, expected HOST:PORT, :PORT or %s", flag, address, executor.AddressOff)
	}
	return nil
}

// isHostPort reports whether a text is an address HOST:PORT with a port that exists.
func isHostPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err == nil
}
