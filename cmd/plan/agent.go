package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"inferplan/executor/text"
	"inferplan/executor/turn"
	"inferplan/formats/usage"
)

type agentOptions struct {
	serverOptions
	queue   queueOptions
	store   time.Duration
	metrics string
	trace   traceOptions
}

// newAgentCommand makes the verb for the process beside a server of language models when several machines share a
// queue.
func newAgentCommand(g *globalFlags) *cobra.Command {
	o := &agentOptions{}
	cmd := &cobra.Command{
		Use:   "agent --queue nats://HOST:PORT[,…] --server URL",
		Short: "Attach servers of language models to a queue that several machines share",
		Long: `Attach servers of language models to a queue that several machines share: 'plan serve' with the same
--queue takes requests in and plans, and the agent has the servers answer them. It stores their text as
it comes, and their ends. It needs no plan: --server says of which instance of the plan a server is,
and --adapter which models are LoRA adapters of another one. Each of its servers that has the base of
an adapter is expected to have the adapter, too, or to load it. The agent ends with SIGTERM, and gives
back what it has not finished.`,
		Example: `  plan agent --queue nats://a:4222,nats://b:4222,nats://c:4222 --server 0=http://127.0.0.1:8000
  plan agent --queue nats://a:4222 --queue-replicas 1 --server 1/chat=http://127.0.0.1:8001 --server 1/code=http://127.0.0.1:8002
  plan agent --queue nats://a:4222 --server 0=http://127.0.0.1:8000 --adapter sql=qwen3-8b,/adapters/sql`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAgent(cmd, newPrinter(cmd, g), o) },
	}
	f := cmd.Flags()
	o.serverOptions.flags(f)
	o.queue.flags(f, "")
	f.StringVar(&o.metrics, "metrics", "off", "address of Prometheus metrics, such as 127.0.0.1:8012, or off")
	o.trace.flags(f)
	f.DurationVar(&o.store, "store-text", 250*time.Millisecond, "how often to store text; clients see text once it is stored")
	return cmd
}

// runAgent executes plan agent: it attaches the servers of language models that the flags name to the shared queue,
// and returns when a signal or an error ends it.
func runAgent(cmd *cobra.Command, p *printer, o *agentOptions) error {
	// Read the flags.
	servers, err := o.parseList()
	if err != nil {
		return err
	}
	if len(servers) == 0 {
		return usageErrorf("--server: expected the server that this agent is for, N=URL")
	}
	adapters, err := o.readAdapters()
	if err != nil {
		return err
	}
	if !o.queue.isShared() {
		return usageErrorf("--queue: found %q, expected nats://HOST:PORT: a file is for one process", o.queue.location)
	}
	sealer, err := o.queue.readKey()
	if err != nil {
		return err
	}
	if err := firstError(usage.CheckPositiveDuration("store-text", o.store), o.trace.check()); err != nil {
		return err
	}

	// Join the queue and serve until a signal.
	log := p.logger()
	tracer, closeTracer, err := o.trace.open(cmd.Context(), p, log)
	if err != nil {
		return err
	}
	defer closeTracer()
	o.queue.warnKeyless(log)
	store, err := o.queue.openShared(cmd.Context(), sealer, log)
	if err != nil {
		return err
	}
	endsWellOnInterrupt(cmd.Context())
	err = text.ServeAgent(cmd.Context(), text.AgentOptions{Store: store, Servers: servers, Adapters: adapters, TextStoreInterval: o.store, Metrics: o.metrics, Log: log, Tracer: tracer,
		OnReady: func() { p.PrintNote("serving %d servers for %s; SIGTERM ends", len(servers), o.queue.location) }})
	if errors.Is(err, turn.ErrPlan) {
		err = withCode(exitUsage, err)
	}
	if e := store.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("--queue: %w", e))
	}
	return err
}
