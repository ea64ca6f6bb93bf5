package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// renamedFlags are the old names of flags, by verb, with the present ones. Scripts, variables of the environment and
// configuration files may still have them.
var renamedFlags = map[string]map[string]string{
	"plan agent":   {"server-key": "server-token-file"},
	"plan profile": {"device-name": "device"},
	"plan serve":   {"join-token": "join-token-file", "models": "models-dir", "server-key": "server-token-file"},
	"plan worker":  {"models": "models-dir", "token": "token-file"},
}

// acceptOldNames lets the flags of a verb, and of those below it, be given by their old names. A typed old name is
// stored in g.typedOldNames.
func (g *globalFlags) acceptOldNames(cmd *cobra.Command) {
	if names := renamedFlags[cmd.CommandPath()]; names != nil {
		cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			if today, isOld := names[name]; isOld {
				g.typedOldNames = append(g.typedOldNames, "--"+name+" is called --"+today+" now")
				return pflag.NormalizedName(today)
			}
			return pflag.NormalizedName(name)
		})
	}
	for _, c := range cmd.Commands() {
		g.acceptOldNames(c)
	}
}

// oldNamesOf returns the old names of a flag of a verb.
func oldNamesOf(cmd *cobra.Command, flag string) (names []string) {
	for name, today := range renamedFlags[cmd.CommandPath()] {
		if today == flag {
			names = append(names, name)
		}
	}
	return names
}

// deviceFlag is the value of --device of plan profile: the kind of a device. Earlier versions took the address of a
// device there (auto, cpu, cpu-4, cpu:1, cuda:0), which --on has now, and the kind as --device-name.
type deviceFlag struct{ kind, address string }

// String returns the kind that was given.
func (f *deviceFlag) String() string { return f.kind }

// Set stores a kind or an address.
func (f *deviceFlag) Set(text string) error {
	if text == "auto" || text == "cpu" || strings.HasPrefix(text, "cpu-") || strings.HasPrefix(text, "cpu:") || strings.HasPrefix(text, "cuda:") {
		f.address = text
	} else {
		f.kind = text
	}
	return nil
}

// Type returns the word for the value in the help.
func (f *deviceFlag) Type() string { return "string" }

// moveAddress sets on to an address that was given as --device. If --on was given, too, the address is the kind: cpu-4
// is both. It says so of addresses that are no kinds.
func (f *deviceFlag) moveAddress(p *printer, on *string) {
	switch {
	case f.address == "":
	case *on == "auto":
		*on = f.address
		if !strings.HasPrefix(f.address, "cpu-") {
			p.PrintNote("note: --device %s says where to measure, which --on %[1]s does now; --device is the kind of the device", f.address)
		}
	case f.kind == "":
		f.kind = f.address
	}
}
