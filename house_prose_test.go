package inferplan_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// avoidedWords are words that readers of plain English stumble over, with the words to write instead.
var avoidedWords = map[string]string{
	"reckon":     "estimate or compute",
	"reckons":    "estimates or computes",
	"reckoned":   "estimated or computed",
	"utilize":    "use",
	"leverage":   "use",
	"whilst":     "while",
	"amongst":    "among",
	"thereof":    "of it",
	"heretofore": "so far",
	"henceforth": "from now on",
}

var wordPattern = regexp.MustCompile(`[A-Za-z]+`)

// findAvoidedWords lists the avoided words of a text, with their lines.
func findAvoidedWords(path, text string) []string {
	var findings []string
	for i, line := range strings.Split(text, "\n") {
		for _, word := range wordPattern.FindAllString(line, -1) {
			if better, avoided := avoidedWords[strings.ToLower(word)]; avoided {
				findings = append(findings, fmt.Sprintf("%s:%d: %q: write %s", path, i+1, word, better))
			}
		}
	}
	return findings
}

// TestProseIsPlain reads documents and Go files.
func TestProseIsPlain(t *testing.T) {
	paths, err := documents()
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d documents, %v", len(paths), err)
	}
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		paths = append(paths, f.path)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range findAvoidedWords(path, string(text)) {
			t.Error(finding)
		}
	}
}

func TestAvoidedWordsAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"We estimate so.":               0,
		"// We Reckon so.":              1,
		"Whilst we\nutilize them daily": 2,
	} {
		if got := findAvoidedWords("a.go", text); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
