package perfanalyzer

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
)

type tableImport struct {
	model, device, names string
	batch                int
}

// defaultNames describes the names of perf_analyzer's files without --names.
const defaultNames = "{model}_{device}_b{batch}*.csv"

// Importer describes the verb import perf-analyzer, which turns tables of Triton's tools into a profile of whole models.
func Importer() *importers.Importer {
	o := &tableImport{}
	return &importers.Importer{
		Usage:   "perf-analyzer FILE|FOLDER|'GLOB'... [--device KIND]",
		Summary: "Tables of Triton's perf_analyzer and Model Analyzer into a profile",
		Description: `Tables of Triton's perf_analyzer (-f, --concurrency-range 1) and Model Analyzer
(metrics-model-inference.csv) into a profile of whole models.

The time of a batch is what the server computed for one client: copies to the GPU, the run,
copies back. A table of Model Analyzer without these columns (inference_output_fields) gives
the p99 latency in their place, which is longer. Of several configurations of a model the
shortest time counts.

perf_analyzer's tables do not say which model, batch and device they are of: the names of
files do, by --names, or --name, --batch and --device. The numbers are added to --profile
(default: the output file, where it exists).`,
		Example: `  perf_analyzer -m resnet50 -b 8 --concurrency-range 1 -f resnet50_L4_b8.csv
  plan import perf-analyzer 'runs/*.csv'
  plan import perf-analyzer results/metrics-model-inference.csv --device L4 -o profile.json`,
		MinArguments: 1, MaxArguments: importers.AnyNumber, DefaultOutput: "profile.json", Kind: formats.KindProfile, ExtendsProfile: true,
		Recognize: recognize,
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&o.model, "name", "", "name of the model")
			f.StringVar(&o.device, "device", "", "device kind of the numbers, such as L4")
			f.IntVar(&o.batch, "batch", 0, "batch size of the requests (perf_analyzer -b)")
			f.StringVar(&o.names, "names", defaultNames, "pattern of the names of files")
		},
		Import: o.importTables,
	}
}

// importTables reads the tables, adds their models to the profile, and prints the measurements.
func (o *tableImport) importTables(r *importers.Run) error {
	if err := usage.CheckWhole("batch", o.batch, 0, maxBatch); err != nil {
		return err
	}
	pattern, err := importers.ParseNames("names", o.names)
	if err != nil {
		return err
	}
	files, err := importers.FilesOf(r.Args, ".csv")
	if err != nil {
		return err
	}
	p := &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
	for _, path := range files {
		var times []batchTime
		if err := importers.ReadFile(path, "the table", func(f io.Reader) (err error) { times, err = readTimes(f, path); return err }); err != nil {
			return err
		}
		for _, x := range times {
			device, err := o.complete(pattern, path, &x)
			if err != nil {
				return err
			}
			if err := addTime(p, device, filepath.Base(path), &x); err != nil {
				return usage.Errorf("%s: %w", path, err)
			}
			if x.isLatency {
				r.PrintNote("note: %s: no times of the server: the p99 latency of one client stands for them", path)
			}
		}
	}
	if err := r.MergeProfile(p); err != nil {
		return importers.MarkInput(err)
	}
	if r.JSON {
		return r.PrintResult(map[string]any{"models": len(p.Models), "devices": len(p.Devices)}, "")
	}
	var rows [][]string
	for i := range p.Models {
		for _, m := range p.Models[i].Measurements {
			rows = append(rows, []string{p.Models[i].Model, m.Device, fmt.Sprint(m.Batch), document.FormatMillis(m.WholeModel.WallUS.D())})
		}
	}
	if err := r.PrintTable("llrr", []string{"model", "device", "batch", "ms"}, rows); err != nil {
		return err
	}
	return r.PrintResult(nil, "wrote %s", r.Path)
}

// complete adds to a time what the file does not tell, from the flags and from its name, and returns its device kind.
func (o *tableImport) complete(pattern *importers.NamePattern, path string, x *batchTime) (device string, err error) {
	device = o.device
	x.model = cmp.Or(o.model, x.model)
	x.batch = cmp.Or(x.batch, o.batch)
	if x.model != "" && x.batch > 0 && device != "" {
		return device, nil
	}
	fields, err := pattern.Fields(path)
	if err != nil {
		return "", err
	}
	x.model, device = cmp.Or(x.model, fields["model"]), cmp.Or(device, fields["device"])
	if x.batch == 0 {
		if x.batch, err = strconv.Atoi(cmp.Or(fields["batch"], "0")); err != nil {
			return "", usage.Errorf("%s: %w", path, err)
		}
	}
	if x.model == "" || device == "" || x.batch < 1 || x.batch > maxBatch {
		return "", usage.Errorf("%s: found model %q, device %q and batch %d, expected each in the name by --names, or --name, --device and --batch", path, x.model, device, x.batch)
	}
	return device, nil
}

// addTime adds the time of a batch to the profile.
func addTime(p *formats.Profile, device, source string, x *batchTime) error {
	i := slices.IndexFunc(p.Devices, func(d formats.ProfileDevice) bool { return d.Device == device })
	if i < 0 {
		i = len(p.Devices)
		p.Devices = append(p.Devices, formats.ProfileDevice{Device: device, Engine: "imported", Method: "Triton: mean time on the server for one client, with copies between host and device"})
	}
	d := &p.Devices[i]
	if !slices.Contains(strings.Split(d.Source, ", "), source) {
		d.Source = strings.TrimPrefix(d.Source+", "+source, ", ")
	}
	k := slices.IndexFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == x.model })
	if k < 0 {
		k = len(p.Models)
		p.Models = append(p.Models, formats.ProfileModel{Model: x.model, Blocks: []formats.Block{{Name: "block0"}}, Measurements: []formats.Measurement{}})
	}
	m := &p.Models[k]
	if slices.ContainsFunc(m.Measurements, func(y formats.Measurement) bool { return y.Device == device && y.Batch == x.batch }) {
		return fmt.Errorf("found %s at batch %d on %s, which another file has", x.model, x.batch, device)
	}
	l := formats.Latency{WallUS: document.Micros(x.elapsed)}
	m.Measurements = append(m.Measurements, formats.Measurement{Device: device, Share: 1, Batch: x.batch, WholeModel: &l, Blocks: []formats.Latency{l}})
	return nil
}
