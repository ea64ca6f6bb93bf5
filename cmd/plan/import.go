package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/importer/blocks"
)

func newImportCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import KIND",
		Short: "Turn others' measurements into our documents",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImportBlocksCommand(g), newImportReferenceCommand(g), newImportTraceCommand(g), newImportRecordsCommand(g), newImportTRTExecCommand(g),
		newImportPipelineCommand(g), newImportLLMCommand(g), newImportVLLMCommand(g), newImportTransitionsCommand(g), newImportWorkloadCommand(g))
	return cmd
}

// importing completes the command of an importer, which writes one document of a kind.
func importing(g *globals, cmd *cobra.Command, out *string, name, kind string, run func(p *printer, args []string) error) *cobra.Command {
	cmd.Flags().StringVarP(out, "output", "o", name, kind+" to write")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := newPrinter(cmd, g)
		if err := p.output("output", *out, kind); err != nil {
			return err
		}
		return run(p, args)
	}
	return cmd
}

// readFile reads a file with what is given.
func readFile(path, what string, read func(*os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("opening %s: %w", what, err))
	}
	defer f.Close()
	return withCode(exitUsage, read(f))
}

type importBlocksOptions struct {
	latency, cuts string
	models        []string
	out           string
}

func newImportBlocksCommand(g *globals) *cobra.Command {
	o := &importBlocksOptions{}
	cmd := &cobra.Command{
		Use:   "blocks --latency F --cuts F [--models a,b]",
		Short: "Block latencies and cut sizes (CSV) into a profile",
		Long: `Block latencies and cut sizes (CSV) into a profile.

latency: model,gpu,vgpu_denominator,block,batch,latency_us
cuts:    model,after_block,bytes_fp16_batch1`,
		Example: `  plan import blocks --latency block_latency.csv --cuts cut_sizes.csv --models fcn,encnet -o profile.json`,
		Args:    noArguments,
	}
	f := cmd.Flags()
	f.StringVar(&o.latency, "latency", "", "CSV of block latencies (required)")
	f.StringVar(&o.cuts, "cuts", "", "CSV of cut sizes (required)")
	f.StringSliceVar(&o.models, "models", nil, "models to take, in this order (default all)")
	_ = cmd.MarkFlagRequired("latency")
	_ = cmd.MarkFlagRequired("cuts")
	return importing(g, cmd, &o.out, "profile.json", formats.KindProfile, func(p *printer, _ []string) error { return runImportBlocks(p, o) })
}

func runImportBlocks(p *printer, o *importBlocksOptions) error {
	var profile *formats.Profile
	if err := readFile(o.latency, "latencies", func(latency *os.File) error {
		return readFile(o.cuts, "cut sizes", func(cuts *os.File) (err error) {
			profile, err = blocks.Read(latency, o.latency, cuts, o.cuts, o.models, filepath.Base(o.latency))
			return err
		})
	}); err != nil {
		return err
	}
	if err := p.save(o.out, profile, true); err != nil {
		return err
	}
	if p.json {
		return p.document(map[string]any{"output": o.out, "models": len(profile.Models), "devices": len(profile.Devices)})
	}
	fmt.Fprintf(p.out, "wrote %s: %s on %s\n", o.out, plural(len(profile.Models), "model"), plural(len(profile.Devices), "device kind"))
	return nil
}
