package formats

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// exampleBlock finds the fenced examples of a page, with their language.
var exampleBlock = regexp.MustCompile("(?ms)^```(yaml|json)\n(.*?)^```$")

// Every example of docs/documents.md is a valid document, and each kind has one.
func TestExamplesOfDocumentsAreValid(t *testing.T) {
	path := filepath.Join("..", "docs", "documents.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for i, block := range exampleBlock.FindAllSubmatch(page, -1) {
		kind, _, err := Decode(block[2], "example."+string(block[1]))
		if err != nil {
			t.Errorf("%s, example %d: %v\n%s", path, i+1, err, block[2])
			continue
		}
		kinds = append(kinds, kind)
	}
	for _, kind := range Kinds() {
		if !slices.Contains(kinds, kind) {
			t.Errorf("%s has no example of a %s", path, kind)
		}
	}
}
