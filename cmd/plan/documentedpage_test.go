package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// notRunReasons are the reasons why a documented command may not be run by a test.
var notRunReasons = []string{
	"builds the project", "needs a foreign server", "needs an NVIDIA GPU", "needs another host", "needs root", "takes minutes",
}

// pageBlock is a block of code in a page. Blocks of the language sh run. A line that starts plan serve in the foreground
// runs beside the lines after it, as in a terminal of its own; the next such line ends it first, as does the end of the page.
// Markers are comments on the lines before:
//
//	<!-- given: PATH NAME=PATH... -->   files and folders of the repository that are copied into the page's folder first
//	<!-- not run: REASON -->            the block does not run; REASON is one of notRunReasons
type pageBlock struct {
	line     int
	language string
	text     string
	given    []string
	notRun   string
}

// runs reports whether the test runs the block.
func (b *pageBlock) runs() bool { return b.language == "sh" && b.notRun == "" }

// documentedPage is a page with its blocks of code, or the examples of a verb's --help.
type documentedPage struct {
	name   string
	blocks []pageBlock
}

// hasRunningBlock reports whether the test runs a block that the page shows. A block without a line only prepares those of --help.
func (p *documentedPage) hasRunningBlock() bool {
	return slices.ContainsFunc(p.blocks, func(b pageBlock) bool { return b.runs() && b.line > 0 })
}

// documentedPages reads all pages of the repository, and the examples of every verb.
func documentedPages(root string) ([]documentedPage, error) {
	var paths []string
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	var pages []documentedPage
	var errs []error
	for _, path := range paths {
		name, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		if name == filepath.Join("docs", "not-run.md") || strings.HasPrefix(filepath.ToSlash(name), "docs/reference/") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		blocks, err := pageBlocks(string(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		pages = append(pages, documentedPage{filepath.ToSlash(name), blocks})
	}
	help, err := helpPages(filepath.Join(root, "cmd", "plan", "testdata", "help", "examples.txt"))
	return append(pages, help...), errors.Join(append(errs, err)...)
}

var (
	fence       = regexp.MustCompile("^ *```")
	blockMarker = regexp.MustCompile(`^ *<!-- ([^:>]*): *(.*?) *-->$`)
	planLine    = regexp.MustCompile(`^    (\$ )?plan `)
	command     = regexp.MustCompile(`(?m)^(\$ )?plan [a-z]+ [^ ].*$`)
)

// pageBlocks returns the blocks of code of a page. It returns an error for a block without a language, for a marker
// that is unknown or stands before no block of commands, and for indented lines of commands, which no test would run.
func pageBlocks(text string) (blocks []pageBlock, err error) {
	var errs []error
	fail := func(i int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("line %d: %s", i+1, fmt.Sprintf(format, args...)))
	}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if planLine.MatchString(lines[i]) {
			fail(i, "found an indented command, expected a block ```sh: %s", strings.TrimSpace(lines[i]))
		}
		if m := blockMarker.FindStringSubmatch(lines[i]); m != nil && (m[1] == "given" || m[1] == "not run") && !markersReachBlock(lines[i:]) {
			fail(i, "found the marker %q before no block ```sh", m[1])
		}
		if !fence.MatchString(lines[i]) {
			continue
		}
		block, end := pageBlock{line: i + 1, language: strings.TrimSpace(strings.TrimLeft(lines[i], " `"))}, i+1
		for end < len(lines) && !fence.MatchString(lines[end]) {
			end++
		}
		if end == len(lines) {
			fail(i, "found no end of the block")
			break
		}
		indent := lines[i][:strings.Index(lines[i], "`")]
		for _, line := range lines[i+1 : end] {
			block.text += strings.TrimPrefix(line, indent) + "\n"
		}
		if block.language == "" {
			fail(i, "found a block without a language, expected ```sh for commands, ```text for what they print")
		}
		if m := command.FindString(block.text); m != "" && block.language != "sh" {
			fail(i, "found the command %q in a block ```%s, expected ```sh", m, block.language)
		}
		// Read the markers on the lines before a block of commands.
		for k := i - 1; k >= 0 && block.language == "sh"; k-- {
			m := blockMarker.FindStringSubmatch(lines[k])
			if m == nil {
				break
			}
			switch {
			case m[1] == "given":
				block.given = append(strings.Fields(m[2]), block.given...)
			case m[1] == "not run" && slices.Contains(notRunReasons, m[2]):
				block.notRun = m[2]
			case m[1] == "not run":
				fail(k, "not run: found %q, expected one of: %s", m[2], strings.Join(notRunReasons, "; "))
			default:
				fail(k, "found the marker %q, expected given or not run", m[1])
			}
		}
		blocks = append(blocks, block)
		i = end
	}
	return blocks, errors.Join(errs...)
}

