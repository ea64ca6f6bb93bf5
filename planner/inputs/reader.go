package inputs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/planner/kind"
)

// FindFile returns the file of a role: the flag's value, else ./{role}.{json,yaml,yml}. If two of these exist,
// it returns an error that names both. If none does, it returns "".
func FindFile(role, flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	var found []string
	for _, ext := range []string{".json", ".yaml", ".yml"} {
		_, err := os.Stat(role + ext)
		switch {
		case err == nil:
			found = append(found, role+ext)
		case !errors.Is(err, fs.ErrNotExist):
			return "", usage.Errorf("looking for a %s: %w", role, err)
		}
	}
	if len(found) > 1 {
		return "", usage.Errorf("found both %s; keep one, or name it with --%s", strings.Join(found, " and "), role)
	}
	if len(found) == 0 {
		return "", nil
	}
	return found[0], nil
}

// Reader reads documents, and records each as an input of the plan that is written to PlanPath.
type Reader struct {
	kind.Documents
	PlanPath string
	Unnamed  []string // an assumption for each document that came from standard input
}

// AddFile records the file of a role. Standard input is none: the plan cannot name it.
func (r *Reader) AddFile(role, path string) error {
	if path == document.Stdin {
		r.Unnamed = append(r.Unnamed, role+": from standard input, so that the plan names no file of it")
		return nil
	}
	f, err := describeInput(role, path, r.PlanPath)
	if err == nil {
		r.Files = append(r.Files, f)
	}
	return err
}

// ReadProfile reads a profile and records it.
func (r *Reader) ReadProfile(path string) (err error) {
	r.ProfileDir = filepath.Dir(path)
	if r.Profile, err = formats.ReadProfile(path); err != nil {
		return usage.Mark(err)
	}
	return r.AddFile("profile", path)
}

// ReadCluster reads a cluster and records it.
func (r *Reader) ReadCluster(path string) (err error) {
	if r.Cluster, err = formats.ReadCluster(path); err != nil {
		return usage.Mark(err)
	}
	return r.AddFile("cluster", path)
}

// ReadWorkload reads a workload and records it with the files that it names. It leaves out files that do not
// exist: the planner then reports the field that names them.
func (r *Reader) ReadWorkload(path string) (err error) {
	r.WorkloadDir = filepath.Dir(path)
	if r.Workload, err = formats.ReadWorkload(path); err != nil {
		return usage.Mark(err)
	}
	if err := r.AddFile("workload", path); err != nil {
		return err
	}
	for _, f := range r.Workload.Section.Files() {
		path := filepath.FromSlash(f.Path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.WorkloadDir, path)
		}
		if _, err := os.Stat(path); err == nil {
			if err := r.AddFile(f.Role, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// describeInput describes a file that a plan was made from. The path is relative to the folder of the plan. role is
// profile, cluster, workload or another that a plan's inputs have.
func describeInput(role, path, planPath string) (formats.Input, error) {
	sum, err := document.Digest(path)
	if err != nil {
		return formats.Input{}, fmt.Errorf("the plan names its %s, to be checked and made again: %w", role, err)
	}
	rel, err := RelativeTo(filepath.Dir(planPath), path)
	if err != nil {
		return formats.Input{}, err
	}
	return formats.Input{Role: role, Path: rel, SHA256: sum}, nil
}

// RelativeTo returns a path relative to a folder, with slashes, as documents have it.
func RelativeTo(dir, path string) (string, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", dir, err)
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", path, err)
	}
	rel, err := filepath.Rel(from, to)
	if err != nil {
		return "", fmt.Errorf("relating %s to %s: %w", path, dir, err)
	}
	return filepath.ToSlash(rel), nil
}
