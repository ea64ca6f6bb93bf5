package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/planner"
)

// kindFlags are flags of a verb that concern only some kinds of plans. Flags that are not in the table concern
// all. The options of solve have their own kinds, see optionFlag.
type kindFlags struct {
	verb      string
	flags     []string
	appliesTo func(kind string) bool
}

// flagsOfKinds is the table of these flags.
var flagsOfKinds = []kindFlags{
	{"serve", []string{"server", "server-token-file", "server-silence"}, mayUseServers},
	{"serve", []string{"servers", "watch-servers", "adapter", "queue", "queue-replicas", "queue-key", "queue-keyless", "queue-creds", "queue-silence"}, answersWithText},
	{"serve", []string{"grpc", "models-dir", "engine", "record", "share-cpus", "model-cache", "place", "remote", "join-listen", "join-token-file", "join-cert", "join-silence",
		"tf32", "cuda-graph", "fp16", "conv-search", "gpu-memory", "provider-option"}, answersWithTensors},
	{"load", []string{"inputs", "noise", "no-timeout"}, answersWithTensors},
	{"simulate", []string{"network", "service", "jitter", "chrome-trace"}, answersWithTensors},
	{"replay", []string{"network"}, answersWithTensors},
}

// answersWithText reports whether the models of a kind are language models on servers of their own.
func answersWithText(kind string) bool    { return kind == formats.PlanQueue }
func answersWithTensors(kind string) bool { return !answersWithText(kind) }

// mayUseServers reports whether plans of a kind may have language models, which servers run.
func mayUseServers(kind string) bool { return answersWithText(kind) || kind == formats.PlanFlow }

// annotateKinds annotates flags that only one kind of plan has, so that the help shows them below its name.
func annotateKinds(cmd *cobra.Command) {
	for _, row := range flagsOfKinds {
		kinds := slices.DeleteFunc(planner.Kinds(), func(k string) bool { return !row.appliesTo(k) })
		if row.verb != cmd.Name() || len(kinds) != 1 {
			continue
		}
		for _, name := range row.flags {
			f := cmd.Flags().Lookup(name)
			f.Annotations = map[string][]string{kindsOfFlag: kinds, helpOfFlag: {f.Usage}}
		}
	}
}

// noteTyped records the flags on the command line. It runs before the configuration is read, because the
// configuration may set flags for all plans that only some use.
func (g *globalFlags) noteTyped(cmd *cobra.Command) {
	g.typedFlags = typedFlags{}
	cmd.Flags().Visit(func(f *pflag.Flag) { g.typedFlags[f.Name] = f.Value.String() })
}

// readPlan reads the plan that a verb is about. It refuses a typed flag that does nothing for a plan of its kind.
func (p *printer) readPlan(path string) (*formats.Plan, error) {
	plan, err := readPlan(path)
	if err != nil {
		return nil, err
	}
	return plan, p.typedFlags.checkKind(p.verb, plan.Kind)
}

// typedFlags are the flags on the command line, with their values.
type typedFlags map[string]string

// checkKind returns an error for a flag that was typed for a verb but does nothing for a plan of this kind. The table
// flagsOfKinds says which flags are for which kinds. --grpc off is allowed for every kind.
func (t typedFlags) checkKind(verb, kind string) error {
	for _, row := range flagsOfKinds {
		if row.verb != verb || row.appliesTo(kind) {
			continue
		}
		for _, name := range row.flags {
			if value, typed := t[name]; !typed || name == "grpc" && value == "off" {
				continue
			}
			kinds := slices.DeleteFunc(planner.Kinds(), func(k string) bool { return !row.appliesTo(k) })
			return usageErrorf("--%s: found a flag that does nothing for a plan of kind %s, expected it with %s only", name, kind, strings.Join(kinds, ", "))
		}
	}
	return nil
}
