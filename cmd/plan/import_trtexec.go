package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/importer/trtexec"
	"inferplan/profiler"
)

type importTRTExecOptions struct {
	name, model   string
	device        string
	deviceName    string
	driver        string
	engineVersion string
	runs          []string
	blocks        int
	profile, out  string
	inputOptions
}

func newImportTRTExecCommand(g *globals) *cobra.Command {
	o := &importTRTExecOptions{}
	cmd := &cobra.Command{
		Use:   "trtexec --device KIND --run batch=B,times=F,profile=F [--model FILE.onnx | --name NAME]",
		Short: "Times and layers that TensorRT's trtexec exported into a profile",
		Long: `Times and layers that TensorRT's trtexec exported into a profile.

Every --run is what trtexec exported of one batch size, as comma-separated KEY=VALUE:
  batch    the batch size (default 1)
  share    v of the share 1/v of the GPU that it ran on (default 1)
  times    file of --exportTimes: times of every inference
  profile  file of --exportProfile: time of every layer

The time of the whole model is the median of computeMs, without copies between host and
device. Layers are scaled to it and grouped into --blocks so that the largest block is
smallest. With --model, the file that the engine was built from, blocks end where the model
can be cut, and the profile says what crosses there (this runs the model once and needs ONNX
Runtime). Without it the cut sizes stay unknown: no plan cuts the model across a network.

The numbers are added to --profile (default: the output file, where it exists).`,
		Example: `  trtexec --onnx=resnet50.onnx --shapes=data:4x3x224x224 --exportTimes=t4.json --exportProfile=p4.json --separateProfileRun
  plan import trtexec --model resnet50.onnx --device L4 --run batch=1,times=t1.json,profile=p1.json --run batch=4,times=t4.json,profile=p4.json
  plan import trtexec --name resnet50 --device L4 --tensorrt 10.3.0 --run batch=1,times=t1.json -o profile.json`,
		Args: noArguments,
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name of the model (default that of --model)")
	f.StringVar(&o.model, "model", "", "ONNX file that the engines were built from")
	o.inputOptions.flags(f)
	f.StringVar(&o.device, "device", "", "device kind of the numbers, such as L4 (required)")
	f.StringVar(&o.deviceName, "device-name", "", "the GPU as its driver names it, for the profile")
	f.StringVar(&o.driver, "driver", "", "version of the driver, for the profile")
	f.StringVar(&o.engineVersion, "tensorrt", "", "version of TensorRT, for the profile")
	f.StringArrayVar(&o.runs, "run", nil, "batch=B,share=V,times=FILE,profile=FILE of one batch size (repeatable)")
	f.IntVar(&o.blocks, "blocks", profiler.DefaultBlocks, "blocks to group the layers into")
	f.StringVar(&o.profile, "profile", "", "profile that the numbers are added to (default: the output file, if it exists)")
	_ = cmd.MarkFlagRequired("device")
	_ = cmd.MarkFlagRequired("run")
	return importing(g, cmd, &o.out, "profile.json", formats.KindProfile, func(p *printer, _ []string) error { return runImportTRTExec(cmd.Context(), p, o) })
}

func runImportTRTExec(ctx context.Context, p *printer, o *importTRTExecOptions) error {
	opt := profiler.TRTExecOptions{
		Model: o.name, File: o.model, Blocks: o.blocks, Out: o.out,
		Device: formats.ProfileDevice{Device: o.device, Name: o.deviceName, Driver: o.driver, EngineVersion: o.engineVersion},
	}
	if o.blocks < 1 {
		return usageErrorf("--blocks %d: expected at least 1", o.blocks)
	}
	for _, text := range o.runs {
		r, err := readTRTExecRun(text)
		if err != nil {
			return err
		}
		opt.Runs = append(opt.Runs, *r)
	}
	inputs := profiler.Options{Models: []string{o.model}}
	if err := o.fill(&inputs); err != nil {
		return err
	}
	switch {
	case len(o.shapes)+len(o.values)+len(o.ops) > 0 && o.model == "":
		return usageErrorf("--shape, --input and --ops are about --model, which is not named")
	case len(inputs.Buckets) > 0:
		return usageErrorf("--shape: trtexec ran at one size: import each size under a --name of its own")
	}
	opt.Dims, opt.Values = inputs.Dims, inputs.Values
	into, err := profileToExtend(o.profile, o.out)
	if err != nil {
		return err
	}
	opt.Into = into
	if o.model != "" {
		eng, err := ort.Open("")
		if err != nil {
			return fmt.Errorf("opening the engine, which finds the cuts of --model: %w", err)
		}
		defer eng.Close()
		if opt.Operators, err = o.register(eng, into); err != nil {
			return err
		}
		opt.Prober = eng
	}
	profile, err := profiler.ImportTRTExec(ctx, opt)
	if err == nil {
		_, err = p.extend(o.profile, o.out, func(into *formats.Profile) error {
			if err := profiler.Merge(into, profile); err != nil {
				return err
			}
			return withCode(exitUsage, into.Validate())
		})
	}
	if errors.Is(err, profiler.ErrInput) {
		return withCode(exitUsage, err)
	}
	if err != nil {
		return err
	}
	m := &profile.Models[0]
	if p.json {
		return p.document(map[string]any{"output": o.out, "model": m.Model, "blocks": len(m.Blocks), "measurements": len(m.Measurements)})
	}
	for _, n := range profile.Notes {
		p.note("note: %s", n)
	}
	var rows [][]string
	for _, me := range m.Measurements {
		least, most := me.Blocks[0].WallUS, me.Blocks[0].WallUS
		for _, b := range me.Blocks {
			least, most = min(least, b.WallUS), max(most, b.WallUS)
		}
		rows = append(rows, []string{
			m.Model, me.Device, fmt.Sprintf("1/%d", me.Share), fmt.Sprint(me.Batch), ms(me.Whole.WallUS.D()), fmt.Sprint(len(me.Blocks)), ms(least.D()) + ".." + ms(most.D()),
		})
	}
	if err := p.table("llrrrrr", []string{"model", "device", "share", "batch", "whole ms", "blocks", "ms each"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "wrote %s\n", o.out)
	return nil
}

// readTRTExecRun reads one --run with its files.
func readTRTExecRun(text string) (*profiler.TRTExecRun, error) {
	r := &profiler.TRTExecRun{Share: 1, Batch: 1}
	var sources []string
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" || seen[key] {
			return nil, usageErrorf("--run %q: expected batch=B,share=V,times=FILE,profile=FILE, each once; found %q", text, part)
		}
		seen[key] = true
		var err error
		switch key {
		case "batch":
			r.Batch, err = strconv.Atoi(value)
		case "share":
			r.Share, err = strconv.Atoi(value)
		case "times":
			sources = append(sources, filepath.Base(value))
			err = readFile(value, "times", func(f *os.File) (e error) { r.Times, e = trtexec.ReadTimes(f, value); return e })
		case "profile":
			sources = append(sources, filepath.Base(value))
			err = readFile(value, "layers", func(f *os.File) (e error) { r.Layers, e = trtexec.ReadLayers(f, value); return e })
		default:
			return nil, usageErrorf("--run %q: %q is none of batch, share, times and profile", text, key)
		}
		var number *strconv.NumError
		if errors.As(err, &number) {
			return nil, usageErrorf("--run %q: %s: expected a whole number", text, part)
		}
		if err != nil {
			return nil, err
		}
	}
	r.Name = strings.Join(sources, " and ")
	if r.Name == "" {
		return nil, usageErrorf("--run %q: expected times=FILE or profile=FILE", text)
	}
	return r, nil
}
