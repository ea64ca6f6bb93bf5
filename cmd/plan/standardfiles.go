package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writtenFlags are the flags that name a file to write. All other flags with the value - name standard input.
var writtenFlags = []string{"chrome-trace", "event-log", "html", "outcomes", "output", "record"}

// isWritten reports whether a flag of a verb names a file to write. plan report reads what others write.
func isWritten(verb, flag string) bool {
	return slices.Contains(writtenFlags, flag) && (verb != "report" || flag == "html")
}

// checkStandardFiles refuses a command line on which - stands for standard input, or for standard output, twice. It
// stores in g.stdoutFlag which flag writes to standard output.
func (g *globalFlags) checkStandardFiles(cmd *cobra.Command, args []string) error {
	var read, written []string
	add := func(list *[]string, name string, values []string) {
		for _, v := range values {
			if v == toStdout {
				*list = append(*list, name)
			}
		}
	}
	add(&read, "an argument", args)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if isWritten(cmd.Name(), f.Name) {
			add(&written, "--"+f.Name, values)
		} else {
			add(&read, "--"+f.Name, values)
		}
	})
	switch {
	case len(read) > 1:
		return usageErrorf("found - for %s, expected it once: there is one standard input", strings.Join(read, " and "))
	case len(written) > 1:
		return usageErrorf("found - for %s, expected it once: there is one standard output", strings.Join(written, " and "))
	case len(written) == 1 && g.json:
		return usageErrorf("%s - and --json exclude each other: both print a document to stdout", written[0])
	case len(written) == 1 && written[0] == "--html" && cmd.Flags().Changed("format"):
		return usageErrorf("--html - and --format exclude each other: both print a document to stdout")
	case len(written) == 1:
		g.stdoutFlag = strings.TrimPrefix(written[0], "--")
	}
	return nil
}
