package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"inferplan/engine"
	"inferplan/engine/certainty"
	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/samples"
	"inferplan/formats/modelfile"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/profiler"
	"inferplan/profiler/modelinputs"
)

type profileOptions struct {
	measuredDevice  string // the device of this machine to measure
	device          deviceFlag
	shares, batches []int
	blocks          int
	repeat          int
	budget          time.Duration
	seed            uint64
	outPath         string
	force           bool
	mps             bool
	realTime        bool
	cutsPath        string
	ranges, plan    string
	executionOptions
	inputs modelinputs.Flags
	recordsOptions
	servedOptions
}

// newProfileCommand makes the verb profile, which measures model files, a running server of language models (--llm),
// or the answers of such servers to labelled questions (--completions).
func newProfileCommand(g *globalFlags) *cobra.Command {
	o := &profileOptions{}
	cmd := &cobra.Command{
		Use:   "profile [MODEL.onnx...]",
		Short: "Measure what every block of every model costs on this machine",
		Long: `Measure what every block of every model costs on this machine.

Without models it takes ./models/*.onnx or ./*.onnx. It says what it will cost before it
starts, writes after every finished measurement, keeps what was found when it is interrupted,
resumes where it stopped, and merges devices and models into one profile.

A stage of a plan runs its blocks in one piece, in less time than one by one. The whole model
is measured so in any case; --ranges measures ranges of blocks as well: all of them, or those
that a plan uses. What is not measured is estimated from blocks and whole.

A model with a free length is measured in length buckets where --shape gives several sizes. Plans
place each, by the workload's lengths, and a request runs in the smallest that takes it.

With --records the models are a family of classifiers, in order of size: after measuring they
run over labelled samples (CSV, plain or .gz, with the header label,…: a class counted from 0
and the values of the input), and the profile keeps how certain each was of each answer and
whether it was right. Cascades are planned on that. With --completions the samples are prompts
(CSV with the header label,prompt) for language models of OpenAI-compatible servers, and
certainty comes from the logprobs of the first token; their latencies are not measured.

With --llm a running server of language models is measured from outside: prompts alone,
sequences side by side at several contexts, prompts that come while others decode, loads and
sleep where the server can. Its KV capacity and its limit of sequences are read from the server:
vLLM /metrics and /server_info, llama-server /props, SGLang /get_server_info. A prompt counts
until its first token, less a round trip that asks for nothing; decoding is the median time per
token of 1, 2, 4, ... sequences over blocks of eight tokens; loads are taken three times.
The samples stand beside the profile (.points.jsonl), and the same command goes on from there.`,
		Example: `  plan profile
  plan profile resnet50.onnx --batches 1,2,4,8 --budget 2m
  plan profile det.onnx vad.onnx --shape det:x=1x3x320x320 --shape vad:input=1x512 --input sr=16000
  plan profile text.onnx --shape input_ids=1x32:1x128:1x512
  plan profile --ranges used --plan plan.json
  plan profile --repeat 3 --budget 1m
  plan profile --on cuda:0 --device L4 --shares 1,2,3,4 -o profile.json
  plan profile small.onnx base.onnx large.onnx --blocks 1 --batches 1,2,4,8,16 --records samples.csv.gz
  plan profile --llm http://gpu7:8000 --model org/model-8b --device L40S --budget 5m
  plan profile --llm http://127.0.0.1:8080 --model a --swap-with b
  plan profile --completions 3b=http://a:8000/v1,70b=http://b:8000/v1#org/model-70b --records questions.csv`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.address != "" {
				return profileServer(cmd.Context(), newPrinter(cmd, g), cmd, o, args)
			}
			if len(o.completions) > 0 {
				return o.recordCompletions(cmd.Context(), newPrinter(cmd, g), args, o.outPath, o.seed)
			}
			return runProfile(cmd.Context(), newPrinter(cmd, g), o, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.measuredDevice, "on", "auto", "device of this machine to measure: auto, cpu, cpu-<threads> or cuda:<n>")
	f.Var(&o.device, "device", "kind of the device, as profile, cluster and plan name it (default what is found)")
	f.IntSliceVar(&o.shares, "shares", []int{1}, "shares 1/v of a GPU to measure")
	f.IntSliceVar(&o.batches, "batches", profiler.DefaultBatches, "batch sizes to measure")
	f.IntVar(&o.blocks, "blocks", profiler.DefaultBlocks, "blocks per model")
	f.DurationVar(&o.budget, "budget", 5*time.Minute, "time for everything together")
	f.IntVar(&o.repeat, "repeat", 1, "number of complete measurements, each within --budget; the profile then has the spread between them, which plan check uses")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the inputs, and of weights where a model has none")
	f.StringVarP(&o.outPath, "output", "o", "profile.json", "profile to write or to extend")
	f.BoolVar(&o.force, "force", false, "measure again what the profile holds")
	f.StringVar(&o.ranges, "ranges", rangesNone, "ranges of blocks to measure in one piece: none, all, or used (those of the stages of --plan)")
	f.StringVar(&o.plan, "plan", "", "plan whose stages --ranges used measures, at the batches that the profile holds")
	f.StringVar(&o.cutsPath, "cuts", "", "profile whose cuts to use, so that plan check can compare the two block by block")
	f.BoolVar(&o.realTime, "realtime", false, "for a busy machine, on CPU kinds of one thread: no other work interrupts a sample (needs root or CAP_SYS_NICE)")
	f.BoolVar(&o.mps, "mps", false, "GPUs: if CUDA's Multi-Process Service does not run, start it for the shares and stop it afterwards")
	o.executionOptions.flags(f, "on")
	o.inputs.Define(f)
	o.recordsOptions.flags(f)
	o.servedOptions.flags(f)
	completeFlag(cmd, "on", "auto", "cpu", "cuda:0")
	completeFlag(cmd, "ranges", rangesNone, rangesAll, rangesUsed)
	completeExecution(cmd)
	completeFlag(cmd, "score", certainty.Names()...)
	return cmd
}

// runProfile executes plan profile for the model files at paths (those of this folder if there are none): it measures
// them into the profile and prints it. With --records it also runs the models over labelled samples.
func runProfile(ctx context.Context, p *printer, o *profileOptions, paths []string) error {
	if err := p.checkGrowingProfile(o.outPath); err != nil {
		return err
	}
	if err := firstError(usage.CheckWhole("blocks", o.blocks, 1, 100_000), usage.CheckWhole("repeat", o.repeat, 1, 100), usage.CheckPositiveDuration("budget", o.budget)); err != nil {
		return err
	}

	o.device.moveAddress(p, &o.measuredDevice)

	// Read all inputs before the long work.
	options, fp16, err := o.forProfile()
	if err != nil {
		return err
	}
	set, err := o.readSamples(paths)
	if err != nil {
		return err
	}
	ranges, err := o.measuredRanges(p.typedFlags, &paths)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		if paths, err = profiler.FindModels("."); err != nil {
			return withCode(exitUsage, err)
		}
		p.printAssumptions([]string{"models: " + joinList(paths)})
	}
	var cutsProfile *formats.Profile
	if o.cutsPath != "" {
		if cutsProfile, err = formats.ReadProfile(o.cutsPath); err != nil {
			return withCode(exitUsage, err)
		}
	}
	endsWellOnInterrupt(ctx)

	// Open the engine, and prepare recording and shares.
	eng, err := ort.Open("")
	if err != nil {
		return fmt.Errorf("opening the engine: %w", err)
	}
	defer eng.Close()
	existing, operators, err := o.existingProfile(eng)
	if err != nil {
		return err
	}
	recording, err := o.newRecordOptions(ctx, paths, set, eng, existing)
	if err != nil {
		return err
	}
	sharer, err := shareProcesses()
	if err != nil {
		return err
	}
	sharer.Operators = operators
	if state, _ := profiler.MPSState(); o.mps && state != profiler.MPSRunning {
		stop, err := startMPS()
		if err != nil {
			return err
		}
		defer stop()
	}

	// Collect the options of the measurement.
	progress, shownWarnings, finish := showProgress(p, o.outPath)
	opt := profiler.Options{
		Models: paths, Device: o.measuredDevice, DeviceName: o.device.kind, Shares: o.shares, Batches: o.batches, Blocks: o.blocks, Ranges: ranges,
		Sharer: sharer, CutsFrom: cutsProfile, RealTime: o.realTime, Operators: operators,
		Budget: o.budget, Engine: eng, EngineOptions: options, FP16: fp16, Watch: watchGPU, Seed: o.seed, OutPath: o.outPath, Force: o.force,
		OnEstimate: func(e profiler.Estimate) error { printEstimate(p, e, o); return nil },
		Progress:   progress,
	}
	if err := o.inputs.SetModelOptions(&opt); err != nil {
		return err
	}

	profile, records, err := o.measure(ctx, p, opt, recording, set != nil, finish)
	if err != nil {
		return err
	}
	if p.json {
		return p.PrintJSON(profile)
	}
	if err := printProfile(p, profile, o.outPath, shownWarnings); err != nil || records == nil {
		return err
	}
	return importers.PrintRecords(p, p.json, records, o.outPath, false)
}

