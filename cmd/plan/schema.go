package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
)

// newSchemaCommand makes the verb schema, which prints the JSON Schema of a kind of document.
func newSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema KIND",
		Short: "Print the JSON Schema of a document kind",
		Long:  "Print the JSON Schema of a document kind: " + strings.Join(formats.Kinds(), ", ") + ".",
		Example: `  plan schema plan > plan.schema.json
  plan schema cluster`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: formats.Kinds(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(formats.Kinds(), args[0]) {
				return usageErrorf("found the kind %q, expected %s%s", args[0], joinList(formats.Kinds()), suggestion(args[0], formats.Kinds()))
			}
			s, err := formats.Schema(args[0])
			if err != nil {
				return withCode(exitUsage, err)
			}
			_, err = cmd.OutOrStdout().Write(s)
			return err
		},
	}
}
