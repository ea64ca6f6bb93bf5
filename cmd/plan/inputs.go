package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"inferplan/engine/worker"
	"inferplan/formats"
)

// document finds the file of a role: the flag's value, else
// ./{role}.{json,yaml,yml}. Two matches are an error that names both; none is
// the empty path.
func document(role, flag string) (string, error) {
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
			return "", usageErrorf("looking for a %s: %w", role, err)
		}
	}
	if len(found) > 1 {
		return "", usageErrorf("found both %s; keep one, or name it with --%s", strings.Join(found, " and "), role)
	}
	if len(found) == 0 {
		return "", nil
	}
	return found[0], nil
}

// readPlan is formats.ReadPlan with a way out where there is no plan.
func readPlan(path string) (*formats.Plan, error) {
	plan, err := formats.ReadPlan(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missingPlan(path)
	}
	return plan, err
}

func missingPlan(path string) error {
	return usageErrorf("no plan %s\n  hint: plan solve --slo 200ms -o %s makes one", path, path)
}

// input describes a file that a plan was made from; the path is relative to
// the folder of the plan.
func input(role, path, planPath string) (formats.Input, error) {
	sum, err := formats.Digest(path)
	if err != nil {
		return formats.Input{}, fmt.Errorf("the plan names its %s, to be checked and made again: %w", role, err)
	}
	rel, err := relativeTo(filepath.Dir(planPath), path)
	if err != nil {
		return formats.Input{}, err
	}
	return formats.Input{Role: role, Path: rel, SHA256: sum}, nil
}

// filesOf are the files that a workload names, with their paths as seen from
// here. One that is not there is left out: the planner says so, with the field.
func filesOf(w *formats.Workload, workloadPath string) []formats.SectionFile {
	var out []formats.SectionFile
	for _, f := range w.Section.Files() {
		path := filepath.FromSlash(f.Path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(workloadPath), path)
		}
		if _, err := os.Stat(path); err == nil {
			out = append(out, formats.SectionFile{Role: f.Role, Path: path})
		}
	}
	return out
}

func relativeTo(dir, path string) (string, error) {
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

// readToken reads a bearer token from a file, without the line's end.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	data, err := worker.ReadSecret(path)
	if err != nil {
		return "", withCode(exitUsage, fmt.Errorf("reading the token: %w", err))
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", usageErrorf("%s: found no token, expected one line", path)
	}
	return token, nil
}
