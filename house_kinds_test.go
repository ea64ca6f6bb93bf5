package inferplan_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"inferplan/formats"
)

// rooms are the kinds of plans that stand, with the names of package formats
// that are theirs alone. A kind's own folders and files may use them; so may the
// tables and the upgrade of old documents. Nothing else asks which kind a plan is.
// This is the only list of kinds that is written by hand for tests to expect.
var rooms = map[string][]string{
	"pool":  {"PlanPool", "PoolPlan", "PoolOf", "WorkloadModels", "ModelsOf"},
	"gear":  {"PlanGear", "GearPlan", "GearOf", "Cascade", "CascadeOf"},
	"queue": {"PlanQueue", "QueuePlan", "QueueOf", "QueueEstimate", "QueueOperation", "LLM", "LLMOf"},
	"flow":  {"PlanFlow", "FlowPlan", "FlowOf", "Applications", "ApplicationsOf"},
}

// tables list the kinds. A new kind adds a line to each.
var tables = []string{"formats/sections.go", "formats/upgrade.go", "planner/kinds.go", "policy/policies/policies.go", "cmd/plan/kindflags.go"}

// roomed are the folders in which a file or folder with a kind's name is a room
// of that kind. planner/X and policy/X are rooms as a whole.
var roomed = []string{"formats", "policy", "sim", "executor", "bench", "testkit", "export", "importers"}

// inRoom tells whether a file is in a room of a kind.
func inRoom(file, kind string) bool {
	if within(path.Dir(file), "planner/"+kind) || within(path.Dir(file), "policy/"+kind) {
		return true
	}
	top, rest, _ := strings.Cut(file, "/")
	if !slices.Contains(roomed, top) {
		return false
	}
	if top == "bench" || top == "testkit" || top == "export" {
		return true // an instrument is about what it measures, a test about what it holds, an exporter about what its target can run
	}
	for part := range strings.SplitSeq(rest, "/") {
		if strings.HasPrefix(part, kind) {
			return true
		}
	}
	return false
}

// asked lists where a file outside the rooms asks of which kind a plan is.
func asked(file string, tree *ast.File, at func(token.Pos) int) []string {
	var out []string
	if slices.Contains(tables, file) || strings.HasSuffix(file, "_testkind.go") {
		return nil
	}
	say := func(pos token.Pos, format string, args ...any) {
		out = append(out, fmt.Sprintf("%s:%d: %s", file, at(pos), fmt.Sprintf(format, args...)))
	}
	own := strings.HasPrefix(file, "formats/") && !strings.Contains(strings.TrimPrefix(file, "formats/"), "/")
	ast.Inspect(tree, func(n ast.Node) bool {
		name := ""
		switch x := n.(type) {
		case *ast.SelectorExpr:
			if from, ok := x.X.(*ast.Ident); ok && from.Name == "formats" {
				name = x.Sel.Name
			}
		case *ast.Ident:
			if own {
				name = x.Name
			}
		case *ast.BinaryExpr:
			if kind := comparedKind(x); kind != "" && !inRoom(file, kind) {
				say(x.Pos(), "compares a kind with %q", kind)
			}
		}
		for kind, names := range rooms {
			if slices.Contains(names, name) && !inRoom(file, kind) {
				say(n.Pos(), "%s belongs to the rooms of %s", name, kind)
			}
		}
		return true
	})
	return out
}

// comparedKind is the kind that a comparison asks for; empty for other
// comparisons.
func comparedKind(x *ast.BinaryExpr) string {
	if x.Op != token.EQL && x.Op != token.NEQ {
		return ""
	}
	for _, pair := range [][2]ast.Expr{{x.X, x.Y}, {x.Y, x.X}} {
		field, ok := pair[0].(*ast.SelectorExpr)
		text, lit := pair[1].(*ast.BasicLit)
		if !ok || !lit || field.Sel.Name != "Kind" {
			continue
		}
		if kind := strings.Trim(text.Value, `"`); rooms[kind] != nil {
			return kind
		}
	}
	return ""
}

// optional are tables that a kind has a line in only where it differs there.
var optional = []string{"sim/endings.go", "executor/kinds.go"}

