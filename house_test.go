package inferplan_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
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
	".":         {},
	"bench":     {"cmd", "cputime", "engine", "executor", "export", "formats", "importers", "pages", "planner", "policy", "profiler", "sim", "solver", "testkit"},
	"cmd":       {"bench", "cputime", "engine", "executor", "export", "formats", "importers", "pages", "planner", "policy", "profiler", "sim", "solver"},
	"cputime":   {},
	"engine":    {"formats"},
	"executor":  {"engine", "policy", "formats"},
	"export":    {"engine", "formats"},
	"formats":   {},
	"importers": {"engine", "formats", "planner", "policy", "profiler"},
	"pages":     {"formats"},
	"planner":   {"cputime", "solver", "sim", "policy", "formats"},
	"policy":    {"formats", "solver/stoch"},
	"profiler":  {"engine", "formats", "sim"},
	"sim":       {"policy", "formats"},
	"solver":    {"cputime"},
	"testkit":   {"engine", "executor", "formats", "planner", "policy", "sim", "solver"},
}

// vagueNames are names of packages that say nothing about what is inside.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "base"}

// goFile is what the test looks at in a source file.
type goFile struct {
	path    string // from the root, with slashes
	pkg     string
	imports []string
	doc     bool // has the comment that describes the package
	tests   bool // it is built for tests alone
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
	ours, err := sources("third_party/trimfatbin") // all that is ours there; the rest is fetched
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range undescribed(append(files, ours...)) {
		t.Error(v)
	}
}

// Draws that failed once are not in the repository: property tests would repeat them on every machine.
func TestNoFailedDrawsAreCommitted(t *testing.T) {
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("no checkout of git")
	}
	list, err := exec.Command("git", "ls-files", "*/testdata/rapid/*.fail").Output()
	if err != nil || len(list) > 0 {
		t.Errorf("%v: expected no files of failed draws, found:\n%s", err, list)
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
		f, err := parser.ParseFile(fset, name, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		g := goFile{path: filepath.ToSlash(name), pkg: f.Name.Name, doc: f.Doc != nil, tests: forTests(f)}
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

// forTests says whether a file is built with the tag of a kind of plan that tests alone have.
func forTests(f *ast.File) bool {
	return slices.ContainsFunc(f.Comments, func(c *ast.CommentGroup) bool { return c.List[0].Text == "//go:build testkind" })
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
			if f.tests && within(target, "testkit") {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return within(target, a) }) {
				out = append(out, fmt.Sprintf("%s: %s may not import %s (allowed: %s)", f.path, top, imp, strings.Join(allowed, ", ")))
			}
		}
	}
	return out
}

// reached returns the packages that a package imports, and what these import.
func reached(files []goFile, pkg string) map[string]bool {
	imports := map[string][]string{}
	for _, f := range files {
		if f.tests {
			continue
		}
		imports[path.Dir(f.path)] = append(imports[path.Dir(f.path)], f.imports...)
	}
	found, open := map[string]bool{}, []string{pkg}
	for len(open) > 0 {
		next := open[0]
		open = open[1:]
		for _, imp := range imports[next] {
			if target, ours := strings.CutPrefix(imp, module+"/"); ours && !found[target] {
				found[target] = true
				open = append(open, target)
			}
		}
	}
	return found
}

// TestProductKeepsOffTheTestkit follows the imports of the command plan, those of
// instruments that it runs among them.
func TestProductKeepsOffTheTestkit(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	product := reached(files, "cmd/plan")
	if !product["executor"] || !product["engine/worker"] {
		t.Fatal("cmd/plan does not reach executor and engine/worker: the walk is broken")
	}
	for pkg := range product {
		if within(pkg, "testkit") {
			t.Errorf("cmd/plan reaches %s, which is for tests and instruments", pkg)
		}
	}
	chain := []goFile{
		{path: "cmd/plan/main.go", imports: []string{"inferplan/bench/x", "fmt"}},
		{path: "bench/x/x.go", imports: []string{"inferplan/testkit/y"}},
	}
	if got := reached(chain, "cmd/plan"); !got["testkit/y"] || got["fmt"] {
		t.Errorf("reached %v, expected bench/x and testkit/y", got)
	}
}

