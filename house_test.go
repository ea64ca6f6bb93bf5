package inferplan_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "inferplan"

// doors says which folders the packages of a folder may import beside their
// own. A folder that is not listed must hold no Go code.
var doors = map[string][]string{
	".":        {},
	"cmd":      {"engine", "executor", "formats", "planner", "policy", "profiler", "sim", "solver"},
	"engine":   {"formats"},
	"executor": {"engine", "policy", "formats"},
	"formats":  {},
	"planner":  {"solver", "sim", "policy", "formats"},
	"policy":   {"formats", "solver/stoch"},
	"profiler": {"engine", "formats"},
	"sim":      {"policy", "formats"},
	"solver":   {},
}

// vagueNames are names of packages that say nothing about what is inside.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "base"}

// goFile is what the test looks at in a source file.
type goFile struct {
	path    string // from the root, with slashes
	pkg     string
	imports []string
}

func TestHouse(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d source files found: the walk is broken", len(files))
	}
	for _, v := range violations(files) {
		t.Error(v)
	}
}

// sources reads the package name and imports of all Go files that are not
// tests. Folders that git or the go tool ignore are left out.
func sources(root string) ([]goFile, error) {
	var out []goFile
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != root && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || slices.Contains([]string{"testdata", "node_modules", "third_party", "bin", "dist", "demo"}, base)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		g := goFile{path: filepath.ToSlash(name), pkg: f.Name.Name}
		for _, imp := range f.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			g.imports = append(g.imports, p)
		}
		out = append(out, g)
		return nil
	})
	return out, err
}

// violations lists what the table does not allow.
func violations(files []goFile) []string {
	var out []string
	for _, f := range files {
		folder := path.Dir(f.path)
		top, _, _ := strings.Cut(folder, "/")
		allowed, known := doors[top]
		if !known {
			out = append(out, fmt.Sprintf("%s: folder %s is not in the table of the house", f.path, top))
			continue
		}
		for _, name := range []string{f.pkg, path.Base(folder)} {
			if slices.Contains(vagueNames, name) {
				out = append(out, fmt.Sprintf("%s: the name %s does not say what is inside", f.path, name))
				break
			}
		}
		for _, imp := range f.imports {
			target, ours := strings.CutPrefix(imp, module+"/")
			if !ours || within(target, top) {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return within(target, a) }) {
				out = append(out, fmt.Sprintf("%s: %s may not import %s (allowed: %s)", f.path, top, imp, strings.Join(allowed, ", ")))
			}
		}
	}
	return out
}

// within tells whether a package is folder or inside it.
func within(pkg, folder string) bool {
	return pkg == folder || strings.HasPrefix(pkg, folder+"/")
}

func TestHouseFindsViolations(t *testing.T) {
	for _, c := range []struct {
		file goFile
		want string // "" when allowed
	}{
		{goFile{"cmd/plan/solve.go", "main", []string{"inferplan/planner/pool", "inferplan/executor"}}, ""},
		{goFile{"policy/gear/gear.go", "gear", []string{"inferplan/solver/stoch", "inferplan/policy", "inferplan/formats"}}, ""},
		{goFile{"formats/diff/diff.go", "diff", []string{"inferplan/formats", "math"}}, ""},
		{goFile{"policy/gear/gear.go", "gear", []string{"inferplan/solver/highs"}}, "policy may not import inferplan/solver/highs"},
		{goFile{"policy/gear/gear.go", "gear", []string{"inferplan/solver/stochastic"}}, "policy may not import"},
		{goFile{"formats/diff/diff.go", "diff", []string{"inferplan/policy"}}, "formats may not import inferplan/policy"},
		{goFile{"sim/run.go", "sim", []string{"inferplan/planner"}}, "sim may not import inferplan/planner"},
		{goFile{"executor/run.go", "executor", []string{"inferplan/sim"}}, "executor may not import inferplan/sim"},
		{goFile{"engine/run.go", "engine", []string{"inferplan/cmd/plan"}}, "engine may not import"},
		{goFile{"doc.go", "inferplan", []string{"inferplan/formats"}}, ". may not import"},
		{goFile{"extras/x.go", "extras", nil}, "folder extras is not in the table"},
		{goFile{"sim/util/x.go", "util", nil}, "the name util"},
		{goFile{"sim/common/x.go", "shared", nil}, "the name common"},
	} {
		got := strings.Join(violations([]goFile{c.file}), "\n")
		if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s importing %v: got %q, want %q", c.file.path, c.file.imports, got, c.want)
		}
	}
}