// TestEveryKindHasRooms holds the tables of this file against the kinds that
// there are, and the pages that list kinds or tables against both.
func TestEveryKindHasRooms(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(rooms))
	for what, list := range map[string][]string{"the table of plan kinds": formats.PlanKinds(), "the table of what workloads ask for": formats.WorkloadKinds()} {
		if slices.Sort(list); !slices.Equal(list, kinds) {
			t.Errorf("%s has %q, expected %q", what, list, kinds)
		}
	}
	for _, kind := range kinds {
		for _, folder := range []string{"planner/" + kind, "planner/" + kind + "/verify"} {
			if arrows[folder] == nil {
				t.Errorf("arrows does not list %s", folder)
			}
		}
	}
	for page, rows := range map[string][]string{"README.md": kinds, "docs/architecture.md": slices.Concat(kinds, tables, optional)} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if !regexp.MustCompile("(?m)^\\|.*`" + regexp.QuoteMeta(row) + "`").Match(text) {
				t.Errorf("no table of %s has %s", page, row)
			}
		}
	}
}

// TestKindsKeepToTheirRooms reads every file that is not a test.
func TestKindsKeepToTheirRooms(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, f.path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range asked(f.path, tree, func(p token.Pos) int { return fset.Position(p).Line }) {
			t.Error(v)
		}
	}
}

func TestAskedFindsKinds(t *testing.T) {
	for _, c := range []struct {
		file, code, want string
	}{
		{"sim/run.go", `import "inferplan/formats"; var x = formats.PlanGear`, "PlanGear belongs to the rooms of gear"},
		{"sim/gear.go", `import "inferplan/formats"; var x = formats.PlanGear`, ""},
		{"planner/pool/write.go", `import "inferplan/formats"; var x = formats.PoolOf(nil)`, ""},
		{"planner/pool/write.go", `import "inferplan/formats"; var x = formats.GearOf(nil) != nil`, "GearOf belongs"},
		{"planner/kinds.go", `import "inferplan/formats"; var x = formats.PlanGear`, ""},
		{"cmd/plan/solve.go", `type p struct{ Kind string }; func f(x p) bool { return x.Kind == "pool" }`, "compares a kind with \"pool\""},
		{"cmd/plan/solve.go", `type p struct{ Kind string }; func f(x p) bool { return x.Kind == "L4" }`, ""},
		{"formats/validate_plan.go", `var x = PlanPool`, "PlanPool belongs"},
		{"formats/pool.go", `var x = PlanPool`, ""},
		{"formats/diff/gear.go", `import "inferplan/formats"; var x = formats.GearOf(nil)`, ""},
	} {
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, c.file, "package x; "+c.code, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(asked(c.file, tree, func(token.Pos) int { return 1 }), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.file, got, c.want)
		}
	}
}

