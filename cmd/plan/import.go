package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats/document"
	"inferplan/importers"
	"inferplan/importers/sources"
)

// newImportCommand makes the verb import, with a verb below it for each source.
func newImportCommand(g *globalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import KIND",
		Short: "Turn others' measurements into our documents",
		Long: `Turn others' measurements into our documents. With a file in place of a kind, the error says
which tool wrote the file and which kind reads it.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if line := recognizedLine(args[:1], ""); line != "" {
				return usageErrorf("which import? %s", line)
			}
			err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			return usageErrorf("%w\n  usage: %s%s", err, cmd.UseLine(), spellingHint(cmd, err))
		},
	}
	for _, i := range sources.All() {
		cmd.AddCommand(newImporterCommand(g, i))
	}
	return cmd
}

// newImporterCommand makes the verb of an importer below plan import: it defines the flags and, when the verb runs,
// checks that the output can be written before it calls the importer. An importer that extends a profile also gets the
// flag --profile.
func newImporterCommand(g *globalFlags, i *importers.Importer) *cobra.Command {
	cmd := &cobra.Command{Use: i.Usage, Short: i.Summary, Long: i.Description, Example: i.Example, Args: importArguments(i)}
	r := &importers.Run{Flags: cmd.Flags()}
	i.DefineFlags(r.Flags)
	if i.ExtendsProfile {
		r.Flags.StringVar(&r.ProfilePath, "profile", "", "profile that the numbers are added to (default: the output file, if it exists)")
	}
	r.Flags.StringVarP(&r.Path, "output", "o", i.DefaultOutput, i.Kind+" to write")
	for _, name := range i.RequiredFlags {
		_ = cmd.MarkFlagRequired(name)
	}
	for name, words := range i.FlagWords {
		completeFlag(cmd, name, words...)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := newPrinter(cmd, g)
		r.Printer, r.JSON, r.Context, r.Args = p, g.json, cmd.Context(), args
		if err := p.checkOutput("output", r.Path, i.Kind); err != nil {
			return err
		}
		return i.Import(r)
	}
	return cmd
}

// withRecognizedFile adds to an error about a file or the arguments, if another tool wrote one of them, which one and the
// command that imports it.
func withRecognizedFile(cmd *cobra.Command, err error) error {
	if exitCode(err) != exitUsage {
		return err
	}
	var files []string
	for _, finding := range document.Findings(err) {
		files = append(files, finding.File)
	}
	if cmd.HasParent() && cmd.Parent().Name() == "import" {
		files = append(files, cmd.Flags().Args()...)
	}
	if line := recognizedLine(files, cmd.Name()); line != "" {
		return usageErrorf("%w\n  hint: %s", err, line)
	}
	return err
}

// recognizedLine returns a line about the first of the files that another verb than this one reads: which tool wrote
// it, and the command that imports it. It is empty if there is none.
func recognizedLine(files []string, verb string) string {
	for _, path := range files {
		name, verbs := sources.Recognize(path)
		if path == "" || name == "" || slices.Contains(verbs, verb) {
			continue
		}
		commands := make([]string, len(verbs))
		for k, other := range verbs {
			commands[k] = "plan import " + other + " " + path
		}
		return fmt.Sprintf("%s is %s: %s", path, name, strings.Join(commands, ", or "))
	}
	return ""
}

// importArguments returns the check of how many files an importer is given.
func importArguments(i *importers.Importer) cobra.PositionalArgs {
	switch i.MaxArguments {
	case 0:
		return noArguments
	case importers.AnyNumber:
		return cobra.MinimumNArgs(i.MinArguments)
	case i.MinArguments:
		return cobra.ExactArgs(i.MinArguments)
	}
	return cobra.RangeArgs(i.MinArguments, i.MaxArguments)
}
