package importers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/profiler"
)

// Importer is a verb below plan import.
type Importer struct {
	Usage       string // the word after plan import, and its arguments
	Summary     string // one line
	Description string // for --help
	Example     string // commands, for --help

	MinArguments, MaxArguments int // numbers of files as arguments; AnyNumber as the largest means no limit

	DefaultOutput  string // the file that is written by default
	Kind           string // the kind of document that it writes
	ExtendsProfile bool   // it adds numbers to a profile

	// Recognize returns the name of the tool's file that begins with head, or "" if no file that the importer reads begins
	// so. If it is nil, the files are ours or have no mark.
	Recognize func(head []byte) string

	DefineFlags   func(flags *pflag.FlagSet)
	RequiredFlags []string
	FlagWords     map[string][]string // words that the value of a flag may be, for completion

	// Import reads the files, and saves and prints what they hold. It returns a *document.Error, a *usage.Error or an
	// error of opening a file if the input is bad.
	Import func(r *Run) error
}

// AnyNumber, as Importer.MaxArguments, is no limit.
const AnyNumber = -1

// Printer prints results and notes, and saves documents. What is written to it goes to standard output.
type Printer interface {
	io.Writer
	// PrintNote prints a line for the person at the terminal.
	PrintNote(format string, args ...any)
	// PrintTable prints rows under a header. align has a letter per column: 'r' aligns to the right, 'l' to the left.
	PrintTable(align string, header []string, rows [][]string) error
	// PrintJSON prints one JSON document.
	PrintJSON(value any) error
	// SaveDocument writes a document to a file, which it replaces, or to standard output in place of what is printed
	// later.
	SaveDocument(path string, doc any) error
}

// Run is one run of an importer.
type Run struct {
	Printer
	JSON        bool // results are printed as JSON in place of tables
	Context     context.Context
	Flags       *pflag.FlagSet
	Args        []string // the files
	Path        string   // the path of the document that is written
	ProfilePath string   // profile that numbers are added to; if empty, the output file if it exists
}

// ToStdout, as the path of a document, stands for standard output.
const ToStdout = "-"

// SaveAndShow writes the document, and then prints a summary: values as JSON, or a line.
func (r *Run) SaveAndShow(doc any, values map[string]any, format string, args ...any) error {
	if err := r.SaveDocument(r.Path, doc); err != nil {
		return err
	}
	return r.PrintResult(values, format, args...)
}

// PrintResult prints values, the output among them, as JSON, or a line.
func (r *Run) PrintResult(values map[string]any, format string, args ...any) error {
	if r.JSON {
		values["output"] = r.Path
		return r.PrintJSON(values)
	}
	_, err := fmt.Fprintf(r, format+"\n", args...)
	return err
}

// ReadFile opens a file, or standard input (-), and passes it to read. content names the file's content in errors, which
// are about the input.
func ReadFile(path, content string, read func(io.Reader) error) error {
	f, err := document.Open(path)
	if err != nil {
		return usage.Errorf("opening %s: %w", content, err)
	}
	defer f.Close()
	return usage.Mark(read(f))
}

// headBytes is the number of bytes at the start of a file by which its tool is recognised.
const headBytes = 1 << 16

// ReadHead returns the beginning of a file, unpacked if it is gzip.
func ReadHead(path string) ([]byte, error) {
	f, err := csvfile.Open(path)
	if err != nil {
		return nil, err
	}
	head, _ := f.Peek(headBytes)
	return slices.Clone(head), f.Close()
}

// MarkInput returns the error as one about the input, if the input files cause it.
func MarkInput(err error) error {
	if _, isPathError := errors.AsType[*os.PathError](err); isPathError || errors.Is(err, profiler.ErrInput) || len(document.Findings(err)) > 0 {
		return usage.Mark(err)
	}
	return err
}