// arrows says which of our packages the packages of a folder may import, beside
// what stands in the table of the house. The longest folder that holds the
// package counts.
var arrows = map[string][]string{
	"planner/kind":            {"planner/lists", "formats", "solver/milp"},
	"planner/stages":          {"planner/lists", "formats", "solver/milp"},
	"planner/certify":         {"planner/lists", "formats", "planner/kind", "sim", "solver/milp", "solver/stoch"},
	"planner/recompute":       {"formats", "planner/kind"},
	"planner/moves":           {"planner/lists", "formats", "planner/kind", "solver/milp"},
	"planner/pool":            {"planner/lists", "formats", "planner/kind", "planner/certify", "planner/stages", "planner/pool", "policy", "sim", "solver"},
	"planner/pool/problem":    {"planner/lists", "formats", "planner/kind", "planner/stages", "solver/milp"},
	"planner/pool/templates":  {"planner/lists", "planner/kind", "planner/stages", "planner/pool/problem"},
	"planner/pool/relaxation": {"planner/lists", "formats", "planner/kind", "planner/stages", "planner/pool/problem", "planner/pool/templates", "solver/milp"},
	"planner/pool/placement":  {"planner/lists", "planner/stages", "planner/pool/problem", "planner/pool/templates", "solver/milp"},
	"planner/pool/programs":   {"planner/lists", "planner/stages", "planner/pool/problem", "planner/pool/templates", "planner/pool/relaxation", "planner/pool/placement", "solver/milp"},
	"planner/pool/incumbent":  {"planner/lists", "planner/stages", "planner/pool/problem", "planner/pool/templates", "planner/pool/relaxation", "planner/pool/placement", "planner/pool/programs"},
	"planner/pool/losses":     {"planner/lists", "planner/pool/problem", "planner/pool/templates", "planner/pool/relaxation", "planner/pool/placement", "planner/pool/incumbent", "solver/milp"},
	"planner/pool/bundles":    {"planner/lists", "planner/pool/problem", "planner/pool/templates", "planner/pool/relaxation", "planner/pool/placement", "planner/pool/incumbent", "solver/milp"},
	"planner/pool/search":     {"planner/lists", "formats", "planner/kind", "planner/stages", "planner/pool/problem", "planner/pool/templates", "planner/pool/relaxation", "planner/pool/placement", "planner/pool/programs", "planner/pool/incumbent", "planner/pool/losses", "planner/pool/bundles", "solver/milp"},
	"planner/pool/documents":  {"planner/lists", "formats", "planner/kind", "planner/stages", "planner/pool/problem", "planner/pool/templates", "policy/reserve", "solver/milp"},
	"planner/pool/headroom":   {"planner/lists", "formats", "planner/kind", "planner/certify", "planner/pool/problem", "planner/pool/documents", "sim", "solver"},
	"planner/pool/verify":     {"formats", "planner/kind", "planner/recompute"},
	"planner/gear":            {"planner/lists", "formats", "planner/certify", "planner/kind", "planner/moves", "planner/stages", "planner/gear", "policy", "sim", "solver"},
	"planner/gear/cascades":   {"planner/lists", "formats", "planner/stages", "policy/gear", "solver"},
	"planner/gear/planspace":  {"planner/lists", "planner/gear/cascades", "planner/stages", "solver"},
	"planner/gear/placement":  {"planner/lists", "planner/gear/cascades", "planner/gear/planspace", "solver"},
	"planner/gear/trials":     {"planner/lists", "formats", "planner/gear/cascades", "planner/gear/planspace", "planner/gear/placement", "policy", "sim", "solver"},
	"planner/gear/bounds":     {"planner/lists", "planner/gear/cascades", "planner/gear/planspace", "planner/gear/placement", "solver"},
	"planner/gear/ranges":     {"planner/lists", "planner/gear/cascades", "planner/gear/planspace", "planner/gear/placement", "planner/gear/trials", "solver"},
	"planner/gear/search":     {"planner/lists", "planner/gear/cascades", "planner/gear/planspace", "planner/gear/placement", "planner/gear/trials", "planner/gear/bounds", "planner/gear/ranges", "solver"},
	"planner/gear/verify":     {"formats", "planner/kind", "planner/recompute", "policy", "sim"},
	"planner/queue":           {"planner/lists", "formats", "planner/kind", "planner/certify", "planner/queue", "policy", "sim", "solver"},
	"planner/queue/verify":    {"formats", "planner/kind", "planner/recompute", "policy", "sim"},
	"planner/flow":            {"planner/lists", "formats", "planner/kind", "planner/moves", "planner/certify", "planner/stages", "planner/flow", "policy", "sim", "solver"},
	"planner/flow/verify":     {"formats", "planner/kind", "planner/recompute", "policy"},
	"executor/turn":           {"engine", "executor/drift", "executor/durable", "executor/httplimit", "executor/loop", "executor/oip", "executor/series", "executor/tracing", "formats", "policy"},
	"executor/live":           {"formats"},
	"executor/cascade":        {"engine/certainty", "executor/drift", "executor/oip", "executor/series", "executor/turn", "formats", "policy"},
	"executor/programs":       {"executor/calls", "executor/oip", "executor/turn", "formats", "policy"},
	"executor/tasks":          {"engine", "executor/httplimit", "executor/oip", "executor/series", "executor/steps", "executor/turn", "formats", "policy"},
	"executor/text":           {"engine/llm", "executor/completions", "executor/drift", "executor/durable", "executor/httplimit", "executor/oip", "executor/series", "executor/steps", "executor/tracing", "executor/turn", "formats", "policy"},
	"executor/workers":        {"engine", "executor/oip", "executor/turn", "formats", "policy"},
	"planner/check":           {"planner/lists", "formats", "planner", "planner/certify", "planner/kind", "planner/recompute", "solver/milp"},
	"planner/explain":         {"planner/lists", "formats", "planner", "planner/kind"},
}

