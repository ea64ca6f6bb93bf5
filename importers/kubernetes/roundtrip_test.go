package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"inferplan/export"
	exporter "inferplan/export/kubernetes"
	"inferplan/formats"
	"inferplan/formats/document"
)

// exported writes the manifests of a plan with flags, and returns their folder.
func exported(t *rapid.T, dir string, plan *formats.Plan, flags []string) string {
	path := filepath.Join(dir, "plan.json")
	text, err := document.Marshal(plan)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	target, set := exporter.Target(), pflag.NewFlagSet("kubernetes", pflag.ContinueOnError)
	target.DefineFlags(set)
	if err := set.Parse(flags); err != nil {
		t.Fatal(err)
	}
	source, folder := &export.Source{Plan: plan, Path: path}, &export.Folder{}
	if err := target.AddFiles(context.Background(), source, folder); err != nil {
		t.Fatalf("%v: %v", flags, err)
	}
	out := filepath.Join(dir, "out")
	if _, err := folder.Save(target, source, out, true); err != nil {
		t.Fatal(err)
	}
	return out
}

// readBack returns the plan that the manifests in a folder serve.
func readBack(t *rapid.T, dir string) *served {
	c, err := readFiles([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	s, err := servedBy(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// replicasField matches the number of pods in a manifest.
var replicasField = regexp.MustCompile(`\n  replicas: ([0-9]+)\n`)

// Plans of every kind, with kinds of devices of any name, come back as they were, in as many copies as run. Where workers
// have other replicas, the first copy has as many of its devices as their pods have.
func TestExportAndImportAgain(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"plan", "plan-classes", "plan-gear", "plan-flow", "plan-queue"}).Draw(t, "plan")
		plan, err := formats.ReadPlan("../../testdata/compat/" + name + ".v2.json")
		if err != nil {
			t.Fatal(err)
		}
		isQueue := name == "plan-queue"
		if !isQueue && rapid.Bool().Draw(t, "rename") {
			renameKind(plan, rapid.StringMatching(`GPU [-A-Za-z0-9+_'"$ ]{1,12}`).Draw(t, "kind"))
		}
		copies, flags := 1, []string{"--name=" + rapid.SampledFrom([]string{"inferplan", "a"}).Draw(t, "name"), "--node-selector=" + plan.Pools[0].Device + "=a.b/c=d"}
		if isQueue {
			flags = []string{"--server=0=http://a:1", "--server=1=http://b:1"}
		} else if copies = rapid.IntRange(1, 3).Draw(t, "copies"); rapid.Bool().Draw(t, "scaled") {
			flags = append(flags, fmt.Sprintf("--max-copies=%d", copies+1))
		}
		out := exported(t, dir, plan, append(flags, fmt.Sprintf("--copies=%d", copies)))

		// What runs is the plan.
		s := readBack(t, out)
		if d := cmp.Diff(plan, s.plan); d != "" || !s.isWhole() || s.server.count != copies || len(s.notes) > min(copies-1, 1) {
			t.Fatalf("%v: %d copies, notes %q\n%s", flags, s.server.count, s.notes, d)
		}
		checkOtherReplicas(t, out, s, copies, name == "plan" || name == "plan-classes")
	})
}

// checkOtherReplicas changes the replicas of the first workers of an export, of which s was read, and reads it again. What
// is left of a plan of pools has to be readable.
func checkOtherReplicas(t *rapid.T, out string, s *served, copies int, isPool bool) {
	files, err := filepath.Glob(filepath.Join(out, "base", "workers-*.yaml"))
	if err != nil || len(files) == 0 {
		return
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	pods, _ := strconv.Atoi(replicasField.FindStringSubmatch(string(text))[1])
	changed := rapid.IntRange(0, pods+1).Draw(t, "replicas")
	if err := os.WriteFile(files[0], replicasField.ReplaceAll(text, fmt.Appendf(nil, "\n  replicas: %d\n", changed)), 0o600); err != nil {
		t.Fatal(err)
	}
	again := readBack(t, out)
	kind := ""
	for k := range again.copyDevices {
		if again.workerDevices[k] != s.workerDevices[k] || len(again.copyDevices) == 1 {
			kind = k
		}
	}
	if changed != pods && (again.firstDevices[kind] != min(changed, pods/copies) || !strings.Contains(strings.Join(again.notes, "\n"), "replicas were changed")) {
		t.Fatalf("%d of %d pods of %s: %d devices, %q", changed, pods, kind, again.firstDevices[kind], again.notes)
	}
	if _, err := again.remaining(); err != nil && isPool {
		t.Fatal(err)
	}
}

// renameKind gives the kind of the first pool another name.
func renameKind(plan *formats.Plan, kind string) {
	old := plan.Pools[0].Device
	plan.Pools[0].Device = kind
	for s := range plan.Stages() {
		if s.Device == old {
			s.Stage.Device = kind
		}
	}
}
