package main

import (
	"github.com/spf13/cobra"

	"inferplan/importers"
	"inferplan/importers/sources"
)

// importPrinter prints and saves for an importer.
type importPrinter struct{ *printer }

func (p importPrinter) Write(text []byte) (int, error)       { return p.out.Write(text) }
func (p importPrinter) PrintNote(format string, args ...any) { p.printNote(format, args...) }
func (p importPrinter) PrintJSON(value any) error            { return p.printJSON(value) }
func (p importPrinter) PrintTable(align string, header []string, rows [][]string) error {
	return p.printTable(align, header, rows)
}
func (p importPrinter) SaveDocument(path string, doc any) error {
	return p.saveDocument(path, doc, true)
}

// newImportCommand makes the verb import, with a verb below it for each source.
func newImportCommand(g *globalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import KIND",
		Short: "Turn others' measurements into our documents",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
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
		r.Printer, r.JSON, r.Context, r.Args = importPrinter{p}, g.json, cmd.Context(), args
		if err := p.checkOutput("output", r.Path, i.Kind); err != nil {
			return err
		}
		return i.Import(r)
	}
	return cmd
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
