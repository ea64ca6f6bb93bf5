package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"inferplan/executor/load"
	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/formats/document"
	"inferplan/formats/outcomes"
	"inferplan/formats/usage"
	"inferplan/policy"
	"inferplan/policy/policies"
)

type loadOptions struct {
	arrivalOptions
	plan             string
	protocol         string
	duration, warmup time.Duration
	grace            time.Duration
	inflight         int
	token            string
	noTimeout        bool
	out, outcomes    string
	outcomesFormat   string
	inputs           string
	noise            bool
}

// newLoadCommand makes the verb load, which sends requests to a server at scheduled times and reports latencies.
func newLoadCommand(g *globalFlags) *cobra.Command {
	o := &loadOptions{}
	cmd := &cobra.Command{
		Use:   "load URL",
		Short: "Drive a server: open loop, with deadlines",
		Long: `Drive a server of the Open Inference Protocol: open loop, with deadlines.

Requests are sent at their scheduled time whatever became of the earlier ones, and latency
counts from that time: a server that stalls is charged for all that fell due meanwhile. Models,
SLOs and rates come from the plan; load 1.0 is the planned rate. A model with several SLO
classes is asked for each of them: as planned, by --mix, or as the column class of a trace says.

A plan of language models is driven over OpenAI's protocol, with the lengths and sessions of the
trace or those of the plan: time to first token and per token beside the whole.

Requests carry random numbers, or the samples of --inputs in turn: the CSV file that records
are made of, or a folder of requests (*.json, each what a client sends to infer). Who answers
a request of a cascade depends on its input, so a cascade needs --inputs, or --noise.`,
		Example: `  plan load http://127.0.0.1:8000 --load 0.8 --duration 20s
  plan load grpc://127.0.0.1:8001 --poisson 50 --model resnet50
  plan load http://127.0.0.1:8000 --poisson 100 --mix interactive=0.8,batch=0.2
  plan load http://127.0.0.1:8000 --trace requests.csv -o measured.json
  plan load http://127.0.0.1:8000 --inputs digits.csv.gz --load 0.9
  plan load http://127.0.0.1:8000 --outcomes results.json --outcomes-format vegeta`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runLoad(cmd.Context(), newPrinter(cmd, g), o, args[0])
		},
	}
	f := cmd.Flags()
	o.arrivalOptions.flags(f)
	f.StringVar(&o.plan, "plan", "plan.json", "plan that says models, SLOs and rates")
	f.StringVar(&o.protocol, "protocol", "", "http-binary, http-json, grpc or completions (default by the URL and the plan)")
	f.DurationVar(&o.duration, "duration", 30*time.Second, "how long to send")
	f.DurationVar(&o.warmup, "warmup", 0, "time at the start that is not counted")
	f.DurationVar(&o.grace, "grace", 10*time.Second, "how long to wait for the last answers")
	f.IntVar(&o.inflight, "max-in-flight", 2048, "most open requests; one more is counted as client_overload, never delayed")
	f.StringVar(&o.token, "token-file", "", "file with the bearer token to send")
	f.BoolVar(&o.noTimeout, "no-timeout", false, "do not tell the server the remaining budget")
	f.StringVar(&o.inputs, "inputs", "", "samples to send in turn: a CSV file label,value,..., a file of texts *.txt, one a line, or a folder of requests")
	f.BoolVar(&o.noise, "noise", false, "send random numbers to a cascade, too")
	f.StringVar(&o.outcomes, "outcomes", "", "file to write with what became of every request: when it fell due, its latency, or why it was dropped")
	f.StringVar(&o.outcomesFormat, "outcomes-format", "csv", "csv, or vegeta: JSON lines that vegeta report and vegeta plot read")
	completeFlag(cmd, "outcomes-format", outcomes.Formats...)
	f.StringVarP(&o.out, "output", "o", "", "report to write; - is stdout, instead of the tables")
	completeFlag(cmd, "protocol", protocols()...)
	return cmd
}

