package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"inferplan/engine/worker"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner"
)

// documentFile returns the file of a role: the flag's value, else ./{role}.{json,yaml,yml}. If two of these exist,
// it returns an error that names both. If none does, it returns "".
func documentFile(role, flag string) (string, error) {
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

// inputReader reads documents, and records each as an input of the plan that is written to planPath.
type inputReader struct {
	planner.Inputs
	planPath string
	unnamed  []string // an assumption for each document that came from standard input
}

// addFile records a file as an input. Standard input is none: the plan cannot name it.
func (r *inputReader) addFile(role, path string) error {
	if path == document.Stdin {
		r.unnamed = append(r.unnamed, role+": from standard input, so that the plan names no file of it")
		return nil
	}
	f, err := describeInput(role, path, r.planPath)
	if err == nil {
		r.Files = append(r.Files, f)
	}
	return err
}

func (r *inputReader) readProfile(path string) (err error) {
	r.ProfileDir = filepath.Dir(path)
	if r.Profile, err = formats.ReadProfile(path); err != nil {
		return withCode(exitUsage, err)
	}
	return r.addFile("profile", path)
}

func (r *inputReader) readCluster(path string) (err error) {
	if r.Cluster, err = formats.ReadCluster(path); err != nil {
		return withCode(exitUsage, err)
	}
	return r.addFile("cluster", path)
}

// readWorkload reads a workload and records it with the files that it names. It leaves out files that do not
// exist: the planner then reports the field that names them.
func (r *inputReader) readWorkload(path string) (err error) {
	r.WorkloadDir = filepath.Dir(path)
	if r.Workload, err = formats.ReadWorkload(path); err != nil {
		return withCode(exitUsage, err)
	}
	if err := r.addFile("workload", path); err != nil {
		return err
	}
	for _, f := range r.Workload.Section.Files() {
		path := filepath.FromSlash(f.Path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.WorkloadDir, path)
		}
		if _, err := os.Stat(path); err == nil {
			if err := r.addFile(f.Role, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// planArgument returns the plan file that a verb is given, or plan.json.
func planArgument(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return "plan.json"
}

// readPlan reads a plan. An error is bad usage; if there is no file, it says how to make one.
func readPlan(path string) (*formats.Plan, error) {
	plan, err := formats.ReadPlan(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usageErrorf("no plan %s\n  hint: plan solve --slo 200ms -o %s makes one", path, path)
	}
	return plan, withCode(exitUsage, err)
}

// describeInput describes a file that a plan was made from. The path is relative to the folder of the plan. role is
// profile, cluster, workload or another that a plan's inputs have.
func describeInput(role, path, planPath string) (formats.Input, error) {
	sum, err := document.Digest(path)
	if err != nil {
		return formats.Input{}, fmt.Errorf("the plan names its %s, to be checked and made again: %w", role, err)
	}
	rel, err := relativeTo(filepath.Dir(planPath), path)
	if err != nil {
		return formats.Input{}, err
	}
	return formats.Input{Role: role, Path: rel, SHA256: sum}, nil
}

// relativeTo returns a path relative to a folder, with slashes, as documents have it.
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

// readToken reads a bearer token from a file, without the end of the line. If path is empty, it returns "".
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
	if strings.ContainsFunc(token, unicode.IsControl) {
		return "", usageErrorf("%s: found several lines or control characters, expected a token in one line", path)
	}
	return token, nil
}
