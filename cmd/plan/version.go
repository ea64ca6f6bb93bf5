package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"inferplan/planner/kind"
	"inferplan/solver/highs"
)

// newVersionCommand makes the verb version.
func newVersionCommand(g *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of plan and of its solver",
		Example: `  plan version
  plan version --json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(newPrinter(cmd, g))
		},
	}
}

// printVersion prints the versions of the program and of what it is made with.
func printVersion(p *printer) error {
	if p.json {
		return p.PrintJSON(map[string]string{
			"version": kind.Version, "solver": highs.Version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	fmt.Fprintf(p.out, "plan %s (%s, %s, %s/%s)\n", kind.Version, highs.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
