package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/planner/check"
)

// promiseSource says where the promised plan comes from, with which today's is compared.
type promiseSource struct {
	data        []byte
	path        string // the path of the file; its inputs are relative to its folder
	revision    string // the revision of git; empty for a file
	description string // the promise's name in messages
}

// displayName returns the name of the file in errors.
func (f *promiseSource) displayName() string {
	if f.revision == "" {
		return f.path
	}
	return f.revision + ":" + f.path
}

// findPromised reads the promised plan, which the plan under check is compared with, into in.Promised, and the
// profiles that it was made from into in.OldProfiles. It prints where the plan comes from. in.SameProfile is set if
// today's profile is that of the promised plan, so that no difference is by chance.
func (o *checkOptions) findPromised(ctx context.Context, p *printer, in *check.GateInput, planPath string) error {
	// Find the plan that is promised: that of a revision or a file, or else this one.
	planData, err := document.ReadFile(planPath)
	if err != nil {
		return withCode(exitUsage, err)
	}
	source, err := o.promisedPlan(ctx, planPath)
	if err != nil {
		return err
	}
	if source == nil {
		source = &promiseSource{data: planData, path: planPath, description: "the plan itself (it is not in git HEAD)"}
	}
	p.printAssumptions([]string{"against: " + source.description})
	if bytes.Equal(planData, source.data) {
		in.Promised = in.Plan
		if source.path != planPath || source.revision != "" {
			p.PrintNote("note: the plan is compared with itself: only the documents of today can make it fail")
		}
	} else if in.Promised, err = formats.DecodePlan(source.data, source.displayName()); err != nil {
		return withCode(exitUsage, err)
	}

	// Read the profiles that it was made of.
	if in.OldProfiles, err = readProfiles(o.oldProfiles); err != nil {
		return err
	}
	for _, i := range in.Promised.Inputs {
		if i.Role != "profile" || len(o.oldProfiles) > 0 {
			continue
		}
		in.SameProfile = len(o.profiles) <= 1 && todaysHash(in, "profile") == i.SHA256
		profile, err := source.readProfile(ctx, &i)
		if err != nil {
			return err
		}
		if profile != nil {
			in.OldProfiles = append(in.OldProfiles, profile)
		}
	}
	return nil
}

// todaysHash returns the SHA-256 of one of today's documents, or "" if there is none of that role.
func todaysHash(in *check.GateInput, role string) string {
	for _, f := range in.Today.Files {
		if f.Role == role {
			return f.SHA256
		}
	}
	return ""
}

// promisedPlan returns the plan that --against names or, without the flag, the one that git has. It returns nil if
// there is none.
func (o *checkOptions) promisedPlan(ctx context.Context, planPath string) (*promiseSource, error) {
	if o.againstName == "" {
		return promiseFromGit(ctx, planPath)
	}
	data, err := document.ReadFile(o.againstName)
	if err == nil {
		return &promiseSource{data: data, path: o.againstName, description: o.againstName}, nil
	}
	if commit, found := runGit(ctx, planPath, "rev-parse", "--verify", "--quiet", o.againstName+"^{commit}"); found {
		data, found := inRevision(ctx, commit, planPath)
		if !found {
			return nil, usageErrorf("--against %s: there is no %s in that revision", o.againstName, planPath)
		}
		return &promiseSource{data: data, path: planPath, revision: commit, description: fmt.Sprintf("%s at %s (%s)", planPath, o.againstName, shortCommit(commit))}, nil
	}
	return nil, withCode(exitUsage, fmt.Errorf("--against %s: neither a file nor a git revision: %w", o.againstName, err))
}

// promiseFromGit returns the plan at the merge base that a CI job names, else in HEAD. On a CI runner HEAD is the
// commit under test, so it cannot be used there. It returns nil if HEAD has no such plan. A plan that the merge base
// lacks is new, and is compared with itself.
func promiseFromGit(ctx context.Context, planPath string) (*promiseSource, error) {
	commit, description := "HEAD", "git HEAD"
	branch, base := os.Getenv("GITHUB_BASE_REF"), os.Getenv("CI_MERGE_REQUEST_DIFF_BASE_SHA")
	switch found := false; {
	case branch != "":
		if commit, found = runGit(ctx, planPath, "merge-base", "HEAD", "origin/"+branch); !found {
			return nil, usageErrorf("GITHUB_BASE_REF is %s, but git knows no merge base with origin/%s\n  hint: check out with fetch-depth: 0, or name the plan to compare with by --against", branch, branch)
		}
		description = fmt.Sprintf("%s, the merge base with origin/%s", shortCommit(commit), branch)
	case base != "":
		if commit, found = runGit(ctx, planPath, "rev-parse", "--verify", "--quiet", base+"^{commit}"); !found {
			return nil, usageErrorf("CI_MERGE_REQUEST_DIFF_BASE_SHA is %s, but git does not have that commit\n  hint: set GIT_DEPTH: 0, or name the plan to compare with by --against", base)
		}
		description = shortCommit(commit) + ", the base of the merge request"
	}
	data, found := inRevision(ctx, commit, planPath)
	switch {
	case found:
		return &promiseSource{data: data, path: planPath, revision: commit, description: planPath + " at " + description}, nil
	case commit != "HEAD":
		planData, err := document.ReadFile(planPath)
		return &promiseSource{data: planData, path: planPath, description: "the plan itself (it is new since " + description + ")"}, withCode(exitUsage, err)
	}
	return nil, nil
}

func shortCommit(commit string) string { return commit[:min(len(commit), 10)] }

// readProfile returns the profile that the promised plan was made from, read from its file or from git. It returns
// nil if neither has the same bytes; then the figures in the plan are used.
func (f *promiseSource) readProfile(ctx context.Context, i *formats.Input) (*formats.Profile, error) {
	path := filepath.Join(filepath.Dir(f.path), filepath.FromSlash(i.Path))
	data, err := os.ReadFile(path)
	if err != nil || hashOf(data) != i.SHA256 {
		if data, _ = inRevision(ctx, cmp.Or(f.revision, "HEAD"), path); hashOf(data) != i.SHA256 {
			return nil, nil
		}
	}
	profile, err := formats.DecodeProfile(data, path)
	return profile, withCode(exitUsage, err)
}

// readProfiles reads the profiles at paths, in that order.
func readProfiles(paths []string) ([]*formats.Profile, error) {
	var out []*formats.Profile
	for _, path := range paths {
		profile, err := formats.ReadProfile(path)
		if err != nil {
			return nil, withCode(exitUsage, err)
		}
		out = append(out, profile)
	}
	return out, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// inRevision returns a file's content in a revision of git. Outside a repository, or if there is no such file, it
// returns false.
func inRevision(ctx context.Context, revision, path string) ([]byte, bool) {
	cmd := exec.CommandContext(ctx, "git", "show", revision+":./"+filepath.Base(path))
	cmd.Dir = filepath.Dir(path)
	out, err := cmd.Output()
	return out, err == nil
}

// runGit runs git in the folder of a file and returns its output, without spaces around it.
func runGit(ctx context.Context, path string, args ...string) (string, bool) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = filepath.Dir(path)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err == nil
}
