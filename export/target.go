package export

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// Target is an engine or a cluster that plans are exported to.
type Target struct {
	Name        string // the word after plan export
	Summary     string // one line
	Description string // for --help
	Example     string // commands, for --help
	// DefineFlags defines the flags of the target. It is nil if there are none.
	DefineFlags func(flags *pflag.FlagSet)
	// AddFiles adds the files with which the target runs the plan. It returns a *document.Error or a usage.Error if
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

// Cluster reads the cluster that the plan was made from. If it was changed since, it says so in a note. A plan that names
// none was made for one machine: then it returns a cluster of the plan's pools on one host. A file that cannot be read
// is a usage.Error.
func (s *Source) Cluster() (*formats.Cluster, error) {
	input := document.First(s.Plan.Inputs, func(i *formats.Input) bool { return i.Role == "cluster" })
	if input == nil {
		return &formats.Cluster{Format: formats.FormatCluster, Host: formats.HostShared, Pools: s.Plan.Pools}, nil
	}
	path := filepath.FromSlash(input.Path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(s.Path), path)
	}
	cluster, err := formats.ReadCluster(path)
	if err != nil {
		return nil, &usage.Error{Err: fmt.Errorf("the cluster that the plan was made from: %w", err)}
	}
	digest, err := document.Digest(path)
	if err == nil && digest != input.SHA256 && s.Note != nil {
		s.Note("%s was changed since the plan was made", path)
	}
	return cluster, err
}
