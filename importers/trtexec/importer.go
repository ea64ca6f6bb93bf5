package trtexec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/trtexec"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/profiler"
	"inferplan/profiler/modelinputs"
)

type trtexecImport struct {
	profiler.TRTExecOptions
	inputs modelinputs.Flags
	runs   []string
}

// Importer describes the verb import trtexec, which turns times that TensorRT's trtexec exported into a profile.
func Importer() *importers.Importer {
	o := &trtexecImport{}
	return &importers.Importer{
		Usage:   "trtexec --device KIND --run batch=B,times=F,profile=F [--model FILE.onnx | --name NAME]",
		Summary: "Times and layers that TensorRT's trtexec exported into a profile",
		Description: `Times and layers that TensorRT's trtexec exported into a profile.

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
		DefaultOutput: "profile.json", Kind: formats.KindProfile, ExtendsProfile: true, RequiredFlags: []string{"device", "run"},
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&o.Model, "name", "", "name of the model (default that of --model)")
			f.StringVar(&o.File, "model", "", "ONNX file that the engines were built from")
			o.inputs.Define(f)
			f.StringVar(&o.Device.Device, "device", "", "device kind of the numbers, such as L4 (required)")
			f.StringVar(&o.Device.Name, "device-name", "", "the GPU as its driver names it, for the profile")
			f.StringVar(&o.Device.Driver, "driver", "", "version of the driver, for the profile")
			f.StringVar(&o.Device.EngineVersion, "tensorrt", "", "version of TensorRT, for the profile")
			f.StringArrayVar(&o.runs, "run", nil, "batch=B,share=V,times=FILE,profile=FILE of one batch size (repeatable)")
			f.IntVar(&o.Blocks, "blocks", profiler.DefaultBlocks, "blocks to group the layers into")
		},
		Import: o.importRuns,
	}
}

// importRuns reads the exported runs, adds their profile to the one that is extended, and prints its measurements.
func (o *trtexecImport) importRuns(r *importers.Run) error {
	if o.Blocks < 1 {
		return usage.Errorf("--blocks %d: expected at least 1", o.Blocks)
	}
	for _, text := range o.runs {
		run, err := readTRTExecRun(text)
		if err != nil {
			return err
		}
		o.Runs = append(o.Runs, *run)
	}
	inputs := profiler.Options{Models: []string{o.File}}
	if err := o.inputs.SetModelOptions(&inputs); err != nil {
		return err
	}
	switch {
	case o.inputs.IsSet() && o.File == "":
		return usage.Errorf("--shape, --input and --ops are about --model, which is not named")
	case len(inputs.Buckets) > 0:
		return usage.Errorf("--shape: trtexec ran at one size: import each size under a --name of its own")
	}

	// With the model's file, the engine finds the cuts.
	extended, err := importers.ProfileToExtend(r.ProfilePath, r.Path)
	if err != nil {
		return err
	}
	o.OutPath, o.Dims, o.Values, o.Profile = r.Path, inputs.Dims, inputs.Values, extended
	if o.File != "" {
		eng, err := ort.Open("")
		if err != nil {
			return fmt.Errorf("opening the engine, which finds the cuts of --model: %w", err)
		}
		defer eng.Close()
		if o.Operators, err = o.inputs.RegisterOperators(eng, extended); err != nil {
			return err
		}
		o.Prober = eng
	}

	// Import, and merge into the profile.
	profile, err := profiler.ImportTRTExec(r.Context, o.TRTExecOptions)
	if err == nil {
		err = r.MergeProfile(profile)
	}
	if errors.Is(err, profiler.ErrInput) {
		return usage.Mark(err)
	}
	if err != nil {
		return err
	}

	// Print a summary.
	m := &profile.Models[0]
	if r.JSON {
		return r.PrintResult(map[string]any{"model": m.Model, "blocks": len(m.Blocks), "measurements": len(m.Measurements)}, "")
	}
	for _, n := range profile.Notes {
		r.PrintNote("note: %s", n)
	}
	var rows [][]string
	for _, me := range m.Measurements {
		minTime, maxTime := me.Blocks[0].WallUS, me.Blocks[0].WallUS
		for _, b := range me.Blocks {
			minTime, maxTime = min(minTime, b.WallUS), max(maxTime, b.WallUS)
		}
		rows = append(rows, []string{
			m.Model, me.Device, fmt.Sprintf("1/%d", me.Share), fmt.Sprint(me.Batch), document.FormatMillis(me.WholeModel.WallUS.D()), fmt.Sprint(len(me.Blocks)), document.FormatMillis(minTime.D()) + ".." + document.FormatMillis(maxTime.D()),
		})
	}
	if err := r.PrintTable("llrrrrr", []string{"model", "device", "share", "batch", "whole ms", "blocks", "ms each"}, rows); err != nil {
		return err
	}
	return r.PrintResult(nil, "wrote %s", r.Path)
}

// readTRTExecRun reads one value of --run, and the files that it names. The value has the form KEY=VALUE,KEY=VALUE;
// share and batch are 1 by default.
func readTRTExecRun(text string) (*profiler.TRTExecRun, error) {
	r := &profiler.TRTExecRun{Share: 1, Batch: 1}
	var sources []string
	seenKeys := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || value == "" || seenKeys[key] {
			return nil, usage.Errorf("--run %q: expected batch=B,share=V,times=FILE,profile=FILE, each once; found %q", text, part)
		}
		seenKeys[key] = true
		var err error
		switch key {
		case "batch":
			r.Batch, err = strconv.Atoi(value)
		case "share":
			r.Share, err = strconv.Atoi(value)
		case "times":
			sources = append(sources, filepath.Base(value))
			err = importers.ReadFile(value, "times", func(f *os.File) (e error) { r.Times, e = trtexec.ReadTimes(f, value); return e })
		case "profile":
			sources = append(sources, filepath.Base(value))
			err = importers.ReadFile(value, "layers", func(f *os.File) (e error) { r.Layers, e = trtexec.ReadLayers(f, value); return e })
		default:
			return nil, usage.Errorf("--run %q: %q is none of batch, share, times and profile", text, key)
		}
		var number *strconv.NumError
		if errors.As(err, &number) {
			return nil, usage.Errorf("--run %q: %s: expected a whole number", text, part)
		}
		if err != nil {
			return nil, err
		}
	}
	r.Name = strings.Join(sources, " and ")
	if r.Name == "" {
		return nil, usage.Errorf("--run %q: expected times=FILE or profile=FILE", text)
	}
	return r, nil
}
