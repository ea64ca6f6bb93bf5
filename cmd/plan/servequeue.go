package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"inferplan/engine/worker"
	"inferplan/executor"
	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
	"inferplan/executor/durable/jetstream"
	"inferplan/executor/text"
	"inferplan/formats/usage"
)

// serverOptions are the flags that name the servers of language models.
type serverOptions struct {
	servers   []string
	adapters  []string
	serverKey string
}

func (o *serverOptions) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.servers, "server", nil, "server of an instance of language models: URL of the next instance, N=URL of instance N of the plan, or N/MODEL=URL where an instance has a server for each model (repeatable); dns+http://NAME:PORT, also behind N-M=, has a server at each address of the name, which come and go (plan serve)")
	f.StringArrayVar(&o.adapters, "adapter", nil, "model of the plan that its server has as a LoRA adapter of another model: MODEL=BASE,PATH with the path of its files as the server sees them, or MODEL=BASE where the server was started with it under this name (repeatable)")
	f.StringVar(&o.serverKey, "server-token-file", "", "file with the bearer token that these servers ask for")
}

// parseList returns the servers of language models that --server names, each with the instance of the plan that it is
// (a number), and the bearer token in the file --server-token-file. A wrong list is a usage error.
func (o *serverOptions) parseList() ([]text.InstanceServer, error) {
	key, err := readToken(o.serverKey)
	if err != nil {
		return nil, err
	}
	list, names, err := parseServers(o.servers, key)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("--server %s: found a name whose addresses are watched, expected URL or N=URL: only plan serve with its queue in a file watches names", names[0])
	}
	if err != nil {
		return nil, usageErrorf("%w", err)
	}
	return list, nil
}

// readAdapters reads MODEL=BASE and MODEL=BASE,PATH.
func (o *serverOptions) readAdapters() ([]text.ModelAdapter, error) {
	var out []text.ModelAdapter
	for _, adapter := range o.adapters {
		model, of, _ := strings.Cut(adapter, "=")
		base, path, more := strings.Cut(of, ",")
		if model == "" || base == "" || more && path == "" {
			return nil, usageErrorf("--adapter: found %q, expected MODEL=BASE,PATH or MODEL=BASE: such as sql=qwen3-8b,/adapters/sql, where the server finds the files of the adapter", adapter)
		}
		out = append(out, text.ModelAdapter{Model: model, Base: base, Path: path})
	}
	if err := text.CheckAdapters(out); err != nil {
		return nil, usageErrorf("--adapter: %w", err)
	}
	return out, nil
}

// queueOptions are the flags about the storage of accepted requests.
type queueOptions struct {
	location string
	replicas int
	key      string
	creds    string
	silence  time.Duration
}

func (o *queueOptions) flags(f *pflag.FlagSet, place string) {
	f.StringVar(&o.location, "queue", place, "where accepted requests of language models are kept: a file, or nats://HOST:PORT[,…] for several machines")
	f.IntVar(&o.replicas, "queue-replicas", 3, "on how many nodes of NATS each request is kept")
	f.StringVar(&o.key, "queue-key", "", "file with the key that encrypts what is kept (openssl rand -hex 32)")
	f.StringVar(&o.creds, "queue-creds", "", "file with the credentials for NATS")
	f.DurationVar(&o.silence, "queue-silence", 10*time.Second, "how long a process may be silent towards NATS before others take its requests, and plan if it did")
}

// isShared reports whether several machines use the queue.
func (o *queueOptions) isShared() bool {
	return strings.HasPrefix(o.location, "nats://") || strings.HasPrefix(o.location, "tls://")
}

// readKey reads the key of the queue, and checks the other flags.
func (o *queueOptions) readKey() (*durable.Sealer, error) {
	if err := firstError(usage.CheckWhole("queue-replicas", o.replicas, 1, 5), usage.CheckPositiveDuration("queue-silence", o.silence)); err != nil {
		return nil, err
	}
	if o.key == "" {
		return nil, nil
	}
	data, err := worker.ReadSecret(o.key)
	if err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("--queue-key: %w", err))
	}
	sealer, err := durable.NewSealer(data)
	if err != nil {
		return nil, usageErrorf("--queue-key %s: %w", o.key, err)
	}
	return sealer, nil
}

// warnKeyless logs to which attacks a queue of several machines without a key is open.
func (o *queueOptions) warnKeyless(log *slog.Logger) {
	if o.key == "" {
		log.Warn("whoever may write to the stream can stop an agent, and reads all requests: give all processes the same --queue-key", "queue", o.location)
	}
}

// isLoopback reports whether an address to listen on can only be reached from this machine.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// openShared opens a queue of several machines. sealer encrypts the requests; nil stores them as they are.
func (o *queueOptions) openShared(ctx context.Context, sealer *durable.Sealer, log *slog.Logger) (durable.Shared, error) {
	opt := jetstream.Options{Replicas: o.replicas, AckWait: o.silence, Sealer: sealer, Log: log}
	if o.creds != "" {
		opt.Connect = append(opt.Connect, nats.UserCredentials(o.creds))
	}
	s, err := jetstream.Open(ctx, o.location, opt)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoServers):
		return nil, withCode(exitEnvironment, fmt.Errorf("--queue: nobody answers; does a NATS server with JetStream run there? %w", err))
	case err != nil:
		return nil, withCode(exitUsage, fmt.Errorf("--queue: %w", err))
	}
	return s, nil
}

