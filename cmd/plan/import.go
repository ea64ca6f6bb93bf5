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
	use, short, long, example string

	args     cobra.PositionalArgs
	out      string // file that is written by default
	kind     string // kind of document that it writes
	extends  bool   // it adds numbers to a profile
	flags    func(f *pflag.FlagSet)
	required []string
	words    map[string][]string // words that the value of a flag may be, for completion
	run      func(r *importRun) error
}

// importRun is one run of an importer.
type importRun struct {
	*printer
	ctx  context.Context
	set  *pflag.FlagSet
	args []string
	path string // the path of the document that is written
	into string // profile that numbers are added to; if empty, the output file if it exists
}

func newImportCommand(g *globals) *cobra.Command {
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

// command makes the verb.
func (i importer) command(g *globals) *cobra.Command {
	r := &importRun{}
	cmd := &cobra.Command{Use: i.use, Short: i.short, Long: i.long, Example: i.example, Args: i.args}
	r.set = cmd.Flags()
	i.flags(r.set)
	if i.extends {
		r.set.StringVar(&r.into, "profile", "", "profile that the numbers are added to (default: the output file, if it exists)")
	}
	r.set.StringVarP(&r.path, "output", "o", i.out, i.kind+" to write")
	for _, name := range i.required {
		_ = cmd.MarkFlagRequired(name)
	}
	for name, words := range i.words {
		complete(cmd, name, words...)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.printer, r.ctx, r.args = newPrinter(cmd, g), cmd.Context(), args
		if err := r.output("output", r.path, i.kind); err != nil {
			return err
		}
		return i.run(r)
	}
	return cmd
}

// saveAndShow writes the document, and then prints a summary: values as JSON, or a line.
func (r *importRun) done(doc any, values map[string]any, format string, args ...any) error {
	if err := r.save(r.path, doc, true); err != nil {
		return err
	}
	return r.show(values, format, args...)
}

// show prints values, the output among them, as JSON, or a line.
func (r *importRun) show(values map[string]any, format string, args ...any) error {
	if r.json {
		values["output"] = r.path
		return r.document(values)
	}
	fmt.Fprintf(r.out, format+"\n", args...)
	return nil
}

// mergeProfile adds a profile to the one that is extended, and writes the result.
func (r *importRun) merge(profile *formats.Profile) error {
	_, err := r.extend(r.into, r.path, func(into *formats.Profile) error {
		if err := profiler.Merge(into, profile); err != nil {
			return withCode(exitUsage, err)
		}
		return withCode(exitUsage, into.Validate())
	})
	return err
}

// badInput returns the error with the exit code of bad usage, if the input files cause it.
func badInput(err error) error {
	if _, missing := errors.AsType[*os.PathError](err); missing || errors.Is(err, profiler.ErrInput) || len(document.Findings(err)) > 0 {
		return withCode(exitUsage, err)
	}
	return err
}

// readFile opens a file and passes it to read. content names the file's content in errors.
func readFile(path, what string, read func(*os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("opening %s: %w", what, err))
	}
	defer f.Close()
	return withCode(exitUsage, read(f))
}

// profileToExtend returns the profile that numbers or records are added to: the one named, else the output file if
// it exists, else a new one.
func profileToExtend(path, out string) (*formats.Profile, error) {
	named := path != ""
	if !named {
		path = out
	}
	profile, err := formats.ReadProfile(path)
	if !named && errors.Is(err, fs.ErrNotExist) {
		return emptyProfile(), nil
	}
	return profile, withCode(exitUsage, err)
}

// extendProfile adds to the profile named or else to the output file, and writes the output file. If both are the
// same file, it is locked, so that no other process writes it meanwhile.
func (p *printer) extend(path, out string, add func(*formats.Profile) error) (*formats.Profile, error) {
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
	return profile, p.save(out, profile, true)
}

func emptyProfile() *formats.Profile {
	return &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
}