// measure measures the models, then what a request costs beside its model, then, if records are wanted, runs the models over
// labelled samples and puts the records into the profile. It calls finish, which ends the lines of progress, after the models.
// Without --records, the records are nil.
func (o *profileOptions) measure(ctx context.Context, p *printer, opt profiler.Options, recording profiler.RecordOptions, wantsRecords bool, finish func()) (*formats.Profile, *formats.Records, error) {
	profile, err := profiler.Repeat(ctx, opt, o.repeat)
	finish()
	if err != nil {
		return nil, nil, o.endError(err)
	}
	if profile, err = measureRequests(ctx, o, profile); err != nil {
		p.printWarnings([]string{fmt.Sprintf("%v: plans will not count it", err)})
	}
	if !wantsRecords {
		return profile, nil, nil
	}
	recording.Profile, recording.FP16 = profile, opt.FP16
	records, err := o.recordModels(ctx, p, recording)
	if err != nil {
		return nil, nil, err
	}
	profile, err = profiler.Update(o.outPath, profile, func(p *formats.Profile) error { profiler.PutRecords(p, records); return nil })
	return profile, records, err
}

// existingProfile returns the profile to extend, or nil if there is none. It also registers the libraries of
// custom operators with the engine and returns them.
func (o *profileOptions) existingProfile(eng *ort.Engine) (*formats.Profile, []modelfile.OperatorLibrary, error) {
	p, err := formats.ReadProfile(o.outPath)
	if errors.Is(err, os.ErrNotExist) {
		p, err = nil, nil
	}
	if err != nil {
		return nil, nil, withCode(exitUsage, err)
	}
	operators, err := o.inputs.RegisterOperators(eng, p)
	return p, operators, err
}

