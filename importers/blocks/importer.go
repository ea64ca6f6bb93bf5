package blocks

import (
	"io"
	"path/filepath"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/importer/blocks"
	"inferplan/importers"
)

// Importer describes the verb import blocks, which turns tables of block latencies and cut sizes into a profile.
func Importer() *importers.Importer {
	var latency, cuts string
	var models []string
	return &importers.Importer{
		Usage:   "blocks --latency F --cuts F [--models a,b]",
		Summary: "Block latencies and cut sizes (CSV) into a profile",
		Description: `Block latencies and cut sizes (CSV) into a profile.

latency: model,gpu,vgpu_denominator,block,batch,latency_us
cuts:    model,after_block,bytes_fp16_batch1`,
		Example:       `  plan import blocks --latency block_latency.csv --cuts cut_sizes.csv --models fcn,encnet -o profile.json`,
		DefaultOutput: "profile.json", Kind: formats.KindProfile, RequiredFlags: []string{"latency", "cuts"},
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&latency, "latency", "", "CSV of block latencies (required)")
			f.StringVar(&cuts, "cuts", "", "CSV of cut sizes (required)")
			f.StringSliceVar(&models, "models", nil, "models to take, in this order (default all)")
		},
		Import: func(r *importers.Run) error {
			var profile *formats.Profile
			if err := importers.ReadFile(latency, "latencies", func(times io.Reader) error {
				return importers.ReadFile(cuts, "cut sizes", func(sizes io.Reader) (err error) {
					profile, err = blocks.Read(times, latency, sizes, cuts, models, filepath.Base(latency))
					return err
				})
			}); err != nil {
				return err
			}
			return r.SaveAndShow(profile, map[string]any{"models": len(profile.Models), "devices": len(profile.Devices)},
				"wrote %s: %s on %s", r.Path, document.CountOf(len(profile.Models), "model"), document.CountOf(len(profile.Devices), "device kind"))
		},
	}
}
