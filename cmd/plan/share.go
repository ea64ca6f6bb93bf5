package main

import (
	"github.com/spf13/cobra"

	"inferplan/engine"
	"inferplan/engine/ort"
	"inferplan/engine/remote"
)

// shareCommand is what profile starts for each share of a GPU.
const shareCommand = "share"

// newShareCommand is the process of one share; by hand it says so and exits.
func newShareCommand() *cobra.Command {
	return &cobra.Command{
		Use:    shareCommand,
		Short:  "The process of one share of a GPU, started by profile",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			heed(cmd.Context())
			return remote.Main(func() (engine.Engine, error) { return ort.Open("") })
		},
	}
}
