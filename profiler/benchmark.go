package profiler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/modelfile"
	"inferplan/formats/report"
)

// Benchmark is a tool that timed engines on a GPU, outside of this program.
type Benchmark interface {
	// Name returns the name of the tool.
	Name() string
	// Provider returns the name of what executed the model, as the profile says it.
	Provider() string
	// Method returns how the tool measured, for the profile.
	Method() string
	// OperatorNames returns the names that operators of the model may have of which an engine's layer consists. It returns
	// nil if the layer stands for no operator.
	OperatorNames(layer string) []string
}

// Inference holds the times of one inference.
type Inference struct {
	HostToDevice time.Duration // the copy of the inputs
	Compute      time.Duration // the run on the GPU
	DeviceToHost time.Duration // the copy of the outputs
}

// Total returns the time of an inference with the copies before and after it.
func (x *Inference) Total() time.Duration { return x.HostToDevice + x.Compute + x.DeviceToHost }

// Layers holds the time of every layer of an engine.
type Layers struct {
	Count  int // number of iterations
	Layers []Layer
}

// Layer is one layer, in the order in which the engine runs them.
type Layer struct {
	Name string
	Time time.Duration // the time of one iteration
}

// Total returns the time of all layers in one iteration.
func (l *Layers) Total() time.Duration {
	sum := time.Duration(0)
	for i := range l.Layers {
		sum += l.Layers[i].Time
	}
	return sum
}

// BenchmarkRun holds the measurements of a benchmark at one batch size and share: of inferences, of layers, or of both.
type BenchmarkRun struct {
	Share, Batch int
	Times        []Inference // of each inference
	Layers       *Layers
	Name         string // the name in errors, and of the source in the profile
}

// BenchmarkOptions describes the model and the device that a benchmark ran.
type BenchmarkOptions struct {
	Benchmark Benchmark
	Model     string                // the model's name; if empty, that of the file
	Device    formats.ProfileDevice // its kind, and other known facts
	Runs      []BenchmarkRun
	Blocks    int // number of blocks that layers are grouped into; 0 means DefaultBlocks

	// File is the ONNX model that the engines were built from. Prober runs it once to learn the shapes at its
	// cuts. If File is empty, the layers are grouped only by time, and the tensors between blocks are not known.
	File   string
	Prober engine.Engine
	// Dims and Values of inputs, as in Options. Those that are not given are taken from Profile.
	Dims   map[string]map[string][]int64
	Values map[string]map[string]graph.Literal
	// Operators are the libraries of custom operators that the engine has.
	Operators []modelfile.OperatorLibrary
	OutPath   string // the profile's file, to which paths are relative

	// Profile is the profile that the numbers are added to, whose cuts are used. It may be nil.
	Profile *formats.Profile
}

// ImportBenchmark makes a profile from the measurements of a benchmark.
//
// # Layers and blocks
//
// A layer's time is its median (its mean in files without one). If a run has times as well, its layers are scaled
// so that their sum is the median time of an inference on the GPU, because timing layers one by one slows an
// engine down. The copies of inputs and outputs between host and device count: that to the device belongs to the first
// block, that to the host to the last.
//
// Without the model's file, all runs must have the same layers. They are grouped into blocks so that the largest
// block takes the least time, and each run counts the same. The tensors between blocks are then unknown, so no
// plan cuts the model where a network is crossed, until it is imported with its file.
//
// With the file, layers are matched to the model's operators by the names that the benchmark finds in the layer's. A layer that spans a possible cut forbids that cut. A layer without an operator's name (a change
// of layout) counts with the next layer that has one. Runs may then be of different engines. The parts between the
// remaining cuts are grouped into blocks by the same rule and, at equal times, at the cuts that the fewest bytes
// cross.
//
// A run without layers gives the whole model as one block.
func ImportBenchmark(ctx context.Context, o BenchmarkOptions) (*formats.Profile, error) {
	im := &benchmarkImport{options: o, notes: []string{}}
	if err := im.checkInputs(); err != nil {
		return nil, err
	}
	if o.File != "" {
		if err := im.open(ctx); err != nil {
			return nil, err
		}
	}
	var err error
	switch {
	case !im.hasLayers:
		err = im.asWhole()
	case o.File == "":
		err = im.byTime()
	default:
		err = im.byGraph()
	}
	if err != nil {
		return nil, err
	}
	return im.profile(), nil
}

// benchmarkImport is the state of an import.
type benchmarkImport struct {
	options   BenchmarkOptions
	hasLayers bool
	model     model // the model of the file; nil without a file
	chain     *graph.Chain
	blocks    []formats.Block
	times     [][]time.Duration // times by run and block, before scaling
	notes     []string
}