// runLoad executes plan load against the server at url: it draws or reads the arrivals, sends the requests, and
// writes and prints the report. After an interrupt the report is of the requests that were sent.
func runLoad(ctx context.Context, p *printer, o *loadOptions, url string) error {
	if err := errors.Join(p.checkOutput("output", o.out, formats.KindReport), p.checkOutput("outcomes", o.outcomes, "table")); err != nil {
		return err
	}
	if err := o.checkFlags(); err != nil {
		return err
	}
	plan, err := readPlanOrHint(o.plan, "models, SLOs and rates are those of the plan that the server executes: --plan FILE names it")
	if err != nil {
		return err
	}
	if err := p.typedFlags.checkKind(p.verb, plan.Kind); err != nil {
		return err
	}
	// text has the lengths of prompts and answers for a plan of language models, and is nil for any other.
	text, err := textTables(plan)
	if err != nil {
		return withCode(exitUsage, err)
	}
	if isText := o.protocol == string(load.Completions); o.protocol != "" && isText != (text != nil) {
		return usageErrorf("--protocol %s: a plan of kind %s is not served over it", o.protocol, plan.Kind)
	}
	var samples *load.Samples
	if text == nil {
		if samples, err = o.readSamples(p, plan); err != nil {
			return err
		}
	}
	if !o.hasArrivalFlags() {
		p.printAssumptions([]string{fmt.Sprintf("load: %g of the planned rate", o.load)})
	}

	// Prepare the arrivals and the requests.
	src, closeSource, err := o.openArrivals(plan)
	if err != nil {
		return err
	}
	defer closeSource()
	token, err := readToken(o.token)
	if err != nil {
		return err
	}
	cfg := load.Config{
		URL: url, Protocol: load.Protocol(o.protocol), Seed: o.seed, Warmup: o.warmup, Duration: o.duration,
		MaxInFlight: o.inflight, Grace: o.grace, NoTimeout: o.noTimeout, Token: token, Models: loadModels(plan, text, samples),
	}
	if text != nil {
		cfg.Protocol = load.Completions
	}
	var list []outcomes.Outcome
	if o.outcomes != "" {
		cfg.OnOutcome = func(out load.Outcome) {
			m := &cfg.Models[out.Model]
			list = append(list, outcomes.Outcome{ModelClass: formats.ModelClass{Model: m.Name, Class: m.Class}, Due: out.Due, Latency: out.Latency, Late: out.Late, Reason: out.Reason})
		}
	}
	endsWellOnInterrupt(ctx)

	// Send the requests.
	bar := p.newProgressBar(int64(o.duration/time.Millisecond), "sending")
	stop := callPeriodically(func(elapsed time.Duration) { bar.setProgress(int64(elapsed/time.Millisecond), "sending") })
	res, err := load.Run(ctx, cfg, src)
	stop()
	bar.finish()
	if errors.Is(err, load.ErrConfig) {
		return withCode(exitUsage, err)
	}
	if err != nil {
		return err
	}

	// Report the results.
	res.Report.Interrupted = res.Interrupted
	if o.outcomes != "" {
		err = writeOutcomes(o.outcomes, o.outcomesFormat, url, list)
	}
	if err := errors.Join(o.showResult(p, res), err); err != nil {
		return err
	}
	if res.Interrupted {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; the figures are of what was sent")}
	}
	return nil
}

// openArrivals opens recorded arrivals, or draws them. The caller closes them with the function that it returns.
func (o *loadOptions) openArrivals(plan *formats.Plan) (arrivals.Source, func(), error) {
	rates, err := o.entryRates(plan)
	if err != nil {
		return nil, nil, err
	}
	src, closeSource, err := o.openRecorded(plan)
	if err != nil || src != nil {
		return src, closeSource, err
	}
	if err := firstError(usage.CheckPositiveDuration("duration", o.duration), o.checkRequestCount(rates, o.duration)); err != nil {
		return nil, nil, err
	}
	src, err = o.drawArrivals(plan, rates, document.Duration(o.duration))
	return src, func() {}, err
}

