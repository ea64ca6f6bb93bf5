package importers

import (
	"errors"
	"io/fs"
	"os"

	"inferplan/formats"
	"inferplan/formats/usage"
	"inferplan/profiler"
)

// MergeProfile adds a profile to the one that is extended, and writes the result.
func (r *Run) MergeProfile(profile *formats.Profile) error {
	_, err := r.ExtendProfile(func(target *formats.Profile) error {
		if err := profiler.Merge(target, profile); err != nil {
			return usage.Mark(err)
		}
		return usage.Mark(target.Validate())
	})
	return err
}

// ExtendProfile calls add with the profile that is extended (an empty one if there is none), writes the result to the
// output file, and returns it. If the output file itself is extended, it is locked, so that no other process writes it
// meanwhile.
func (r *Run) ExtendProfile(add func(*formats.Profile) error) (*formats.Profile, error) {
	if info, err := os.Stat(r.Path); r.Path != ToStdout && r.ProfilePath == "" && (err != nil || info.Mode().IsRegular()) {
		return profiler.Update(r.Path, emptyProfile(), add)
	}
	profile, err := ProfileToExtend(r.ProfilePath, r.Path)
	if err != nil {
		return nil, err
	}
	if err := add(profile); err != nil {
		return nil, err
	}
	return profile, r.SaveDocument(r.Path, profile)
}

// ProfileToExtend returns the profile that numbers or records are added to: the one at path or, if path is empty, the
// one in the output file or, if there is no file or it keeps nothing (as a pipe or a terminal), a new one.
func ProfileToExtend(path, output string) (*formats.Profile, error) {
	if path == "" {
		info, err := os.Stat(output)
		if output == ToStdout || errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return emptyProfile(), nil
		}
		path = output
	}
	profile, err := formats.ReadProfile(path)
	return profile, usage.Mark(err)
}

func emptyProfile() *formats.Profile {
	return &formats.Profile{Format: formats.FormatProfile, Devices: []formats.ProfileDevice{}, Models: []formats.ProfileModel{}}
}
