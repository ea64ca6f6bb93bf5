package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/engine/models"
	"inferplan/engine/models/digits"
	"inferplan/formats/importer/samples"
	"inferplan/formats/usage"
)

// newModelsCommand makes the verb models, which lists the models of the catalogue, with verbs below it that write
// them, labelled samples and vectors of passages.
func newModelsCommand(g *globalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the models that set-up fetched, and write them: published architectures, seeded weights",
		Example: `  plan models
  plan models write squeezenet resnet50 --dir models
  plan models samples digits.csv.gz
  plan models vectors passages.txt --model models/embedder.onnx`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newPrinter(cmd, g)
			if g.json {
				return p.PrintJSON(models.Names())
			}
			p.printLines(models.Names())
			return nil
		},
	}
	var dir string
	var seed uint64
	write := &cobra.Command{
		Use:       "write NAME...",
		Short:     "Write models of the catalogue as ordinary ONNX files",
		Long:      "Write models of the catalogue as ordinary ONNX files: " + strings.Join(models.Names(), ", ") + ".",
		Example:   "  plan models write squeezenet resnet50 --dir models",
		Args:      cobra.MinimumNArgs(1),
		ValidArgs: models.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			for _, name := range args {
				if !slices.Contains(models.Names(), name) {
					return usageErrorf("found the model %q, expected %s%s", name, joinList(models.Names()), suggestion(name, models.Names()))
				}
			}
			paths, err := models.Write(dir, seed, args...)
			if err != nil {
				return usage.MarkWriting(err)
			}
			return p.printWritten(paths)
		},
	}
	write.Flags().StringVar(&dir, "dir", "models", "folder to write to")
	write.Flags().Uint64Var(&seed, "seed", 0, "seed of the weights (default the catalogue's)")
	cmd.AddCommand(write, newSamplesCommand(g), newVectorsCommand(g))
	return cmd
}

// newSamplesCommand makes the verb models samples, which writes labelled images of digits.
func newSamplesCommand(g *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "samples FILE",
		Short:   "Write the labelled samples of the digits family, for plan profile --records (CSV, .gz by its name)",
		Example: "  plan models samples digits.csv.gz",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			if err := p.checkOutput("output", args[0], "table"); err != nil {
				return err
			}
			d, err := models.Digits()
			if err != nil {
				return withCode(exitUsage, err)
			}
			set := &samples.SampleSet{Width: digits.Pixels}
			for _, s := range d.Samples {
				set.Labels = append(set.Labels, s.Label)
				set.Values = append(set.Values, s.Pixels...)
			}
			if err := set.WriteFile(args[0]); err != nil {
				return err
			}
			return p.printWritten(args)
		},
	}
}