// markersReachBlock reports whether lines that begin with a marker are markers up to a block of commands.
func markersReachBlock(lines []string) bool {
	for _, line := range lines {
		if !blockMarker.MatchString(line) {
			return strings.TrimSpace(line) == "```sh"
		}
	}
	return false
}

// helpPages returns the examples of every verb, each as a page. An example of several verbs is on the page of the first. The file says what its commands are given, and which of them do not run:
//
//	plan VERB
//	  given: PATH NAME=PATH...
//	  before: COMMAND
//	  not run: REASON: EXAMPLE
//	  exits 1: EXAMPLE            a gate that fails, or differences
func helpPages(path string) ([]documentedPage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var errs []error
	given, before, notRun, differs := map[string][]string{}, map[string]string{}, map[string]map[string]string{}, map[string]bool{}
	verb := ""
	for i, line := range strings.Split(string(text), "\n") {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, " "):
			verb = line
			notRun[verb] = map[string]string{}
		case key == "given":
			given[verb] = append(given[verb], strings.Fields(value)...)
		case key == "before":
			before[verb] += value + "\n"
		case key == "not run":
			reason, example, _ := strings.Cut(value, ": ")
			if !slices.Contains(notRunReasons, reason) {
				errs = append(errs, fmt.Errorf("%s:%d: found the reason %q, expected one of: %s", path, i+1, reason, strings.Join(notRunReasons, "; ")))
			}
			notRun[verb][example] = reason
		case key == "exits 1":
			differs[value] = true
		default:
			errs = append(errs, fmt.Errorf("%s:%d: found %q, expected given, before, not run or exits 1", path, i+1, key))
		}
	}
	var pages []documentedPage
	listed := map[string]bool{}
	for _, cmd := range verbsOf(newRootCommand()) {
		if cmd.Example == "" {
			continue
		}
		verb, page := cmd.CommandPath(), documentedPage{name: cmd.CommandPath() + " --help"}
		page.blocks = append(page.blocks, pageBlock{language: "sh", text: before[verb], given: given[verb]})
		for i, line := range strings.Split(cmd.Example, "\n") {
			example := strings.TrimSpace(line)
			if listed[example] {
				continue
			}
			listed[example] = true
			text := example + "\n"
			if differs[example] {
				text = "code=0\n" + example + " || code=$?\n[ $code = 1 ]\n"
			}
			page.blocks = append(page.blocks, pageBlock{line: i + 1, language: "sh", text: text, notRun: notRun[verb][example]})
			delete(differs, example)
			delete(notRun[verb], example)
		}
		for example := range notRun[verb] {
			errs = append(errs, fmt.Errorf("%s: %s --help has no example %q", path, verb, example))
		}
		delete(notRun, verb)
		pages = append(pages, page)
	}
	for example := range differs {
		errs = append(errs, fmt.Errorf("%s: no --help has the example %q", path, example))
	}
	for verb := range notRun {
		errs = append(errs, fmt.Errorf("%s: %s has no example", path, verb))
	}
	return pages, errors.Join(errs...)
}

var (
	continued = regexp.MustCompile(`\\\n\s*`)
	quoted    = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	separator = regexp.MustCompile(`\|\|?|&&?|;|\n|\$\(|\)`)
	comment   = regexp.MustCompile(`(^|\s)#.*`)
)

