package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"inferplan/planner/kind"
)

// manDir is where `make dist` has the man pages written.
var manDir = flag.String("man-dir", "", "folder to write the man pages of all verbs to")

// Man pages are made of what --help prints: a page for each verb, in the section for commands. They have every line of
// it, in roff that each reader of man pages takes: ASCII, and no macros but those of a page's layout.
func TestManPages(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	root := newRootCommand()
	root.DisableAutoGenTag = true // the same bytes on every day
	escapeForMarkdown(root)
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	header := &doc.GenManHeader{Section: "1", Source: "inferplan " + kind.Version, Manual: "inferplan", Date: &day}
	if err := doc.GenManTree(root, header, dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range append(verbsOf(newRootCommand()), newRootCommand()) {
		path := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		page, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		page = notASCII.ReplaceAllFunc(page, func(char []byte) []byte { return fmt.Appendf(nil, `\[u%04X]`, []rune(string(char))[0]) })
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, line := range controlLine.FindAllString(string(page), -1) {
			if !layoutMacro.MatchString(line) {
				t.Errorf("the page of %s has the macro %q", c.CommandPath(), line)
			}
		}

		// The page has every line of the help, and every flag.
		text := plainText(string(page))
		var expected []string
		for _, paragraph := range []string{c.Short, c.Long, c.Example} {
			expected = append(expected, strings.Split(paragraph, "\n")...)
		}
		for _, f := range ownFlags(c) {
			expected = append(expected, "--"+f.Name, f.Usage)
		}
		for _, line := range expected {
			if line = strings.Join(strings.Fields(line), " "); !strings.Contains(text, line) {
				t.Errorf("the page of %s lacks %q", c.CommandPath(), line)
			}
		}
	}
}

var (
	notASCII    = regexp.MustCompile(`[^\x00-\x7f]`)
	controlLine = regexp.MustCompile(`(?m)^[.'].*$`)
	layoutMacro = regexp.MustCompile(`^\.(nh|EX|EE|PP|RS|RE|SH [A-Z ]+|TH .*)$`)
	markup      = regexp.MustCompile(`[\\*_<>\[\]&]` + "|`")
)

// escapeForMarkdown marks the texts of a command and its verbs so that cobra/doc, which reads them as Markdown, keeps
// them: characters that are markup, and indented lines, which are a table.
func escapeForMarkdown(c *cobra.Command) {
	escape := func(text string) string { return markup.ReplaceAllString(text, `\$0`) }
	var long []string
	isTable := false
	for line := range strings.SplitSeq(c.Long, "\n") {
		switch row, isRow := strings.CutPrefix(line, "  "); {
		case isRow:
			if !isTable {
				long = append(long, "")
			}
			long, isTable = append(long, "    "+row), true
		default:
			long, isTable = append(long, escape(line)), false
		}
	}
	c.Short, c.Long = escape(c.Short), strings.Join(long, "\n")
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = escape(f.Usage) })
	for _, verb := range c.Commands() {
		escapeForMarkdown(verb)
	}
}

// roffEscapes are the escapes of man pages, and the text that each stands for.
var roffEscapes = strings.NewReplacer(`\fB`, "", `\fP`, "", `\fI`, "", `\fR`, "", `\-`, "-", `\&`, "", `\(aq`, "'", `\[u2026]`, "…", `\e`, `\`, `\\`, `\`)

// plainText returns the text of a man page in one line.
func plainText(page string) string {
	return strings.Join(strings.Fields(roffEscapes.Replace(controlLine.ReplaceAllString(page, ""))), " ")
}
