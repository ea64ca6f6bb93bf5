package inferplan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fencedBlock = regexp.MustCompile("(?s)```.*?```")
	quotedCode  = regexp.MustCompile("`[^`]*`")
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// documents lists the documents that people read.
func documents() ([]string, error) {
	list := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// anchors are the names under which the headings of a document can be linked to.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fencedBlock.ReplaceAllString(text, ""), -1) {
		out[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// deadLinks lists the links of a document that lead to no file or no heading.
func deadLinks(path, text string, read func(string) (string, error)) (out []string) {
	for _, m := range link.FindAllStringSubmatch(quotedCode.ReplaceAllString(fencedBlock.ReplaceAllString(text, ""), ""), -1) {
		to := m[1]
		if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(to, "#")
		target, body := path, text
		if file != "" {
			target = filepath.Join(filepath.Dir(path), file)
			var err error
			if body, err = read(target); err != nil {
				out = append(out, fmt.Sprintf("%s: %s leads nowhere", path, to))
				continue
			}
		}
		if anchor != "" && !anchors(body)[anchor] {
			out = append(out, fmt.Sprintf("%s: %s: %s has no heading of that name", path, to, target))
		}
	}
	return out
}

func TestLinks(t *testing.T) {
	paths, err := documents()
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d documents, %v", len(paths), err)
	}
	read := func(path string) (string, error) {
		text, err := os.ReadFile(path)
		return string(text), err
	}
	for _, path := range paths {
		text, err := read(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range deadLinks(path, text, read) {
			t.Error(v)
		}
	}
}

func TestDeadLinksAreFound(t *testing.T) {
	read := func(path string) (string, error) {
		if path != "docs/b.md" {
			return "", os.ErrNotExist
		}
		return "# The `b` of all (really)\n", nil
	}
	for text, want := range map[string]int{
		"[b](b.md) [b](b.md#the-b-of-all-really) [x](https://example.org/x#y)": 0,
		"[b](c.md)":                      1,
		"[b](b.md#the-b)":                1,
		"## Here\n[a](#here)[a](#there)": 1,
		"`[b](c.md)`":                    0,
	} {
		if got := deadLinks("docs/a.md", text, read); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}

// quotedFile finds a file in backquotes, with the name in parentheses behind it, if there is one.
var quotedFile = regexp.MustCompile("`([a-z][\\w./]*/\\w+\\.go)`(?: \\(`(\\w+)`\\))?")

// missingNames lists the files that a document quotes and that do not exist, and the names in parentheses behind a
// file that the file does not declare. Paths with an X stand for any kind.
func missingNames(path, text string, read func(string) (string, error)) (out []string) {
	for _, m := range quotedFile.FindAllStringSubmatch(text, -1) {
		file, name := m[1], m[2]
		if strings.Contains(file, "X") {
			continue
		}
		code, err := read(file)
		if err != nil {
			out = append(out, fmt.Sprintf("%s: there is no %s", path, file))
			continue
		}
		declared := regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |\t)` + regexp.QuoteMeta(name) + `\b`)
		if name != "" && !declared.MatchString(code) {
			out = append(out, fmt.Sprintf("%s: %s does not declare %s", path, file, name))
		}
	}
	return out
}

// The page that says where things are names files that exist, and what they declare.
func TestArchitectureNamesWhatExists(t *testing.T) {
	const page = "docs/architecture.md"
	read := func(file string) (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	}
	text, err := read(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range missingNames(page, text, read) {
		t.Error(missing)
	}
}

func TestMissingNamesAreFound(t *testing.T) {
	read := func(file string) (string, error) {
		if file != "policy/drop/gate.go" {
			return "", os.ErrNotExist
		}
		return "package drop\n\nfunc (g *gate) admits(requestNumber int32) bool {\n\treturn true\n}\n", nil
	}
	for text, want := range map[string]string{
		"`policy/drop/gate.go` (`admits`)":  "",
		"`policy/drop/gate.go`":             "",
		"`planner/X/gate.go` (`admits`)":    "",
		"`policy/drop/gate.go` (`refuses`)": "p: policy/drop/gate.go does not declare refuses",
		"`policy/drop/door.go` (`admits`)":  "p: there is no policy/drop/door.go",
	} {
		if got := strings.Join(missingNames("p", text, read), "; "); got != want {
			t.Errorf("%s: %q, expected %q", text, got, want)
		}
	}
}