// undescribed lists packages that are not described in their doc.go, and there
// alone.
func undescribed(files []goFile) []string {
	var out []string
	described, seen := map[string]bool{}, []string{}
	for _, f := range files {
		folder, name := path.Split(f.path)
		if !slices.Contains(seen, folder) {
			seen = append(seen, folder)
		}
		switch {
		case f.doc && name == "doc.go":
			described[folder] = true
		case f.doc:
			out = append(out, f.path+": the package's comment belongs in doc.go")
		}
	}
	for _, folder := range seen {
		if !described[folder] {
			out = append(out, folder+"doc.go: missing, or without a comment that describes the package")
		}
	}
	return out
}

func TestUndescribed(t *testing.T) {
	for _, c := range []struct {
		files []goFile
		want  string
	}{
		{[]goFile{{path: "a/doc.go", doc: true}, {path: "a/b.go"}, {path: "doc.go", doc: true}}, ""},
		{[]goFile{{path: "a/doc.go", doc: true}, {path: "a/b.go", doc: true}}, "a/b.go: the package's comment belongs in doc.go"},
		{[]goFile{{path: "a/doc.go"}, {path: "a/b.go"}}, "a/doc.go: missing, or without a comment"},
		{[]goFile{{path: "a/doc.go", doc: true}, {path: "a/c/b.go"}}, "a/c/doc.go: missing"},
	} {
		got := strings.Join(undescribed(c.files), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%v: got %q, want %q", c.files, got, c.want)
		}
	}
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
		{goFile{path: "cmd/plan/solve.go", pkg: "main", imports: []string{"inferplan/planner/pool", "inferplan/executor"}}, ""},
		{goFile{path: "bench/gear/main.go", pkg: "main", imports: []string{"inferplan/planner/gear", "inferplan/sim"}}, ""},
		{goFile{path: "planner/gear/front.go", pkg: "gear", imports: []string{"inferplan/bench/gear/baseline"}}, "planner may not import inferplan/bench/gear/baseline"},
		{goFile{path: "policy/gear/gear.go", pkg: "gear", imports: []string{"inferplan/solver/stoch", "inferplan/policy", "inferplan/formats"}}, ""},
		{goFile{path: "formats/diff/diff.go", pkg: "diff", imports: []string{"inferplan/formats", "math"}}, ""},
		{goFile{path: "policy/gear/gear.go", pkg: "gear", imports: []string{"inferplan/solver/highs"}}, "policy may not import inferplan/solver/highs"},
		{goFile{path: "policy/gear/gear.go", pkg: "gear", imports: []string{"inferplan/solver/stochastic"}}, "policy may not import"},
		{goFile{path: "formats/diff/diff.go", pkg: "diff", imports: []string{"inferplan/policy"}}, "formats may not import inferplan/policy"},
		{goFile{path: "sim/run.go", pkg: "sim", imports: []string{"inferplan/planner"}}, "sim may not import inferplan/planner"},
		{goFile{path: "executor/run.go", pkg: "executor", imports: []string{"inferplan/sim"}}, "executor may not import inferplan/sim"},
		{goFile{path: "engine/run.go", pkg: "engine", imports: []string{"inferplan/cmd/plan"}}, "engine may not import"},
		{goFile{path: "executor/run.go", pkg: "executor", imports: []string{"inferplan/testkit/llm/fake"}}, "executor may not import"},
		{goFile{path: "doc.go", pkg: "inferplan", imports: []string{"inferplan/formats"}}, ". may not import"},
		{goFile{path: "extras/x.go", pkg: "extras", imports: nil}, "folder extras is not in the table"},
		{goFile{path: "sim/util/x.go", pkg: "util", imports: nil}, "the name util"},
		{goFile{path: "sim/common/x.go", pkg: "shared", imports: nil}, "the name common"},
	} {
		got := strings.Join(violations([]goFile{c.file}), "\n")
		if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s importing %v: got %q, want %q", c.file.path, c.file.imports, got, c.want)
		}
	}
}
