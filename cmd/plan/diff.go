package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inferplan/formats/diff"
)

func newDiffCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "What moved between two plans",
		Long: `What moved between two plans: objective, rates, pipelines, gears, devices, policy, options, inputs.

Exit code 0: nothing differs; 1: something does.`,
		Example: `  plan diff old.json plan.json
  plan diff --json old.json plan.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			a, err := readPlan(args[0])
			if err != nil {
				return withCode(exitUsage, err)
			}
			b, err := readPlan(args[1])
			if err != nil {
				return withCode(exitUsage, err)
			}
			d := diff.Plans(a, b)
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
}
