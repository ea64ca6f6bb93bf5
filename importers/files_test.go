package importers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNamesTellFields(t *testing.T) {
	for _, c := range []struct{ pattern, path, want string }{
		{"{model}_{device}_b{batch}*.json", "runs/resnet50_v2_L4_b16.times.json", "map[batch:16 device:L4 model:resnet50_v2]"},
		{"{model}_{device}_b{batch}*.json", "resnet_RTX-4090_b1.json.gz", "map[batch:1 device:RTX-4090 model:resnet]"},
		{"{device}/{model}/b{batch}-s{share}-*.json", "/data/L4/bert/b4-s2-times.json", "map[batch:4 device:L4 model:bert share:2]"},
		{"*.csv", "a.csv", "map[]"},
		{"{model}_{device}_b{batch}*.json", "resnet_L4.json", "is not like"},
		{"{device}/{model}.json", "bert.json", "is not like"},
		{"{model}.{size}.json", "", "found {size}"},
		{"{model}{model}", "", "each once"},
		{"{}", "", "found {}"},
	} {
		p, err := ParseNames("names", c.pattern)
		got := ""
		if err == nil {
			var fields map[string]string
			fields, err = p.Fields(c.path)
			got = fmt.Sprint(fields)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s of %s: %s, expected %s", c.pattern, c.path, got, c.want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("{model}_{device}_b{batch}*.json", "resnet_L4_b1.json")
	f.Add("{device}/{model}/b{batch}-*", "L4/bert/b4-x")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		p, err := ParseNames("names", pattern)
		if err != nil {
			return
		}
		fields, err := p.Fields(path)
		for name, value := range fields {
			if err == nil && (value == "" || !strings.Contains(filepath.ToSlash(path), value) || !strings.Contains(pattern, "{"+name+"}")) {
				t.Fatalf("%s of %q is %q", name, path, value)
			}
		}
	})
}

// Folders are read with what is below them, patterns are expanded, and each file is taken once.
func TestFilesOf(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a/x.json", "a/b/y.json.gz", "a/z.txt", "c.json"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"a c.json":       "[a/b/y.json.gz a/x.json c.json]",
		"*.json c.json":  "[c.json]",
		"a/*":            "[a/b/y.json.gz a/x.json a/z.txt]",
		"absent.json":    "[absent.json]",
		"*.csv":          "found no file of such a name",
		"a/b c.json a/b": "[a/b/y.json.gz c.json]",
		"[":              "syntax error in pattern",
	} {
		got, err := FilesOf(strings.Fields(args), ".json")
		text := fmt.Sprint(got)
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s, expected %s", args, text, want)
		}
	}
	if err := os.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := FilesOf([]string{"empty"}, ".json"); err == nil || !strings.Contains(err.Error(), "ends in .json") {
		t.Error(err)
	}
}
