package instrument

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"inferplan/bench/figures"
	"inferplan/cputime"
)

// Instrument is a program of bench/ that measures in parts.
type Instrument struct {
	Name  string // of its row in scripts/bench.sh
	Parts []Part // in the order in which they are measured
	// Flags adds the flags that this instrument has beside those of the frame; nil if there are none.
	Flags func(f *flag.FlagSet)
	// Begin is called once, after the flags are read and before the first part. It checks flags and reads data; nil if there is nothing
	// to do.
	Begin func(r *Run) error
	// End is called once after the last part, also if parts failed; nil if there is nothing to do.
	End func(r *Run) error
	// Strict makes a figure that does not hold an error of the run.
	Strict bool
	// Keeps gives the instrument the flags of kept results, for Measured.
	Keeps bool
}

// Part measures one table with its figures.
type Part struct {
	Name      string // in the flag -parts
	Group     string // a name in -parts that stands for all parts of the group; empty if the part has none
	Title     string // above the table
	Columns   []string
	OnRequest bool // only measured if -parts names it
	Measure   func(r *Run, t *Table) error
}

// Main runs an instrument with the arguments of this process and ends the process: with exit code 2 if a flag is wrong, with 1 if a
// part failed. An interrupt cancels the context of the run.
func Main(i *Instrument) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := i.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintf(os.Stderr, "bench-%s: %v\n", i.Name, err)
	if _, wrong := errors.AsType[*usageError](err); wrong {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError is of flags that are wrong.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e *usageError) Unwrap() error { return e.error }

// Usagef returns the error of a wrong flag, for Begin.
func Usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Run measures the parts that the arguments choose. Tables are written to out, progress and notes to log. A part that
// fails does not keep the parts after it from being measured.
func (i *Instrument) Run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	r := &Run{Ctx: ctx, Out: out, Log: log, name: i.Name}
	chosen, err := r.parse(i, args)
	if err != nil {
		return err
	}
	if i.Keeps {
		if r.results, err = openResults(filepath.Join(r.Folder, "results.jsonl"), r.keptBy, r.fresh); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.results.file.Close()) }()
	}
	if i.Begin != nil {
		if err := i.Begin(r); err != nil {
			return err
		}
	}
	var errs []error
	for _, part := range chosen {
		if err := r.measure(i, &part); err != nil {
			errs = append(errs, fmt.Errorf("part %s: %w", part.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if i.End != nil {
		errs = append(errs, i.End(r))
	}
	return errors.Join(errs...)
}

// parse reads flags into the run and returns the parts that they choose.
func (r *Run) parse(i *Instrument, args []string) ([]Part, error) {
	var names, usual []string
	for _, part := range i.Parts {
		names = append(names, part.Name)
		if !part.OnRequest {
			usual = append(usual, part.Name)
		}
		if part.Group != "" && !slices.Contains(names, part.Group) {
			names = append(names, part.Group)
		}
	}
	data := os.Getenv("INFERPLAN_DATA")
	if data == "" {
		data = "../shared/data"
	}
	f := flag.NewFlagSet("bench-"+i.Name, flag.ContinueOnError)
	f.SetOutput(r.Log)
	chosen := strings.Join(usual, ",")
	if len(i.Parts) > 1 {
		f.StringVar(&chosen, "parts", chosen, "parts to measure, of "+strings.Join(names, ","))
	}
	f.StringVar(&r.Data, "data", data, "folder of measurements and traces of others")
	f.StringVar(&r.Folder, "keep", filepath.Join("bench", i.Name, "results"), "folder of results, tables and pictures")
	if i.Keeps {
		f.StringVar(&r.keptBy, "kept-by", "", "go on with the results of another program, by the hash that results.jsonl names; for programs that measure the same (default: of this program)")
		f.BoolVar(&r.fresh, "fresh", false, "measure all again; without it, an interrupted run goes on")
	}
	f.IntVar(&r.Jobs, "jobs", runtime.GOMAXPROCS(0), "measurements at the same time, where nothing is timed")
	f.StringVar(&r.file, "figures", "", "file that the figures are put into; empty: none")
	if i.Flags != nil {
		i.Flags(f)
	}
	r.flags = f
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, &usageError{err}
	}
	if f.NArg() > 0 {
		return nil, Usagef("found %q, expected only flags", f.Arg(0))
	}
	if r.Jobs < 1 {
		return nil, Usagef("-jobs: found %d, expected at least 1", r.Jobs)
	}
	wanted := strings.Split(chosen, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, Usagef("-parts: found %q, expected some of %s", name, strings.Join(names, ","))
		}
	}
	return slices.DeleteFunc(slices.Clone(i.Parts), func(p Part) bool {
		return !slices.Contains(wanted, p.Name) && (p.Group == "" || !slices.Contains(wanted, p.Group))
	}), nil
}

// measure measures a part, prints its table and puts its figures into the file. Of a part that fails, it prints the rows that there are.
func (r *Run) measure(i *Instrument, part *Part) error {
	r.part, r.figures = part.Name, nil
	t := &Table{Columns: part.Columns}
	began, before := time.Now(), cputime.Used()
	err := part.Measure(r, t)
	command := r.Command()
	if len(i.Parts) > 1 {
		command = r.Command("parts", part.Name)
	}
	if len(t.Rows) > 0 {
		fmt.Fprintf(r.Out, "\n**%s** (`%s`)\n\n", part.Title, command)
		err = errors.Join(err, t.Markdown(r.Out))
	}
	if len(r.figures) > 0 {
		fmt.Fprintf(r.Out, "\n%s", figures.Table(r.stated()))
	}
	fmt.Fprintf(r.Log, "part %s: %.0f s of CPU, %.0f s\n", part.Name, (cputime.Used() - before).Seconds(), time.Since(began).Seconds())
	if err != nil {
		return err
	}
	if r.file != "" {
		if err := figures.Put(r.file, command, r.stated()...); err != nil {
			return err
		}
	}
	if !i.Strict {
		return nil
	}
	var errs []error
	for _, f := range r.figures {
		if f.Holds == figures.No {
			errs = append(errs, fmt.Errorf("%s: asked %s, measured %g %s", f.Claim, f.Asked, f.Measured, f.Unit))
		}
	}
	return errors.Join(errs...)
}