// checkInputs fills in the defaults of an import, sorts the runs by share and batch, and returns an error if something
// is missing or does not fit the profile that the numbers are added to.
func (im *benchmarkImport) checkInputs() error {
	o := &im.options
	o.Blocks = cmp.Or(o.Blocks, DefaultBlocks)

	// Check the options.
	switch {
	case o.Device.Device == "":
		return inputError("no device kind: say what the engine ran on, such as L4")
	case formats.IsCPU(o.Device.Device):
		return inputError("device %s: %s runs on GPUs", o.Device.Device, o.Benchmark.Name())
	case o.Model == "" && o.File == "":
		return inputError("no model: give its name, or the ONNX file that the engine was built from")
	case o.File != "" && o.Prober == nil:
		return inputError("%s: no engine to find its cuts with", o.File)
	case o.Blocks < 1:
		return inputError("%d blocks: expected at least 1", o.Blocks)
	case len(o.Runs) == 0:
		return inputError("no run: give what %s measured of at least one batch size", o.Benchmark.Name())
	}
	if o.Model == "" {
		o.Model = ModelName(o.File)
	}

	// Sort the runs by share and batch size, and check each.
	slices.SortStableFunc(o.Runs, func(a, b BenchmarkRun) int {
		if a.Share != b.Share {
			return a.Share - b.Share
		}
		return a.Batch - b.Batch
	})
	for i, r := range o.Runs {
		switch {
		case r.Batch < 1 || r.Share < 1:
			return inputError("%s: batch %d on a share 1/%d: expected at least 1 of each", r.Name, r.Batch, r.Share)
		case r.Times == nil && r.Layers == nil:
			return inputError("%s: neither times nor layers", r.Name)
		case i > 0 && r.Batch == o.Runs[i-1].Batch && r.Share == o.Runs[i-1].Share:
			return inputError("%s: batch %d on a share 1/%d a second time", r.Name, r.Batch, r.Share)
		}
		im.hasLayers = im.hasLayers || r.Layers != nil
	}

	// Numbers of another program do not mix with measured ones of the same device kind.
	if known := im.device(); known != nil && (known.Engine != importedEngine || known.Provider != o.Benchmark.Provider()) {
		return inputError("the profile has %s from elsewhere (%s): import under another kind, such as %s-%s, or into another profile (-o)", known.Device, describeDevice(*known), known.Device, o.Benchmark.Provider())
	}
	for _, r := range o.Runs {
		if im.hasLayers && r.Layers == nil {
			return inputError("%s: no layers, which other runs have: give those of all runs, or of none", r.Name)
		}
	}
	return nil
}

// importedEngine is the engine of devices whose numbers another program measured.
const importedEngine = "imported"

// device returns the kind in the profile that the numbers are added to, or nil.
func (im *benchmarkImport) device() *formats.ProfileDevice {
	if im.options.Profile == nil {
		return nil
	}
	for i := range im.options.Profile.Devices {
		if known := &im.options.Profile.Devices[i]; known.Device == im.options.Device.Device {
			return known
		}
	}
	return nil
}

// open opens the model's file, to find its cuts. A model that cannot be cut has no chain.
func (im *benchmarkImport) open(ctx context.Context) error {
	opt := &Options{Engine: im.options.Prober, Dims: im.options.Dims, Values: im.options.Values, Operators: im.options.Operators, Profile: im.options.Profile}
	if im.options.Profile != nil {
		opt.basedOn = im.options.Profile.FindModel(im.options.Model)
	}
	m, err := openONNX(ctx, im.options.File, opt)
	if err != nil {
		return err
	}
	im.model = m
	if x, ok := m.(onnxModel); ok {
		im.chain = x.chain
	}
	return nil
}

// profileModel returns the model in the profile that the numbers are added to, or nil.
func (im *benchmarkImport) profileModel() *formats.ProfileModel {
	if im.options.Profile == nil {
		return nil
	}
	e := &formats.ProfileModel{Model: im.options.Model, Source: im.source()}
	if m := findModel(im.options.Profile, e); m != nil && sameSource(m, e) {
		return m
	}
	return nil
}

// source describes the model's file for the profile, or returns nil without a file.
func (im *benchmarkImport) source() *formats.ModelSource {
	if im.model == nil {
		return nil
	}
	info := im.model.info()
	return &formats.ModelSource{Path: relativeTo(im.options.OutPath, info.path), SHA256: info.sha256, Weights: info.files}
}

// asWhole makes the whole model one block, for runs without layers. Their block times stay
// 0, and profile takes the time of the inference for the block.
func (im *benchmarkImport) asWhole() error {
	if known := im.profileModel(); known != nil && len(known.Blocks) != 1 {
		return inputError("%s is cut into %d blocks in the profile, and the runs have no layers: give them, too", im.options.Model, len(known.Blocks))
	}
	im.blocks = []formats.Block{{Name: "block0"}}
	if im.model != nil {
		im.blocks = describeBlocks(im.model.wholeModel())
	}
	for range im.options.Runs {
		im.times = append(im.times, []time.Duration{0})
	}
	im.notes = append(im.notes, "no layers were given: one block")
	return nil
}