// wrongArrows lists imports that the table of arrows does not allow.
func wrongArrows(files []goFile) []string {
	var out []string
	for _, f := range files {
		folder, allowed := "", []string(nil)
		for at, list := range arrows {
			if within(path.Dir(f.path), at) && len(at) > len(folder) {
				folder, allowed = at, list
			}
		}
		if folder == "" {
			continue
		}
		for _, imp := range f.imports {
			target, ours := strings.CutPrefix(imp, module+"/")
			if !ours || target == path.Dir(f.path) {
				continue
			}
			ok := slices.ContainsFunc(allowed, func(a string) bool {
				if strings.HasPrefix(a, "planner") {
					return target == a || a == folder && within(target, a)
				}
				return within(target, a)
			})
			if !ok {
				out = append(out, fmt.Sprintf("%s: %s may not import %s (allowed: %s)", f.path, folder, imp, strings.Join(allowed, ", ")))
			}
		}
	}
	return out
}

func TestArrows(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range wrongArrows(files) {
		t.Error(v)
	}
	for _, c := range []struct {
		file goFile
		want string
	}{
		{goFile{path: "planner/gear/chains.go", imports: []string{"inferplan/planner/stages"}}, ""},
		{goFile{path: "planner/gear/chains.go", imports: []string{"inferplan/planner/pool"}}, "planner/gear may not import inferplan/planner/pool"},
		{goFile{path: "planner/gear/trials/trial.go", imports: []string{"inferplan/planner/gear/placement"}}, ""},
		{goFile{path: "planner/gear/trials/trial.go", imports: []string{"inferplan/planner/gear/search"}}, "planner/gear/trials may not import inferplan/planner/gear/search"},
		{goFile{path: "planner/pool/verify/verify.go", imports: []string{"inferplan/planner/pool"}}, "planner/pool/verify may not import"},
		{goFile{path: "planner/pool/method.go", imports: []string{"inferplan/planner/pool/verify"}}, ""},
		{goFile{path: "planner/pool/method.go", imports: []string{"inferplan/planner"}}, "may not import inferplan/planner "},
		{goFile{path: "planner/kind/method.go", imports: []string{"inferplan/solver/highs"}}, "planner/kind may not import"},
	} {
		got := strings.Join(wrongArrows([]goFile{c.file}), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s importing %v: got %q, want %q", c.file.path, c.file.imports, got, c.want)
		}
	}
}

// named finds the files that the comment of a doc.go names: the first word of an
// indented line, and what stands in a sentence like search.go.
var named = regexp.MustCompile(`[a-z][a-z0-9_/]*\.go\b`)

// TestDocNamesFilesThatExist reads every doc.go.
func TestDocNamesFilesThatExist(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if path.Base(f.path) != "doc.go" {
			continue
		}
		text, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllString(string(text), -1) {
			_, here := os.Stat(filepath.Join(filepath.Dir(f.path), name))
			_, root := os.Stat(name)
			if here != nil && root != nil {
				t.Errorf("%s names %s, which does not exist", f.path, name)
			}
		}
	}
}

// generated are the folders of generated code, with what it is generated from.
var generated = map[string]string{
	"executor/oip/oippb":  "executor/oip/oippb/oip.proto",
	"engine/graph/onnxpb": "engine/graph/onnxpb/onnx.proto",
}

// TestGeneratedCodeIsCurrent compares the source with the digest that the
// generating script kept beside its output.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	for folder, source := range generated {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(source + ".sha256")
		if err != nil {
			t.Errorf("%s/generate.sh keeps the digest of what it generated from: %v", folder, err)
			continue
		}
		if sum := sha256.Sum256(text); strings.Fields(string(kept))[0] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has changed since %s was generated: run %s/generate.sh", source, folder, folder)
		}
	}
}
