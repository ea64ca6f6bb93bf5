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
	"inferplan/planner/check"
)

// promiseSource is where the promised plan, with which today's is compared, comes from.
type promise struct {
	data     []byte
	path     string // the path of the file; its inputs are relative to its folder
	revision string // the revision of git; empty for a file
	said     string // the promise's name in messages
}

// displayName returns the name of the file in errors.
func (f *promise) name() string {
	if f.revision == "" {
		return f.path
	}
	return f.revision + ":" + f.path
}

// findPromised reads the plan to compare with, and the profiles that it was made from.
func (o *checkOptions) promised(ctx context.Context, p *printer, in *check.GateInput, planPath string) error {
	// Find the plan that is promised: that of a revision or a file, or else this one.
	own, err := os.ReadFile(planPath)
	if err != nil {
		return withCode(exitUsage, err)
	}
	from, err := o.promise(ctx, planPath)
	if err != nil {
		return err
	}
	if from == nil {
		from = &promise{data: own, path: planPath, said: "the plan itself (it is not in git HEAD)"}
	}
	p.assumed([]string{"against: " + from.said})
	if bytes.Equal(own, from.data) {
		in.Against = in.Plan
		if from.path != planPath || from.revision != "" {
			p.note("note: the plan is compared with itself: only the documents of today can make it fail")
		}
	} else if in.Against, err = formats.DecodePlan(from.data, from.name()); err != nil {
		return withCode(exitUsage, err)
	}

	// Read the profiles that it was made of.
	if in.OldProfiles, err = readProfiles(o.was); err != nil {
		return err
	}
	for _, i := range in.Against.Inputs {
		if i.Role != "profile" || len(o.was) > 0 {
			continue
		}
		in.SameProfile = len(o.profiles) <= 1 && todays(in, "profile") == i.SHA256
		profile, err := from.profile(ctx, &i)
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
func todays(in *check.GateInput, role string) string {
	for _, f := range in.Today.Files {
		if f.Role == role {
			return f.SHA256
		}
	}
	return ""
}

// promisedPlan returns the plan that --against names or, without the flag, the one that git has. It returns nil if
// there is none.
func (o *checkOptions) promise(ctx context.Context, planPath string) (*promise, error) {
	if o.against == "" {
		return surroundings(ctx, planPath)
	}
	data, err := os.ReadFile(o.against)
	if err == nil {
		return &promise{data: data, path: o.against, said: o.against}, nil
	}
	if commit, found := git(ctx, planPath, "rev-parse", "--verify", "--quiet", o.against+"^{commit}"); found {
		data, found := inRevision(ctx, commit, planPath)
		if !found {
			return nil, usageErrorf("--against %s: there is no %s in that revision", o.against, planPath)
		}
		return &promise{data: data, path: planPath, revision: commit, said: fmt.Sprintf("%s at %s (%s)", planPath, o.against, short(commit))}, nil
	}
	return nil, withCode(exitUsage, fmt.Errorf("--against %s: neither a file nor a git revision: %w", o.against, err))
}

// promiseFromGit returns the plan at the merge base that a CI job names, else in HEAD. On a CI runner HEAD is the
// commit under test, so it cannot be used there.
func surroundings(ctx context.Context, planPath string) (*promise, error) {
	commit, said := "HEAD", "git HEAD"
	branch, base := os.Getenv("GITHUB_BASE_REF"), os.Getenv("CI_MERGE_REQUEST_DIFF_BASE_SHA")
	switch found := false; {
	case branch != "":
		if commit, found = git(ctx, planPath, "merge-base", "HEAD", "origin/"+branch); !found {
			return nil, usageErrorf("GITHUB_BASE_REF is %s, but git knows no merge base with origin/%s\n  hint: check out with fetch-depth: 0, or name the plan to compare with by --against", branch, branch)
		}
		said = fmt.Sprintf("%s, the merge base with origin/%s", short(commit), branch)
	case base != "":
		if commit, found = git(ctx, planPath, "rev-parse", "--verify", "--quiet", base+"^{commit}"); !found {
			return nil, usageErrorf("CI_MERGE_REQUEST_DIFF_BASE_SHA is %s, but git does not have that commit\n  hint: set GIT_DEPTH: 0, or name the plan to compare with by --against", base)
		}
		said = short(commit) + ", the base of the merge request"
	}
	data, found := inRevision(ctx, commit, planPath)
	switch {
	case found:
		return &promise{data: data, path: planPath, revision: commit, said: planPath + " at " + said}, nil
	case commit != "HEAD":
		own, err := os.ReadFile(planPath)
		return &promise{data: own, path: planPath, said: "the plan itself (it is new since " + said + ")"}, withCode(exitUsage, err)
	}
	return nil, nil
}

func short(commit string) string { return commit[:min(len(commit), 10)] }

// readProfile returns the profile that the promised plan was made from, read from its file or from git. It returns
// nil if neither has the same bytes; then the figures in the plan are used.
func (f *promise) profile(ctx context.Context, i *formats.Input) (*formats.Profile, error) {
	path := filepath.Join(filepath.Dir(f.path), filepath.FromSlash(i.Path))
	data, err := os.ReadFile(path)
	if err != nil || digest(data) != i.SHA256 {
		if data, _ = inRevision(ctx, cmp.Or(f.revision, "HEAD"), path); digest(data) != i.SHA256 {
			return nil, nil
		}
	}
	profile, err := formats.DecodeProfile(data, path)
	return profile, withCode(exitUsage, err)
}

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

func digest(data []byte) string {
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
func git(ctx context.Context, path string, args ...string) (string, bool) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = filepath.Dir(path)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err == nil
}
