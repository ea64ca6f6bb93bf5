package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra/doc"

	"inferplan/planner/kind"
)

// manDir is where `make dist` has the man pages written.
var manDir = flag.String("man-dir", "", "folder to write the man pages of all verbs to")

// Man pages are made of what --help prints: a page for each verb, in the section for commands.
func TestManPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	root := newRootCommand()
	root.DisableAutoGenTag = true // the same bytes on every day
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	header := &doc.GenManHeader{Section: "1", Source: "inferplan " + kind.Version, Manual: "inferplan", Date: &day}
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range verbsOf(newRootCommand()) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, f := range ownFlags(c) {
			if !strings.Contains(string(page), `\fB--`+f.Name) {
				t.Errorf("the page of %s lacks --%s", c.CommandPath(), f.Name)
			}
		}
	}
}