// unknownParts returns the verbs and flags of plan in shell commands that do not exist.
func unknownParts(text string) (unknown []string) {
	text = quoted.ReplaceAllString(continued.ReplaceAllString(text, " "), "x")
	for _, command := range separator.Split(text, -1) {
		words := strings.Fields(comment.ReplaceAllString(command, ""))
		for len(words) > 0 && strings.Contains(words[0], "=") {
			words = words[1:]
		}
		if len(words) == 0 || filepath.Base(words[0]) != "plan" {
			continue
		}
		cmd, rest, err := newRootCommand().Find(words[1:])
		if err != nil || cmd.HasSubCommands() && len(rest) > 0 && !cmd.Runnable() {
			unknown = append(unknown, fmt.Sprintf("there is no verb %q", strings.Join(words, " ")))
			continue
		}
		for _, word := range rest {
			name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
			long := strings.HasPrefix(word, "--") && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil
			short := !strings.HasPrefix(word, "--") && len(word) == 2 && word[0] == '-' &&
				cmd.Flags().ShorthandLookup(name) == nil && cmd.InheritedFlags().ShorthandLookup(name) == nil
			if long || short {
				unknown = append(unknown, fmt.Sprintf("%s has no flag %s", cmd.CommandPath(), word))
			}
		}
	}
	return unknown
}

// Markers and blocks that a test would pass over in silence are found.
func TestBadBlocksAreFound(t *testing.T) {
	block := "```sh\nplan version\n```\n"
	for text, want := range map[string]string{
		block:                                                       "",
		"<!-- given: a b=c -->\n" + block:                           "",
		"<!-- not run: needs root -->\n" + block:                    "",
		"<!-- not run: too slow -->\n" + block:                      `not run: found "too slow"`,
		"<!-- gven: a -->\n" + block:                                `found the marker "gven"`,
		"<!-- given: a -->\n\n" + block:                             "before no block",
		"<!-- given: a -->\n```text\nx\n```\n":                      "before no block",
		"```\nplan version\n```\n":                                  "without a language",
		"```text\nplan solve --slo 1s\n```\n":                       "found the command",
		"```sh\nplan version\n":                                     "no end",
		"Run it:\n\n    plan version\n":                             "indented command",
		"<!-- not run: needs root -->\n<!-- given: a -->\n" + block: "",
	} {
		_, err := pageBlocks(text)
		if found := fmt.Sprint(err); want == "" && err != nil || want != "" && !strings.Contains(found, want) {
			t.Errorf("%q: found %q, expected %q", text, found, want)
		}
	}
}

// A page's files, reasons and text are read, without the indent of a list.
func TestPageBlocksAreRead(t *testing.T) {
	blocks, err := pageBlocks("1. a\n\n   <!-- given: x/ n=y -->\n   ```sh\n   plan version\n   ```\n")
	if err != nil || len(blocks) != 1 || blocks[0].text != "plan version\n" || !slices.Equal(blocks[0].given, []string{"x/", "n=y"}) || !blocks[0].runs() {
		t.Errorf("found %+v, %v", blocks, err)
	}
}

// Verbs and flags that do not exist are found in what does not run.
func TestUnknownPartsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"plan solve --slo 1s -o p.json":                   "",
		"sudo ls --all && plan simulate p.json --load .5": "",
		"plan solve --slow 1s":                            "plan solve has no flag --slow",
		"a | plan import kubernetes - --repo x":           "plan import kubernetes has no flag --repo",
		"plan solve \\\n  --bad":                          "plan solve has no flag --bad",
		"X=1 plan solvee":                                 "there is no verb",
		"plan solve 'a --b'  # --c":                       "",
		"plan solve -z":                                   "plan solve has no flag -z",
	} {
		if found := strings.Join(unknownParts(text), "; "); want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("%q: found %q, expected %q", text, found, want)
		}
	}
}
