package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/engine/models"
	"inferplan/engine/models/digits"
	"inferplan/formats/importer/samples"
)

func newModelsCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "models",
		Short:  "The models that set-up fetched: published architectures, seeded weights",
		Hidden: true, // an aid of demo and tests
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range models.Names() {
				fmt.Fprintln(cmd.OutOrStdout(), n)
			}
			return nil
		},
	}
	var dir string
	var seed uint64
	write := &cobra.Command{
		Use:     "write NAME...",
		Short:   "Write models of the catalogue as ordinary ONNX files",
		Long:    "Write models of the catalogue as ordinary ONNX files: " + strings.Join(models.Names(), ", ") + ".",
		Example: "  plan models write squeezenet resnet50 --dir models",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			paths, err := models.Write(dir, seed, args...)
			if err != nil {
				return withCode(exitUsage, err)
			}
			for _, path := range paths {
				fmt.Fprintln(p.out, "wrote", path)
			}
			return nil
		},
	}
	write.Flags().StringVar(&dir, "dir", "models", "folder to write to")
	write.Flags().Uint64Var(&seed, "seed", 0, "seed of the weights (default the catalogue's)")
	cmd.AddCommand(write, newSamplesCommand(g))
	return cmd
}

func newSamplesCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "samples FILE",
		Short:   "Write the labelled samples of the digits family, for plan profile --records (CSV, .gz by its name)",
		Example: "  plan models samples digits.csv.gz",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			d, err := models.Digits()
			if err != nil {
				return withCode(exitUsage, err)
			}
			set := &samples.Set{Width: digits.Pixels}
			for _, s := range d.Samples {
				set.Labels = append(set.Labels, s.Label)
				set.Values = append(set.Values, s.Pixels...)
			}
			if err := set.WriteFile(args[0]); err != nil {
				return err
			}
			fmt.Fprintln(p.out, "wrote", args[0])
			return nil
		},
	}
}
