package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/planner"
)

// planVerbs are the verbs that read a plan, with the arguments that name one.
var planVerbs = map[string]func(plan string) []string{
	"serve":    func(plan string) []string { return []string{plan} },
	"load":     func(plan string) []string { return []string{"http://127.0.0.1:1", "--plan", plan} },
	"simulate": func(plan string) []string { return []string{plan} },
	"replay":   func(plan string) []string { return []string{"no.log", "--plan", plan} },
	"check":    func(plan string) []string { return []string{plan} },
	"diff":     func(plan string) []string { return []string{plan, plan} },
	"explain":  func(plan string) []string { return []string{plan} },
	"report":   func(plan string) []string { return []string{plan} },
}

// ofAllKinds are the flags of these verbs that act on plans of every kind.
var ofAllKinds = map[string]string{
	"serve":    "http metrics policy event-log output max-body memory-limit host max-queue tls-cert tls-key token-file keys drain drain-delay watch-plan log-format access-log trace-to",
	"load":     "load poisson trace model class mix arrivals-gaps-us seed plan protocol duration warmup grace max-in-flight token-file outcomes outcomes-format output",
	"simulate": "load poisson trace model class mix arrivals-gaps-us seed find-max-load up-to loads attainment policy duration warmup window runs event-log chrome-trace outcomes verify output",
	"replay":   "plan policy",
	"check":    "against profile was cluster workload max-regression format no-solve",
	"diff":     "tolerance format html",
	"explain":  "html",
	"report":   "attainment html format plan outcomes chrome-trace fail-if",
}

// values are what flags are given that take not any text.
var values = map[string]string{
	"place": "cpu-a=0-1", "remote": "L4=1", "gpu-memory": "1GiB", "provider-option": "a=b", "tf32": "on", "cuda-graph": "on", "fp16": "on", "conv-search": "default",
	"join-listen": "127.0.0.1:0", "join-silence": "1s", "queue-silence": "1s", "server-silence": "1s", "watch-servers": "1s", "queue-replicas": "1", "model-cache": "1GiB", "engine": "replay",
	"grpc": "127.0.0.1:0", "jitter": "0.1", "network": "nodes", "server": "http://127.0.0.1:1", "adapter": "a=b", "trace-to": "http://127.0.0.1:4318",
}

// Every flag of every verb acts on plans of every kind, or is refused with the kind's name
// and exit code 2. A new flag has to say which.
func TestEveryFlagActsOrIsRefused(t *testing.T) {
	verbs := map[string]*cobra.Command{}
	for _, c := range newRootCommand().Commands() {
		verbs[c.Name()] = c
	}
	refused := 0
	for verb, args := range planVerbs {
		verbs[verb].LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" || verbs[verb].InheritedFlags().Lookup(f.Name) != nil {
				return
			}
			row := slices.IndexFunc(flagsOfKinds, func(k kindFlags) bool { return k.verb == verb && slices.Contains(k.flags, f.Name) })
			if all := slices.Contains(strings.Fields(ofAllKinds[verb]), f.Name); all == (row >= 0) {
				t.Errorf("plan %s --%s: found it in %d of the two lists, expected it among the flags of all kinds or in flagsOfKinds", verb, f.Name, map[bool]int{true: 2}[all])
				return
			}
			for _, kind := range planner.Kinds() {
				typed := typedFlags{f.Name: cmp.Or(values[f.Name], "x")}
				acts := row < 0 || flagsOfKinds[row].appliesTo(kind)
				if err := typed.checkKind(verb, kind); (err == nil) != acts {
					t.Errorf("plan %s --%s of a plan of kind %s: %v", verb, f.Name, kind, err)
				}
				if acts {
					continue
				}
				refused++
				flag := "--" + f.Name
				if f.Value.Type() != "bool" {
					flag += "=" + typed[f.Name]
				}
				var out, stderr bytes.Buffer
				code := executeCommand(context.Background(), append(append([]string{verb}, args(planOf(t, kind))...), flag), &out, &stderr)
				if want := fmt.Sprintf("--%s: found a flag that does nothing for a plan of kind %s, expected it with ", f.Name, kind); code != exitUsage || !strings.Contains(stderr.String(), want) {
					t.Errorf("plan %s %s of a plan of kind %s: exit %d, %s", verb, flag, kind, code, stderr.String())
				}
			}
		})
	}
	if refused < 40 {
		t.Errorf("only %d flags were refused", refused)
	}
}

// planOf is a plan of a kind.
func planOf(t *testing.T, kind string) string {
	t.Helper()
	for _, name := range []string{"plan-" + kind + ".v2.json", "plan.v2.json"} {
		path := filepath.Join("..", "..", "testdata", "compat", name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("no plan of kind %s", kind)
	return ""
}

// What the configuration says for all plans is left alone where a plan has no use for it.
func TestConfiguredFlagsOfOtherKinds(t *testing.T) {
	t.Setenv("INFERPLAN_JITTER", "0.1")
	var out, stderr bytes.Buffer
	if code := executeCommand(context.Background(), []string{"simulate", planOf(t, "queue"), "--duration", "2s"}, &out, &stderr); strings.Contains(stderr.String(), "does nothing") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}

// Variables that no flag has are told, with what was probably meant.
func TestUnknownVariables(t *testing.T) {
	t.Setenv("INFERPLAN_MARGN", "0.1")
	var out, stderr bytes.Buffer
	want := "INFERPLAN_MARGN: found a variable that is no flag's; it does nothing: did you mean INFERPLAN_MARGIN?"
	if code := executeCommand(context.Background(), []string{"version"}, &out, &stderr); code != exitDone || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
	if known := unknownVariables(newRootCommand(), []string{"INFERPLAN_MARGIN=1", "INFERPLAN_SOLVE_GAP=2", "INFERPLAN_IMPORT_BLOCKS_MODELS=x", "INFERPLAN_EMPTY=", "HOME=/"}); len(known) > 0 {
		t.Errorf("known ones: %v", known)
	}
}
