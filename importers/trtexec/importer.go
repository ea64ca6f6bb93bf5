package trtexec

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/engine/ort"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/profiler"
	"inferplan/profiler/modelinputs"
)

type trtexecImport struct {
	profiler.BenchmarkOptions
	inputs   modelinputs.Flags
	runs     []string
	names    string
	noCopies bool
	noted    map[string]bool // fields of files that were named as not known
}

// defaultNames describes the names of files without --names.
const defaultNames = "{model}_{device}_b{batch}*.json"

// Importer describes the verb import trtexec, which turns times that TensorRT's trtexec exported into a profile.
func Importer() *importers.Importer {
	o := &trtexecImport{noted: map[string]bool{}}
	return &importers.Importer{
		Usage:   "trtexec [FILE|FOLDER|'GLOB'...] [--run batch=B,times=F,profile=F --device KIND]",
		Summary: "Times and layers that TensorRT's trtexec exported into a profile",
		Description: `Times and layers that TensorRT's trtexec exported into a profile.

Files, folders and patterns of files are runs whose names say what ran: model, device kind,
batch size, by --names. Its fields are {model}, {device}, {batch} and {share}, * is any text,
and with slashes it is about folders, too. Times and layers of one run are told by their
content. --name, --model and --device say what the names do not.

Or every --run is what trtexec exported of one batch size, as comma-separated KEY=VALUE:
  batch    the batch size (default 1)
  share    v of the share 1/v of the GPU that it ran on (default 1)
  times    file of --exportTimes: times of every inference
  profile  file of --exportProfile: time of every layer

The time of the whole model is the median of an inference with the copies of inputs and
outputs between host and device (--no-copies: without). Layers are scaled to its computation
and grouped into --blocks so that the largest block is smallest; the first block has the copy
to the device, the last that to the host. With --model, the file that the engine was built
from, blocks end where the model can be cut, and the profile says what crosses there (this runs
the model once and needs ONNX Runtime). Without it the cut sizes stay unknown: no plan cuts the
model across a network, and all runs must have the same layers. An import where layers without an
operator's name take over a quarter of the time is refused. Files of releases 7.0 to 11.1 are read.

The numbers are added to --profile (default: the output file, where it exists).`,
		Example: `  trtexec --onnx=resnet50.onnx --shapes=data:4x3x224x224 --exportTimes=t4.json --exportProfile=p4.json --separateProfileRun
  plan import trtexec 'runs/*.json' --names '{model}_{device}_b{batch}_*.json'
  plan import trtexec --model resnet50.onnx --device L4 --run batch=1,times=t1.json,profile=p1.json --run batch=4,times=t4.json,profile=p4.json
  plan import trtexec --name resnet50 --device L4 --tensorrt 10.3.0 --run batch=1,times=t1.json -o profile.json`,
		MaxArguments: importers.AnyNumber, DefaultOutput: "profile.json", Kind: formats.KindProfile, ExtendsProfile: true,
		Recognize: func(head []byte) string {
			switch {
			case hasTimes(head):
				return "times of TensorRT's trtexec"
			case hasLayers(head):
				return "layers of TensorRT's trtexec"
			}
			return ""
		},
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&o.Model, "name", "", "name of the model (default that of --model, or in the names of files)")
			f.StringVar(&o.File, "model", "", "ONNX file that the engines were built from")
			o.inputs.Define(f)
			f.StringVar(&o.Device.Device, "device", "", "device kind of the numbers, such as L4 (default that in the names of files)")
			f.StringVar(&o.Device.Name, "device-name", "", "the GPU as its driver names it, for the profile")
			f.StringVar(&o.Device.Driver, "driver", "", "version of the driver, for the profile")
			f.StringVar(&o.Device.EngineVersion, "tensorrt", "", "version of TensorRT, for the profile")
			f.StringArrayVar(&o.runs, "run", nil, "batch=B,share=V,times=FILE,profile=FILE of one batch size (repeatable)")
			f.StringVar(&o.names, "names", defaultNames, "pattern of the names of files")
			f.IntVar(&o.Blocks, "blocks", profiler.DefaultBlocks, "blocks to group the layers into")
			f.BoolVar(&o.noCopies, "no-copies", false, "leave out the copies between host and device")
		},
		Import: o.importRuns,
	}
}

