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
		newImportPipelineCommand(g), newImportLLMCommand(g), newImportVLLMCommand(g), newImportTransitionsCommand(g))
	return cmd
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
		RunE:    func(cmd *cobra.Command, _ []string) error { return runImportBlocks(newPrinter(cmd, g), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.latency, "latency", "", "CSV of block latencies (required)")
	f.StringVar(&o.cuts, "cuts", "", "CSV of cut sizes (required)")
	f.StringSliceVar(&o.models, "models", nil, "models to take, in this order (default all)")
	f.StringVarP(&o.out, "output", "o", "profile.json", "profile to write")
	_ = cmd.MarkFlagRequired("latency")
	_ = cmd.MarkFlagRequired("cuts")
	return cmd
}

func runImportBlocks(p *printer, o *importBlocksOptions) error {
	if err := p.output("output", o.out, formats.KindProfile); err != nil {
		return err
	}
	latency, err := os.Open(o.latency)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("opening latencies: %w", err))
	}
	defer latency.Close()
	cuts, err := os.Open(o.cuts)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("opening cut sizes: %w", err))
	}
	defer cuts.Close()
	profile, err := blocks.Read(latency, o.latency, cuts, o.cuts, o.models, filepath.Base(o.latency))
	if err != nil {
		return withCode(exitUsage, err)
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
