package figures_test

import (
	"cmp"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"inferplan/bench/figures"
)

// root is the folder of the project.
var root = filepath.Join("..", "..")

// instrument is a row of the table in scripts/bench.sh.
type instrument struct{ figures, command string }

// instruments reads the table in scripts/bench.sh.
func instruments(t *testing.T) map[string]instrument {
	t.Helper()
	_, table, _ := strings.Cut(read(t, "scripts/bench.sh"), "<<'END'\n")
	table, _, _ = strings.Cut(table, "\nEND\n")
	out := map[string]instrument{}
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(row), "|")
		if len(cells) != 5 {
			t.Fatalf("scripts/bench.sh: %d cells, expected five: %s", len(cells), row)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out[cells[0]] = instrument{figures: cells[2], command: cells[3]}
	}
	if len(out) < 30 {
		t.Fatalf("%d instruments", len(out))
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The command of every figure is of an instrument that writes its file. What is only shown has no verdict, and no claim
// comes twice.
func TestCommandsMeasureTheirFigures(t *testing.T) {
	table := instruments(t)
	call := regexp.MustCompile(`^make bench NAME=([a-z-]+)(?: ARGS='[^']+')?$`)
	noted := regexp.MustCompile(`^(?:cd sim && )?(?:INFERPLAN_LONG=1 )?(?:go test |make )`)
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "results" {
			return cmp.Or(err, fs.SkipDir)
		}
		if d.Name() != "figures.json" {
			return nil
		}
		files++
		list, err := figures.Read(path)
		claims := map[string]bool{}
		for _, f := range list {
			m := call.FindStringSubmatch(f.Command)
			if path == filepath.Join("..", "figures", "figures.json") {
				if !noted.MatchString(f.Command) || f.Commit != "" {
					t.Errorf("%s: %q: no command, or a commit: %s", path, f.Claim, f.Command)
				}
			} else if m == nil {
				t.Errorf("%s: %q: no call of an instrument: %s", path, f.Claim, f.Command)
			} else if row := table[m[1]]; filepath.Join(root, row.figures) != filepath.Join(root, "bench", path[len("../"):]) {
				t.Errorf("%s: %q: %s writes %q", path, f.Claim, f.Command, row.figures)
			}
			if f.Asked == figures.AskedShown && f.Holds != "" {
				t.Errorf("%s: %q: a verdict on what is only shown", path, f.Claim)
			}
			if claims[f.Claim] {
				t.Errorf("%s: %q twice", path, f.Claim)
			}
			claims[f.Claim] = true
		}
		return err
	})
	if err != nil || files < 15 {
		t.Errorf("%d files, %v", files, err)
	}
}

// Every program in bench/ can be started by make, and every package, script and file of the table is there.
func TestInstrumentsHaveNames(t *testing.T) {
	commands := read(t, "Makefile")
	for name, row := range instruments(t) {
		words := strings.Fields(strings.TrimPrefix(row.command, "nice "))
		commands += "\n" + strings.Join(words, " ") + " "
		for _, word := range words[:min(2, len(words))] {
			if path, _, _ := strings.Cut(word, "="); strings.HasPrefix(path, "scripts/") || strings.HasPrefix(path, "bench/") {
				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	programs := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "main.go" {
			programs++
			if folder := "bench/" + filepath.ToSlash(filepath.Dir(path))[len("../"):]; !strings.Contains(commands, folder+" ") {
				t.Errorf("no target and no instrument starts %s", folder)
			}
		}
		return err
	})
	if err != nil || programs < 20 {
		t.Errorf("%d programs, %v", programs, err)
	}
}

// Documents, comments and messages name targets and instruments that exist.
func TestCommandsInTextsExist(t *testing.T) {
	table, makefile := instruments(t), read(t, "Makefile")
	out, err := exec.Command("git", "-C", root, "ls-files", "*.md", "*.go", "*.sh", "*.yaml", "*.txtar", "*/package.json", ".ci/run").Output()
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile("(?:`|[Rr]un |\\n    |\\n//\t|\\n#? +\\$ )make ([a-z-]+)|\\bmake ([a-z]+-[a-z-]+)")
	name := regexp.MustCompile(`\bmake bench NAME=([a-z0-9-]+)`)
	targets, names := 0, 0
	for _, path := range strings.Fields(string(out)) {
		if path == "bench/figures/command_test.go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		for _, m := range target.FindAllStringSubmatch(string(text), -1) {
			targets++
			if to := cmp.Or(m[1], m[2]); !strings.Contains(makefile, "\n"+to+":") {
				t.Errorf("%s: there is no target %s", path, to)
			}
		}
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			names++
			if _, ok := table[m[1]]; !ok {
				t.Errorf("%s: there is no instrument %s", path, m[1])
			}
		}
	}
	if targets < 60 || names < 60 {
		t.Errorf("%d targets, %d names: not all were seen", targets, names)
	}
}

