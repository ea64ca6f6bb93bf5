package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inferplan/planner/explain"
)

// newExplainCommand makes the verb explain, which prints a plan's objective, bound and gap, what limits it, and its
// assumptions and warnings.
func newExplainCommand(g *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [plan.json]",
		Short: "Why a plan is what it is: bound, gap, what limits it, what more would buy",
		Example: `  plan explain
  plan explain plan.json --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			plan, err := readPlan(planArgument(args))
			if err != nil {
				return err
			}
			if g.json {
				return p.printJSON(map[string]any{
					"objective": plan.Objective, "stopped_by": plan.StoppedBy, "limits": plan.Limits,
					"assumptions": plan.Assumptions, "warnings": plan.Warnings,
				})
			}
			p.printLines(explain.PlanLines(plan))
			for _, a := range plan.Assumptions {
				fmt.Fprintln(p.out, "assumed: "+a)
			}
			for _, w := range plan.Warnings {
				fmt.Fprintln(p.out, "warning: "+w)
			}
			return nil
		},
	}
}
