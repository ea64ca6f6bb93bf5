package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
	"inferplan/planner/inputs"
)

// starterDocument is a document for a person to edit, with comments that explain the choices.
type starterDocument struct{ name, text string }

// starterDocuments returns documents that fit what a profile has measured and the machine has. If profile is nil, they
// are examples.
func starterDocuments(profile *formats.Profile, machine planner.Machine) []starterDocument {
	pools, workload := []formats.Pool{{Device: "cpu-1", Count: 1, Sharing: formats.SharingTime}}, modelsStarter([]string{"resnet50"}, nil, defaultSLO)
	if profile != nil {
		pools = starterPools(profile, machine)
		workload = workloadStarter(profile, pools)
	}
	return []starterDocument{{"cluster.yaml", clusterStarter(pools)}, {"workload.yaml", workload}, {"inferplan.yaml", configStarter}}
}

// starterPools returns the devices of the machine that a profile has measured or, if there are none, of each kind one
// for each model, and as many as language models take once each. Models take turns on the machine's devices if these are
// too few for one each, as no two share a device otherwise.
func starterPools(profile *formats.Profile, machine planner.Machine) []formats.Pool {
	if cluster, _, err := planner.LocalCluster(profile, machine); err == nil {
		for i := range cluster.Pools {
			if p := &cluster.Pools[i]; p.Count < modelsOn(profile, p.Device) {
				p.Sharing, p.MaxShares = formats.SharingTime, 1
			}
		}
		return cluster.Pools
	}
	var pools []formats.Pool
	poolOf := func(device string) *formats.Pool {
		i := slices.IndexFunc(pools, func(p formats.Pool) bool { return p.Device == device })
		if i < 0 {
			i, pools = len(pools), append(pools, formats.Pool{Device: device})
		}
		return &pools[i]
	}
	for i := range profile.Models {
		for _, m := range profile.Models[i].Measurements {
			p := poolOf(m.Device)
			p.Count, p.MaxShares = modelsOn(profile, m.Device), max(p.MaxShares, m.Share)
		}
	}
	for i := range profile.LLMs {
		if in := starterInstance(&profile.LLMs[i]); in != nil {
			poolOf(in.Device).Count += in.TensorParallel
		}
	}
	return pools
}

// modelsOn returns how many models were measured on a kind of device.
func modelsOn(profile *formats.Profile, device string) int {
	n := 0
	for i := range profile.Models {
		if slices.ContainsFunc(profile.Models[i].Measurements, func(m formats.Measurement) bool { return m.Device == device }) {
			n++
		}
	}
	return n
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

const configStarter = `# Flags for every run, by name; a flag on the command line and INFERPLAN_<FLAG> in the environment win.
solve:
  margin: auto         # part of the SLO that planning keeps back for waiting: found by simulation, or a number such as 0.4
# simulate:
#   duration: 1m       # without it, 30 s of arrivals, or the runs of the plan's own figures where it states them
`

// newInitCommand makes the verb init, which writes a cluster, a workload and a configuration to start from.
func newInitCommand(g *globalFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write commented starter documents into this folder",
		Long: `Write cluster.yaml, workload.yaml and inferplan.yaml, commented, into this folder. They hold the
models and devices of the profile that is here: a cascade if it has records, else its models,
else its language models. They solve as they are. A file that is there stays as it is.`,
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
			for _, s := range starterDocuments(profile, thisMachine()) {
				_, err := os.Stat(s.name)
				if err == nil && !force {
					p.PrintNote("%s is there already; --force replaces it", s.name)
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
