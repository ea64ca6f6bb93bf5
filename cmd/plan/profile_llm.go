package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/engine"
	"inferplan/engine/llm"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/profiler"
	"inferplan/profiler/llmserver"
)

// servedOptions are the flags of plan profile about a server of language models.
type servedOptions struct {
	address        string
	model, name    string
	tensorParallel int
	keepLoaded     bool
	swapWith       string
}

// servedFlags are the flags that may be used together with --llm.
var servedFlags = []string{"llm", "model", "name", "tensor-parallel", "keep-loaded", "swap-with", "device", "budget", "output", "force"}

// flags defines the flags of plan profile that measure a running server of language models.
func (o *servedOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.address, "llm", "", "OpenAI-compatible server to measure from outside, such as http://host:8000; OPENAI_API_KEY is sent where it is set")
	f.StringVar(&o.model, "model", "", "with --llm, the model as the server calls it (default: its only one)")
	f.StringVar(&o.name, "name", "", "with --llm, the model's name in the profile (default: as --model)")
	f.IntVar(&o.tensorParallel, "tensor-parallel", 1, "with --llm, devices that the server runs the model on; --device names their kind")
	f.BoolVar(&o.keepLoaded, "keep-loaded", false, "with --llm, neither unload the model nor put it to sleep; its load times are not measured")
	f.StringVar(&o.swapWith, "swap-with", "", "with --llm, another model of the server: measure a request for the model that first swaps this one out")
}

// profileServer measures a running server of language models.
func profileServer(ctx context.Context, p *printer, cmd *cobra.Command, o *profileOptions, args []string) error {
	if len(args) > 0 {
		return usageErrorf("--llm and model files exclude each other: found %s", joinList(args))
	}

	// Refuse flags that are about model files.
	var odd []string
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && !slices.Contains(servedFlags, f.Name) {
			odd = append(odd, "--"+f.Name)
		}
	})
	if len(odd) > 0 {
		return usageErrorf("%s: is about model files, and --llm measures a server", strings.Join(odd, ", "))
	}
	if err := p.checkGrowingProfile(o.outPath); err != nil {
		return err
	}
	if err := firstError(usage.CheckWhole("tensor-parallel", o.tensorParallel, 1, 1024), usage.CheckPositiveDuration("budget", o.budget)); err != nil {
		return err
	}
	device, err := o.servedDevice(p)
	if err != nil {
		return err
	}
	newProfile, err := importers.ProfileToExtend("", o.outPath)
	if err != nil {
		return err
	}
	endsWellOnInterrupt(ctx)

	// Find out what the server can do.
	if _, err := llm.New(o.address); err != nil {
		return usageErrorf("--llm %w", err)
	}
	server, err := llm.Probe(ctx, o.address, llm.WithKey(os.Getenv("OPENAI_API_KEY")))
	if err != nil {
		return o.explainError(err)
	}
	if o.model == "" && len(server.Abilities.Models) == 1 {
		o.model = server.Abilities.Models[0]
		p.printAssumptions([]string{"--model " + o.model})
	}

	// Measure, and merge the result into the profile.
	bar := p.newProgressBar(1000, "profiling")
	result, err := llmserver.Run(ctx, llmserver.Options{
		Server: server, Model: o.model, Name: o.name, Device: device, TensorParallel: o.tensorParallel, Budget: o.budget, OutPath: o.outPath, Force: o.force,
		KeepLoaded: o.keepLoaded, SwapWith: o.swapWith,
		OnEstimate: func(e llmserver.Estimate) error { o.printEstimate(p, &e, device); return nil },
		Progress:   func(e llmserver.Event) { bar.setProgress(int64(1000*e.DoneShare), e.Activity+" "+o.model) },
	})
	bar.finish()
	if result == nil {
		return o.interruptedError(o.explainError(err), nil)
	}
	if _, writeErr := profiler.Update(o.outPath, newProfile, func(target *formats.Profile) error { return profiler.Merge(target, result.Profile) }); writeErr != nil {
		return errors.Join(writeErr, err)
	}
	if err != nil {
		return o.interruptedError(o.explainError(err), result)
	}
	return printServed(p, o.outPath, result)
}