// profile returns the document: the device, the model with its blocks, and a measurement per run. The times of
// blocks are scaled so that they sum to the time of an inference, if the run has both.
func (im *benchmarkImport) profile() *formats.Profile {
	o := &im.options
	d := o.Device
	d.Engine, d.Provider, d.Method = importedEngine, o.Benchmark.Provider(), o.Benchmark.Method()

	// An earlier import may have described the device already.
	var sources []string
	if h := im.device(); h != nil { // present after an earlier import
		d.Name, d.Driver, d.EngineVersion = cmp.Or(d.Name, h.Name), cmp.Or(d.Driver, h.Driver), cmp.Or(d.EngineVersion, h.EngineVersion)
		sources, d.CostSeconds = strings.Split(h.Source, ", "), h.CostSeconds
	}

	// Describe the model.
	m := formats.ProfileModel{Model: o.Model, Source: im.source(), Blocks: im.blocks, Measurements: []formats.Measurement{}}
	if im.model != nil {
		in := im.model.info()
		m.Inputs, m.Outputs, m.Constants, m.Operators = inputInfos(&in), tensorInfos(in.outputs), constantInfos(in.constants), in.operators
	}

	// Write the measurements, with layers scaled to the time of the inference.
	var scales []string
	for i, r := range o.Runs {
		me := formats.Measurement{Device: d.Device, Share: r.Share, Batch: r.Batch}
		wholeTime := sumOf(im.times[i])
		samples := 0
		if r.Layers != nil {
			samples = r.Layers.Count
		}
		me.WholeModel = &formats.Latency{WallUS: document.Micros(wholeTime), Samples: samples}
		scale := 1.0
		var toDevice, toHost document.Micros // medians of the copies
		if r.Times != nil {
			totals := timesOf(r.Times, (*Inference).Total)
			me.WholeModel = latencyOf(totals)
			toDevice = latencyOf(timesOf(r.Times, func(x *Inference) time.Duration { return x.HostToDevice })).WallUS
			toHost = latencyOf(timesOf(r.Times, func(x *Inference) time.Duration { return x.DeviceToHost })).WallUS
			if wholeTime > 0 {
				scale = float64(latencyOf(timesOf(r.Times, func(x *Inference) time.Duration { return x.Compute })).WallUS) / float64(wholeTime)
				scales = append(scales, fmt.Sprintf("%.3f at batch %d", scale, r.Batch))
			}
			d.CostSeconds += sumOf(totals).Seconds()
		}
		for _, t := range im.times[i] {
			l := formats.Latency{WallUS: max(document.Micros(float64(t)*scale+0.5), 1), Samples: samples}
			if r.Layers == nil {
				l = *me.WholeModel
			}
			me.Blocks = append(me.Blocks, l)
		}
		if r.Layers != nil {
			me.Blocks[0].WallUS += toDevice
			me.Blocks[len(me.Blocks)-1].WallUS += toHost
		}
		m.Measurements = append(m.Measurements, me)
		if !slices.Contains(sources, r.Name) {
			sources = append(sources, r.Name)
		}
	}

	// Put the document together, with a note.
	d.Source = strings.Join(sources, ", ")
	p := &formats.Profile{Format: profileFormat, Devices: []formats.ProfileDevice{d}, Models: []formats.ProfileModel{m}}
	if len(scales) > 0 {
		im.notes = append(im.notes, "layer times times "+strings.Join(scales, ", ")+" are the inference's")
	}
	subject := fmt.Sprintf("%s of %s on %s", o.Benchmark.Name(), o.Model, d.Device)
	putNote(p, subject, subject+noteSep+strings.Join(im.notes, "; "))
	return p
}

// timesOf returns a time of each inference.
func timesOf(list []Inference, timeOf func(*Inference) time.Duration) []time.Duration {
	out := make([]time.Duration, len(list))
	for i := range list {
		out[i] = timeOf(&list[i])
	}
	return out
}

// sumOf returns the sum of times.
func sumOf(list []time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, t := range list {
		sum += t
	}
	return sum
}

// latencyOf returns the median of samples with its 95 % interval, and their 99th percentile, for the profile. Fewer
// samples than an interval needs give none (half width 0).
func latencyOf(samples []time.Duration) *formats.Latency {
	s := slices.Clone(samples)
	slices.Sort(s)
	l := &formats.Latency{WallUS: document.Micros(report.Percentile(s, 0.5)), P99US: document.Micros(report.Percentile(s, 0.99)), Samples: len(s)}
	if lo, hi, ok := report.MedianInterval(s, 0.95); ok {
		l.HalfWidthUS = document.Micros((hi - lo) / 2)
	}
	return l
}