// textOptions are the flags of serve for plans of language models.
type textOptions struct {
	serverOptions
	queue   queueOptions
	keyless bool // allow access from elsewhere to a front end whose queue on NATS has no key
	silence time.Duration

	serverFile   string
	watchServers time.Duration
}

func (o *textOptions) flags(f *pflag.FlagSet) {
	o.serverOptions.flags(f)
	o.queue.flags(f, "requests.db")
	f.BoolVar(&o.keyless, "queue-keyless", false, "listen beyond loopback with a queue on NATS that has no --queue-key: whoever may write to the stream can stop an agent")
	f.DurationVar(&o.silence, "server-silence", 5*time.Second, "how long a server may be silent before its requests go elsewhere; within an answer at least ten times what the plan expects")
	f.StringVar(&o.serverFile, "servers", "", "file with servers that come and go, one a line: URL for any instance of the plan without a server, N=URL or N-M=URL for one of these instances, or N/MODEL=URL; a change takes effect without a restart")
	f.DurationVar(&o.watchServers, "watch-servers", 2*time.Second, "how often to read the file of --servers and look up names of --server dns+http://NAME:PORT")
}

// setServeOptions sets the options of serve that concern language models. It sets how the queue of requests is
// opened, but does not open it.
func (o *textOptions) setServeOptions(options *executor.ServeOptions) error {
	// Read the servers, the adapters and the queue's key.
	var err error
	if options.Servers, options.Discovery, err = o.readServers(options.Log); err != nil {
		return err
	}
	if options.Adapters, err = o.readAdapters(); err != nil {
		return err
	}
	sealer, err := o.queue.readKey()
	if err != nil {
		return err
	}
	if err := firstError(usage.CheckPositiveDuration("server-silence", o.silence), usage.CheckPositiveDuration("watch-servers", o.watchServers)); err != nil {
		return err
	}
	options.SilenceTimeout = o.silence

	// A shared queue leaves the servers to agents, and needs a key where others can reach it.
	if o.queue.isShared() {
		switch text := "with --queue %s: its servers are attached by 'plan agent', each beside its own: give the flag there"; {
		case o.serverFile != "":
			return usageErrorf("--servers "+text, o.queue.location)
		case len(options.Servers) > 0 || options.Discovery != nil:
			return usageErrorf("--server "+text, o.queue.location)
		case len(options.Adapters) > 0:
			return usageErrorf("--adapter "+text, o.queue.location)
		}
		for _, listen := range [][2]string{{"http", options.HTTP}, {"metrics", options.Metrics}} {
			if o.queue.key == "" && !o.keyless && !isLoopback(listen[1]) {
				return usageErrorf("--%s %s: found no --queue-key, without which whoever may write to the stream can stop an agent, expected an address of loopback; give --queue-key FILE, or --queue-keyless if the network is closed", listen[0], listen[1])
			}
		}
		o.queue.warnKeyless(options.Log)
		options.Queue.OpenShared = func(ctx context.Context) (durable.Shared, error) { return o.queue.openShared(ctx, sealer, options.Log) }
		return nil
	}

	// Any other queue is a file of this process.
	options.Queue.Open = func() (durable.Store, error) {
		s, err := bolt.Open(o.queue.location, bolt.Options{Sealer: sealer, Log: options.Log})
		if errors.Is(err, bolt.ErrDamaged) {
			return nil, withCode(exitEnvironment, fmt.Errorf("--queue: %w; read out what is left with plan rescue %[2]s -o left.db, or move it away and begin with none", err, o.queue.location))
		}
		if err != nil {
			return nil, usage.MarkWriting(fmt.Errorf("--queue: %w", err))
		}
		return s, nil
	}
	return nil
}

// parseServers reads --server URL, N=URL and N/MODEL=URL. N is the number of the instance in the plan, and MODEL the
// model that a server of this instance runs alone. Servers without a number are numbered in order. key is the bearer
// token for all. Names whose addresses are watched are returned as sources.
func parseServers(list []string, key string) (out []text.InstanceServer, names []text.ServerSource, err error) {
	nextIndex := 0
	for _, server := range list {
		o, isName, err := text.ParseServerOffer(server)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("--server %w", err)
		case isName:
			name, err := text.NewServerName(o, key)
			if err != nil {
				return nil, nil, fmt.Errorf("--server %w", err)
			}
			names = append(names, name)
			continue
		case o.TakesAny():
			o.FirstInstance = nextIndex
			nextIndex++
		case o.FirstInstance != o.LastInstance:
			return nil, nil, fmt.Errorf("--server %s: found several instances, expected one, or dns+http://NAME:PORT", server)
		}
		o.Server.Instance, o.Server.Key = o.FirstInstance, key
		out = append(out, o.Server)
	}
	return out, names, nil
}

// readServers returns the servers that --server names, and a discovery of those that come and go, by names and by
// --servers. If there are none of these, it returns no discovery.
func (o *textOptions) readServers(log *slog.Logger) ([]text.InstanceServer, *text.Discovery, error) {
	key, err := readToken(o.serverKey)
	if err != nil {
		return nil, nil, err
	}
	list, sources, err := parseServers(o.serverOptions.servers, key)
	if err != nil {
		return nil, nil, usageErrorf("%w", err)
	}
	if o.serverFile != "" {
		file, err := text.NewServerFile(o.serverFile, key)
		if err != nil {
			return nil, nil, usageErrorf("--servers: %w", err)
		}
		sources = append(sources, file)
	}
	if len(sources) == 0 {
		return list, nil, nil
	}
	return list, &text.Discovery{Sources: sources, Interval: o.watchServers, Log: log}, nil
}
