package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/planner"
)

// helpColumns is the width of the help, for a terminal beside another window.
const helpColumns = 110

// cobra has one table of template functions for all commands, which has no lock.
func init() {
	cobra.AddTemplateFunc("flagSections", flagSections)
	cobra.AddTemplateFunc("wrapped", wrapText)
}

// useFlagSections prints flags wrapped, and those of one kind of plan below the kind's name.
func useFlagSections(root *cobra.Command) {
	text := strings.NewReplacer(
		"\n\nFlags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagSections .LocalFlags}}",
		"{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", "{{wrapped .InheritedFlags}}",
	).Replace(root.UsageTemplate())
	root.SetUsageTemplate(text)
}

// flagsByKind divides the flags of a verb into those for every kind of plan (common), and the others by the name of
// the kind. A flag of several kinds is copied to each, with the help for that kind, which annotations of the flag
// hold.
func flagsByKind(flags *pflag.FlagSet) (common *pflag.FlagSet, byKindName map[string]*pflag.FlagSet) {
	common, byKindName = pflag.NewFlagSet("", pflag.ContinueOnError), map[string]*pflag.FlagSet{}
	flags.VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[kindsOfFlag]) == 0 {
			common.AddFlag(f)
			return
		}
		for i, kind := range f.Annotations[kindsOfFlag] {
			copyOfFlag := *f
			copyOfFlag.Usage = f.Annotations[helpOfFlag][i]
			if byKindName[kind] == nil {
				byKindName[kind] = pflag.NewFlagSet("", pflag.ContinueOnError)
			}
			byKindName[kind].AddFlag(&copyOfFlag)
		}
	})
	return common, byKindName
}

// flagSections returns the help of a verb's flags, those that every kind of plan has first.
func flagSections(flags *pflag.FlagSet) string {
	common, of := flagsByKind(flags)
	var b strings.Builder
	if common.HasAvailableFlags() {
		b.WriteString("\n\nFlags:\n" + wrapText(common))
	}
	for _, kind := range planner.Kinds() {
		if of[kind] != nil {
			b.WriteString("\n\nFlags of " + kind + " plans (" + planner.MethodOf(kind).Summary + "):\n" + wrapText(of[kind]))
		}
	}
	return b.String()
}

func wrapText(flags *pflag.FlagSet) string {
	return strings.TrimRight(flags.FlagUsagesWrapped(helpColumns), " \n")
}
