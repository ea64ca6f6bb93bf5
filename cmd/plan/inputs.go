package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"

	"inferplan/engine/worker"
	"inferplan/formats"
)

// planArgument returns the plan file that a verb is given, or plan.json.
func planArgument(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return "plan.json"
}

// readPlan reads a plan. An error is bad usage; if there is no file, it says how to make one.
func readPlan(path string) (*formats.Plan, error) {
	return readPlanOrHint(path, "plan solve --slo 200ms -o "+path+" makes one")
}

// readPlanOrHint reads a plan. An error is bad usage; if there is no file, it has the hint.
func readPlanOrHint(path, hint string) (*formats.Plan, error) {
	plan, err := formats.ReadPlan(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usageErrorf("no plan %s\n  hint: %s", path, hint)
	}
	return plan, withCode(exitUsage, err)
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
