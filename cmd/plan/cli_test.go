package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/planner"
)

// verbsOf lists a command and those below it that users see.
func verbsOf(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			list = append(list, verbsOf(c)...)
		}
	}
	return list
}

// ownFlags lists the flags of a verb that are not those of all verbs.
func ownFlags(cmd *cobra.Command) (list []*pflag.Flag) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !f.Hidden {
			list = append(list, f)
		}
	})
	return list
}

// writeItem writes an item of a list in lines of at most so many bytes.
func writeItem(out *bytes.Buffer, item string, width int) {
	line := "-"
	for word := range strings.FieldsSeq(item) {
		if len(line)+1+len(word) > width {
			fmt.Fprintln(out, line)
			line = " "
		}
		line += " " + word
	}
	fmt.Fprintln(out, line)
}

// writeFlags writes a list of flags under a line.
func writeFlags(out *bytes.Buffer, title string, flags *pflag.FlagSet) {
	out.WriteString("\n" + title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		item := "`--" + f.Name
		if value != "" {
			item += " " + value
		}
		item += "`: " + usage
		if text := f.DefValue; text != "" && text != "0" && text != "0s" && text != "false" && text != "[]" && !strings.Contains(usage, "default") {
			item += " (default " + text + ")"
		}
		writeItem(out, item, 180)
	})
}

// cliReference writes docs/reference/cli.md: the exit codes, and every verb with its help, its examples and every flag.
func cliReference() []byte {
	var out bytes.Buffer
	out.WriteString("# Command line\n\nEvery verb of `plan` with its flags, as `--help` has them. Made by `go test ./cmd/plan -run TestReference -record-guards`.\n")
	out.WriteString("\n## Exit codes\n\n| code | when |\n|---|---|\n")
	for code, meaning := range exitMeanings {
		fmt.Fprintf(&out, "| %d | %s |\n", code, meaning)
	}
	out.WriteString("\n## Rules of all verbs\n\n" +
		"- A document of another kind is never overwritten (2).\n" +
		"- A flag that does nothing for the plan's kind is refused (2); in the environment and the file it is ignored.\n")
	for _, c := range verbsOf(newRootCommand()) {
		fmt.Fprintf(&out, "\n## %s\n\n", c.CommandPath())
		if c.Long == "" {
			fmt.Fprintf(&out, "%s.\n", c.Short)
		} else {
			fmt.Fprintf(&out, "```text\n%s\n```\n", strings.TrimSpace(c.Long))
		}
		if c.Example != "" {
			fmt.Fprintf(&out, "\n```text\n%s\n```\n", strings.TrimRight(c.Example, "\n"))
		}
		common, of := flagsByKind(c.LocalFlags())
		writeFlags(&out, "", common)
		for _, kind := range planner.Kinds() {
			if of[kind] != nil {
				writeFlags(&out, "Of "+kind+" plans:\n\n", of[kind])
			}
		}
	}
	return out.Bytes()
}

// docs/reference/cli.md has every flag of every verb.
func TestReference(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "reference", "cli.md")
	want := cliReference()
	if *recordGuards {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is not what the verbs have: make it anew with -record-guards", path)
	}
}

// Every flag is given in a script or in a test of this command, or in one of an exporter or an importer.
func TestEveryFlagIsTried(t *testing.T) {
	var text strings.Builder
	for _, pattern := range []string{"testdata/script/*.txtar", "*_test.go", "../../export/*/*_test.go", "../../importers/*/*_test.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(data)
			text.WriteByte(' ')
		}
	}
	for _, c := range verbsOf(newRootCommand()) {
		for _, f := range ownFlags(c) {
			given := false
			for _, end := range []string{" ", "=", "\"", "\n"} {
				given = given || strings.Contains(text.String(), "--"+f.Name+end) || f.Shorthand != "" && strings.Contains(text.String(), " -"+f.Shorthand+end)
			}
			if !given {
				t.Errorf("%s --%s is in no script and no test", c.CommandPath(), f.Name)
			}
		}
	}
}
