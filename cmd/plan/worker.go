package main

import (
	"github.com/spf13/cobra"

	"inferplan/engine/worker"
)

// newWorkerCommand is the process that serve and profile start; by hand it
// says so and exits.
func newWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "A worker process, started by serve and profile",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return worker.Main(cmd.Context()) },
	}
}
