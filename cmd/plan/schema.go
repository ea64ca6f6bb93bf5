package main

import (
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
)

func newSchemaCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "schema KIND",
		Short: "Print the JSON Schema of a document kind",
		Long:  "Print the JSON Schema of a document kind: " + strings.Join(formats.Kinds(), ", ") + ".",
		Example: `  plan schema plan > plan.schema.json
  plan schema cluster`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: formats.Kinds(),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := formats.Schema(args[0])
			if err != nil {
				return withCode(exitUsage, err)
			}
			_, err = cmd.OutOrStdout().Write(s)
			return err
		},
	}
}