// newRecordOptions returns the options for recording samples, after checking that the samples fit the models.
// Without samples they are empty.
func (o *profileOptions) newRecordOptions(ctx context.Context, paths []string, set *samples.SampleSet, eng *ort.Engine, existing *formats.Profile) (r profiler.RecordOptions, err error) {
	if set == nil {
		return r, nil
	}
	inputs := profiler.Options{Models: paths}
	if err := o.inputs.SetModelOptions(&inputs); err != nil {
		return r, err
	}
	if len(inputs.Buckets) > 0 {
		return r, usageErrorf("--records: samples have one size, and --shape has several")
	}
	r = profiler.RecordOptions{Models: paths, Samples: set, Engine: eng, Seed: o.seed, Dims: inputs.Dims, Values: inputs.Values, Profile: existing}
	return r, profiler.CheckSamples(ctx, r)
}

// shareProcesses returns a sharer that runs shares of a GPU in processes of this program.
func shareProcesses() (profiler.Processes, error) {
	self, err := os.Executable()
	if err != nil {
		return profiler.Processes{}, fmt.Errorf("find this program, which shares of a GPU run in: %w", err)
	}
	return profiler.Processes{Command: []string{self, shareCommand}, Stderr: os.Stderr}, nil
}

// endError returns the error of a measurement that ended early, and says what was saved.
func (o *profileOptions) endError(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	if _, missing := os.Stat(o.outPath); missing != nil {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted before the first measurement was complete; nothing was written")}
	}
	return &exitError{exitInterrupted, fmt.Errorf("interrupted; what was measured is in %s, and the same command goes on from there", o.outPath)}
}

// showProgress returns functions that show the progress of measuring and end it, and the set of warnings shown.
func showProgress(p *printer, path string) (progress func(profiler.Event), shownWarnings map[string]bool, finish func()) {
	bar := p.newProgressBar(1000, "profiling")
	shownWarnings = map[string]bool{}
	skipped := 0
	return func(e profiler.Event) {
			switch e.Stage {
			case profiler.StageWarning:
				p.PrintNote("warning: %s", e.Text)
				shownWarnings[e.Text] = true
			case profiler.StageSkipped:
				skipped++
			default:
				bar.setProgress(int64(1000*e.DoneShare), fmt.Sprintf("%s %s", e.Stage, e.Model))
			}
		}, shownWarnings, func() {
			bar.finish()
			if skipped > 0 {
				p.PrintNote("already in %s, and not measured again: %s; --force measures anew, -o FILE into another profile", path, document.CountOf(skipped, "measurement"))
			}
		}
}

// printEstimate prints how long measuring will take, before it begins, or that the profile has all numbers already.
func printEstimate(p *printer, e profiler.Estimate, o *profileOptions) {
	n := 0
	for _, m := range e.Models {
		n += m.Measurements
	}
	if n == 0 {
		p.PrintNote("%s: everything asked for is in %s already; --force measures again", e.Device, o.outPath)
		return
	}
	p.PrintNote("%s (%s): %s of %s, about %s, at most %s", e.Device, e.Name, document.CountOf(n, "measurement"), document.CountOf(len(e.Models), "model"),
		e.ExpectedTime.Round(time.Second), min(e.MaxTime, max(e.Budget, e.ExpectedTime)).Round(time.Second))
}

