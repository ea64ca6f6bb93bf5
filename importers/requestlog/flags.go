package requestlog

import (
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/formats/usage"
)

// Flags are the flags about files of requests that importers have.
type Flags struct {
	Model   string
	Seed    uint64
	path    string
	renames []string
}

// Define defines the flags.
func (o *Flags) Define(f *pflag.FlagSet) {
	f.StringVar(&o.Model, "model", "", "model that the requests ask for (default what the file says)")
	f.StringSliceVar(&o.renames, "rename", nil, "models under another name: NEW=OLD, for a profile that calls the model so")
	f.StringVar(&o.path, "path", "", "regular expression of the paths in an access log that count; its group is the model")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of drawn times, if the file has none")
}

// Options returns what the flags say.
func (o *Flags) Options() (Options, error) {
	out := Options{Model: o.Model, Seed: o.Seed, Renamed: map[string]string{}}
	for _, text := range o.renames {
		renamed, old, ok := strings.Cut(text, "=")
		if _, twice := out.Renamed[old]; !ok || renamed == "" || old == "" || twice {
			return out, usage.Errorf("--rename %q: expected NEW=OLD, each model once", text)
		}
		out.Renamed[old] = renamed
	}
	if o.path == "" {
		return out, nil
	}
	var err error
	out.Path, err = regexp.Compile(o.path)
	switch {
	case err != nil:
		return out, usage.Errorf("--path %s: %w", o.path, err)
	case out.Path.NumSubexp() == 0 && o.Model == "":
		return out, usage.Errorf("--path %s: expected a group ( ) that is the name of the model, or --model", o.path)
	}
	return out, nil
}

// CheckOwnLayout returns an error if a flag was typed that is about files of other tools alone.
func CheckOwnLayout(f *pflag.FlagSet) error {
	if f.Changed("path") {
		return usage.Errorf("--path: expected an access log, whose requests have paths")
	}
	return nil
}
