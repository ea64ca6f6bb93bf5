package inferplan_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// widestLine is the longest line of a text, in characters. Tables, code and links of
// their own are as long as they must be.
const widestLine = 200

// avoided are words that readers of plain English stumble over, with what to write.
var avoided = map[string]string{
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

var word = regexp.MustCompile(`[A-Za-z]+`)

// prose lists what is wrong with a text, line by line. Only documents have a width.
func prose(path, text string) []string {
	var out []string
	document, code := strings.HasSuffix(path, ".md"), false
	for i, line := range strings.Split(text, "\n") {
		if document && strings.HasPrefix(line, "```") {
			code = !code
		}
		fixed := code || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ")
		if n := utf8.RuneCountInString(line); document && !fixed && n > widestLine {
			out = append(out, fmt.Sprintf("%s:%d: %d characters, at most %d are easy to read", path, i+1, n, widestLine))
		}
		for _, w := range word.FindAllString(line, -1) {
			if better, bad := avoided[strings.ToLower(w)]; bad {
				out = append(out, fmt.Sprintf("%s:%d: %q: write %s", path, i+1, w, better))
			}
		}
	}
	return out
}

// longestSentence is how many words a sentence of a document has at most. A colon or a
// semicolon ends one. What stands in code quotes is one word.
const longestSentence = 35

var (
	fenced   = regexp.MustCompile("(?s)```.*?```")
	quoted   = regexp.MustCompile("`[^`]*`")
	linked   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	block    = regexp.MustCompile(`\n\s*\n|\n\s*[-*|#] ?|\n\d+\. `)
	sentence = regexp.MustCompile(`[.!?:;]\s+`)
	unspoken = regexp.MustCompile(`(?m)^(\||    |\t).*$`)
	spoken   = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// longSentences lists the sentences of a document that have too many words.
func longSentences(path, text string) []string {
	var out []string
	text = linked.ReplaceAllString(quoted.ReplaceAllString(fenced.ReplaceAllString(text, ""), "code"), "$1")
	for _, b := range block.Split(unspoken.ReplaceAllString(text, "\n\n"), -1) {
		for _, s := range sentence.Split(b, -1) {
			words := 0
			for _, w := range strings.Fields(s) {
				if spoken.MatchString(w) {
					words++
				}
			}
			if words > longestSentence {
				out = append(out, fmt.Sprintf("%s: a sentence of %d words, at most %d are easy to read: %.80s…", path, words, longestSentence, strings.Join(strings.Fields(s), " ")))
			}
		}
	}
	return out
}

// TestProse reads documents and Go files.
func TestProse(t *testing.T) {
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
		found := prose(path, string(text))
		if strings.HasSuffix(path, ".md") {
			found = append(found, longSentences(path, string(text))...)
		}
		for _, v := range found {
			t.Error(v)
		}
	}
}

func TestLongSentencesAreFound(t *testing.T) {
	long := strings.Repeat("many words ", 18)
	for text, want := range map[string]int{
		long + "end.":                          1,
		long + "end. " + long:                  2,
		"| " + long + " | " + long:             0,
		"some: " + strings.Repeat("word ", 35): 0,
		"`" + long + long + "` is one word.":   0,
		"```\n" + long + "\n```":               0,
		"- " + strings.Repeat("word ", 20) + "\n- " + strings.Repeat("word ", 20): 0,
	} {
		if got := longSentences("a.md", text); len(got) != want {
			t.Errorf("%.30q: %q, want %d", text, got, want)
		}
	}
}

func TestProseFinds(t *testing.T) {
	long := strings.Repeat("many words ", 30)
	for _, c := range []struct {
		path, text string
		want       int
	}{
		{"a.md", long, 1},
		{"a.md", "| " + long, 0},
		{"a.md", "```\n" + long + "\n```\n" + long, 1},
		{"a.go", "// " + long, 0},
		{"a.go", "// We reckon so.", 1},
	} {
		if got := prose(c.path, c.text); len(got) != c.want {
			t.Errorf("%s %q: %q, want %d", c.path, c.text[:10], got, c.want)
		}
	}
}
