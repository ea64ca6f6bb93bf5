package main

import "github.com/spf13/cobra"

func newServeCommand(g *globals) *cobra.Command {
	return &cobra.Command{Use: "serve", Short: "x", Example: "x"}
}