// printProfile prints the contents of the profile. Notes that were shown as warnings already are left out. A row has
// the time of the whole model, the sum over its blocks measured one by one, and the share of the device's highest
// rates (roofline) that the whole model reaches.
func printProfile(p *printer, profile *formats.Profile, path string, shownWarnings map[string]bool) error {
	var rows [][]string

	// Collect the fraction of the roofline that every whole model reaches.
	fractions := map[roofKey]float64{}
	for _, r := range profiler.RooflineRows(profile) {
		if r.Block < 0 {
			fractions[roofKey{r.Model, r.Device, 1, r.Batch}] = r.Fraction
		}
	}

	// A row for every measurement.
	for i := range profile.Models {
		m := &profile.Models[i]
		for j := range m.Measurements {
			x := &m.Measurements[j]
			name := ""
			if j == 0 {
				name = fmt.Sprintf("%s (%s)", m.Model, document.CountOf(len(m.Blocks), "block"))
			}
			device := x.Device
			if x.Share > 1 {
				device = fmt.Sprintf("1/%d %s", x.Share, x.Device)
			}
			var chain, slowest document.Micros
			for _, b := range x.Blocks {
				chain += b.WallUS
				slowest = max(slowest, b.WallUS)
			}
			wholeTime, halfWidth := "-", "-"
			if x.WholeModel != nil {
				wholeTime = document.FormatMillis(x.WholeModel.WallUS.D())
				if x.WholeModel.WallUS > 0 {
					halfWidth = fmt.Sprintf("±%.1f %%", 100*float64(x.WholeModel.HalfWidthUS)/float64(x.WholeModel.WallUS))
				}
			}
			roofline := "-"
			if f, ok := fractions[roofKey{m.Model, x.Device, x.Share, x.Batch}]; ok {
				roofline = fmt.Sprintf("%.0f %%", 100*f)
			}
			rows = append(rows, []string{name, device, fmt.Sprint(x.Batch), wholeTime, halfWidth, document.FormatMillis(chain.D()), document.FormatMillis(slowest.D()), roofline})
		}
	}
	if err := p.PrintTable("llrrrrrr", []string{"model", "device", "batch", "whole ms", "", "blocks ms", "slowest block ms", "of roofline"}, rows); err != nil {
		return err
	}

	// Print the notes that were not printed during the run.
	for _, n := range profile.Notes {
		if !shownWarnings[n] {
			p.PrintNote("note: %s", n)
		}
	}
	p.PrintNote("wrote %s; next: plan solve --slo 200ms", path)
	return nil
}

// startMPS starts the service so that this process and its children find it. The service is CUDA's Multi-Process
// Service, which divides a GPU between processes. stop ends it and removes its folder.
func startMPS() (stop func(), err error) {
	dir, err := os.MkdirTemp("", "inferplan-mps-")
	if err != nil {
		return nil, fmt.Errorf("start MPS: %w", err)
	}
	m, err := profiler.StartMPS(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	for _, kv := range m.Env() {
		k, v, _ := strings.Cut(kv, "=")
		if err := os.Setenv(k, v); err != nil {
			return nil, errors.Join(err, m.Stop())
		}
	}
	return func() {
		if err := m.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "plan: %v\n", err)
		}
		os.RemoveAll(dir)
	}, nil
}

// roofKey identifies a whole model among the rows of a roofline.
type roofKey struct {
	model, device string
	share, batch  int
}

// gpuState reads a GPU's power and clocks through NVML.
type gpuState struct{ *ort.Watch }

// watchGPU opens the readings of a GPU's power, clocks and temperature.
func watchGPU(d engine.Device) (profiler.StateReader, error) {
	i, err := d.Index()
	if err != nil {
		return nil, err
	}
	w, err := ort.OpenWatch(i)
	if err != nil {
		return nil, err
	}
	return gpuState{w}, nil
}

// loweredReasons are NVML's reasons for lowered clocks that are power or heat: power cap, slowdown, software and
// hardware thermal limits, power brake.
const loweredReasons = 0x4 | 0x8 | 0x20 | 0x40 | 0x80

func (g gpuState) Read() (profiler.GPUState, error) {
	s, err := g.Watch.Read()
	return profiler.GPUState{Watts: s.Watts, ClockMHz: s.ClockMHz, MemoryMHz: s.MemoryMHz, Celsius: s.Celsius, ClocksLowered: s.Throttled&loweredReasons != 0}, err
}
