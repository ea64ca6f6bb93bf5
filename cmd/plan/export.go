package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"inferplan/export"
	"inferplan/export/targets"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// newExportCommand makes the verb export, with a verb below it for each target.
func newExportCommand(g *globalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export TARGET",
		Short: "Write the files with which other engines and clusters run a plan",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, target := range targets.All() {
		cmd.AddCommand(newTargetCommand(g, target))
	}
	return cmd
}

// newTargetCommand makes the verb of a target below plan export.
func newTargetCommand(g *globalFlags, target *export.Target) *cobra.Command {
	var dir string
	var force bool
	cmd := &cobra.Command{
		Use:   target.Name + " [plan.json] -o DIR",
		Short: target.Summary, Long: target.Description, Example: target.Example,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			if dir == toStdout {
				return usageErrorf("--output -: an export is a folder; name one")
			}
			path := planArgument(args)
			plan, err := readPlan(path)
			if err != nil {
				return err
			}
			source, folder := &export.Source{Plan: plan, Path: path, Note: p.PrintNote}, &export.Folder{}
			err = target.AddFiles(cmd.Context(), source, folder)
			var paths []string
			if err == nil {
				paths, err = folder.Save(target, source, dir, force)
			}
			if _, usage := errors.AsType[*usage.Error](err); usage || len(document.Findings(err)) > 0 {
				err = withCode(exitUsage, err)
			}
			if err != nil {
				return err
			}
			if p.json {
				return p.PrintJSON(map[string]any{"output": dir, "files": paths})
			}
			fmt.Fprintf(p.out, "wrote %s to %s; next: read %s\n", document.CountOf(len(paths), "file"), dir, filepath.Join(dir, "README.md"))
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "output", "o", "", "folder to write (required)")
	cmd.Flags().BoolVar(&force, "force", false, "replace the folder even if it holds other files, or files edited since an earlier export")
	_ = cmd.MarkFlagRequired("output")
	if target.DefineFlags != nil {
		target.DefineFlags(cmd.Flags())
	}
	return cmd
}
