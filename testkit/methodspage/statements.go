package methodspage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Require fails the test unless the section of a page of docs/methods with the given heading holds each of the
// statements, whatever the breaks of lines. page is the name of the file. A section ends at the next heading of the same
// depth.
func Require(t *testing.T, page, heading string, statements ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repositoryRoot(t), "docs", "methods", page))
	if err != nil {
		t.Fatal(err)
	}
	depth := heading[:strings.Index(heading, " ")+1]
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Errorf("docs/methods/%s has no heading %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n"+depth)
	for _, statement := range statements {
		if !strings.Contains(joinLines(section), joinLines(statement)) {
			t.Errorf("docs/methods/%s, %q, does not state %q, which the planner computes", page, heading, statement)
		}
	}
}

// joinLines returns a text with one space in place of every stretch of white space.
func joinLines(text string) string { return strings.Join(strings.Fields(text), " ") }

// repositoryRoot returns the folder above the test's package that holds go.mod.
func repositoryRoot(t *testing.T) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			t.Fatal("no folder above the test holds go.mod")
		}
		folder = parent
	}
}