// loadModels returns the models of a plan, each with the samples that are sent to it or, for text, with the
// lengths in the tables.
func loadModels(plan *formats.Plan, text *policy.Tables, samples *load.Samples) []load.Model {
	var out []load.Model
	for i, m := range plan.ServedModels() {
		model := load.Model{Name: m.Model, Class: m.Class, SLO: m.SLOUS.D(), Samples: samples}
		if text != nil {
			model.Prompt, model.Output, model.SLOOf = text.Models[i].Prompt, text.Models[i].Output, text.Models[i].SLOFigure
		}
		out = append(out, model)
	}
	return out
}

// textTables returns the tables of a plan whose models answer with text. For other plans it returns nil.
func textTables(plan *formats.Plan) (*policy.Tables, error) {
	t, err := policies.Compile(plan)
	if err != nil || len(t.Instances) == 0 || len(t.Instances) < len(t.Devices) {
		return nil, err
	}
	return t, nil
}

// showResult writes and prints the results.
func (o *loadOptions) showResult(p *printer, res *load.Result) error {
	if err := p.writeReport(o.out, &res.Report, res.Warnings, res); err != nil || p.json {
		return err
	}
	p.PrintNote("generator lag p99 %s ms, at most %d requests in flight", document.FormatMillis(res.GeneratorLag.P99US.D()), res.PeakInFlight)
	return nil
}

// readSamples returns the samples to send, or nil if random numbers are sent.
func (o *loadOptions) readSamples(p *printer, plan *formats.Plan) (*load.Samples, error) {
	switch {
	case o.inputs != "" && o.noise:
		return nil, usageErrorf("--inputs and --noise: found both, expected one: --noise is for random numbers")
	case o.inputs != "":
		s, err := load.ReadSamples(o.inputs)
		if err != nil {
			return nil, withCode(exitUsage, err)
		}
		p.PrintNote("sends the %d samples of %s in turn, shuffled", s.Len(), o.inputs)
		return s, nil
	case plan.AnswersByInput() && !o.noise:
		return nil, usageErrorf("%s: who answers a request of this plan depends on its input, and random numbers are not what it was planned for: give --inputs (samples such as the records are of), or --noise", o.plan)
	case o.noise || plan.AnswersByInput():
		p.PrintNote("sends random numbers: which model answers them says nothing about real inputs")
	default:
		p.printAssumptions([]string{"inputs: random numbers"})
	}
	return nil, nil
}

// checkFlags checks the numbers of flags before any file is read.
func (o *loadOptions) checkFlags() error {
	if o.warmup > 0 && o.warmup >= o.duration {
		return usageErrorf("--warmup: found %s, expected less than --duration %s: nothing would be counted", o.warmup, o.duration)
	}
	if err := usage.CheckWord("outcomes-format", o.outcomesFormat, outcomes.Formats...); err != nil {
		return err
	}
	if o.protocol != "" {
		if err := usage.CheckWord("protocol", o.protocol, protocols()...); err != nil {
			return err
		}
	}
	return firstError(checkDuration("duration", o.duration), checkDuration("warmup", o.warmup), checkDuration("grace", o.grace), usage.CheckWhole("max-in-flight", o.inflight, 1, 1<<20))
}

func protocols() []string { return textsOf(load.Protocols) }

// writeOutcomes writes the outcomes of requests that were sent to url, or simulated, to a file.
func writeOutcomes(path, format, url string, list []outcomes.Outcome) error {
	var b bytes.Buffer
	if err := outcomes.Write(&b, format, url, list); err != nil {
		return err
	}
	_, err := document.WriteBytes(path, b.Bytes(), document.Force(true))
	return err
}

// callPeriodically calls f a few times a second until the returned function is called.
func callPeriodically(f func(elapsed time.Duration)) func() {
	t := time.NewTicker(250 * time.Millisecond)
	stopped := make(chan struct{})
	began := time.Now()
	go func() {
		for {
			select {
			case <-t.C:
				f(time.Since(began))
			case <-stopped:
				return
			}
		}
	}()
	return func() { t.Stop(); close(stopped) }
}
