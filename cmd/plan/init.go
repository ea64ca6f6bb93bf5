package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"inferplan/formats"
)

// starters are the documents that a person writes, with the choices explained.
var starters = []struct{ name, text string }{
	{"cluster.yaml", `# Which devices there are. 'plan schema cluster' has every field.
format: inferplan.cluster/v1
pools:
# A pool of like devices; kinds are the names in the profile.
- device: cpu-1        # a pinned thread set of one CPU
  count: 1
  sharing: time        # models take turns on it
# - {device: L4, count: 4, max_shares: 4, per_node: 2, nic_gbps: 10, memory: 24GiB}
`},
	{"workload.yaml", `# What is asked of them. 'plan schema workload' has every field.
format: inferplan.workload/v1
models:
- model: resnet50      # a model of the profile
  slo: 200ms           # or a multiple of the model's own latency: 5x
  weight: 1
arrivals: {process: poisson}
`},
	{"inferplan.yaml", `# Flags for every run, by name; a flag on the command line and INFERPLAN_<FLAG> in the environment win.
solve:
  margin: 0.4
simulate:
  duration: 30s
`},
}

func newInitCommand(g *globals) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write commented starter documents into this folder",
		Long:  "Write cluster.yaml, workload.yaml and inferplan.yaml, commented, into this folder. A file that is there stays as it is.",
		Example: `  plan init
  plan init --force`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newPrinter(cmd, g)
			written := []string{}
			for _, s := range starters {
				_, err := os.Stat(s.name)
				if err == nil && !force {
					p.note("%s is there already; --force replaces it", s.name)
					continue
				}
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("looking for %s: %w", s.name, err)
				}
				if _, err := formats.WriteBytes(s.name, []byte(s.text), formats.Force(force)); err != nil {
					return err
				}
				written = append(written, s.name)
			}
			return p.wrote(written)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace files that are there")
	return cmd
}
