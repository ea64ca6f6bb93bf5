package export

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inferplan/formats"
	"inferplan/formats/usage"
)

// saved writes a folder with one file to dir.
func saved(dir, content string, force bool) ([]string, error) {
	f := &Folder{Steps: []Step{{Title: "Run it", Commands: "engine --config a/config.txt"}}, Lost: []string{"the policy"}}
	f.AddText("a/config.txt", content)
	f.AddScript("run.sh", "#!/bin/sh\n")
	target := &Target{Name: "engine", Summary: "a test", AddFiles: func(context.Context, *Source, *Folder) error { return nil }}
	return f.Save(target, &Source{Plan: &formats.Plan{Kind: "pool", Assumptions: []string{"one host"}}, Path: "x/plan.json"}, dir, force)
}

// An export replaces an earlier one, and nothing that a person wrote.
func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	for _, content := range []string{"one", "two"} {
		paths, err := saved(dir, content, false)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(paths, " "); got != "README.md a/config.txt run.sh export.json" {
			t.Errorf("files %s", got)
		}
		if data, err := os.ReadFile(filepath.Join(dir, "a/config.txt")); err != nil || string(data) != content {
			t.Errorf("%q, %v", data, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "run.sh"))
	if err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("run.sh: %v, %v", info, err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, readmeName))
	if err != nil {
		t.Fatal(err)
	}
	for _, expected := range []string{"engine --config a/config.txt", "- one host", "- the policy", "`plan.json` (kind pool"} {
		if !strings.Contains(string(readme), expected) {
			t.Errorf("README lacks %q:\n%s", expected, readme)
		}
	}

	// A file that was edited, or one that is not of the export, is kept.
	for _, name := range []string{"a/config.txt", "a/other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("edited"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := saved(dir, "three", false)
		if _, usage := errors.AsType[*usage.Error](err); !usage || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if data, _ := os.ReadFile(filepath.Join(dir, name)); string(data) != "edited" {
			t.Errorf("%s: %q", name, data)
		}
		if _, err := saved(dir, "four", true); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the folder: %v, %v", left, err)
	}

	// So is a folder with other files.
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := saved(other, "five", false); err == nil {
		t.Error("replaced a folder with other files")
	}
}

// A path that leaves the folder is refused, and nothing is written.
func TestSaveStaysInside(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	f := &Folder{}
	f.AddText("../x", "")
	if _, err := f.Save(&Target{}, &Source{Plan: &formats.Plan{}}, dir, false); err == nil {
		t.Error("wrote outside")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("wrote a part")
	}
}
