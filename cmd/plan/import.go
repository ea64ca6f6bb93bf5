package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/profiler"
)

// importer describes a verb of plan import: its name, its flags and its function.
type importer struct {
	use, summary, description, example string

	args          cobra.PositionalArgs
	defaultOutput string // file that is written by default
	kind          string // kind of document that it writes
	extends       bool   // it adds numbers to a profile
	flags         func(f *pflag.FlagSet)
	requiredFlags []string
	flagWords     map[string][]string // words that the value of a flag may be, for completion
	runImport     func(r *importRun) error
}

// importRun is one run of an importer.
type importRun struct {
	*printer
	ctx         context.Context
	flagSet     *pflag.FlagSet
	args        []string
	path        string // the path of the document that is written
	profilePath string // profile that numbers are added to; if empty, the output file if it exists
}

// newImportCommand makes the verb import with a verb below it for each kind of measurements of others.
func newImportCommand(g *globalFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import KIND",
		Short: "Turn others' measurements into our documents",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, i := range []importer{
		importBlocks(), importTrace(), importRecords(), importTRTExec(), importPipeline(), importLLM(), importVLLM(), importTransitions(), importWorkload(),
	} {
		cmd.AddCommand(i.command(g))
	}
	return cmd
}

// command makes the verb of an importer below plan import: it defines the flags and, when the verb runs, checks that
// the output can be written before it calls the importer's function. An importer that extends a profile also gets the
// flag --profile.
func (i importer) command(g *globalFlags) *cobra.Command {
	r := &importRun{}
	cmd := &cobra.Command{Use: i.use, Short: i.summary, Long: i.description, Example: i.example, Args: i.args}
	r.flagSet = cmd.Flags()
	i.flags(r.flagSet)
	if i.extends {
		r.flagSet.StringVar(&r.profilePath, "profile", "", "profile that the numbers are added to (default: the output file, if it exists)")
	}
	r.flagSet.StringVarP(&r.path, "output", "o", i.defaultOutput, i.kind+" to write")
	for _, name := range i.requiredFlags {
		_ = cmd.MarkFlagRequired(name)
	}
	for name, words := range i.flagWords {
		completeFlag(cmd, name, words...)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.printer, r.ctx, r.args = newPrinter(cmd, g), cmd.Context(), args
		if err := r.checkOutput("output", r.path, i.kind); err != nil {
			return err
		}
		return i.runImport(r)
	}
	return cmd
}

// saveAndShow writes the document, and then prints a summary: values as JSON, or a line.
func (r *importRun) saveAndShow(doc any, values map[string]any, format string, args ...any) error {
	if err := r.saveDocument(r.path, doc, true); err != nil {
		return err
	}
	return r.printResult(values, format, args...)
}

// printResult prints values, the output among them, as JSON, or a line.
func (r *importRun) printResult(values map[string]any, format string, args ...any) error {
	if r.json {
		values["output"] = r.path
		return r.printJSON(values)
	}
	fmt.Fprintf(r.out, format+"\n", args...)
	return nil
}

// mergeProfile adds a profile to the one that is extended, and writes the result.
func (r *importRun) mergeProfile(profile *formats.Profile) error {
	_, err := r.extendProfile(r.profilePath, r.path, func(target *formats.Profile) error {
		if err := profiler.Merge(target, profile); err != nil {
			return withCode(exitUsage, err)
		}
		return withCode(exitUsage, target.Validate())
	})
	return err
}

// badInput returns the error with the exit code of bad usage, if the input files cause it.
func badInput(err error) error {
	if _, isPathError := errors.AsType[*os.PathError](err); isPathError || errors.Is(err, profiler.ErrInput) || len(document.Findings(err)) > 0 {
		return withCode(exitUsage, err)
	}
	return err
}

// readFile opens a file and passes it to read. content names the file's content in errors.
func readFile(path, content string, read func(*os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("opening %s: %w", content, err))
	}
	defer f.Close()
	return withCode(exitUsage, read(f))
}

// profileToExtend returns the profile that numbers or records are added to: the one named, else the output file if
// it exists, else a new one.
func profileToExtend(path, out string) (*formats.Profile, error) {
	isNamed := path != ""
	if !isNamed && out == toStdout {
		return emptyProfile(), nil
	}
	if !isNamed {
		path = out
	}
	profile, err := formats.ReadProfile(path)
	if !isNamed && errors.Is(err, fs.ErrNotExist) {
		return emptyProfile(), nil
	}
	return profile, withCode(exitUsage, err)
}

// extendProfile calls add with the profile at path or, if path is empty, with that in the output file out (an empty
// one if there is no file), writes the result to out, and returns it. If the output file itself is extended, it is
// locked, so that no other process writes it meanwhile.
func (p *printer) extendProfile(path, out string, add func(*formats.Profile) error) (*formats.Profile, error) {
	if info, err := os.Stat(out); out != toStdout && path == "" && (err != nil || info.Mode().IsRegular()) {
		return profiler.Update(out, emptyProfile(), add)
	}
	profile, err := profileToExtend(path, out)
	if err != nil {
		return nil, err
	}
	if err := add(profile); err != nil {
		return nil, err
	}
	return profile, p.saveDocument(out, profile, true)
}

func emptyProfile() *formats.Profile {
	return &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
}
