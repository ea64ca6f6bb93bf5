package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/inputs"
)

// starterDocument is a document for a person to edit, with comments that explain the choices.
type starterDocument struct{ name, text string }

// starterDocuments returns documents that fit what a profile has measured. If profile is nil, they are examples.
func starterDocuments(profile *formats.Profile) []starterDocument {
	models, pools := []string{"resnet50"}, []formats.Pool{{Device: "cpu-1", Count: 1, Sharing: formats.SharingTime}}
	if profile != nil {
		models = profile.RequestedModels()
		if thisCluster, _, err := planner.LocalCluster(profile, thisMachine()); err == nil {
			pools = thisCluster.Pools
		} else {
			pools = nil
			for i := range profile.Devices {
				pools = append(pools, formats.Pool{Device: profile.Devices[i].Device, Count: 1})
			}
		}
	}
	return []starterDocument{{"cluster.yaml", clusterStarter(pools)}, {"workload.yaml", workloadStarter(models)}, {"inferplan.yaml", configStarter}}
}

// clusterStarter returns a commented cluster document with the pools.
func clusterStarter(pools []formats.Pool) string {
	var b strings.Builder
	b.WriteString(`# Which devices there are. 'plan schema cluster' has every field.
format: inferplan.cluster/v1
pools:
# A pool of like devices; kinds are the names in the profile.
`)
	for i := range pools {
		p := &pools[i]
		fmt.Fprintf(&b, "- device: %q\n  count: %d\n", p.Device, p.Count)
		if p.MaxShares > 1 {
			fmt.Fprintf(&b, "  max_shares: %d\n", p.MaxShares)
		}
		if p.Sharing == formats.SharingTime {
			b.WriteString("  sharing: time        # models take turns on it\n")
		}
	}
	b.WriteString("# - {device: L4, count: 4, max_shares: 4, per_node: 2, nic_gbps: 10, memory: 24GiB}\n")
	return b.String()
}

// workloadStarter returns a commented workload document with the models.
func workloadStarter(models []string) string {
	var b strings.Builder
	b.WriteString("# What is asked of them. 'plan schema workload' has every field.\nformat: inferplan.workload/v1\nmodels:\n")
	for i, m := range models {
		if i == 0 {
			fmt.Fprintf(&b, "- model: %q  # a model of the profile\n  slo: 200ms           # or a multiple of the model's own latency: 5x\n  weight: 1            # its share of the rates\n", m)
			continue
		}
		fmt.Fprintf(&b, "- {model: %q, slo: 200ms, weight: 1}\n", m)
	}
	b.WriteString("arrivals: {process: poisson}\n")
	return b.String()
}

const configStarter = `# Flags for every run, by name; a flag on the command line and INFERPLAN_<FLAG> in the environment win.
solve:
  margin: 0.4
simulate:
  duration: 30s
`

// newInitCommand makes the verb init, which writes a cluster, a workload and a configuration to start from.
func newInitCommand(g *globalFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write commented starter documents into this folder",
		Long: `Write cluster.yaml, workload.yaml and inferplan.yaml, commented, into this folder. They hold the
models and devices of the profile that is here. A file that is there stays as it is.`,
		Example: `  plan init
  plan init --force`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newPrinter(cmd, g)
			var profile *formats.Profile
			path, err := inputs.FindFile("profile", "")
			if err != nil {
				return err
			}
			if path != "" {
				if profile, err = formats.ReadProfile(path); err != nil {
					return withCode(exitUsage, err)
				}
				p.printAssumptions([]string{"models and devices: those of " + path})
			}
			written := []string{}
			for _, s := range starterDocuments(profile) {
				_, err := os.Stat(s.name)
				if err == nil && !force {
					p.printNote("%s is there already; --force replaces it", s.name)
					continue
				}
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("looking for %s: %w", s.name, err)
				}
				if _, err := document.WriteBytes(s.name, []byte(s.text), document.Force(force)); err != nil {
					return err
				}
				written = append(written, s.name)
			}
			return p.printWritten(written)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace files that are there")
	return cmd
}
