package figures_test

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"inferplan/bench/figures"
)

// Documents say what the files say.
func TestDocumentsShowTheFigures(t *testing.T) {
	for _, bench := range []string{"attack", "exported"} {
		document := filepath.Join("..", "..", "docs", "benchmarks", bench+".md")
		list, err := figures.Read(filepath.Join("..", bench, "figures.json"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		table, ok := figures.Shown(string(text), bench)
		if want := figures.Table(list); !ok || len(list) == 0 || table != want {
			t.Errorf("%s does not show bench/%s/figures.json; expected\n%s", document, bench, want)
		}
		for _, f := range list {
			if f.Claim == "" || f.Source == "" || f.Command == "" || f.Commit == "" || f.Machine == "" {
				t.Errorf("bench/%s/figures.json: incomplete: %+v", bench, f)
			}
			if (f.Holds == figures.No || f.Holds == figures.Partly) && f.Note == "" {
				t.Errorf("bench/%s/figures.json: %q falls short without a reason", bench, f.Claim)
			}
		}
	}
}

// The command of every figure is a target of the Makefile, which uses the variable that the flags are in.
// What is only shown has no verdict, and no claim comes twice.
func TestCommandsAreOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`^make ([a-z-]+)(?: ([A-Z]+)=(?:'[^']+'|[^' ]+))?$`)
	files := 0
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
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
			if m == nil {
				t.Errorf("%s: %q: no call of make: %s", path, f.Claim, f.Command)
				continue
			}
			_, rule, ok := strings.Cut(string(makefile), "\n"+m[1]+":")
			if rule, _, _ = strings.Cut(rule, "\n\n"); !ok || m[2] != "" && !strings.Contains(rule, "$("+m[2]+")") {
				t.Errorf("%s: %q: the Makefile has nothing like %s", path, f.Claim, f.Command)
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

func TestCommand(t *testing.T) {
	for want, args := range map[string]string{
		"make bench-x":                        "-figures f.json -n 3 -fresh",
		"make bench-x X='-n 4'":               "-n 4 -v",
		"make bench-x X='-all=false -gaps'":   "-gaps -all=false",
		"make bench-x X='-only \"^a|b$$\"'":   "-only ^a|b$",
		"make bench-x X='-n 1 -only gear'":    "-n 1 -only gear",
		"make bench-x X='-only flow -n 2' of": "-n 2 -only gear,flow",
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
		if got := figures.Command(f, "bench-x", "X", part...); got != want {
			t.Errorf("%s: found %s, expected %s", args, got, want)
		}
	}
}

// A run replaces figures by claim. Of its command those that it does not measure go, of others
// they stay.
func TestPutReplacesWhatItsCommandMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	put := func(command string, claims ...string) {
		t.Helper()
		var list []figures.Figure
		for _, claim := range claims {
			list = append(list, figures.Figure{Claim: claim, Measured: float64(len(claims)), Asked: figures.AskedShown, Holds: figures.Yes})
		}
		if err := figures.Put(path, command, list...); err != nil {
			t.Fatal(err)
		}
	}
	found := func() string {
		t.Helper()
		list, err := figures.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, f := range list {
			if f.Holds != "" {
				t.Errorf("%q has a verdict", f.Claim)
			}
			out = append(out, fmt.Sprintf("%s of %s %g", f.Claim, f.Command, f.Measured))
		}
		return strings.Join(out, "; ")
	}
	put("whole", "a", "b", "c")
	put("part", "d")
	put("part", "b", "e") // d goes; b is the part's now
	if got, want := found(), "a of whole 3; b of part 2; c of whole 3; e of part 2"; got != want {
		t.Errorf("found %s, expected %s", got, want)
	}
	put("whole", "a", "b") // c goes
	if got, want := found(), "a of whole 2; b of whole 2; e of part 2"; got != want {
		t.Errorf("found %s, expected %s", got, want)
	}
}

func TestPutAndTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	first := figures.Figure{Claim: "a", Source: "s", Measured: 1, Holds: figures.No, Note: "why"}
	second := figures.Figure{Claim: "b", Source: "s", Asked: "at most 2", Measured: 1.23456, Interval: &[2]float64{1, 2}, Unit: "s", Holds: figures.Partly}
	if err := figures.Put(path, "c", first, second); err != nil {
		t.Fatal(err)
	}
	first.Measured, first.Holds, first.Note, first.Command = 3, figures.Yes, "", "own"
	if err := figures.Put(path, "d", first); err != nil {
		t.Fatal(err)
	}
	list, err := figures.Read(path)
	if err != nil || len(list) != 2 || list[0].Measured != 3 || list[0].Commit == "" || list[0].Command != "own" || list[1].Holds != figures.Partly {
		t.Fatalf("%+v, %v", list, err)
	}
	want := "| what | asked | measured | holds |\n|---|---|---|---|\n| a |  | 3 | yes |\n| b | at most 2 | **1.235 s (1 to 2)** | **partly** |\n"
	if got := figures.Table(list); got != want {
		t.Errorf("found\n%sexpected\n%s", got, want)
	}
	doc := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(doc, []byte("before\n<!-- figures of bench/x -->\nold\n<!-- end of figures -->\nafter\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := figures.Show(doc, "x", list); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(doc)
	if table, ok := figures.Shown(string(text), "x"); err != nil || !ok || table != want || !strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") {
		t.Errorf("%s, %v", text, err)
	}
	if err := figures.Show(doc, "y", list); err == nil {
		t.Error("a document without a place is taken")
	}
	if err := os.WriteFile(path, []byte(`[{"holds":"maybe"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := figures.Read(path); err == nil || !strings.Contains(err.Error(), "maybe") {
		t.Errorf("a verdict that is none: %v", err)
	}
}