var (
	quotedTest   = regexp.MustCompile("`([^`\n]*go test [^`\n]*)`")
	testPackage  = regexp.MustCompile(`^(\./[a-z0-9_/]+|\.)$`)
	testSelector = regexp.MustCompile(`-(run|bench|fuzz) '?([^' ]+)'?`)
)

// missingTests lists the tests, Go benchmarks and fuzz targets that a call of go test selects by a name and that its packages do not declare.
func missingTests(call string) (out []string) {
	folder := root
	if strings.HasPrefix(call, "cd sim && ") {
		folder = filepath.Join(root, "sim")
	}
	packages := slices.DeleteFunc(strings.Fields(call), func(word string) bool { return !testPackage.MatchString(word) })
	if len(packages) == 0 {
		packages = []string{"."}
	}
	code := ""
	for _, name := range packages {
		files, _ := filepath.Glob(filepath.Join(folder, name, "*_test.go")) // the pattern is well formed
		for _, path := range files {
			text, _ := os.ReadFile(path) // what cannot be read declares nothing
			code += string(text)
		}
	}
	prefixes := map[string]string{"run": "Test", "bench": "Benchmark", "fuzz": "Fuzz"}
	for _, m := range testSelector.FindAllStringSubmatch(call, -1) {
		for _, name := range strings.Split(m[2], "|") {
			prefix := prefixes[m[1]]
			words := strings.TrimPrefix(strings.Trim(name, "^$"), prefix)
			declared := regexp.MustCompile(`(?m)^func ` + prefix + `\w*` + regexp.QuoteMeta(words))
			if name != "xxx" && name != "." && !declared.MatchString(code) {
				out = append(out, prefix+words)
			}
		}
	}
	return out
}

// Calls of go test, in figures and in pages of benchmarks, select tests that exist.
func TestNamedTestsExist(t *testing.T) {
	list, err := figures.Read("figures.json")
	if err != nil {
		t.Fatal(err)
	}
	callers := map[string]string{} // by call
	for _, f := range list {
		if strings.Contains(f.Command, "go test ") {
			callers[f.Command] = "figures.json: " + f.Claim
		}
	}
	for _, path := range documents(t) {
		if !strings.Contains(filepath.ToSlash(path), "/docs/benchmarks") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range quotedTest.FindAllStringSubmatch(string(text), -1) {
			callers[m[1]] = path
		}
	}
	if len(callers) < 30 {
		t.Errorf("%d calls: not all were seen", len(callers))
	}
	for call, caller := range callers {
		for _, missing := range missingTests(call) {
			t.Errorf("%s: %s: its packages declare no %s", caller, call, missing)
		}
	}
	if found, want := missingTests("INFERPLAN_LONG=1 go test ./bench/figures -run '^TestCommand$|NoSuchTest' -bench xxx -v"), []string{"TestNoSuchTest"}; !slices.Equal(found, want) {
		t.Errorf("found %q, expected %q", found, want)
	}
}

// The lists of targets and of instruments can be read on one screen.
func TestListsFitAScreen(t *testing.T) {
	for _, list := range []struct {
		arguments []string
		lines     int
	}{{[]string{"help"}, 24}, {[]string{"bench", "NAME="}, 48}} {
		make := exec.Command("make", append([]string{"-s", "-C", root}, list.arguments...)...)
		make.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
		out, err := make.Output()
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) < 12 || len(lines) > list.lines {
			t.Errorf("%v: %d lines, expected at most %d", list.arguments, len(lines), list.lines)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > 100 {
				t.Errorf("%v: more than 100 columns: %s", list.arguments, line)
			}
		}
		_, variables, _ := strings.Cut(string(out), "Variables: ")
		if found := regexp.MustCompile(`[A-Z]{2,}`).FindAllString(variables, -1); len(found) > 5 {
			t.Errorf("%v: %d variables, expected at most five: %v", list.arguments, len(found), found)
		}
	}
}

func TestCommand(t *testing.T) {
	for want, args := range map[string]string{
		"make bench NAME=x":                           "-figures f.json -n 3 -fresh",
		"make bench NAME=x ARGS='-n 4'":               "-n 4 -v",
		"make bench NAME=x ARGS='-all=false -gaps'":   "-gaps -all=false",
		"make bench NAME=x ARGS='-only \"^a|b$$\"'":   "-only ^a|b$",
		"make bench NAME=x ARGS='-n 1 -only gear'":    "-n 1 -only gear",
		"make bench NAME=x ARGS='-only flow -n 2' of": "-n 2 -only gear,flow",
	} {
		f := flag.NewFlagSet("x", flag.ContinueOnError)
		f.Int("n", 3, "")
		f.String("only", "", "")
		f.String("figures", "", "")
		for name, value := range map[string]bool{"all": true, "gaps": false, "fresh": false, "v": false} {
			f.Bool(name, value, "")
		}
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		var part []string
		want, ofPart := strings.CutSuffix(want, " of")
		if ofPart {
			part = []string{"only", "flow"}
		}
		if got := figures.Command(f, "x", part...); got != want {
			t.Errorf("%s: found %s, expected %s", args, got, want)
		}
	}
}
