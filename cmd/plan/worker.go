package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/profiler/modelinputs"
)

type workerOptions struct {
	join, token  string
	device, cpus string
	count        int
	models, host string
	ops          []string
	tlsCA        string
	tlsPin       string
	modelCache   string
	useTLS       bool
	silence      time.Duration
	health       string
}

// newWorkerCommand makes the verb of the process that serve and profile start, and that a person starts on another
// host to join a server.
func newWorkerCommand(g *globalFlags) *cobra.Command {
	o := &workerOptions{}
	cmd := &cobra.Command{
		Use:   "worker --join HOST:PORT --token-file FILE --device KIND",
		Short: "Offer this host's devices to a server elsewhere",
		Long: `Offer this host's devices to 'plan serve --join-listen' on another host: the stages that its plan
places on them run here. It joins again whenever the connection breaks, and ends with SIGTERM.
The models lie here as well, in --models-dir; their hashes must be those of the plan.

(Without --join it is the worker process that serve and profile start themselves.)`,
		Example: `  plan worker --join 10.0.0.1:8003 --token-file token.txt --device L4 --count 2
  plan worker --join 10.0.0.1:8003 --token-file token.txt --device L4 --tls-pin sha256:3fa4…
  plan worker --join 10.0.0.1:8003 --token-file token.txt --device cpu-2 --count 2 --cpus 0-3 --models-dir /srv/models`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.join == "" {
				return serveParent(cmd, nil)
			}
			return runWorker(cmd, newPrinter(cmd, g), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.join, "join", "", "address of the server, HOST:PORT")
	f.StringVar(&o.token, "token-file", "", "file with the token that the server knows, too")
	f.StringVar(&o.device, "device", "", "kind of the devices, as the plan names it")
	f.IntVar(&o.count, "count", 1, "devices of that kind")
	f.StringVar(&o.cpus, "cpus", "", "CPUs of the devices where they are CPU sets, such as 0-3,8; divided among them (default: as many threads as the kind says, on any CPU)")
	f.StringVar(&o.models, "models-dir", "models", "folder with the models, NAME.onnx")
	modelinputs.DefineOperators(f, &o.ops, "library of custom operators that models of the server need (repeatable): its hash must be that of the plan")
	f.StringVar(&o.host, "host", "", "name of this host (default its own)")
	f.StringVar(&o.modelCache, "model-cache", document.Bytes(worker.DefaultCache).String(), modelCacheHelp)
	f.BoolVar(&o.useTLS, "tls", false, "connect with TLS, and trust what this host trusts")
	f.StringVar(&o.tlsCA, "tls-ca", "", "connect with TLS, and trust the certificates of this file (PEM)")
	f.StringVar(&o.tlsPin, "tls-pin", "", "connect with TLS, and trust the certificate with this pin, sha256:HEX, as 'plan serve --join-cert' prints it")
	f.StringVar(&o.health, "health", "off", "address of the health check, such as 127.0.0.1:8004, or off: /live answers, /ready says whether the server has all devices")
	f.DurationVar(&o.silence, "silence", worker.DefaultSilence, "how long the server may be silent before it counts as gone")
	return cmd
}

// shareCommand is the verb that profile starts for each share of a GPU.
const shareCommand = "share"

func newShareCommand() *cobra.Command {
	return &cobra.Command{Use: shareCommand, Short: "The process of one share of a GPU, started by profile", Hidden: true, Args: cobra.NoArgs, RunE: serveParent}
}

// serveParent serves the process that started this one. If a person started it, it says so and exits.
func serveParent(cmd *cobra.Command, _ []string) error {
	endsWellOnInterrupt(cmd.Context())
	return worker.Main(cmd.Context())
}

const modelCacheHelp = "most memory of this host for models that its devices swap; other models are read from their files at each load"

// modelCacheBytes reads --model-cache.
func modelCacheBytes(text string) (int64, error) {
	size, err := document.ParseMemory(text)
	if err != nil {
		return 0, usageErrorf("--model-cache: %w", err)
	}
	if size < 1 {
		return 0, usageErrorf("--model-cache: found %s, expected 1 byte or more", text)
	}
	return int64(size), nil
}

// maxJoined bounds the devices of one host, each of which joins separately.
const maxJoined = 1024

// runWorker executes plan worker --join: it offers this host's devices to a server on another host until a signal
// ends it.
func runWorker(cmd *cobra.Command, p *printer, o *workerOptions) error {
	cache, err := modelCacheBytes(o.modelCache)
	if err != nil {
		return err
	}
	token, err := readToken(o.token)
	if err != nil {
		return err
	}
	if token == "" {
		return usageErrorf("--token-file: expected the file with the token that 'plan serve --join-token-file' reads")
	}
	if err := worker.CheckToken([]byte(token)); err != nil {
		return usageErrorf("%s: %w", o.token, err)
	}
	if o.device == "" {
		return usageErrorf("--device: expected the kind of this host's devices, as the plan names it")
	}
	if err := firstError(usage.CheckWhole("count", o.count, 1, maxJoined), usage.CheckPositiveDuration("silence", o.silence)); err != nil {
		return err
	}
	if !isHostPort(o.join) {
		return usageErrorf("--join: found %q, expected HOST:PORT", o.join)
	}
	cpus, err := parseCPUs(o.cpus)
	if err != nil {
		return usageErrorf("--cpus: %w", err)
	}
	if len(cpus)%o.count != 0 {
		return usageErrorf("--cpus %s: %d CPUs cannot be divided evenly among %d devices", o.cpus, len(cpus), o.count)
	}
	if o.host == "" {
		if o.host, err = os.Hostname(); err != nil {
			return usageErrorf("--host: this host has no name: %w", err)
		}
	}
	secure, err := o.tlsConfig()
	if err != nil {
		return err
	}
	operators, err := modelinputs.ReadOperators(o.ops)
	if err != nil {
		return err
	}
	threads, _ := formats.CPUThreads(o.device)

	// Answer health checks, and offer the devices until the end.
	state := &worker.JoinState{}
	stopHealth, err := o.serveHealth(state, p.logger())
	if err != nil {
		return err
	}
	defer stopHealth()
	endsWellOnInterrupt(cmd.Context())
	err = worker.Join(cmd.Context(), worker.JoinConfig{
		Address: o.join, Token: []byte(token), TLS: secure, Host: o.host, Kind: o.device, Count: o.count, Models: o.models, CPUs: cpus, Threads: threads, Operators: operators,
		CacheBytes: cache, Silence: o.silence, Log: p.logger(), State: state,
	})
	if errors.Is(err, worker.ErrToken) || errors.Is(err, worker.ErrCertificate) {
		return withCode(exitUsage, err)
	}
	return err
}

// tlsConfig returns the configuration of TLS for the connection to the server, or nil without TLS. The server's
// certificate is trusted by its pin, by the authorities in a file, or by those that this host trusts.
func (o *workerOptions) tlsConfig() (*tls.Config, error) {
	if o.tlsPin != "" {
		if o.tlsCA != "" || o.useTLS {
			return nil, usageErrorf("--tls-pin: expected no --tls-ca and no --tls beside it: the pin says which certificate is trusted")
		}
		c, err := worker.PinnedTLS(o.tlsPin)
		if err != nil {
			return nil, usageErrorf("--tls-pin: %w", err)
		}
		return c, nil
	}
	if !o.useTLS && o.tlsCA == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.tlsCA != "" {
		pem, err := os.ReadFile(o.tlsCA)
		if err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("--tls-ca: %w", err))
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageErrorf("--tls-ca %s: found no certificate, expected PEM", o.tlsCA)
		}
	}
	return c, nil
}
