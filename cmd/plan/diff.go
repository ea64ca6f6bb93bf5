package main

import (
	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/formats/usage"
	"inferplan/planner"
)

// newDiffCommand makes the verb diff, which prints what differs between two plans, profiles or reports. It exits with
// the code of a gate if anything does.
func newDiffCommand(g *globalFlags) *cobra.Command {
	var tolerance float64
	var format, html string
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "What moved between two plans, profiles or reports",
		Long: `What moved between two plans: objective, rates, pipelines, gears, devices, policy, options, inputs;
between two profiles: devices, models, cuts, and every latency that moved by more than --tolerance;
or between two reports: attainment, goodput, latencies, by model, and use of devices.
Of plans the first line says what a switch means: certified rates, pipelines, devices that load other
blocks, the objective.

Exit code 0: nothing differs; 1: something does.`,
		Example: `  plan diff old.json plan.json
  plan diff --json old.json plan.json
  plan diff old.json plan.json --format markdown
  plan diff old.json plan.json --html diff.html
  plan diff yesterday/profile.json profile.json --tolerance 0.05
  plan diff before.json after.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			lines := (*diff.Result).Lines
			switch format {
			case "text":
			case "markdown":
				lines = (*diff.Result).Markdown
			default:
				return usageErrorf("--format %q: expected text or markdown", format)
			}
			if err := p.checkOutput("html", html, "page"); err != nil {
				return err
			}
			d, err := compareDocuments(args[0], args[1], tolerance)
			if err != nil {
				return err
			}
			if html != "" {
				if err := writeDiffPage(p, html, args[0], args[1], d); err != nil {
					return err
				}
			}
			if g.json {
				if err := p.PrintJSON(d); err != nil {
					return err
				}
			} else {
				p.printLines(lines(d))
			}
			if d.Empty() {
				p.PrintNote("no difference")
				return nil
			}
			return &exitError{code: exitGate}
		},
	}
	cmd.Flags().Float64Var(&tolerance, "tolerance", 0.02, "profiles only: report a latency that changed by more than this fraction")
	cmd.Flags().StringVar(&format, "format", "text", "text or markdown")
	cmd.Flags().StringVar(&html, "html", "", "page to write: one file that loads nothing")
	completeFlag(cmd, "format", "text", "markdown")
	return cmd
}

// compareDocuments reads two documents of one kind and returns their differences. The kind is that of the first
// document. tolerance is the share by which latencies of profiles may differ.
func compareDocuments(a, b string, tolerance float64) (*diff.Result, error) {
	if err := usage.CheckRange("tolerance", tolerance, 0, 1); err != nil {
		return nil, err
	}
	switch kindAt(a) {
	case formats.KindProfile:
		return compareFiles(a, b, formats.ReadProfile, func(x, y *formats.Profile) *diff.Result { return diff.Profiles(x, y, tolerance) })
	case formats.KindReport:
		return compareFiles(a, b, formats.ReadReport, diff.Reports)
	}
	return compareFiles(a, b, readPlan, planner.Diff)
}

// compareFiles reads two documents with read and compares them.
func compareFiles[T any](a, b string, read func(string) (T, error), compare func(x, y T) *diff.Result) (*diff.Result, error) {
	x, err := read(a)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	y, err := read(b)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	return compare(x, y), nil
}