// importRuns reads the exported runs, adds their profile to the one that is extended, and prints its measurements.
func (o *trtexecImport) importRuns(r *importers.Run) error {
	if o.Blocks < 1 {
		return usage.Errorf("--blocks %d: expected at least 1", o.Blocks)
	}
	groups, err := o.groups(r)
	if err != nil {
		return err
	}
	other := slices.IndexFunc(groups, func(g runGroup) bool { return g.model != groups[0].model })
	if o.File != "" && other >= 0 {
		return usage.Errorf("--model is the file of one model: found runs of %s and %s", groups[0].model, groups[other].model)
	}
	closeEngine, err := o.prepare(r)
	if err != nil {
		return err
	}
	defer closeEngine()

	// Import each model on each kind of device, and merge all into the profile.
	imported := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
	for _, g := range groups {
		options := o.BenchmarkOptions
		options.Benchmark, options.Model, options.Device.Device, options.Runs = benchmark{}, g.model, g.device, g.runs
		profile, err := profiler.ImportBenchmark(r.Context, options)
		if err == nil {
			err = errors.Join(profiler.Merge(imported, profile), profiler.Merge(o.Profile, profile))
		}
		if err != nil {
			return importers.MarkInput(err)
		}
	}
	if err := r.MergeProfile(imported); err != nil {
		return importers.MarkInput(err)
	}
	return printMeasurements(r, imported)
}

// runGroup is the runs of one model on one kind of device.
type runGroup struct {
	model, device string
	runs          []profiler.BenchmarkRun
}

