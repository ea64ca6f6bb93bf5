package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"inferplan/pages"
	"inferplan/planner/explain"
)

// newExplainCommand makes the verb explain, which prints a plan's objective, bound and gap, what limits it, and its
// assumptions and warnings.
func newExplainCommand(g *globalFlags) *cobra.Command {
	var html string
	cmd := &cobra.Command{
		Use:   "explain [plan.json]",
		Short: "Why a plan is what it is: bound, gap, what limits it, what more would buy",
		Long: `Why a plan is what it is: what runs where, the objective with its bound and gap, what limits it,
and its assumptions and warnings. A bar is a group of devices on which the same parts run; its
length is the device, or the time of a device that is shared in time, and dots are what is unused.`,
		Example: `  plan explain
  plan explain plan.json --json
  plan explain plan.json --html plan.html`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			if err := p.checkOutput("html", html, "page"); err != nil {
				return err
			}
			plan, err := readPlan(planArgument(args))
			if err != nil {
				return err
			}
			if html != "" {
				if err := p.writePage(html, planPage(plan)); err != nil {
					return err
				}
			}
			if g.json {
				return p.PrintJSON(map[string]any{
					"objective": plan.Objective, "stopped_by": plan.StoppedBy, "limits": plan.Limits,
					"assumptions": plan.Assumptions, "warnings": plan.Warnings,
				})
			}
			p.printLines(pages.DeviceLines(plan))
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
	cmd.Flags().StringVar(&html, "html", "", "page to write: one file that loads nothing")
	return cmd
}
