package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/importer/blocks"
)

// importBlocks describes the verb import blocks, which turns tables of block latencies and cut sizes into a profile.
func importBlocks() importer {
	var latency, cuts string
	var models []string
	return importer{
		use:     "blocks --latency F --cuts F [--models a,b]",
		summary: "Block latencies and cut sizes (CSV) into a profile",
		description: `Block latencies and cut sizes (CSV) into a profile.

latency: model,gpu,vgpu_denominator,block,batch,latency_us
cuts:    model,after_block,bytes_fp16_batch1`,
		example: `  plan import blocks --latency block_latency.csv --cuts cut_sizes.csv --models fcn,encnet -o profile.json`,
		args:    noArguments, defaultOutput: "profile.json", kind: formats.KindProfile, requiredFlags: []string{"latency", "cuts"},
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&latency, "latency", "", "CSV of block latencies (required)")
			f.StringVar(&cuts, "cuts", "", "CSV of cut sizes (required)")
			f.StringSliceVar(&models, "models", nil, "models to take, in this order (default all)")
		},
		runImport: func(r *importRun) error {
			var profile *formats.Profile
			if err := readFile(latency, "latencies", func(times *os.File) error {
				return readFile(cuts, "cut sizes", func(sizes *os.File) (err error) {
					profile, err = blocks.Read(times, latency, sizes, cuts, models, filepath.Base(latency))
					return err
				})
			}); err != nil {
				return err
			}
			return r.saveAndShow(profile, map[string]any{"models": len(profile.Models), "devices": len(profile.Devices)},
				"wrote %s: %s on %s", r.path, countOf(len(profile.Models), "model"), countOf(len(profile.Devices), "device kind"))
		},
	}
}
