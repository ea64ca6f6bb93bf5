package export

import (
	"context"

	"github.com/spf13/pflag"

	"inferplan/formats"
)

// Target is an engine or a cluster that plans are exported to.
type Target struct {
	Name        string // the word after plan export
	Summary     string // one line
	Description string // for --help
	Example     string // commands, for --help
	// DefineFlags defines the flags of the target. It is nil if there are none.
	DefineFlags func(flags *pflag.FlagSet)
	// AddFiles adds the files with which the target runs the plan. It returns a *document.Error or a UsageError if
	// the target cannot run such a plan, or if a flag is wrong.
	AddFiles func(ctx context.Context, source *Source, folder *Folder) error
}

// Source is the plan to export and what it was made from.
type Source struct {
	Plan *formats.Plan
	Path string // of the plan
	// Note prints a line for people. It may be nil.
	Note func(format string, args ...any)
}

// UsageError is an error of what the user asked for: a wrong flag, or a plan that the target cannot run.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error without its mark.
func (e *UsageError) Unwrap() error { return e.Err }