// groups reads the runs of --run, or of the files that are named, by model and device.
func (o *trtexecImport) groups(r *importers.Run) ([]runGroup, error) {
	switch {
	case len(r.Args) > 0 && len(o.runs) > 0:
		return nil, usage.Errorf("--run and the names of files exclude each other: found both")
	case len(r.Args) == 0 && len(o.runs) == 0:
		return nil, usage.Errorf("found no runs, expected files whose names tell the model, the device and the batch, or --run")
	case len(o.runs) > 0:
		g := runGroup{model: o.Model, device: o.Device.Device}
		for _, text := range o.runs {
			run, err := o.readRun(r, text)
			if err != nil {
				return nil, err
			}
			g.runs = append(g.runs, *run)
		}
		return []runGroup{g}, nil
	}
	pattern, err := importers.ParseNames("names", o.names)
	if err != nil {
		return nil, err
	}
	files, err := importers.FilesOf(r.Args, ".json")
	if err != nil {
		return nil, err
	}
	var groups []runGroup
	for _, path := range files {
		fields, err := pattern.Fields(path)
		if err != nil {
			return nil, err
		}
		if groups, err = o.addFile(r, groups, path, fields); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// addFile adds a file, whose name tells the fields, to the run of its model, device, share and batch size.
func (o *trtexecImport) addFile(r *importers.Run, groups []runGroup, path string, fields map[string]string) ([]runGroup, error) {
	model, device := cmp.Or(o.Model, fields["model"]), cmp.Or(o.Device.Device, fields["device"])
	if model == "" && o.File != "" {
		model = profiler.ModelName(o.File)
	}
	if device == "" || model == "" || fields["batch"] == "" {
		return nil, usage.Errorf("%s: found model %q, device %q and batch %q, expected each in the name by --names, or --name and --device", path, model, device, fields["batch"])
	}
	batch, err := strconv.Atoi(fields["batch"])
	share, shareErr := strconv.Atoi(cmp.Or(fields["share"], "1"))
	if err = errors.Join(err, shareErr); err != nil {
		return nil, usage.Errorf("%s: %w", path, err)
	}
	i := slices.IndexFunc(groups, func(g runGroup) bool { return g.model == model && g.device == device })
	if i < 0 {
		i, groups = len(groups), append(groups, runGroup{model: model, device: device})
	}
	g := &groups[i]
	k := slices.IndexFunc(g.runs, func(x profiler.BenchmarkRun) bool { return x.Batch == batch && x.Share == share })
	if k < 0 {
		k, g.runs = len(g.runs), append(g.runs, profiler.BenchmarkRun{Batch: batch, Share: share})
	}
	run := &g.runs[k]
	head, err := importers.ReadHead(path)
	if err != nil {
		return nil, usage.Mark(err)
	}
	what := "times"
	if hasLayers(head) {
		what = "profile"
	}
	if what == "times" && run.Times != nil || what == "profile" && run.Layers != nil {
		return nil, usage.Errorf("%s: found %s of %s at batch %d on %s, which another file has", path, what, model, batch, device)
	}
	if err := o.readPart(r, run, what, path); err != nil {
		return nil, err
	}
	run.Name = strings.TrimPrefix(run.Name+" and "+filepath.Base(path), " and ")
	return groups, nil
}

// prepare reads the profile that is extended and, with the model's file, opens the engine, which finds the cuts. It
// returns a function that closes it.
func (o *trtexecImport) prepare(r *importers.Run) (closeEngine func(), err error) {
	inputs := profiler.Options{Models: []string{o.File}}
	if err := o.inputs.SetModelOptions(&inputs); err != nil {
		return nil, err
	}
	switch {
	case o.inputs.IsSet() && o.File == "":
		return nil, usage.Errorf("--shape, --input and --ops are about --model, which is not named")
	case len(inputs.Buckets) > 0:
		return nil, usage.Errorf("--shape: trtexec ran at one size: import each size under a --name of its own")
	}
	extended, err := importers.ProfileToExtend(r.ProfilePath, r.Path)
	if err != nil {
		return nil, err
	}
	o.OutPath, o.Dims, o.Values, o.Profile = r.Path, inputs.Dims, inputs.Values, extended
	if o.File == "" {
		return func() {}, nil
	}
	eng, err := ort.Open("")
	if err != nil {
		return nil, fmt.Errorf("opening the engine, which finds the cuts of --model: %w", err)
	}
	o.Prober = eng
	if o.Operators, err = o.inputs.RegisterOperators(eng, extended); err != nil {
		eng.Close()
		return nil, err
	}
	return func() { eng.Close() }, nil
}

// printMeasurements prints the measurements that were imported.
func printMeasurements(r *importers.Run, profile *formats.Profile) error {
	if r.JSON {
		values := map[string]any{"models": len(profile.Models)}
		if len(profile.Models) == 1 {
			m := &profile.Models[0]
			values = map[string]any{"model": m.Model, "blocks": len(m.Blocks), "measurements": len(m.Measurements)}
		}
		return r.PrintResult(values, "")
	}
	for _, n := range profile.Notes {
		r.PrintNote("note: %s", n)
	}
	var rows [][]string
	for i := range profile.Models {
		m := &profile.Models[i]
		for _, me := range m.Measurements {
			minTime, maxTime := me.Blocks[0].WallUS, me.Blocks[0].WallUS
			for _, b := range me.Blocks {
				minTime, maxTime = min(minTime, b.WallUS), max(maxTime, b.WallUS)
			}
			rows = append(rows, []string{
				m.Model, me.Device, fmt.Sprintf("1/%d", me.Share), fmt.Sprint(me.Batch), document.FormatMillis(me.WholeModel.WallUS.D()), fmt.Sprint(len(me.Blocks)), document.FormatMillis(minTime.D()) + ".." + document.FormatMillis(maxTime.D()),
			})
		}
	}
	if err := r.PrintTable("llrrrrr", []string{"model", "device", "share", "batch", "whole ms", "blocks", "ms each"}, rows); err != nil {
		return err
	}
	return r.PrintResult(nil, "wrote %s", r.Path)
}

// readRun reads one value of --run, and the files that it names. The value has the form KEY=VALUE,KEY=VALUE; share and
// batch are 1 by default.
func (o *trtexecImport) readRun(r *importers.Run, text string) (*profiler.BenchmarkRun, error) {
	run := &profiler.BenchmarkRun{Share: 1, Batch: 1}
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
			run.Batch, err = strconv.Atoi(value)
		case "share":
			run.Share, err = strconv.Atoi(value)
		case "times", "profile":
			sources = append(sources, filepath.Base(value))
			err = o.readPart(r, run, key, value)
		default:
			return nil, usage.Errorf("--run %q: %q is none of batch, share, times and profile", text, key)
		}
		if _, ok := errors.AsType[*strconv.NumError](err); ok {
			return nil, usage.Errorf("--run %q: %s: expected a whole number", text, part)
		}
		if err != nil {
			return nil, err
		}
	}
	run.Name = strings.Join(sources, " and ")
	if run.Name == "" {
		return nil, usage.Errorf("--run %q: expected times=FILE or profile=FILE", text)
	}
	return run, nil
}

// readPart reads the times or the layers (what is "times" or "profile") of a run. Fields that are not known are noted,
// each once.
func (o *trtexecImport) readPart(r *importers.Run, run *profiler.BenchmarkRun, what, path string) error {
	var unknown []string
	err := importers.ReadFile(path, map[string]string{"times": "times", "profile": "layers"}[what], func(f io.Reader) (err error) {
		if what == "times" {
			run.Times, unknown, err = readTimes(f, path)
		} else {
			run.Layers, unknown, err = readLayers(f, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	if o.noCopies {
		for i := range run.Times {
			run.Times[i].HostToDevice, run.Times[i].DeviceToHost = 0, 0
		}
	}
	if unknown = slices.DeleteFunc(unknown, func(field string) bool { return o.noted[field] }); len(unknown) > 0 {
		r.PrintNote("warning: %s: fields that are not known and not used: %s", path, strings.Join(unknown, ", "))
	}
	for _, field := range unknown {
		o.noted[field] = true
	}
	return nil
}
