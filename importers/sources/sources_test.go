package sources

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each importer is one folder and one line of the table, and nothing outside of its folder names its package.
func TestImportersAreFolders(t *testing.T) {
	folders, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, f := range folders {
		if _, err := os.Stat(filepath.Join("..", f.Name(), "importer.go")); err == nil {
			count++
		}
	}
	seen := map[string]bool{}
	for _, i := range All() {
		name, _, _ := strings.Cut(i.Usage, " ")
		if seen[name] || i.Summary == "" || i.Example == "" || i.Kind == "" || i.DefaultOutput == "" || i.Import == nil {
			t.Errorf("%s: twice, or incomplete: %+v", name, i)
		}
		seen[name] = true
		if _, err := os.Stat(filepath.Join("..", strings.ReplaceAll(name, "-", ""), "importer.go")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if count != len(seen) {
		t.Errorf("%d folders of importers, %d in the table", count, len(seen))
	}
}