// servedDevice returns the kind of the server's devices. A server of this machine without a GPU runs on its CPUs. For
// any other server without --device it returns an error, because the kind of its devices cannot be seen from here.
func (o *profileOptions) servedDevice(p *printer) (string, error) {
	if device := cmp.Or(o.device.kind, o.device.address); device != "" && device != "auto" {
		return device, nil
	}
	u, err := url.Parse(o.address)
	if err == nil {
		ip := net.ParseIP(u.Hostname())
		_, gpu := os.Stat("/proc/driver/nvidia/gpus")
		cpus, err := engine.CPUs()
		if (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) && gpu != nil && err == nil {
			kind := engine.CPUDevice(cpus...).Kind
			p.printAssumptions([]string{"--device " + kind + ": the server is on this machine, which has no GPU"})
			return kind, nil
		}
	}
	return "", usageErrorf("--llm: name the kind of the devices that the server runs on, such as --device L40S")
}

// explainError adds to the error of a server that cannot be measured what to do about it.
func (o *servedOptions) explainError(err error) error {
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, llm.ErrUnauthorized):
		return usageErrorf("--llm %s: %w: set OPENAI_API_KEY", o.address, err)
	case errors.Is(err, llm.ErrUnknownModel):
		return usageErrorf("--llm %s --model %s: %w", o.address, o.model, err)
	case errors.Is(err, llm.ErrNoSuchPath):
		return usageErrorf("--llm %s: %w: expected an OpenAI-compatible server (/v1/models, /v1/completions)", o.address, err)
	case errors.Is(err, llm.ErrGone):
		return &exitError{exitEnvironment, fmt.Errorf("--llm %s: %w: is it running, and is the address right?", o.address, err)}
	case errors.Is(err, llm.ErrNoStream) || errors.Is(err, llmserver.ErrServer):
		return &exitError{exitEnvironment, fmt.Errorf("--llm %s: %w: times of tokens are read from streamed answers", o.address, err)}
	}
	return err
}

// interruptedError returns the error of a measurement that ended early, and says what was saved.
func (o *profileOptions) interruptedError(err error, result *llmserver.Result) error {
	switch {
	case result == nil && errors.Is(err, context.Canceled):
		return &exitError{exitInterrupted, fmt.Errorf("interrupted before there was enough for a profile; the samples are in %s, and the same command goes on from there", llmserver.PointsFile(o.outPath))}
	case errors.Is(err, context.Canceled):
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; what %s tell is in %s, and the same command goes on from there", document.CountOf(result.Samples, "sample"), o.outPath)}
	}
	return err
}

// printEstimate prints, before a server is measured, its limits as far as it reports them, and how long measuring
// will take. device is the kind of the server's devices.
func (o *profileOptions) printEstimate(p *printer, e *llmserver.Estimate, device string) {
	f := &e.Facts
	open := func(n int64, what string) string {
		if n == 0 {
			return what + ": it does not say"
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	engine := cmp.Or(f.Engine, "a server of unknown make")
	p.PrintNote("%s on %d x %s: %s, %s, %s", engine, o.tensorParallel, device, open(f.KVTokens, "tokens of KV memory"), open(int64(f.Sequences), "sequences at once"), open(int64(f.Context), "tokens of context"))
	text := fmt.Sprintf("%s of %s, about %s, at most %s", document.CountOf(e.Points, "measurement"), o.model, min(e.ExpectedTime, o.budget).Round(time.Second), o.budget)
	if e.KnownPoints > 0 {
		text += fmt.Sprintf("; %d are there already, --force measures them again", e.KnownPoints)
	}
	if e.OpenPoints > 0 {
		text += fmt.Sprintf("; %d more would need a larger --budget", e.OpenPoints)
	}
	if e.Loads {
		text += "; the model is unloaded and loaded, or sleeps and wakes, three times (--keep-loaded: not)"
	}
	p.PrintNote("%s", text)
}

// printServed prints the measurements of a server.
func printServed(p *printer, out string, r *llmserver.Result) error {
	if !p.json {
		in := &r.Profile.LLMs[0].Instances[0]
		p.PrintNote("%s; %s with an interval wider than 5 %%", document.CountOf(r.Samples, "sample"), document.CountOf(r.Loose, "point"))
		if in.Loads != nil {
			p.PrintNote("%s", in.Loads.Source)
		}
		if b := in.OneBatch; b != nil {
			p.PrintNote("one batch of %d: %.1f tokens a second; its time per token is %.1f %% off over all batches and contexts, the iteration's %.1f %%", b.Sequences, b.TokensPerSecond, 100*b.Error, 100*in.Fit.DecodeMAPE)
		}
	}
	return importers.PrintLLMs(p, p.json, out, r.Profile)
}
