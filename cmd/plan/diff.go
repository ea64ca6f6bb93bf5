package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/diff"
	"inferplan/planner"
)

func newDiffCommand(g *globals) *cobra.Command {
	var tolerance float64
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "What moved between two plans, or two profiles",
		Long: `What moved between two plans: objective, rates, pipelines, gears, devices, policy, options, inputs;
or between two profiles: devices, models, cuts, and every latency that moved by more than --tolerance.

Exit code 0: nothing differs; 1: something does.`,
		Example: `  plan diff old.json plan.json
  plan diff --json old.json plan.json
  plan diff yesterday/profile.json profile.json --tolerance 0.05`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			d, err := compare(args[0], args[1], tolerance)
			if err != nil {
				return err
			}
			if g.json {
				if err := p.document(d); err != nil {
					return err
				}
			} else {
				for _, l := range d.Lines() {
					fmt.Fprintln(p.out, l)
				}
			}
			if d.Empty() {
				p.note("no difference")
				return nil
			}
			return &exitError{code: exitGate}
		},
	}
	cmd.Flags().Float64Var(&tolerance, "tolerance", 0.02, "of profiles: share by which a latency may move without being told")
	return cmd
}

// compare reads two documents of one kind and says what moved.
func compare(a, b string, tolerance float64) (*diff.Result, error) {
	if err := number("tolerance", tolerance, 0, 1); err != nil {
		return nil, err
	}
	if kindAt(a) == formats.KindProfile {
		x, err := formats.ReadProfile(a)
		if err != nil {
			return nil, withCode(exitUsage, err)
		}
		y, err := formats.ReadProfile(b)
		if err != nil {
			return nil, withCode(exitUsage, err)
		}
		return diff.Profiles(x, y, tolerance), nil
	}
	x, err := readPlan(a)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	y, err := readPlan(b)
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	return planner.Diff(x, y), nil
}
